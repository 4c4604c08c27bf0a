"""Every frontier does what a small model does, whatever is asked of it in whatever order.

Hypothesis invents openings under edited specs, claims, commits of several operations with good and stale leases, time
that passes and wall clocks that jump; after each step the frontier is compared with the model and its storage is
examined. The examples are the same in every run. ``FRONTIER_EXAMPLES=5000`` looks for new ones, that many; a failure
prints what reproduces it.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from abc import abstractmethod
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.clock import ManualClock
from tests.support.frontier_suite import Maker, MemoryMaker, OpenFrontier, Seed, SqliteMaker

from durable_crawler.frontier import Deferral, FrontierOwnedError, Lease, Link, Result, Snapshot, Verdict
from durable_crawler.frontier.model import QUARANTINE_AFTER, HostState
from durable_crawler.frontier.opening import LONGEST_WAIT_MS
from durable_crawler.frontier.sqlite import LEASE_MS
from durable_crawler.outcomes import Outcome
from durable_crawler.politeness import Pace
from durable_crawler.scope import LeftOut

T = TypeVar("T")

EXAMPLES = int(os.environ.get("FRONTIER_EXAMPLES", "0"))
pytestmark = pytest.mark.timeout(600)  # thousands of commits, each on the disk

SETTINGS = settings(
    max_examples=EXAMPLES or 150,
    derandomize=not EXAMPLES,
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)

SEEDS: tuple[Seed, ...] = tuple((f"https://{name}.example/", f"{name}.example") for name in "abc")


@dataclass(frozen=True)
class Spec:
    """What a frontier is opened with."""

    seeds: tuple[Seed, ...]
    max_depth: int
    max_pages: int
    excluded: str
    """Names of pages, one digit each, that patterns leave out on every host."""

    def covers(self, url: str, authority: str, depth: int) -> bool:
        """Whether a page belongs to the crawl."""
        approved = authority in {authority for _, authority in self.seeds}
        return approved and depth <= self.max_depth and url[-1] not in self.excluded


@dataclass
class Page:
    """A page of the model; ``token`` is that of its lease."""

    authority: str
    depth: int
    state: str
    counted: bool = False
    attempts: int = 0
    retries: int = 0
    token: str = ""
    until_ms: int = 0
    due_ms: int = 0
    result: Result | None = None


@dataclass
class Model:
    """What a frontier is, without leases of other epochs, transactions or files."""

    spec: Spec
    pages: dict[str, Page] = field(default_factory=dict)
    gates: dict[str, int] = field(default_factory=dict)
    epoch: int = 0

    def those(self, state: str) -> list[Page]:
        """The pages in a state."""
        return [page for page in self.pages.values() if page.state == state]

    def open(self, spec: Spec, now: int) -> int:
        """A new epoch; returns how many leases it took back."""
        self.spec, self.epoch = spec, self.epoch + 1
        recovered = self.those("leased")
        for page in recovered:
            self.give_back(page)
        for page in self.those("deferred"):
            page.due_ms = min(page.due_ms, now + LONGEST_WAIT_MS)
        self.gates = {authority: min(until, now + LONGEST_WAIT_MS) for authority, until in self.gates.items()}
        for url, authority in spec.seeds:
            self.add(url, authority, 0)
        for url, page in self.pages.items():
            if page.state in ("pending", "deferred", "excluded"):
                covered = spec.covers(url, page.authority, page.depth)
                page.state = "excluded" if not covered else "pending" if page.state == "excluded" else page.state
        return len(recovered)

    def add(self, url: str, authority: str, depth: int) -> None:
        """A link to a page, or a seed."""
        page = self.pages.setdefault(url, Page(authority, depth, "excluded"))
        if page.state != "done":
            covered = self.spec.covers(url, authority, depth)
            if covered or page.state == "excluded":
                page.depth = min(page.depth, depth)
            if covered and page.state == "excluded":
                page.state = "pending"

    def give_back(self, page: Page) -> None:
        """The end of a lease without an outcome."""
        page.state = "quarantined" if page.attempts >= QUARANTINE_AFTER else "pending"

    def time_passes(self, now: int) -> int:
        """What a claim does first; returns how many leases had run out."""
        late = [page for page in self.those("leased") if page.until_ms <= now]
        for page in late:
            self.give_back(page)
        for page in self.those("deferred"):
            if page.due_ms <= now:
                page.state = "pending"
        return len(late)

    def affordable(self, authority: str) -> tuple[int, int]:
        """Pending pages of a host: those that were claimed before, and the others."""
        pending = [page for page in self.those("pending") if page.authority == authority]
        again = sum(page.counted for page in pending)
        return again, len(pending) - again

    @property
    def budget(self) -> int:
        """How many pages may still be claimed for the first time."""
        return max(0, self.spec.max_pages - sum(page.counted for page in self.pages.values()))

    def held(self, lease: Lease) -> Page | None:
        """The page that a lease holds, be it late."""
        page = self.pages[lease.url]
        return page if page.state == "leased" and page.token == lease.token else None

    def close(self, authority: str, until: int | None) -> None:
        """Close a host's gate, or keep it closed for longer."""
        if until is not None:
            self.gates[authority] = max(until, self.gates.get(authority, 0))

    def snapshot(self) -> Snapshot:
        """The counts that the frontier should give."""
        results = [page.result for page in self.pages.values() if page.result is not None]
        return Snapshot(
            pending=len(self.those("pending")),
            leased=len(self.those("leased")),
            deferred=len(self.those("deferred")),
            done=len(self.those("done")),
            quarantined=len(self.those("quarantined")),
            excluded=len(self.those("excluded")),
            counted=sum(page.counted for page in self.pages.values()),
            reclaimable=sum(page.counted for page in self.those("pending")),
            failed=sum(result.outcome.failed for result in results),
            bytes=sum(result.bytes for result in results),
            next_due_ms=min((page.due_ms for page in self.those("deferred")), default=None),
        )


