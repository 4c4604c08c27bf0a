"""The crawler with a hand on its boundaries: ``python -m tests.crash.driver PLAN run ...``, PLAN being a JSON object.

The product has no switches for tests. This program imports it, wraps the few functions at which something becomes
durable or leaves the process, and runs the ordinary command line; what a plan does not name is as it is in production.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from durable_crawler import cli, engine, heartbeat, work
from durable_crawler import run as composition
from durable_crawler.fetch import Fetcher
from durable_crawler.fetch_connector import Connector
from durable_crawler.frontier import SqliteFrontier, opening, sqlite
from durable_crawler.frontier.database import Database
from durable_crawler.outcomes import Fetched
from durable_crawler.parse import Parsed, parse
from durable_crawler.telemetry import Stats
from durable_crawler.work import MayFollow, TakeTurn

STEPS = ("claim commit", "fetch", "parse", "finish commit", "defer commit", "checkpoint", "closing", "last checkpoint")
BOUNDARIES = (*(f"{side} {step}" for step in STEPS for side in ("before", "after")), "retry wait")
"""What a crawl passes, page after page."""
OPENING = ("before migration", "within migration", "after migration", "before admission", "after admission")
"""What every start passes before the first claim; migrations only where the file is new or old."""


@dataclass(frozen=True)
class Plan:
    """What to do at the ``passing``-th time of boundary ``at``, and what else differs from production."""

    at: str = ""
    passing: int = 1
    send: str = "SIGKILL"
    """A signal that the process sends itself; empty for none."""
    jump_seconds: float = 0
    """By how much the machine's clock is set forth (or back) there."""
    checkpoint_each_flush: bool = False
    lease_ms: int | None = None
    heartbeat_seconds: float | None = None
    reserve_bytes: int | None = None
    """Free space below which nothing is claimed."""
    poison: str = ""
    """Parsing this URL ends the process as a crash in the parser's C code would."""
    close_database_at: int | None = None
    """The database is closed under the crawl at this fetch."""
    tell_sockets: bool = False
    """Say which addresses are connected to and which names are resolved."""
    broken: str = ""
    """What raises at the start: ``telemetry``, ``fetcher`` or ``engine``."""

    def __post_init__(self) -> None:
        if self.at and self.at not in (*BOUNDARIES, *OPENING):
            raise ValueError(f"no such boundary: {self.at}")


class Hand:
    """Counts what is passed, and acts once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._passed: Counter[str] = Counter()

    def passes(self, boundary: str) -> None:
        self._passed[boundary] += 1
        if boundary != self.plan.at or self._passed[boundary] != self.plan.passing:
            return
        if self.plan.jump_seconds:
            honest, jump_ns = time.time_ns, round(self.plan.jump_seconds * 1e9)
            time.time_ns = lambda: honest() + jump_ns
            time.time = lambda: time.time_ns() / 1e9
            say(jumped=self.plan.jump_seconds)
        if self.plan.send:
            os.kill(os.getpid(), signal.Signals[self.plan.send])


def say(**what: object) -> None:
    """A line among the crawler's own JSON lines."""
    print(json.dumps({"driver": what}), flush=True)


def wrap_statements(hand: Hand) -> None:
    """Commits are named by what they hold; the statements between them are one transaction."""
    execute = Database._statement
    flush: set[str] = set()
    alone = {"checkpoint": "checkpoint", "last_checkpoint": "last checkpoint", "closed": "closing"}

    def wrapped(
        self: Database, connection: sqlite3.Connection, name: str, parameters: Mapping[str, Any]
    ) -> Sequence[Any]:
        if name == "begin":
            flush.clear()
        flush.add(name)
        steps = [alone[name]] if name in alone else []
        if name == "commit":
            steps = [f"{step} commit" for step in ("claim", "finish", "defer") if step in flush]
        for step in steps:
            hand.passes(f"before {step}")
        rows = execute(self, connection, name, parameters)
        if name == "claim" and not rows:
            flush.discard("claim")
        for step in steps:
            hand.passes(f"after {step}")
        return rows

    Database._statement = wrapped  # type: ignore[method-assign]


def wrap_checkpoint() -> None:
    checkpoint = SqliteFrontier._checkpoint

    async def each_time(self: SqliteFrontier) -> None:
        self._checkpointed -= 2 * sqlite.CHECKPOINT_SECONDS
        await checkpoint(self)

    SqliteFrontier._checkpoint = each_time  # type: ignore[method-assign]


def wrap_stages(hand: Hand) -> None:
    fetch, wait = Fetcher.fetch, engine.Engine._something_to_do

    async def wrapped_fetch(self: Fetcher, url: str, may_follow: MayFollow, take_turn: TakeTurn) -> Fetched:
        hand.passes("before fetch")
        fetched = await fetch(self, url, may_follow, take_turn)
        hand.passes("after fetch")
        return fetched

    def wrapped_parse(body: bytes, content_type: str, url: str, max_links: int, **options: Any) -> Parsed:
        hand.passes("before parse")
        if hand.plan.poison and url.endswith(hand.plan.poison):
            os.abort()
        parsed = parse(body, content_type, url, max_links, **options)
        hand.passes("after parse")
        return parsed

    async def wrapped_wait(self: engine.Engine) -> None:
        if self._frontier.snapshot.deferred and not self._jobs:
            hand.passes("retry wait")
        await wait(self)

    Fetcher.fetch = wrapped_fetch  # type: ignore[method-assign, assignment]
    setattr(work, "parse", wrapped_parse)  # noqa: B010 - where the work has it from is not its interface
    engine.Engine._something_to_do = wrapped_wait  # type: ignore[method-assign]


