"""What several tasks have to do is done in a row, and each is told of its own."""

from __future__ import annotations

import asyncio

import pytest

from durable_crawler.together import Together


async def test_what_comes_in_one_turn_is_done_in_a_row_and_in_its_order() -> None:
    together = Together()
    done: list[str] = []

    async def task(name: str) -> None:
        await together.run(lambda: done.append(name))
        done.append(name.upper())

    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(task(name))
    assert done == ["a", "b", "c", "A", "B", "C"]
    assert await together.run(lambda: "later") == "later"


async def test_an_error_is_told_to_who_caused_it_alone() -> None:
    together = Together()
    answers = await asyncio.gather(
        together.run(lambda: 1), together.run(lambda: 1 // 0), together.run(lambda: 3), return_exceptions=True
    )
    assert answers[0] == 1
    assert isinstance(answers[1], ZeroDivisionError)
    assert answers[2] == 3


async def test_what_nobody_waits_for_any_more_is_not_done() -> None:
    together = Together()
    done: list[str] = []
    tasks = [asyncio.create_task(together.run(lambda name=name: done.append(name))) for name in "abc"]  # type: ignore[misc]
    await asyncio.sleep(0)
    tasks[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    await asyncio.gather(tasks[0], tasks[2])
    assert done == ["a", "c"]


async def test_what_is_asked_for_meanwhile_is_done_next() -> None:
    together = Together()
    inner: list[asyncio.Task[str]] = []

    def outer() -> str:
        inner.append(asyncio.create_task(together.run(lambda: "inner")))
        return "outer"

    assert await together.run(outer) == "outer"
    assert await inner[0] == "inner"
