"""What every implementation of the port ``Frontier`` promises, as one battery of tests.

An implementation hands over a ``Maker``; ``tests/unit/test_frontier_conformance.py`` shows how. What only a file can
promise (its header, its lock, its migrations, its damage) is not here.
"""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Protocol

import pytest
from tests.support.clock import ManualClock
from tests.support.memory_frontier import Memory, MemoryFrontier

from crawljob.exitcodes import ExitCode
from durable_crawler.clock import Clock
from durable_crawler.frontier import (
    Deferral,
    Frontier,
    FrontierError,
    FrontierOwnedError,
    Lease,
    Link,
    Result,
    SqliteFrontier,
    Verdict,
)
from durable_crawler.frontier.model import QUARANTINE_AFTER
from durable_crawler.frontier.opening import LONGEST_WAIT_MS, Admission
from durable_crawler.frontier.reader import FrontierReader
from durable_crawler.frontier.sqlite import LEASE_MS
from durable_crawler.outcomes import Outcome

Seed = tuple[str, str]
A: Seed = ("https://a.example/", "a.example")
B: Seed = ("https://b.example/", "b.example")
OK = Result(Outcome.OK, 200, bytes=10)
FAILED = Result(Outcome.HTTP_ERROR, 404, bytes=3)


class OpenFrontier(Frontier, Protocol):
    """The port, and what an opening tells."""

    @property
    def recovered(self) -> int:
        """Leases of earlier epochs that were taken back."""
        ...

    @property
    def epoch(self) -> int:
        """Number of this opening, from 1."""
        ...


class Maker(ABC):
    """Opens frontiers on one storage, which begins empty."""

    def __init__(self) -> None:
        self._opened: list[OpenFrontier] = []

    async def open(
        self, seeds: tuple[Seed, ...] = (A,), *, max_pages: int = 100, max_depth: int = 16, clock: Clock
    ) -> OpenFrontier:
        """Open what the storage holds under this spec; the frontier of before must have been closed."""
        frontier = await self._open(Admission(seeds, max_depth), max_pages, clock)
        self._opened.append(frontier)
        return frontier

    async def close(self) -> None:
        """Close whatever may still be open."""
        for frontier in self._opened:
            await frontier.close()

    @abstractmethod
    async def _open(self, admission: Admission, max_pages: int, clock: Clock) -> OpenFrontier: ...

    @abstractmethod
    def usurp(self) -> None:
        """Begin another epoch behind the back of the frontier that is open."""

    @abstractmethod
    def outcomes(self) -> Mapping[str, list[Outcome]]:
        """The results of every page that is done, as somebody beside the frontier sees them."""

    @abstractmethod
    def broken_invariants(self) -> list[str]:
        """Names of what ought to hold in the storage and does not."""


class SqliteMaker(Maker):
    """One file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    async def _open(self, admission: Admission, max_pages: int, clock: Clock) -> OpenFrontier:
        return await SqliteFrontier.open(self._path, admission, max_pages=max_pages, clock=clock)

    def usurp(self) -> None:
        # A copied volume, or a file system that does not honour locks.
        with closing(sqlite3.connect(self._path)) as rival, rival:
            rival.execute("UPDATE meta SET epoch = epoch + 1")

    def outcomes(self) -> Mapping[str, list[Outcome]]:
        found: dict[str, list[Outcome]] = {}
        with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as reader:
            for url, outcome in reader.execute(
                "SELECT url, outcome FROM pages LEFT JOIN results ON page_id = id WHERE state = 'done'"
            ):
                found.setdefault(url, []).append(Outcome(outcome))
        return found

    def broken_invariants(self) -> list[str]:
        return FrontierReader(self._path).broken_invariants()


class MemoryMaker(Maker):
    """One ``Memory``."""

    def __init__(self) -> None:
        super().__init__()
        self._memory = Memory()

    async def _open(self, admission: Admission, max_pages: int, clock: Clock) -> OpenFrontier:
        return await MemoryFrontier.open(self._memory, admission, max_pages=max_pages, clock=clock)

    def usurp(self) -> None:
        self._memory.epoch += 1

    def outcomes(self) -> Mapping[str, list[Outcome]]:
        return {page.url: [result.outcome for result in page.results] for page in self._memory.in_state("done")}

    def broken_invariants(self) -> list[str]:
        return self._memory.broken_invariants()


async def claim(frontier: Frontier, slots: int = 10) -> tuple[Lease, ...]:
    """Everything that the hosts have, up to ``slots`` each."""
    claimed = await frontier.claim(dict.fromkeys(frontier.hosts, slots), slots * len(frontier.hosts))
    return claimed.leases


def host(frontier: Frontier, seed: Seed = A) -> int:
    """The id of a seed's host."""
    return next(host.id for host in frontier.hosts.values() if host.authority == seed[1])