class Halved:
    """A connection whose scripts run in two halves, so that a boundary lies within a migration's transaction."""

    def __init__(self, connection: sqlite3.Connection, hand: Hand) -> None:
        self._connection = connection
        self._hand = hand

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def executescript(self, script: str) -> None:
        statements = list(_statements(script))
        middle = len(statements) // 2
        self._hand.passes("before migration")
        self._connection.executescript("".join(statements[:middle]))
        self._hand.passes("within migration")
        # Not executescript: it would commit first what the first half has begun.
        for statement in statements[middle:]:
            self._connection.execute(statement)
        self._hand.passes("after migration")


def _statements(script: str) -> Sequence[str]:
    statements, statement = [], ""
    for piece in script.split(";"):
        statement += piece + ";"
        if sqlite3.complete_statement(statement):
            statements.append(statement)
            statement = ""
    return statements


def wrap_opening(hand: Hand) -> None:
    migrate, admit = opening._migrate, opening._admit

    def wrapped_migrate(connection: sqlite3.Connection, path: Path) -> None:
        halved: Any = Halved(connection, hand)
        migrate(halved, path)

    def wrapped_admit(
        connection: sqlite3.Connection, path: Path, admission: opening.Admission, now_ms: int
    ) -> opening.Opened:
        hand.passes("before admission")
        opened = admit(connection, path, admission, now_ms)
        hand.passes("after admission")
        return opened

    opening._migrate = wrapped_migrate
    opening._admit = wrapped_admit


def wrap_leases() -> None:
    """Tell what telemetry is told of leases: after an end there is no ``/metrics`` to ask."""
    leases = Stats.leases

    def wrapped(self: Stats, *, expired: int = 0, lost: int = 0, recovered: int = 0) -> None:
        if expired or lost or recovered:
            say(expired=expired, lost=lost, recovered=recovered)
        leases(self, expired=expired, lost=lost, recovered=recovered)

    Stats.leases = wrapped  # type: ignore[method-assign]


def wrap_database(fetch_number: int) -> None:
    """Close the connection when so many pages have been fetched, as a library's bug might."""
    opened: list[SqliteFrontier] = []
    fetched = Counter[str]()
    init, fetch = SqliteFrontier.__init__, Fetcher.fetch

    def wrapped_init(self: SqliteFrontier, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        opened.append(self)

    async def wrapped_fetch(self: Fetcher, url: str, may_follow: MayFollow, take_turn: TakeTurn) -> Fetched:
        fetched["pages"] += 1
        if fetched["pages"] == fetch_number:
            await opened[0]._database.close()
        return await fetch(self, url, may_follow, take_turn)

    SqliteFrontier.__init__ = wrapped_init  # type: ignore[method-assign]
    Fetcher.fetch = wrapped_fetch  # type: ignore[method-assign, assignment]


def tell_sockets() -> None:
    """Connections by the interpreter's audit events, which cannot be avoided; names where the connector asks for them,
    because the event loop resolves them on its own."""
    addresses = Connector._addresses

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.connect" and isinstance(arguments[1], tuple):
            say(connect=arguments[1][:2])
        elif event == "socket.getaddrinfo":
            say(resolve=str(arguments[0]))

    async def wrapped(self: Connector, host: str, port: int) -> Any:
        say(resolve=host)
        return await addresses(self, host, port)

    sys.addaudithook(hook)
    Connector._addresses = wrapped  # type: ignore[method-assign]


def break_part(part: str) -> None:
    names = {"telemetry": "Telemetry", "fetcher": "Fetcher", "engine": "Engine"}

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(f"the {part} cannot be made")

    setattr(composition, names[part], broken)


def main() -> None:
    """Take the plan off the command line, put it into effect, crawl."""
    plan = Plan(**json.loads(sys.argv.pop(1)))
    hand = Hand(plan)
    wraps: list[Callable[[Hand], None]] = [wrap_statements, wrap_stages, wrap_opening]
    for wrap in wraps:
        wrap(hand)
    wrap_leases()
    if plan.checkpoint_each_flush:
        wrap_checkpoint()
    if plan.lease_ms is not None:
        sqlite.LEASE_MS = plan.lease_ms
    if plan.heartbeat_seconds is not None:
        heartbeat.INTERVAL_SECONDS = plan.heartbeat_seconds
    if plan.reserve_bytes is not None:
        sqlite.RESERVE_MIN_BYTES = sqlite.RESERVE_MAX_BYTES = plan.reserve_bytes
    if plan.close_database_at is not None:
        wrap_database(plan.close_database_at)
    if plan.tell_sockets:
        tell_sockets()
    if plan.broken:
        break_part(plan.broken)
    cli.main()


if __name__ == "__main__":
    main()