@dataclass(frozen=True)
class Step:
    """One operation of a commit: what, by which of the leases that are good, or of all there ever were, and everything
    that some operations need."""

    what: str
    lease: int
    of_all: bool
    links: tuple[tuple[int, int], ...]
    wait_ms: int
    closed_ms: int | None
    outcome: Outcome


specs = st.builds(
    Spec,
    st.sampled_from([SEEDS, SEEDS[::-1], SEEDS[:2], SEEDS[1:], SEEDS[:1]]),
    st.sampled_from([4, 3, 2, 1, 0]),
    st.sampled_from([40, 20, 10, 5]),
    st.sampled_from(["", "", "1", "23456789"]),
)
steps = st.builds(
    Step,
    what=st.sampled_from(["finish", "finish", "defer", "release", "renew"]),
    lease=st.integers(0, 11),
    of_all=st.sampled_from([False, False, False, True]),
    links=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), min_size=3, max_size=8).map(tuple) | st.just(()),
    wait_ms=st.sampled_from([-1, 0, 500, 5_000, 90_000]),
    closed_ms=st.sampled_from([None, 500, 50_000, 90_000]),
    outcome=st.sampled_from([Outcome.OK, Outcome.HTTP_ERROR]),
)
jumps = st.sampled_from([0, 0, 5, -5, 90, -90, 86_400, -86_400])


