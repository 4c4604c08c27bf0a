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
from dataclasses import replace
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
from durable_crawler.frontier.model import QUARANTINE_AFTER, HostState
from durable_crawler.frontier.opening import LONGEST_WAIT_MS, Admission
from durable_crawler.frontier.reader import FrontierReader
from durable_crawler.frontier.sqlite import LEASE_MS
from durable_crawler.outcomes import Outcome
from durable_crawler.politeness import Pace
from durable_crawler.robots import KnownRobots

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
    def again(self) -> int:
        """Pages that are tried again because a restart was requested."""
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
        self,
        seeds: tuple[Seed, ...] = (A,),
        *,
        max_pages: int = 100,
        max_depth: int = 16,
        longest_wait_ms: int = LONGEST_WAIT_MS,
        include: tuple[str, ...] = (),
        exclude: tuple[str, ...] = (),
        restart_request: str | None = None,
        clock: Clock,
    ) -> OpenFrontier:
        """Open what the storage holds under this spec; the frontier of before must have been closed."""
        admission = Admission(seeds, max_depth, longest_wait_ms, include, exclude, restart_request)
        frontier = await self._open(admission, max_pages, clock)
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


async def _finish(frontier: Frontier, lease: Lease) -> bool:
    return await frontier.finish(lease, OK, links(frontier, "found")) is Verdict.KEPT


async def _defer(frontier: Frontier, lease: Lease) -> bool:
    return await frontier.defer(lease, Deferral(0)) is Verdict.KEPT


async def _release(frontier: Frontier, lease: Lease) -> bool:
    return await frontier.release([lease]) == 1


async def _renew(frontier: Frontier, lease: Lease) -> bool:
    return await frontier.renew([lease]) == {lease.page_id}


