"""The database's thread: what is to be done there, and for how long each statement may take (law L13).

Used by ``sqlite`` only. A hop to the thread and back costs more than most statements do, and the interpreter's lock
twice: so a transaction is one hop, however many statements it has.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import aiosqlite

from durable_crawler.frontier import opening
from durable_crawler.frontier.model import FrontierBrokenError
from durable_crawler.frontier.sets import Row, Run
from durable_crawler.frontier.statements import STATEMENTS

DEADLINE_SECONDS = 2.0
"""For each statement, waiting for a lock included."""

DEADLINE_PARTS = 8
"""A deadline passes in so many parts: a process that was stopped meanwhile has missed one, the database none. That in
which a statement begins is not counted: it has its whole time, and up to a part more."""

T = TypeVar("T")


class _Connection(aiosqlite.Connection):
    """One that takes on more than a statement at a time."""

    async def call(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Call ``function`` with the connection, in its thread. Raises ``ValueError`` only when it is closed."""

        def work() -> T:
            connection = self._conn
            try:
                return function(connection)
            except ValueError as error:
                raise RuntimeError(f"{type(error).__name__}: {error}") from error

        answer: T = await self._execute(work)  # type: ignore[no-untyped-call]
        return answer


class Database:
    """One writer's connection and its thread, which is not a daemon: always ``close`` it."""

    def __init__(self, path: Path, connection: _Connection) -> None:
        self._path = path
        self._connection = connection
        self._turn = asyncio.Lock()
        self._statements = 0
        self._under_way: tuple[int, str] | None = None

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Connect. Raises a ``FrontierError``."""
        connection = _Connection(lambda: opening.connect(path), iter_chunk_size=64)
        try:
            await connection
        except BaseException as error:
            await connection.close()
            if isinstance(error, sqlite3.Error | OSError):
                raise opening.explain(path, error) from error
            raise
        return cls(path, connection)

    async def run(self, name: str, parameters: Mapping[str, Any], deadline: float = DEADLINE_SECONDS) -> Sequence[Row]:
        """The rows of one statement by itself. Raises a ``FrontierError``."""
        return await self._in_thread(lambda connection: self._statement(connection, name, parameters), deadline)

    async def transact(self, transaction: Callable[[Run], Coroutine[Any, Any, T]]) -> T:
        """What ``transaction`` gives, which is called in the thread and waits for nothing but the statements that it
        runs. Raises a ``FrontierError``, and whatever it raises.
        """

        def work(connection: sqlite3.Connection) -> T:
            async def run(name: str, parameters: Mapping[str, Any]) -> Sequence[Row]:
                return self._statement(connection, name, parameters)

            return _at_once(transaction(run))

        return await self._in_thread(work, DEADLINE_SECONDS)

    async def close(self) -> None:
        """Close the connection once everything before has been done, and end the thread."""
        await self._connection.close()

    def _statement(self, connection: sqlite3.Connection, name: str, parameters: Mapping[str, Any]) -> Sequence[Row]:
        """Execute a statement, in the thread; whoever waits sees which one, and for how long."""
        self._statements += 1
        self._under_way = (self._statements, name)
        try:
            return connection.execute(STATEMENTS[name], dict(parameters)).fetchall()
        finally:
            self._under_way = None

    async def _in_thread(self, work: Callable[[sqlite3.Connection], T], deadline: float) -> T:
        """What ``work`` gives, called with the connection in its thread. ``deadline`` is for each of its statements."""
        try:
            async with self._turn:  # one thread does one thing after the other, and waiting for that is no failure
                answer = asyncio.ensure_future(self._connection.call(work))
                seen, parts = self._under_way, 0
                while parts < DEADLINE_PARTS:
                    await asyncio.wait((answer,), timeout=deadline / DEADLINE_PARTS)
                    if answer.done():
                        return answer.result()
                    parts = parts + 1 if seen is not None and self._under_way == seen else 0
                    seen = self._under_way
                # Cancelling the await alone would let the statement run on. What it did is unknown: the run ends.
                answer.cancel()
                await self._connection.interrupt()
            name = seen[1] if seen is not None else ""
            raise FrontierBrokenError(f"{self._path}: the database did not answer within {deadline:g} s ({name})")
        except sqlite3.Error as error:
            raise opening.explain(self._path, error) from error
        except ValueError as error:
            raise FrontierBrokenError(f"{self._path}: the database was closed") from error


def _at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing, where there is no event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    coroutine.close()
    raise RuntimeError("a transaction waited for something else than its statements")