class FrontierMachine(RuleBasedStateMachine):
    """One storage, one event loop, one model."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.maker = self.make()
        self.frontier: OpenFrontier
        self.model: Model
        self.leases: list[Lease] = []

    @abstractmethod
    def make(self) -> Maker:
        """What opens the frontiers of this machine."""

    def teardown(self) -> None:
        try:
            self.call(self.maker.close())
        finally:
            self.runner.close()
            super().teardown()

    def call(self, awaitable: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(awaitable)

    @initialize(spec=specs, found=st.sampled_from([9, 5, 2, 0]))
    def first_opening(self, spec: Spec, found: int) -> None:
        """A crawl that has begun: the seeds are done and have brought pages, some of which the spec may not cover."""
        self.model = Model(spec)
        self.open(spec)
        self.claim([1, 1, 1], 3, None)
        links = tuple((host, name) for host in range(len(SEEDS)) for name in range(1, found + 1))
        self.commit([Step("finish", lease, False, links, 0, None, Outcome.OK) for lease in range(len(self.leases))])

    @precondition(lambda self: self.commits >= 4)
    @rule(spec=st.none() | specs, jump=jumps)
    def opening(self, spec: Spec | None, jump: int) -> None:
        """Another process goes on, perhaps with an edited spec, perhaps under another clock."""
        self.call(self.frontier.close())
        self.clock.jump(jump)
        self.open(spec or self.model.spec)

    def open(self, spec: Spec) -> None:
        self.commits = 0
        recovered = self.model.open(spec, self.clock.wall_ms())
        self.frontier = self.call(
            self.maker.open(
                spec.seeds,
                max_pages=spec.max_pages,
                max_depth=spec.max_depth,
                exclude=tuple(f"/{name}" for name in spec.excluded),
                clock=self.clock,
            )
        )
        assert self.frontier.recovered == recovered
        assert self.frontier.epoch == self.model.epoch
        gates = {host.authority: host.closed_until_ms for host in self.frontier.hosts.values()}
        assert gates == {authority: self.model.gates.get(authority, 0) for _, authority in spec.seeds}

    @precondition(lambda self: self.commits >= 4)
    @rule(commit=st.lists(steps, min_size=1, max_size=3))
    def rival(self, commit: list[Step]) -> None:
        """Somebody else begins an epoch: everything is refused from now on, and changes nothing."""
        self.maker.usurp()
        self.model.epoch += 1
        with pytest.raises(FrontierOwnedError):
            self.call(self.frontier.claim(dict.fromkeys(self.frontier.hosts, 5), 5))
        if self.leases:
            answers = self.call(self.together(commit, self.chosen(commit)))
            assert [type(answer) for answer in answers] == [FrontierOwnedError] * len(commit)
        self.call(self.frontier.close())
        self.open(self.model.spec)

    @rule(seconds=st.sampled_from([0.5, 5, 60, 119.999, 120]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(
        slots=st.tuples(*[st.integers(1, 4) | st.just(0)] * 3),
        limit=st.integers(3, 9) | st.integers(0, 9),
        gate_ms=st.sampled_from([None, None, 500, 90_000]),
    )
    def claim(self, slots: Sequence[int], limit: int, gate_ms: int | None) -> None:
        ids = {host.authority: host.id for host in self.frontier.hosts.values()}
        wants = {authority: wanted for (_, authority), wanted in zip(SEEDS, slots, strict=True) if authority in ids}
        asked = {ids[authority]: wanted for authority, wanted in wants.items()}
        until = None if gate_ms is None else self.clock.wall_ms() + gate_ms
        gates = {} if until is None else dict.fromkeys(asked, until)
        claimed = self.call(self.frontier.claim(asked, limit, gates))
        assert claimed.expired == self.model.time_passes(self.clock.wall_ms())
        assert claimed.snapshot == self.frontier.snapshot
        again = new = 0
        for authority, wanted in wants.items():
            known, unknown = self.model.affordable(authority)
            again += min(wanted, known)
            new += min(wanted - min(wanted, known), unknown)
        budget = self.model.budget
        assert len(claimed.leases) == min(limit, again + min(new, budget))
        first_claims = sum(not self.model.pages[lease.url].counted for lease in claimed.leases)
        for lease in claimed.leases:
            page = self.model.pages[lease.url]
            assert page.state == "pending"
            assert lease.host_id == ids[page.authority]
            assert (lease.depth, lease.attempt, lease.retries) == (page.depth, page.attempts + 1, page.retries)
            assert lease.token not in {earlier.token for earlier in self.leases}
            wants[page.authority] -= 1
            page.state, page.counted, page.attempts, page.token = "leased", True, page.attempts + 1, lease.token
            page.until_ms = self.clock.wall_ms() + LEASE_MS
            self.model.close(page.authority, until)
            self.leases.append(lease)
        assert all(left >= 0 for left in wants.values())
        if len(claimed.leases) < limit:  # who gave less than was asked has nothing left
            assert not {ids[authority] for authority, left in wants.items() if left} & set(self.frontier.stocked)
        assert first_claims <= budget

    @rule(commit=st.lists(steps, min_size=2, max_size=6))
    def work(self, commit: list[Step]) -> None:
        """What an engine does all the time: claim, and settle at once."""
        self.claim([4, 4, 4], 12, None)
        self.commit(commit)

    @rule(which=st.integers(0, 2))
    def host_is_given_up(self, which: int) -> None:
        """All that waits for it is closed; what is leased is not."""
        authority = SEEDS[which][1]
        host_id = next((host.id for host in self.frontier.hosts.values() if host.authority == authority), None)
        if host_id is None:
            return
        waiting = [*self.model.those("pending"), *self.model.those("deferred")]
        waiting = [page for page in waiting if page.authority == authority]
        assert self.call(self.frontier.close_host(host_id, Outcome.HOST_DEAD, "gone")) == len(waiting)
        assert host_id not in self.frontier.stocked
        for page in waiting:
            page.state, page.result = "done", Result(Outcome.HOST_DEAD, error="gone")

    @rule(commit=st.lists(steps, min_size=1, max_size=5))
    def commit(self, commit: list[Step]) -> None:
        """Several workers at the same moment, some of them with leases that are not theirs any more."""
        if not self.leases:
            return
        self.commits += 1
        leases = self.chosen(commit)
        answers = self.call(self.together(commit, leases))
        assert answers == [self.expect(step, lease) for step, lease in zip(commit, leases, strict=True)]

    def chosen(self, commit: list[Step]) -> list[Lease]:
        good = [lease for lease in self.leases if self.model.held(lease)] or self.leases
        pools = [self.leases if step.of_all else good for step in commit]
        return [pool[-1 - step.lease % len(pool)] for step, pool in zip(commit, pools, strict=True)]

    async def together(self, commit: list[Step], leases: list[Lease]) -> list[bool | BaseException]:
        operations = (self.ask(step, lease) for step, lease in zip(commit, leases, strict=True))
        return await asyncio.gather(*operations, return_exceptions=True)

    async def ask(self, step: Step, lease: Lease) -> bool:
        """Whether the lease was still ours."""
        now = self.clock.wall_ms()
        closed = None if step.closed_ms is None else HostState(Pace(), now + step.closed_ms)
        match step.what:
            case "finish":
                result = Result(step.outcome, bytes=lease.page_id)
                return await self.frontier.finish(lease, result, self.links(step, lease), closed) is Verdict.KEPT
            case "defer":
                return await self.frontier.defer(lease, Deferral(now + step.wait_ms, closed)) is Verdict.KEPT
            case "release":
                return await self.frontier.release([lease]) == 1
            case _:
                return await self.frontier.renew([lease]) == {lease.page_id}

    def expect(self, step: Step, lease: Lease) -> bool:
        """The same on the model."""
        now = self.clock.wall_ms()
        page = self.model.held(lease)
        if page is None or (page.until_ms <= now and step.what != "release"):
            return False
        closed = None if step.closed_ms is None else now + step.closed_ms
        match step.what:
            case "finish":
                page.state, page.result = "done", Result(step.outcome, bytes=lease.page_id)
                self.model.close(page.authority, closed)
                for link in self.links(step, lease):
                    self.model.add(link.url, link.authority, link.depth)
            case "defer":
                page.state, page.due_ms = "deferred", now + step.wait_ms
                page.attempts, page.retries = 0, page.retries + 1
                self.model.close(page.authority, closed)
            case "release":
                page.state, page.attempts = "pending", page.attempts - 1
            case _:
                page.until_ms = now + LEASE_MS
        return True

    def links(self, step: Step, lease: Lease) -> list[Link]:
        """Known, new and repeated ones; those that the spec does not cover without a host, as the engine does it."""
        ids = {host.authority: host.id for host in self.frontier.hosts.values()}
        depth = lease.depth + 1
        links = []
        for host, name in step.links:
            seed, authority = SEEDS[host]
            url = f"{seed}{name or ''}"
            covered = self.model.spec.covers(url, authority, depth)
            why = None if covered else LeftOut.EXCLUDED if authority in ids else LeftOut.AUTHORITY
            links.append(Link(url, authority, ids[authority] if covered else None, depth, why))
        return links

    @invariant()
    def storage_is_sound(self) -> None:
        assert self.maker.broken_invariants() == []

    @invariant()
    def results_are_those_of_the_model(self) -> None:
        """Hence nothing that is done goes back, and nothing has two results."""
        assert self.maker.outcomes() == {
            url: [page.result.outcome] for url, page in self.model.pages.items() if page.result is not None
        }

    @invariant()
    def counts_are_those_of_the_model(self) -> None:
        assert self.frontier.snapshot == self.model.snapshot()

    @invariant()
    def no_claimable_page_is_forgotten(self) -> None:
        for host in self.frontier.hosts.values():
            again, new = self.model.affordable(host.authority)
            if again or (new and self.model.budget):
                assert host.id in self.frontier.stocked
        assert set(self.frontier.stocked) <= self.frontier.hosts.keys()


class SqliteMachine(FrontierMachine):
    """On a real file, where there is one in memory: thousands of commits, each of them synced."""

    def make(self) -> Maker:
        fast = Path("/dev/shm")
        self.folder = tempfile.TemporaryDirectory(
            prefix="durable-crawler-", dir=fast if os.access(fast, os.W_OK) else None
        )
        return SqliteMaker(Path(self.folder.name) / "frontier.db")

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.folder.cleanup()


class MemoryMachine(FrontierMachine):
    """On the fake of the simulations."""

    def make(self) -> Maker:
        return MemoryMaker()


TestSqliteFrontier = SqliteMachine.TestCase
TestSqliteFrontier.settings = SETTINGS
TestMemoryFrontier = MemoryMachine.TestCase
TestMemoryFrontier.settings = SETTINGS