OPERATIONS = {"finish": _finish, "defer": _defer, "release": _release, "renew": _renew}
"""What is fenced; each answers whether the lease was still ours."""


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
        verdicts = tuple(await asyncio.gather(frontier.finish(first, OK, []), frontier.finish(second, OK, [])))
        assert verdicts == (Verdict.LOST, Verdict.KEPT)

    @pytest.mark.parametrize("stale_first", [True, False])
    @pytest.mark.parametrize("operation", OPERATIONS)
    async def test_two_leases_of_one_page_in_one_commit_are_told_apart(
        self, maker: Maker, clock: ManualClock, operation: str, stale_first: bool
    ) -> None:
        frontier = await maker.open(clock=clock)
        (stale,) = await claim(frontier)
        await frontier.release([stale])
        (fresh,) = await claim(frontier)
        leases = (stale, fresh) if stale_first else (fresh, stale)
        kept = await asyncio.gather(*(OPERATIONS[operation](frontier, lease) for lease in leases))
        assert kept == [lease is fresh for lease in leases]

    @pytest.mark.parametrize("first", OPERATIONS)
    @pytest.mark.parametrize("second", OPERATIONS)
    async def test_one_lease_is_settled_once(self, maker: Maker, clock: ManualClock, first: str, second: str) -> None:
        frontier = await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        kept = await asyncio.gather(*(OPERATIONS[name](frontier, lease) for name in (first, second)))
        assert kept == [True, first == "renew"]

    async def test_a_lease_that_ran_out_is_lost_and_claimed_again(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(clock=clock)
        (late,) = await claim(frontier)
        clock.advance(LEASE_MS / 1000)
        assert await frontier.renew([late]) == frozenset()
        assert await frontier.defer(late, Deferral(0)) is Verdict.LOST
        assert await frontier.finish(late, OK, []) is Verdict.LOST
        claimed = await frontier.claim({late.host_id: 1}, 1)
        assert claimed.expired == 1
        (again,) = claimed.leases
        assert (again.page_id, again.attempt) == (late.page_id, 2)
        assert again.token != late.token

    async def test_a_renewed_lease_lives_on(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        for _ in range(5):
            clock.advance(LEASE_MS / 1000 - 1)
            assert await frontier.renew([lease]) == {lease.page_id}
        assert (await frontier.claim({}, 1)).expired == 0
        assert await frontier.finish(lease, OK, []) is Verdict.KEPT

    async def test_a_renewal_tells_which_leases_are_lost(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open((A, B), clock=clock)
        first, second = await claim(frontier)
        await frontier.finish(first, OK, [])
        assert await frontier.renew([first, second]) == {second.page_id}
        assert await frontier.renew([]) == frozenset()

    # Epochs

    async def test_a_new_epoch_takes_over_at_once(self, maker: Maker, clock: ManualClock) -> None:
        first = await maker.open(clock=clock)
        (lease,) = await claim(first)
        await first.close()
        second = await maker.open(clock=clock)
        assert (first.epoch, second.epoch) == (1, 2)
        assert second.recovered == 1
        assert await second.renew([lease]) == frozenset()
        (again,) = await claim(second)
        assert (again.page_id, again.attempt) == (lease.page_id, 2)
        assert await second.finish(lease, OK, []) is Verdict.LOST
        assert await second.release([lease]) == 0

    # Restart requests

    async def test_a_restart_request_tries_failures_again_once(self, maker: Maker, clock: ManualClock) -> None:
        """Results that are no failures stay; the same request again, or none, asks for nothing."""
        frontier = await maker.open(max_pages=3, clock=clock)
        assert frontier.again == 0
        (lease,) = await claim(frontier)
        await frontier.finish(lease, OK, links(frontier, "1", "2", "3"))
        for lease in await claim(frontier, 2):
            await frontier.finish(lease, FAILED, [])
        assert (frontier.snapshot.done, frontier.snapshot.failed) == (3, 2)
        await frontier.close()
        frontier = await maker.open(max_pages=3, restart_request="today", clock=clock)
        assert frontier.again == 2
        counts = frontier.snapshot
        assert (counts.done, counts.failed, counts.bytes, counts.reclaimable) == (1, 0, OK.bytes, 2)
        again = await claim(frontier, 9)
        assert [(lease.attempt, lease.retries) for lease in again] == [(1, 0), (1, 0)], "within the pages that counted"
        await frontier.finish(again[0], OK, [])
        await frontier.finish(again[1], FAILED, [])
        await frontier.close()
        for request in ("today", None, "today"):
            frontier = await maker.open(max_pages=3, restart_request=request, clock=clock)
            assert (frontier.again, frontier.snapshot.done) == (0, 3)
            await frontier.close()
        assert maker.broken_invariants() == []

    async def test_a_restart_request_takes_back_what_was_quarantined(self, maker: Maker, clock: ManualClock) -> None:
        for _ in range(QUARANTINE_AFTER):
            frontier = await maker.open(clock=clock)
            await claim(frontier)
            await frontier.close()
        frontier = await maker.open(clock=clock)
        assert frontier.snapshot.quarantined == 1
        await frontier.close()
        frontier = await maker.open(restart_request="now", clock=clock)
        assert (frontier.again, frontier.snapshot.quarantined) == (1, 0)
        (lease,) = await claim(frontier)
        assert lease.attempt == 1

    async def test_a_restart_request_forgives_hosts_but_not_what_they_asked_for(
        self, maker: Maker, clock: ManualClock
    ) -> None:
        frontier = await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        until = clock.wall_ms() + 5000
        dead = HostState(Pace(0.5, 0, 3, 2), until)
        await frontier.finish(lease, Result(Outcome.CONNECT_ERROR), [], dead)
        await frontier.close()
        frontier = await maker.open(restart_request="now", clock=clock)
        (host,) = frontier.hosts.values()
        assert (host.pace, host.closed_until_ms) == (Pace(0.5, 0, 0, 0), until)

    async def test_what_is_tried_again_must_still_belong_to_the_crawl(self, maker: Maker, clock: ManualClock) -> None:
        """The spec was narrowed after the page had failed."""
        frontier = await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        await frontier.finish(lease, OK, links(frontier, "private/1"))
        (lease,) = await claim(frontier)
        await frontier.finish(lease, FAILED, [])
        await frontier.close()
        await (await maker.open(exclude=("/private/*",), clock=clock)).close()
        frontier = await maker.open(exclude=("/private/*",), restart_request="now", clock=clock)
        assert (frontier.snapshot.pending, frontier.snapshot.excluded) == (0, 1)
        assert maker.broken_invariants() == []

    async def test_an_owner_that_finds_a_newer_epoch_is_fenced(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        maker.usurp()
        with pytest.raises(FrontierOwnedError) as caught:
            await frontier.finish(lease, OK, links(frontier, "1"))
        assert caught.value.exit_code == ExitCode.OWNED
        for operation in OPERATIONS.values():
            with pytest.raises(FrontierOwnedError):
                await operation(frontier, lease)
        with pytest.raises(FrontierOwnedError):
            await claim(frontier)
        await frontier.close()
        heir = await maker.open(clock=clock)
        assert (heir.epoch, heir.recovered, heir.snapshot.pending, heir.snapshot.done) == (3, 1, 1, 0)

    async def test_a_second_owner_is_refused(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(clock=clock)
        with pytest.raises(FrontierOwnedError):
            await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        assert await frontier.finish(lease, OK, []) is Verdict.KEPT

    async def test_closing_twice_is_safe_and_later_work_is_refused(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        await frontier.close()
        await frontier.close()
        with pytest.raises(FrontierError):
            await claim(frontier)
        with pytest.raises(FrontierError):
            await frontier.finish(lease, OK, [])

    async def test_what_was_asked_for_before_the_close_is_kept(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        finish = asyncio.create_task(frontier.finish(lease, OK, []))
        await asyncio.sleep(0)
        await frontier.close()
        assert await finish is Verdict.KEPT
        assert maker.outcomes() == {A[0]: [Outcome.OK]}

    async def test_what_a_cancelled_worker_asked_for_is_wholly_done_or_not_at_all(
        self, maker: Maker, clock: ManualClock
    ) -> None:
        frontier = await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        finish = asyncio.create_task(frontier.finish(lease, OK, links(frontier, "1")))
        await asyncio.sleep(0)
        finish.cancel()
        await asyncio.gather(finish, return_exceptions=True)
        done = await frontier.release([lease]) == 0
        assert maker.outcomes() == ({A[0]: [Outcome.OK]} if done else {})
        assert frontier.snapshot.done == frontier.snapshot.pending == done

    # Attempts and retries

    async def test_a_page_that_never_has_an_outcome_is_quarantined_by_its_epochs(
        self, maker: Maker, clock: ManualClock
    ) -> None:
        for attempt in range(1, QUARANTINE_AFTER + 1):
            frontier = await maker.open(clock=clock)
            (lease,) = await claim(frontier)
            assert lease.attempt == attempt
            await frontier.close()
        frontier = await maker.open((A, B), clock=clock)
        assert urls(await claim(frontier)) == [B[0]]
        assert frontier.snapshot.quarantined == 1

    async def test_a_page_that_never_has_an_outcome_is_quarantined_by_expiry(
        self, maker: Maker, clock: ManualClock
    ) -> None:
        frontier = await maker.open(clock=clock)
        for _ in range(QUARANTINE_AFTER):
            assert len(await claim(frontier)) == 1
            clock.advance(LEASE_MS / 1000)
        assert await claim(frontier) == ()
        assert frontier.snapshot.quarantined == 1
        assert frontier.snapshot.finished(100)

    async def test_a_release_charges_no_attempt(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(clock=clock)
        for _ in range(2 * QUARANTINE_AFTER):
            (lease,) = await claim(frontier)
            assert (lease.attempt, lease.retries) == (1, 0)
            assert await frontier.release([lease]) == 1

    async def test_a_release_forgives_no_earlier_attempt(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(clock=clock)
        await claim(frontier)
        clock.advance(LEASE_MS / 1000)
        for _ in range(2):
            (lease,) = await claim(frontier)
            assert lease.attempt == 2
            await frontier.release([lease])

    async def test_a_settled_attempt_begins_the_count_anew(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(clock=clock)
        for retries in range(2 * QUARANTINE_AFTER):
            (lease,) = await claim(frontier)
            assert (lease.attempt, lease.retries) == (1, retries)
            assert await frontier.defer(lease, Deferral(clock.wall_ms())) is Verdict.KEPT

    async def test_deferred_pages_wait_and_are_not_an_end(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        due = clock.wall_ms() + 5000
        assert await frontier.defer(lease, Deferral(due, HostState(Pace(), due))) is Verdict.KEPT
        assert (frontier.snapshot.deferred, frontier.snapshot.next_due_ms) == (1, due)
        assert not frontier.snapshot.finished(100)
        clock.advance(4.999)
        assert await claim(frontier) == ()
        clock.advance(0.001)
        (again,) = await claim(frontier)
        assert again.page_id == lease.page_id
        assert frontier.snapshot.next_due_ms is None

    async def test_gates_and_deferrals_survive_a_restart(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open((A, B), clock=clock)
        first, second = await claim(frontier)
        until = clock.wall_ms() + 7000
        await asyncio.gather(
            frontier.defer(first, Deferral(until, HostState(Pace(0.5, 0, 2, 1), until))),
            frontier.finish(second, OK, [], HostState(Pace(), clock.wall_ms() + 9000)),
        )
        await frontier.close()
        clock.advance(3)
        frontier = await maker.open((A, B), clock=clock)
        assert frontier.hosts[first.host_id].closed_until_ms == until
        assert frontier.hosts[second.host_id].closed_until_ms == until + 2000
        assert frontier.hosts[first.host_id].pace == Pace(0.5, 0, 2, 1)
        assert frontier.snapshot.next_due_ms == until
        clock.advance(4)
        (again,) = await claim(frontier)
        assert (again.page_id, again.retries) == (first.page_id, 1)

    async def test_a_gate_is_only_ever_moved_further_away(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open((A, B), clock=clock)
        for lease in await claim(frontier):
            await frontier.finish(lease, OK, links(frontier, "1", "2", "3"))
        (first, *others), now = await claim(frontier), clock.wall_ms()
        await frontier.finish(first, OK, [], HostState(Pace(), now + 900))
        waits = zip(others, (600, 300), strict=True)
        await asyncio.gather(*(frontier.finish(lease, OK, [], HostState(Pace(), now + wait)) for lease, wait in waits))
        await frontier.close()
        frontier = await maker.open((A, B), clock=clock)
        assert [at.closed_until_ms for at in frontier.hosts.values() if at.authority == A[1]] == [now + 900]
        assert [at.closed_until_ms for at in frontier.hosts.values() if at.authority == B[1]] == [0]

    async def test_stored_times_of_a_clock_that_was_ahead_are_clamped(self, maker: Maker, clock: ManualClock) -> None:
        clock.jump(86_400)
        frontier = await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        await frontier.defer(lease, Deferral(clock.wall_ms() + 1000, HostState(Pace(), clock.wall_ms() + 86_400_000)))
        await frontier.close()
        clock.jump(-86_400)
        frontier = await maker.open(clock=clock)
        latest = clock.wall_ms() + LONGEST_WAIT_MS
        assert frontier.snapshot.next_due_ms == latest
        assert frontier.hosts[lease.host_id].closed_until_ms == latest

    async def test_a_spec_that_waits_longer_is_not_cut_short_by_a_restart(
        self, maker: Maker, clock: ManualClock
    ) -> None:
        frontier = await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        until = clock.wall_ms() + 5 * LONGEST_WAIT_MS
        await frontier.defer(lease, Deferral(until, HostState(Pace(), until)))
        await frontier.close()
        frontier = await maker.open(clock=clock, longest_wait_ms=6 * LONGEST_WAIT_MS)
        assert frontier.snapshot.next_due_ms == until
        assert frontier.hosts[lease.host_id].closed_until_ms == until

    # Politeness

    async def test_a_pace_is_replaced_by_the_next_and_survives_a_restart(
        self, maker: Maker, clock: ManualClock
    ) -> None:
        frontier = await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        await frontier.finish(lease, OK, links(frontier, "1", "2"), HostState(Pace(2.5, 7, 3, 2)))
        first, second = await claim(frontier)
        await frontier.release([first])
        await frontier.close()
        frontier = await maker.open(clock=clock)
        assert frontier.hosts[host(frontier)].pace == Pace(2.5, 0, 3, 2)
        (first, second) = await claim(frontier)
        await frontier.finish(first, OK, [], HostState(Pace(0.5)))
        await frontier.finish(second, OK, [])
        await frontier.close()
        frontier = await maker.open(clock=clock)
        assert frontier.hosts[host(frontier)].pace == Pace(0.5)

    async def test_of_several_states_in_one_commit_the_last_is_kept(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        await frontier.finish(lease, OK, links(frontier, "1", "2", "3"))
        first, second, third = await claim(frontier)
        await asyncio.gather(
            frontier.finish(first, OK, [], HostState(Pace(1))),
            frontier.defer(second, Deferral(0, HostState(Pace(2)))),
            frontier.finish(third, OK, [], HostState(Pace(3))),
        )
        await frontier.close()
        frontier = await maker.open(clock=clock)
        assert frontier.hosts[host(frontier)].pace == Pace(3)

    async def test_the_state_of_a_host_by_a_lost_lease_is_not_kept(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        await frontier.release([lease])
        until = clock.wall_ms() + 500
        assert await frontier.finish(lease, OK, [], HostState(Pace(4), until)) is Verdict.LOST
        assert await frontier.defer(lease, Deferral(0, HostState(Pace(4), until))) is Verdict.LOST
        await frontier.close()
        frontier = await maker.open(clock=clock)
        assert frontier.hosts[host(frontier)].pace == Pace()
        assert frontier.hosts[host(frontier)].closed_until_ms == 0

    async def test_a_claim_closes_the_gates_of_hosts_that_gave_a_page(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open((A, B), clock=clock)
        one, two = host(frontier, A), host(frontier, B)
        (lease,) = (await frontier.claim({two: 1}, 1)).leases
        await frontier.finish(lease, OK, [])
        until = clock.wall_ms() + 700
        claimed = await frontier.claim({one: 1, two: 1}, 2, {one: until, two: until})
        assert urls(claimed.leases) == [A[0]]
        await frontier.close()
        frontier = await maker.open((A, B), clock=clock)
        assert {at.id: at.closed_until_ms for at in frontier.hosts.values()} == {one: until, two: 0}

    async def test_all_that_waits_for_a_host_is_closed_at_once(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open((A, B), clock=clock)
        first, other = await claim(frontier)
        await frontier.finish(first, OK, links(frontier, "1", "2", "3", "4"))
        await frontier.finish(other, OK, links(frontier, "1", seed=B))
        deferred, leased = (await frontier.claim({host(frontier): 2}, 2)).leases
        await frontier.defer(deferred, Deferral(clock.wall_ms() + 500))
        assert await frontier.close_host(host(frontier), Outcome.HOST_DEAD, "gone") == 3
        assert host(frontier) not in frontier.stocked
        assert host(frontier, B) in frontier.stocked
        counts = frontier.snapshot
        assert (counts.pending, counts.deferred, counts.leased, counts.done, counts.failed) == (1, 0, 1, 5, 3)
        assert counts.next_due_ms is None
        assert await frontier.close_host(host(frontier), Outcome.HOST_DEAD, "gone") == 0
        assert await frontier.finish(leased, OK, []) is Verdict.KEPT, "what is in flight settles by itself"
        assert urls(await claim(frontier)) == [B[0] + "1"]
        await frontier.close()
        dead = [url for url, outcomes in maker.outcomes().items() if outcomes == [Outcome.HOST_DEAD]]
        assert sorted(dead) == sorted({A[0] + name for name in "1234"} - {leased.url})

    async def test_a_host_that_was_closed_takes_new_pages(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        await asyncio.gather(
            frontier.finish(lease, OK, links(frontier, "1", "2")),
            frontier.close_host(host(frontier), Outcome.HOST_DEAD, "gone"),
        )
        assert host(frontier) not in frontier.stocked
        assert await claim(frontier) == ()
        assert frontier.snapshot.finished(100)

    async def test_what_is_known_of_robots_is_replaced_and_survives_a_restart(
        self, maker: Maker, clock: ManualClock
    ) -> None:
        frontier = await maker.open(clock=clock)
        unreached = KnownRobots("https://a.example", b"", 2, 5)
        known = KnownRobots("http://a.example", b"\xff\x00 User-agent: *", 0, 7, 6)
        assert await frontier.robots_of(known.origin) is None
        await asyncio.gather(frontier.keep_robots(unreached), frontier.keep_robots(known))
        assert await frontier.robots_of(known.origin) == known
        await frontier.close()
        frontier = await maker.open(clock=clock)
        assert await frontier.robots_of(known.origin) == known
        assert await frontier.robots_of(unreached.origin) == unreached
        await frontier.keep_robots(replace(unreached, failures=0, body=b"x", answered_ms=9))
        assert await frontier.robots_of(unreached.origin) == KnownRobots("https://a.example", b"x", 0, 5, 9)

    async def test_a_restart_request_forgets_a_robots_txt_that_was_never_reached(
        self, maker: Maker, clock: ManualClock
    ) -> None:
        """It must not look like one that was asked for and is not there, which would allow all."""
        frontier = await maker.open(clock=clock)
        unreached = KnownRobots("https://a.example", b"", 4, 5)
        known = KnownRobots("http://a.example", b"", 0, 7, 6)
        await asyncio.gather(frontier.keep_robots(unreached), frontier.keep_robots(known))
        await frontier.close()
        frontier = await maker.open(restart_request="now", clock=clock)
        assert await frontier.robots_of(unreached.origin) is None
        assert await frontier.robots_of(known.origin) == known

    # The page limit

    async def test_max_pages_is_exact_across_restarts_and_retries(self, maker: Maker, clock: ManualClock) -> None:
        seen: set[int] = set()
        for _ in range(4):
            frontier = await maker.open(max_pages=5, clock=clock)
            leases = await claim(frontier)
            seen |= {lease.page_id for lease in leases}
            await frontier.release(leases[1:])
            if leases:
                more = links(frontier, *(f"{leases[0].page_id}/{n}" for n in range(9)))
                await frontier.finish(leases[0], OK, more)
            await frontier.close()
        frontier = await maker.open(max_pages=5, clock=clock)
        while leases := await claim(frontier):
            seen |= {lease.page_id for lease in leases}
            for lease in leases:
                await frontier.finish(lease, OK, [])
        assert len(seen) == 5
        assert frontier.snapshot.counted == 5
        assert frontier.snapshot.finished(5)
        assert not frontier.snapshot.finished(6)

    async def test_a_higher_limit_goes_on(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open(max_pages=1, clock=clock)
        (lease,) = await claim(frontier)
        await frontier.finish(lease, OK, links(frontier, "1", "2", "3"))
        assert await claim(frontier) == ()
        await frontier.close()
        frontier = await maker.open(max_pages=3, clock=clock)
        assert set(frontier.stocked) == {lease.host_id}
        assert len(await claim(frontier)) == 2

    async def test_beyond_the_limit_a_retry_is_claimed_although_new_pages_were_found_before_it(
        self, maker: Maker, clock: ManualClock
    ) -> None:
        frontier = await maker.open((A, B), max_pages=4, clock=clock)
        first, second = await claim(frontier)
        await frontier.finish(first, OK, left_out("far", depth=17))
        await frontier.finish(second, OK, links(frontier, "near", "other"))
        near, other = await claim(frontier)
        await frontier.defer(near, Deferral(clock.wall_ms()))
        await frontier.finish(other, OK, links(frontier, "far"))
        counts = (await frontier.claim({}, 1)).snapshot
        assert (counts.counted, counts.pending, counts.reclaimable) == (4, 2, 1)
        assert not counts.finished(4)
        (again,) = (await frontier.claim({host(frontier): 1}, 1)).leases
        assert again.page_id == near.page_id
        await frontier.finish(again, OK, [])
        assert await claim(frontier) == ()
        assert frontier.snapshot.finished(4)

    # An edited spec

    async def test_a_narrower_spec_leaves_out_and_a_wider_one_takes_back_in(
        self, maker: Maker, clock: ManualClock
    ) -> None:
        frontier = await maker.open((A, B), clock=clock)
        lease = next(lease for lease in await claim(frontier) if lease.url == A[0])
        await frontier.finish(lease, OK, links(frontier, "1", "2"))
        await frontier.close()
        frontier = await maker.open(max_depth=0, clock=clock)
        assert await claim(frontier) == ()
        assert frontier.snapshot.excluded == 3
        assert frontier.snapshot.finished(100)
        await frontier.close()
        frontier = await maker.open(max_depth=1, clock=clock)
        assert urls(await claim(frontier)) == [A[0] + "1", A[0] + "2"]
        await frontier.close()
        frontier = await maker.open((A, B), clock=clock)
        assert set(urls(await claim(frontier))) == {A[0] + "1", A[0] + "2", B[0]}

    async def test_a_retry_is_left_out_and_taken_back_in(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open((A, B), max_pages=2, clock=clock)
        for lease in await claim(frontier):
            await frontier.defer(lease, Deferral(clock.wall_ms() + 1000))
        await frontier.close()
        frontier = await maker.open((A,), max_pages=2, clock=clock)
        assert (frontier.snapshot.deferred, frontier.snapshot.excluded, frontier.snapshot.counted) == (1, 1, 2)
        await frontier.close()
        frontier = await maker.open((A, B), max_pages=2, clock=clock)
        clock.advance(1)
        assert sorted(lease.retries for lease in await claim(frontier)) == [1, 1]

    async def test_narrower_patterns_leave_out_and_wider_ones_take_back_in(
        self, maker: Maker, clock: ManualClock
    ) -> None:
        frontier = await maker.open(clock=clock)
        (lease,) = await claim(frontier)
        await frontier.finish(lease, OK, links(frontier, "docs/1", "docs/2", "blog/1", "blog/2", "done"))
        leases = {lease.url.removeprefix(A[0]): lease for lease in await claim(frontier)}
        await frontier.defer(leases["docs/1"], Deferral(clock.wall_ms() + 1000))
        await frontier.defer(leases["blog/1"], Deferral(clock.wall_ms() + 1000))
        await frontier.finish(leases["done"], OK, [])
        await frontier.close()
        frontier = await maker.open(exclude=("/blog/*", "/done"), clock=clock)
        counts = frontier.snapshot
        assert (counts.pending, counts.deferred, counts.excluded, counts.done) == (1, 1, 2, 2), (
            "what is done stays done"
        )
        await frontier.close()
        frontier = await maker.open(include=("/blog/*",), exclude=("/*/2",), clock=clock)
        (lease,) = await claim(frontier)
        assert (lease.url, lease.retries) == (A[0] + "blog/1", 1)
        await frontier.release([lease])
        await frontier.close()
        frontier = await maker.open(clock=clock)
        clock.advance(1)
        retries = {lease.url.removeprefix(A[0]): lease.retries for lease in await claim(frontier)}
        assert retries == {"docs/1": 1, "docs/2": 0, "blog/1": 1, "blog/2": 0}

    async def test_links_that_a_pattern_left_out_are_admitted_by_a_wider_one(
        self, maker: Maker, clock: ManualClock
    ) -> None:
        frontier = await maker.open(exclude=("/private/*",), clock=clock)
        (lease,) = await claim(frontier)
        await frontier.finish(lease, OK, left_out("private/1", "private/2"))
        assert frontier.snapshot.finished(100)
        await frontier.close()
        frontier = await maker.open(exclude=("/private/2",), clock=clock)
        assert urls(await claim(frontier)) == [A[0] + "private/1"]

    async def test_a_seed_needs_no_pattern_as_long_as_it_is_one(self, maker: Maker, clock: ManualClock) -> None:
        other = (A[0] + "start", A[1])
        frontier = await maker.open((A, other), include=("/docs/*",), clock=clock)
        assert frontier.snapshot.pending == 2
        await frontier.close()
        frontier = await maker.open((other,), include=("/docs/*",), clock=clock)
        assert urls(await claim(frontier)) == [other[0]]
        assert frontier.snapshot.excluded == 1

    async def test_links_that_the_spec_does_not_cover_are_kept_for_when_it_does(
        self, maker: Maker, clock: ManualClock
    ) -> None:
        frontier = await maker.open(max_depth=0, clock=clock)
        (lease,) = await claim(frontier)
        await frontier.finish(lease, OK, [*left_out("deep"), *left_out("other", seed=B)])
        assert frontier.snapshot.excluded == 2
        assert frontier.snapshot.finished(100)
        await frontier.close()
        frontier = await maker.open((A, B), max_depth=1, clock=clock)
        assert set(urls(await claim(frontier))) == {A[0] + "deep", B[0] + "other", B[0]}

    @pytest.mark.parametrize("state", ["pending", "leased", "deferred", "excluded"])
    async def test_a_shorter_way_to_a_page_that_is_not_done_is_taken(
        self, maker: Maker, clock: ManualClock, state: str
    ) -> None:
        frontier = await maker.open((A, B), clock=clock)
        first, second = await claim(frontier)
        far = left_out("far", depth=17) if state == "excluded" else links(frontier, "far", depth=9)
        await frontier.finish(first, OK, far)
        leased = await claim(frontier) if state in ("leased", "deferred") else ()
        if state == "deferred":
            await frontier.defer(leased[0], Deferral(clock.wall_ms()))
        await frontier.finish(second, OK, links(frontier, "far", depth=3))
        if state == "leased":
            await frontier.release(leased)
        (lease,) = await claim(frontier)
        assert (lease.url, lease.depth) == (A[0] + "far", 3)

    async def test_a_longer_way_changes_nothing(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open((A, B), clock=clock)
        first, second = await claim(frontier)
        await frontier.finish(first, OK, [*links(frontier, "near", depth=3), *left_out("far", depth=17)])
        await frontier.finish(second, OK, [*links(frontier, "near", depth=4), *left_out("far", depth=18)])
        (lease,) = await claim(frontier)
        assert (lease.url, lease.depth) == (A[0] + "near", 3)
        await frontier.release([lease])
        await frontier.close()
        frontier = await maker.open((A, B), max_depth=17, clock=clock)
        assert {lease.url: lease.depth for lease in await claim(frontier)} == {A[0] + "near": 3, A[0] + "far": 17}

    # Counts

    async def test_a_claim_is_answered_with_the_counts_right_after_it(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open((A, B), clock=clock)
        claimed = await frontier.claim({host(frontier): 1}, 1)
        assert claimed.snapshot == frontier.snapshot
        counts = claimed.snapshot
        assert (counts.pending, counts.leased, counts.counted, counts.reclaimable) == (1, 1, 1, 0)
        await frontier.release(claimed.leases)
        assert (frontier.snapshot.counted, frontier.snapshot.reclaimable) == (1, 1)

    async def test_counts_survive_a_restart(self, maker: Maker, clock: ManualClock) -> None:
        frontier = await maker.open((A, B), clock=clock)
        first, second = await claim(frontier)
        await frontier.finish(first, FAILED, [*links(frontier, "1"), *left_out("2", depth=17)])
        await frontier.defer(second, Deferral(clock.wall_ms() + 1000))
        before = frontier.snapshot
        await frontier.close()
        assert (await maker.open((A, B), clock=clock)).snapshot == before
