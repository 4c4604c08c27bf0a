"""What a page costs, in things that can be counted: statements, flushes, thread hops, canonicalisations, steps.

Time is for the benchmarks, which no machine repeats. These counts are the same on every machine, or within a bound
that is. A change that makes one smaller should make its bound smaller, too.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import aiosqlite
import pytest
from tests.support import virtual_time
from tests.support.clock import ManualClock
from tests.support.memory_frontier import Memory, MemoryFrontier
from tests.support.virtual_time import VirtualClock

from crawljob.manifest import parse
from durable_crawler import board, engine, turns, urls
from durable_crawler.board import Wait
from durable_crawler.clock import SystemClock
from durable_crawler.engine import Engine
from durable_crawler.frontier import Link, Result, SqliteFrontier
from durable_crawler.frontier.database import Database
from durable_crawler.frontier.opening import Admission
from durable_crawler.outcomes import Fetched, Outcome, PageRecord
from durable_crawler.robots_gate import RobotsGate
from durable_crawler.stop import Stop
from durable_crawler.urls import authority
from durable_crawler.work import MayFollow, TakeTurn

PAGES = 1000
LINKS = 30
WORKERS = 16

FLUSHES_PER_1000_PAGES = 400
"""Sixteen pages that are claimed together and finish together would make 125."""

STATEMENTS_PER_FLUSH = 14
"""Of one in which pages finish and are claimed, whatever their number."""

HOPS_BESIDE_FLUSHES = 16
"""Requests to the database's thread besides one for each flush: a robots.txt is looked up for each origin, and the WAL
is checkpointed from time to time."""

CANONICALISATIONS_PER_LINK = 0.34
"""Two thirds of the links of this site's pages are known by their raw form: from another page, or from above."""

ROUNDS, CLAIMED = 20, 8
STEP = 100
"""Instructions after which SQLite tells that it has made progress."""