def links(frontier: Frontier, *names: str, seed: Seed = A, depth: int = 1) -> list[Link]:
    """Links to pages of an approved host."""
    return [Link(seed[0] + name, seed[1], host(frontier, seed), depth) for name in names]


def left_out(*names: str, seed: Seed = A, depth: int = 1) -> list[Link]:
    """Links to pages that the spec does not cover."""
    return [Link(seed[0] + name, seed[1], None, depth) for name in names]


def urls(leases: tuple[Lease, ...]) -> list[str]:
    """Which pages were leased."""
    return [lease.url for lease in leases]


class FrontierSuite:
    """The battery. A subclass provides the fixture ``maker``."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture(autouse=True)
    async def soundness(self, maker: Maker) -> AsyncIterator[None]:
        """After every test, the storage is sound."""
        yield
        await maker.close()
        assert maker.broken_invariants() == []

    # Claims

    async def test_a_lease_says_what_is_to_be_done(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        assert (lease.url, lease.host_id, lease.depth, lease.attempt, lease.retries) == (A[0], host(frontier), 0, 1, 0)

    async def test_a_page_that_is_leased_is_nobody_elses(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(clock=clock)
        assert len(await claim(frontier)) == 1
        assert await claim(frontier) == ()
        assert (frontier.snapshot.leased, frontier.snapshot.pending) == (1, 0)
        assert not frontier.snapshot.finished(100)

    async def test_claims_of_the_same_moment_share_nothing(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        await frontier.finish(lease, OK, links(frontier, *"123456"))
        claims = await asyncio.gather(*(frontier.claim({host(frontier): 2}, 2) for _ in range(4)))
        leased = [url for claimed in claims for url in urls(claimed.leases)]
        assert sorted(leased) == [A[0] + name for name in "123456"]

    async def test_every_claim_has_a_fresh_token(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(clock=clock)
        tokens = set()
        for _ in range(3):
            (lease,) = await claim(frontier)
            tokens.add(lease.token)
            await frontier.release([lease])
        assert len(tokens) == 3
        assert all(len(token) == 32 for token in tokens)

    async def test_pages_are_claimed_in_the_order_of_their_discovery(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        await frontier.finish(lease, OK, links(frontier, "z", "m", "a"))
        found = []
        while leases := (await frontier.claim({host(frontier): 1}, 1)).leases:
            found += urls(leases)
        assert found == [A[0] + name for name in "zma"]

    async def test_slots_of_each_host_and_the_limit_are_kept(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open((A, B), clock=clock)
        a, b = host(frontier, A), host(frontier, B)
        for lease in await claim(frontier):
            seed = A if lease.host_id == a else B
            await frontier.finish(lease, OK, links(frontier, *"123456789", seed=seed))
        by_host = [lease.host_id for lease in (await frontier.claim({a: 3, b: 2}, 16)).leases]
        assert sorted(by_host) == sorted([a, a, a, b, b])
        assert len((await frontier.claim({a: 5, b: 5}, 4)).leases) == 4
        assert {lease.host_id for lease in (await frontier.claim({b: 2}, 16)).leases} == {b}

    @pytest.mark.parametrize(("slots", "limit"), [(0, 5), (5, 0)])
    async def test_who_wants_nothing_gets_nothing(
        self, maker: Maker, clock: ManualClock, slots: int, limit: int
    ) -> None:
        frontier = await maker.open(clock=clock)
        assert (await frontier.claim({host(frontier): slots}, limit)).leases == ()
        assert (await frontier.claim({}, 5)).leases == ()
        assert frontier.snapshot.pending == 1

    async def test_a_host_with_pending_pages_is_stocked_until_it_gives_less_than_asked(
        self, maker: Maker, clock: ManualClock
    ) -> None:
        frontier = await maker.open((A, B), clock=clock)
        a, b = host(frontier, A), host(frontier, B)
        assert set(frontier.stocked) == {a, b}
        leases = (await frontier.claim({a: 2, b: 2}, 9)).leases
        assert set(frontier.stocked) == set()
        (first,) = (lease for lease in leases if lease.host_id == a)
        await frontier.finish(first, OK, links(frontier, "1", "2"))
        assert set(frontier.stocked) == {a}
        (one,) = (await frontier.claim({a: 1}, 1)).leases
        assert set(frontier.stocked) == {a}
        await frontier.release([one])
        await frontier.claim({a: 3}, 9)
        assert set(frontier.stocked) == set()

    async def test_whatever_makes_a_page_pending_stocks_its_host(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        assert set(frontier.stocked) == set()
        await frontier.release([lease])
        assert set(frontier.stocked) == {lease.host_id}
        (lease,) = await claim(frontier)
        await frontier.defer(lease, Deferral(clock.wall_ms() + 1000))
        assert set(frontier.stocked) == set()
        clock.advance(2)
        await frontier.claim({}, 5)
        assert set(frontier.stocked) == {lease.host_id}
        await claim(frontier)
        assert set(frontier.stocked) == set()
        clock.advance(LEASE_MS / 1000)
        assert (await frontier.claim({}, 5)).expired == 1
        assert set(frontier.stocked) == {lease.host_id}

    # Commits

    async def test_result_links_and_done_are_one_commit(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        assert maker.outcomes() == {}
        assert await frontier.finish(lease, FAILED, links(frontier, "1", "2")) is Verdict.KEPT
        assert maker.outcomes() == {A[0]: [Outcome.HTTP_ERROR]}
        counts = frontier.snapshot
        assert (counts.done, counts.pending, counts.leased, counts.failed, counts.bytes) == (1, 2, 0, 1, 3)

    async def test_a_known_link_is_added_once(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        await frontier.finish(lease, OK, links(frontier, "1", "1", ""))
        assert frontier.snapshot.pending == 1
        (lease,) = await claim(frontier)
        await frontier.finish(lease, OK, [*links(frontier, "1", "", depth=2), *left_out("", "1", depth=2)])
        assert frontier.snapshot.finished(100)
        assert frontier.snapshot.done == 2

    async def test_the_same_link_from_several_pages_at_once_is_added_once(
        self, maker: Maker, clock: ManualClock
    ) -> None:
        frontier = await maker.open((A, B), clock=clock)
        leases = await claim(frontier)
        await asyncio.gather(*(frontier.finish(lease, OK, links(frontier, "1", "2")) for lease in leases))
        assert (frontier.snapshot.done, frontier.snapshot.pending) == (2, 2)

    async def test_done_is_done(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        assert await frontier.finish(lease, OK, []) is Verdict.KEPT
        assert await frontier.finish(lease, FAILED, links(frontier, "1")) is Verdict.LOST
        assert await frontier.defer(lease, Deferral(0)) is Verdict.LOST
        assert await frontier.release([lease]) == 0
        assert await frontier.renew([lease]) == frozenset()
        await frontier.close()
        frontier = await maker.open(clock=clock)
        assert await claim(frontier) == ()
        assert frontier.snapshot.finished(100)
        assert maker.outcomes() == {A[0]: [Outcome.OK]}

    # Fencing

    async def test_a_stale_token_can_do_nothing(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(clock=clock)
        (stale,) = await claim(frontier)
        await frontier.release([stale])
        (fresh,) = await claim(frontier)
        assert await frontier.finish(stale, OK, links(frontier, "lost")) is Verdict.LOST
        assert await frontier.defer(stale, Deferral(1)) is Verdict.LOST
        assert await frontier.release([stale]) == 0
        assert await frontier.renew([stale]) == frozenset()
        assert frontier.snapshot.pending == 0, "nothing of a lost lease's work is kept"
        assert await frontier.finish(fresh, OK, []) is Verdict.KEPT

    async def test_a_lost_finish_does_not_take_the_rest_of_its_commit_along(
        self, maker: Maker, clock: ManualClock
    ) -> None:
        frontier = await maker.open((A, B), clock=clock)
        first, second = await claim(frontier)
        await frontier.release([first])
        verdicts = await asyncio.gather(frontier.finish(first, OK, []), frontier.finish(second, OK, []))
        assert verdicts == [Verdict.LOST, Verdict.KEPT]

    @pytest.mark.parametrize("stale_first", [True, False])
    async def test_a_stale_and_a_fresh_lease_of_one_page_in_one_commit_are_told_apart(
        self, maker: Maker, clock: ManualClock, stale_first: bool
    ) -> None:
        frontier = await maker.open(clock=clock)
        for operation in ("finish", "defer", "release", "renew"):
            (stale,) = await claim(frontier)
            await frontier.release([stale])
            (fresh,) = await claim(frontier)
            leases = [stale, fresh] if stale_first else [fresh, stale]
            match operation:
                case "finish":
                    (lease,) = [fresh]
                    answers: list[object] = await asyncio.gather(
                        *(frontier.finish(lease, OK if lease is fresh else FAILED, [*links(frontier, "n")] * (lease is fresh)) for lease in leases)
                    )
                case "defer":
                    answers = await asyncio.gather(*(frontier.defer(lease, Deferral(0)) for lease in leases))
                case "release":
                    answers = await asyncio.gather(*(frontier.release([lease]) for lease in leases))
                case _:
                    answers = await asyncio.gather(*(frontier.renew([lease]) for lease in leases))
            stale_answer, fresh_answer = answers if stale_first else answers[::-1]
            assert stale_answer in (Verdict.LOST, 0, frozenset()), operation
            assert fresh_answer in (Verdict.KEPT, 1, {fresh.page_id}), operation
