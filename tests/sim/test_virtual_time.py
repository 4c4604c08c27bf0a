"""Virtual time does what real time does, only at once; and what would hang is named."""

from __future__ import annotations

import asyncio

import pytest
from tests.support import virtual_time
from tests.support.virtual_time import DeadlockError, VirtualClock, VirtualTimeLoop


def test_timers_fire_in_their_order_and_at_their_time() -> None:
    async def main() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        seen: list[tuple[str, float]] = []

        async def note(name: str, *delays: float) -> None:
            for delay in delays:
                await asyncio.sleep(delay)
                seen.append((name, loop.time()))

        await asyncio.gather(note("a", 10, 10), note("b", 15), note("c", 86_400 * 3))
        return seen

    assert virtual_time.run(main()) == [("a", 10), ("b", 15), ("a", 20), ("c", 86_400 * 3)]


def test_a_deadline_passes() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert virtual_time.run(main()) == 30


def test_the_clock_goes_with_the_loop() -> None:
    async def main() -> tuple[float, int, int]:
        clock = VirtualClock(asyncio.get_running_loop(), wall_ms=5_000)
        await asyncio.sleep(1.5)
        return clock.monotonic(), clock.wall_ms(), clock.wall_ns()

    assert virtual_time.run(main()) == (1.5, 6_500, 6_500_000_000)


def test_a_stall_makes_every_timer_late() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.call_later(1, loop.stall, 100)
        await asyncio.sleep(2)
        return loop.time()

    assert virtual_time.run(main()) == 101


def test_work_for_a_thread_is_done_in_place() -> None:
    def fails() -> None:
        raise ZeroDivisionError

    async def main() -> int:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(fails)
        return await asyncio.to_thread(len, "four")

    assert virtual_time.run(main()) == 4


def test_a_deadlock_names_what_hangs() -> None:
    async def main() -> None:
        waiting = asyncio.create_task(asyncio.Event().wait(), name="the one that waits")
        await waiting

    with pytest.raises(DeadlockError, match=r"nothing will ever happen again.*\n.*\n  the one that waits: Event\.wait"):
        virtual_time.run(main())


def test_a_heartbeat_does_not_hide_a_hang() -> None:
    async def main() -> None:
        async def beat() -> None:
            while True:
                await asyncio.sleep(30)

        beating = asyncio.create_task(beat(), name="heart")
        await asyncio.Event().wait()
        beating.cancel()

    with pytest.raises(DeadlockError, match=r"not over after 3600 s; these tasks wait"):
        virtual_time.run(main(), limit=3600)


def test_a_loop_that_never_lets_time_pass_is_named() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(DeadlockError, match="time stands still at 0"):
        virtual_time.run(main())


def test_what_nobody_handles_is_a_failure() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(1, lambda: 1 // 0)
        await asyncio.sleep(2)

    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        virtual_time.run(main())
