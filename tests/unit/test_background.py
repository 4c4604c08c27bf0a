"""Blocking calls beside the loop: bounded, cancellable from the waiter's side, never joined."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from durable_crawler.background import Background
from durable_crawler.resolver import Resolver


async def test_results_and_exceptions_come_back() -> None:
    background = Background(2, "test")
    assert await background.run(lambda: 42) == 42
    with pytest.raises(ZeroDivisionError):
        await background.run(lambda: 1 // 0)


async def test_no_more_threads_than_allowed_also_when_nobody_waits_any_more() -> None:
    background, hold, begun = Background(1, "test"), threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        hold.wait()

    first = asyncio.create_task(background.run(block))
    while not begun.is_set():
        await asyncio.sleep(0)
    first.cancel()
    second = asyncio.create_task(background.run(lambda: "second"))
    await asyncio.wait({first})
    assert not second.done(), "the cancelled call still has its thread"
    hold.set()
    assert await second == "second"


def test_a_call_that_hangs_does_not_hold_up_the_exit() -> None:
    program = (
        "import asyncio, threading\n"
        "from durable_crawler.background import Background\n"
        "async def main():\n"
        "    hangs = asyncio.create_task(Background(1, 'x').run(threading.Event().wait))\n"
        "    await asyncio.sleep(0)\n"
        "    hangs.cancel()\n"
        "asyncio.run(main())\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0


async def test_names_and_literals_are_resolved() -> None:
    resolver = Resolver()
    assert {found["host"] for found in await resolver.resolve("127.0.0.1", 80)} == {"127.0.0.1"}
    with pytest.raises(OSError, match=r"."):
        await resolver.resolve("nothing.invalid", 80)
    await resolver.close()