@dataclass
class Web:
    """Each page has links to ten pages of its own below it and to twenty that everybody links to, ten of them twice."""

    latency: float = 0.0
    links: int = LINKS

    async def fetch(self, url: str, may_follow: MayFollow, take_turn: TakeTurn) -> Fetched:
        await asyncio.sleep(self.latency)
        if (turn := take_turn()) is not None:
            await turn
        number = int(url.rpartition("/")[2] or 0)
        own = [f"/{10 * number + step}" for step in range(1, 1 + self.links // 3)]
        shared = [f"/{step}" for step in range(1, 1 + self.links // 3)]
        body = "".join(f'<a href="{link}">to {link}</a>' for link in (*own, *shared, *shared)).encode()
        return Fetched(url, url, Outcome.OK, 200, "text/html", body, len(body))

    async def robots(self, url: str) -> Fetched:
        body = b"User-agent: *\nDisallow: /private/\n"
        return Fetched(url, url, Outcome.OK, 200, "text/plain", body, len(body))


class Nobody:
    """Observes nothing."""

    def page_settled(self, record: PageRecord) -> None: ...

    def leases(self, *, expired: int = 0, lost: int = 0, recovered: int = 0) -> None: ...

    def working(self, pages: int) -> None: ...

    def waiting(self, hosts: Mapping[int, tuple[Wait, float] | None]) -> None: ...


def admission(seeds: Sequence[str]) -> Admission:
    return Admission(tuple((seed, authority(seed)) for seed in seeds), 1000)


@dataclass
class Counts:
    """Of one crawl."""

    flushes: list[Sequence[str]] = field(default_factory=list)
    """Their operations."""
    statements: list[list[str]] = field(default_factory=list)
    """Of each transaction, by name."""
    hops: int = 0
    threads: list[str] = field(default_factory=list)
    executor_calls: int = 0
    canonicalisations: int = 0


@pytest.fixture
async def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counts:
    """A crawl of ``PAGES`` pages on four hosts by the real engine, frontier, parser and robots rules."""
    seeds = [f"https://h{number}.example/" for number in range(4)]
    fetch = {"workers": WORKERS, "perHost": WORKERS // len(seeds)}
    spec = parse({"seeds": seeds, "scope": {"maxPages": PAGES, "maxDepth": 1000}, "fetch": fetch})
    clock, web, counted = SystemClock(), Web(), Counts()
    frontier = await SqliteFrontier.open(tmp_path / "f.db", admission(seeds), max_pages=PAGES, clock=clock)
    frontier.on_flush = lambda seconds, operations: counted.flushes.append(operations)
    robots = RobotsGate(web.robots, frontier, "durable-crawler", clock)
    crawler = Engine(spec, frontier, fetcher=web, robots=robots, observer=Nobody(), clock=clock, random=lambda: 0.5)
    try:
        with monkeypatch.context() as patch:
            _count(counted, patch)
            assert await crawler.run(Stop())
        assert frontier.snapshot.done == PAGES
    finally:
        await frontier.close()
    return counted


def _count(counted: Counts, patch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    hop: Any = aiosqlite.Connection._execute
    statement, start = Database._statement, threading.Thread.start
    in_executor, canonical = loop.run_in_executor, urls.Resolver.canonical

    def run_statement(self: Database, connection: sqlite3.Connection, name: str, parameters: Any) -> Any:
        if name == "begin":
            counted.statements.append([])
        if connection.in_transaction or name == "begin":
            counted.statements[-1].append(name)
        return statement(self, connection, name, parameters)

    def hops(self: aiosqlite.Connection, *arguments: Any, **named: Any) -> Any:
        counted.hops += 1
        return hop(self, *arguments, **named)

    def starts(self: threading.Thread) -> None:
        counted.threads.append(self.name)
        start(self)

    def runs_in_executor(*arguments: Any) -> Any:
        counted.executor_calls += 1
        return in_executor(*arguments)

    def canonicalises(self: urls.Resolver, raw: str) -> Any:
        counted.canonicalisations += 1
        return canonical(self, raw)

    patch.setattr(Database, "_statement", run_statement)
    patch.setattr(aiosqlite.Connection, "_execute", hops)
    patch.setattr(threading.Thread, "start", starts)
    patch.setattr(loop, "run_in_executor", runs_in_executor)
    patch.setattr(urls.Resolver, "canonical", canonicalises)


async def test_what_a_thousand_pages_cost(counts: Counts) -> None:
    assert len(counts.flushes) <= FLUSHES_PER_1000_PAGES
    # What time went into is kept once a second, with a flush that there is anyway.
    of_flushes = [[name for name in names if name != "spend"] for names in counts.statements]
    assert max(map(len, of_flushes)) <= STATEMENTS_PER_FLUSH
    assert counts.hops <= len(counts.flushes) + HOPS_BESIDE_FLUSHES
    assert counts.threads == [], "no page needs a thread of its own"
    assert counts.executor_calls == 0
    assert counts.canonicalisations <= CANONICALISATIONS_PER_LINK * PAGES * LINKS
    # Nothing below this could be: then what counts has lost what it counted.
    assert counts.canonicalisations >= PAGES
    assert counts.hops >= len(counts.flushes) >= PAGES // (2 * WORKERS)
    assert len(of_flushes) >= len(counts.flushes)


def site(frontier: SqliteFrontier, pages: int) -> Iterator[Link]:
    """Links to so many pages, spread over the hosts."""
    hosts = list(frontier.hosts.values())
    for number in range(pages):
        host = hosts[number % len(hosts)]
        yield Link(f"https://{host.authority}/section-{number // 100}/{number}", host.authority, host.id, 1)


async def steps_per_page(path: Path, hosts: int, pages: int) -> float:
    """Instructions of SQLite's virtual machine for each page that is claimed, finished and finds ten new ones."""
    seeds = [f"https://h{number}.example/" for number in range(hosts)]
    frontier = await SqliteFrontier.open(path, admission(seeds), max_pages=10**9, clock=ManualClock())
    try:
        await _settle(frontier, {min(frontier.hosts): 1}, list(site(frontier, pages)))
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += STEP
            return 0

        ids = list(frontier.hosts)
        await frontier._database._connection.set_progress_handler(count, STEP)
        for number in range(ROUNDS):
            wants = {ids[(number * CLAIMED + turn) % hosts]: 1 for turn in range(CLAIMED)}
            own = [f"https://h0.example/new/{number}/{link}" for link in range(10)]
            await _settle(frontier, wants, [Link(url, "h0.example", min(frontier.hosts), 2) for url in own])
        return steps / ROUNDS / CLAIMED
    finally:
        await frontier.close()


async def _settle(frontier: SqliteFrontier, wants: Mapping[int, int], links: Sequence[Link]) -> None:
    leases = (await frontier.claim(wants, 16)).leases
    assert len(leases) == len(wants)
    await asyncio.gather(*(frontier.finish(lease, Result(Outcome.OK, 200), links) for lease in leases))


@pytest.mark.parametrize(("hosts", "pages"), [(10, 10_000), (1000, 2000)])
async def test_the_database_does_the_same_work_however_many_hosts_and_pages_there_are(
    tmp_path: Path, hosts: int, pages: int
) -> None:
    few = await steps_per_page(tmp_path / "few.db", 10, 200)
    many = await steps_per_page(tmp_path / "many.db", hosts, pages)
    assert many <= 1.02 * few


class _Guarded(Collection[int]):
    """A collection whose members may be asked for one by one; going through them costs a step for each."""

    def __init__(self, members: Collection[int], steps: list[int]) -> None:
        self._members = members
        self._steps = steps

    def __contains__(self, member: object) -> bool:
        return member in self._members

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[int]:
        self._steps[0] += len(self._members)
        return iter(self._members)


class _Hosts(MemoryFrontier):
    """Counts who goes through all of its hosts."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.steps = [0]
        super().__init__(*arguments, **named)

    @property
    def stocked(self) -> Collection[int]:
        return _Guarded(super().stocked, self.steps)

    def restocked(self) -> Collection[int]:
        before = self.steps[0]
        changed = super().restocked()
        self.steps[0] = before  # that this frontier does not know them without a look at all is nobody's fault
        return changed


DECIDING = frozenset(module.__file__ for module in (board, engine, turns))


@contextmanager
def lines_counted(steps: list[int]) -> Iterator[None]:
    """Count the lines of the modules that decide whose turn it is, as they are executed."""

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        steps[0] += event == "line"
        return line

    def called(frame: FrameType, event: str, argument: Any) -> Any:
        return line if frame.f_code.co_filename in DECIDING else None

    before = sys.gettrace()
    sys.settrace(called)
    try:
        yield
    finally:
        sys.settrace(before)


def steps_to_decide(hosts: int, pages_each: int) -> float:
    """Lines executed for each page to find whose turn it is, on virtual time; as many pages fall due in a second."""

    async def main() -> float:
        seeds = [f"https://h{number}.example/" for number in range(hosts)]
        scope, politeness = {"maxPages": hosts * pages_each, "maxDepth": 1000}, {"delay": f"{hosts * 20}ms"}
        spec = parse(
            {"seeds": seeds, "scope": scope, "politeness": politeness, "fetch": {"workers": WORKERS, "perHost": 1}}
        )
        clock = VirtualClock(asyncio.get_running_loop())
        frontier = await _Hosts.open(Memory(), admission(seeds), max_pages=spec.scope.max_pages, clock=clock)
        crawler = Engine(
            spec,
            frontier,
            fetcher=Web(latency=0.05, links=3),
            robots=None,
            observer=Nobody(),
            clock=clock,
            random=lambda: 0.5,
        )
        frontier.steps[0] = 0  # to begin with, the hosts are told one by one
        with lines_counted(frontier.steps):
            assert await crawler.run(Stop())
        done = frontier.snapshot.done
        await frontier.close()
        assert done == hosts * pages_each
        return frontier.steps[0] / done

    return virtual_time.run(main())


def test_whose_turn_it_is_costs_the_same_among_ten_times_as_many_hosts() -> None:
    few, many = steps_to_decide(20, 5), steps_to_decide(200, 5)
    assert many <= 1.1 * few
