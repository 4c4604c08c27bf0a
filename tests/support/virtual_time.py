"""An event loop on virtual time: when nothing is ready, its clock jumps to the next timer. Nobody ever sleeps.

A run of an hour takes as long as its callbacks, and the same seed gives the same run. When nothing is ready and no
timer is set, nothing can ever happen again: that is a ``DeadlockError``, which names what hangs. So is a run that goes
on for longer than its limit, because something beats for ever while the rest waits.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

MAX_STEPS_IN_NO_TIME = 20_000
"""Turns of the loop after which time that stands still is taken for a loop that never ends."""


class DeadlockError(AssertionError):
    """Nothing is ready and no timer is set; or time stands still while callbacks follow each other without end; or the
    limit has passed."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Starts at second 0. Threads are replaced by calls in place: the order of everything is the same in each run."""

    def __init__(self, limit: float = math.inf) -> None:
        self._now = 0.0
        self.limit = limit
        self.unhandled: list[dict[str, Any]] = []
        super().__init__(_NoWaiting(self))

    def time(self) -> float:
        return self._now

    def stall(self, seconds: float) -> None:
        """Time passes while nothing runs, as for a process that was stopped."""
        self._now += seconds

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keeps what asyncio would only log: a callback that failed, a task that nobody awaited."""
        self.unhandled.append(context)

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Calls ``func`` now; nothing may come back from a real thread, for which virtual time would not wait."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - the caller's to handle, as with a thread
            future.set_exception(error)
        return future


class _NoWaiting(selectors.DefaultSelector):
    """Moves the loop's clock by as much as the loop wants to wait."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop
        self._steps = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise DeadlockError(f"nothing will ever happen again; {_what_hangs(self._loop)}")
        if self._loop.time() + timeout > self._loop.limit:
            limit, self._loop.limit = self._loop.limit, math.inf  # what follows is the cleaning up
            raise DeadlockError(f"not over after {limit} s; {_what_hangs(self._loop)}")
        if timeout > 0:
            self._steps = 0
            self._loop.stall(timeout)
        self._steps += 1
        if self._steps > MAX_STEPS_IN_NO_TIME:
            raise DeadlockError(f"time stands still at {self._loop.time()} s; {_what_hangs(self._loop)}")
        return list(super().select(0))


def _what_hangs(loop: asyncio.AbstractEventLoop) -> str:
    lines = []
    for task in sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name()):
        frames = task.get_stack(limit=1)
        place = f"{frames[0].f_code.co_qualname}, line {frames[0].f_lineno}" if frames else "not started"
        lines.append(f"  {task.get_name()}: {place}")
    return "\n".join(["these tasks wait:", *lines])


class VirtualClock:
    """Implements ``durable_crawler.clock.Clock`` with the loop's time; begins at an arbitrary but fixed wall time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wall_ms: int = 1_800_000_000_000) -> None:
        self._loop = loop
        self._wall_ns = wall_ms * 1_000_000

    def monotonic(self) -> float:
        return self._loop.time()

    def wall_ms(self) -> int:
        return self.wall_ns() // 1_000_000

    def wall_ns(self) -> int:
        return self._wall_ns + round(self._loop.time() * 1e9)


def run(main: Coroutine[Any, Any, T], limit: float = math.inf) -> T:
    """Like ``asyncio.run``, on virtual time, for ``limit`` seconds of it at most. What nobody handled is raised."""
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(limit)) as runner:
        answer = runner.run(main)
        loop = runner.get_loop()
        assert isinstance(loop, VirtualTimeLoop)
        for context in loop.unhandled:
            raise AssertionError(f"nobody handled it: {context}") from context.get("exception")
        return answer
