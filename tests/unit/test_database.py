"""The database's thread: what it may take, by the statement and not by the transaction, and what ends it."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from durable_crawler.frontier import FrontierBrokenError, database
from durable_crawler.frontier.database import Database
from durable_crawler.frontier.sets import Row, Run
from durable_crawler.frontier.statements import STATEMENTS

SHORT = 0.2
"""Seconds; stands for the two that a statement has."""

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


@pytest.fixture
async def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Database]:
    monkeypatch.setattr(database, "DEADLINE_SECONDS", SHORT)
    monkeypatch.setitem(STATEMENTS, "endless", ENDLESS)
    monkeypatch.setitem(STATEMENTS, "nap", "SELECT nap()")
    monkeypatch.setitem(STATEMENTS, "one", "SELECT 1")
    made = await Database.open(tmp_path / "x.db")
    await made._connection.create_function("nap", 0, lambda: time.sleep(SHORT / 4))
    yield made
    await made.close()


def alone(name: str) -> Callable[[Run], Coroutine[Any, Any, Sequence[Row]]]:
    """A transaction of one statement."""

    async def transaction(run: Run) -> Sequence[Row]:
        return await run(name, {})

    return transaction


async def test_a_statement_without_end_is_interrupted_and_named(opened: Database) -> None:
    for run in (opened.run("endless", {}, SHORT), opened.transact(alone("endless"))):
        with pytest.raises(FrontierBrokenError, match=r"did not answer within 0.2 s \(endless\)"):
            await run
        async with asyncio.timeout(5):  # the thread is free again
            assert await opened.run("one", {}, 5.0) == [(1,)]


async def test_many_statements_together_may_take_longer_than_one(opened: Database) -> None:
    async def transaction(run: Run) -> int:
        for _ in range(8):
            await run("nap", {})
        return len(await run("one", {}))

    assert await opened.transact(transaction) == 1


async def test_what_is_done_between_statements_counts_for_none(opened: Database) -> None:
    async def transaction(run: Run) -> int:
        await run("one", {})
        time.sleep(2 * SHORT)
        return len(await run("one", {}))

    assert await opened.transact(transaction) == 1


async def test_a_bug_in_a_transaction_is_not_taken_for_a_closed_database(opened: Database) -> None:
    async def wrong(run: Run) -> None:
        raise ValueError("no number")

    async def waiting(run: Run) -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="ValueError: no number"):
        await opened.transact(wrong)
    with pytest.raises(RuntimeError, match="waited for something else"):
        await opened.transact(waiting)
    await opened.close()
    with pytest.raises(FrontierBrokenError, match="closed"):
        await opened.run("one", {}, SHORT)


async def test_what_sqlite_says_leaves_as_one_sentence(opened: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STATEMENTS, "wrong", "SELECT 1 FROM 2")
    with pytest.raises(FrontierBrokenError, match="the database failed") as failed:
        await opened.transact(alone("wrong"))
    assert isinstance(failed.value.__cause__, sqlite3.Error)
