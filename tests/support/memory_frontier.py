"""A frontier in memory, for simulations on virtual time: small enough to be obviously right, and verified all the same.

``frontier_suite`` and the state machine of the property tier judge it exactly as they judge ``SqliteFrontier``. What a
file is to that one, ``Memory`` is to this one: it outlives the frontier that is opened on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Self

from durable_crawler.clock import Clock
from durable_crawler.frontier import (
    Claimed,
    Deferral,
    FrontierBrokenError,
    FrontierError,
    FrontierOwnedError,
    Host,
    HostState,
    Lease,
    Link,
    Result,
    Snapshot,
    Verdict,
)
from durable_crawler.frontier.model import QUARANTINE_AFTER
from durable_crawler.frontier.opening import Admission
from durable_crawler.frontier.sqlite import LEASE_MS
from durable_crawler.outcomes import Outcome
from durable_crawler.politeness import Pace
from durable_crawler.robots import KnownRobots


@dataclass(eq=False)
class Page:
    """A page as it is kept. ``token``, ``epoch`` and ``lease_until_ms`` mean something in the state ``leased`` only,
    ``due_ms`` in ``deferred`` only."""

    id: int
    url: str
    host_id: int
    depth: int
    state: str
    counted: bool = False
    attempts: int = 0
    retries: int = 0
    token: str = ""
    epoch: int = 0
    lease_until_ms: int = 0
    due_ms: int = 0
    results: list[Result] = field(default_factory=list)


@dataclass(eq=False)
class Memory:
    """What stays when a frontier is closed, or its process is killed."""

    pages: dict[str, Page] = field(default_factory=dict)
    authorities: dict[str, int] = field(default_factory=dict)
    closed_until_ms: dict[int, int] = field(default_factory=dict)
    paces: dict[int, Pace] = field(default_factory=dict)
    robots: dict[str, KnownRobots] = field(default_factory=dict)
    epoch: int = 0
    tokens: int = 0
    restart_request: str | None = None
    owned: bool = False

    def host(self, authority: str) -> int:
        """The id of an authority, known or new."""
        return self.authorities.setdefault(authority, len(self.authorities) + 1)

    def in_state(self, *states: str) -> list[Page]:
        """Pages in the order of their discovery."""
        return [page for page in self.pages.values() if page.state in states]

    def snapshot(self) -> Snapshot:
        """Counted afresh each time."""
        results = [result for page in self.pages.values() for result in page.results]
        return Snapshot(
            pending=len(self.in_state("pending")),
            leased=len(self.in_state("leased")),
            deferred=len(self.in_state("deferred")),
            done=len(self.in_state("done")),
            quarantined=len(self.in_state("quarantined")),
            excluded=len(self.in_state("excluded")),
            counted=sum(page.counted for page in self.pages.values()),
            reclaimable=sum(page.counted for page in self.in_state("pending")),
            failed=sum(result.outcome.failed for result in results),
            bytes=sum(result.bytes for result in results),
            next_due_ms=min((page.due_ms for page in self.in_state("deferred")), default=None),
        )

    def broken_invariants(self) -> list[str]:
        """Names of what ought to hold and does not."""
        broken = []
        if any(len(page.results) != (page.state == "done") for page in self.pages.values()):
            broken.append("a page has a result if and only if it is done, and then one")
        if any(not page.counted for page in self.in_state("leased", "deferred", "quarantined")):
            broken.append("a page was worked on that counts for nothing")
        return broken


class _Order(IntEnum):
    """Within a commit, what was found goes before what is taken."""

    SETTLE = 1
    CLAIM = 2


class MemoryFrontier:
    """Implements the port ``Frontier``. An operation is committed, with all others that wait by then, ``latency()``
    seconds after the first of them was asked for."""

    def __init__(self, memory: Memory, admission: Admission, max_pages: int, clock: Clock) -> None:
        self._memory = memory
        self._max_pages = max_pages
        self._clock = clock
        self._waiting: list[tuple[_Order, Callable[[], Any], asyncio.Future[Any]]] = []
        self._commit_due: asyncio.TimerHandle | None = None
        self._stop: FrontierError | None = None
        self._closed = False
        self.latency: Callable[[], float] = lambda: 0.0
        memory.owned = True
        memory.epoch += 1
        self.epoch = memory.epoch
        self.recovered = sum(self._give_back(page) for page in memory.in_state("leased"))
        self.again = self._try_again(admission.restart_request)
        self._hosts = self._admit(admission)
        self._snapshot = memory.snapshot()
        self._told: set[int] = set()

    @classmethod
    async def open(cls, memory: Memory, admission: Admission, *, max_pages: int, clock: Clock) -> Self:
        """Own ``memory`` from now on, take back what was leased, admit the spec."""
        if memory.owned:
            raise FrontierOwnedError("somebody else has this frontier open")
        return cls(memory, admission, max_pages, clock)

    @property
    def snapshot(self) -> Snapshot:
        return self._snapshot

    @property
    def lease_ms(self) -> int:
        return LEASE_MS

    @property
    def finished(self) -> bool:
        return self.snapshot.finished(self._max_pages)

    @property
    def stocked(self) -> Collection[int]:
        affordable = self._snapshot.counted < self._max_pages
        return {page.host_id for page in self._memory.in_state("pending") if page.counted or affordable}

    def restocked(self) -> Collection[int]:
        before, self._told = self._told, set(self.stocked)
        return before ^ self._told

    @property
    def hosts(self) -> Mapping[int, Host]:
        return self._hosts

    async def claim(
        self, wants: Mapping[int, int], limit: int, gates: Mapping[int, int] = MappingProxyType({})
    ) -> Claimed:
        claimed: Claimed = await self._commit(_Order.CLAIM, lambda: self._claim(wants, limit, gates))
        return claimed

    async def finish(
        self, lease: Lease, result: Result, links: Sequence[Link], host: HostState | None = None
    ) -> Verdict:
        verdict: Verdict = await self._commit(_Order.SETTLE, lambda: self._finish(lease, result, links, host))
        return verdict

    async def defer(self, lease: Lease, deferral: Deferral) -> Verdict:
        verdict: Verdict = await self._commit(_Order.SETTLE, lambda: self._defer(lease, deferral))
        return verdict

    async def release(self, leases: Sequence[Lease]) -> int:
        released: int = await self._commit(_Order.SETTLE, lambda: sum(map(self._release, leases)))
        return released

    async def renew(self, leases: Sequence[Lease]) -> frozenset[int]:
        kept: frozenset[int] = await self._commit(
            _Order.SETTLE, lambda: frozenset(lease.page_id for lease in leases if self._renew(lease))
        )
        return kept

    async def close_host(self, host_id: int, outcome: Outcome, error: str) -> int:
        closed: int = await self._commit(_Order.SETTLE, lambda: self._close_all_of(host_id, outcome, error))
        return closed

    async def robots_of(self, origin: str) -> KnownRobots | None:
        return self._memory.robots.get(origin)

    async def keep_robots(self, known: KnownRobots) -> None:
        await self._commit(_Order.SETTLE, lambda: self._memory.robots.update({known.origin: known}))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._commit_due is not None:
            self._commit_due.cancel()
            self._commit_all()
        self._stop = self._stop or FrontierBrokenError("the frontier is closed")
        self._memory.owned = False

    async def _commit(self, order: _Order, apply: Callable[[], Any]) -> Any:
        if self._stop is not None:
            raise self._stop
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self._waiting.append((order, apply, answer))
        if self._commit_due is None:
            self._commit_due = loop.call_later(self.latency(), self._commit_all)
        return await answer

    def _commit_all(self) -> None:
        self._commit_due = None
        # Waiting workers that were cancelled are not answered, but what they asked for is done.
        waiting, self._waiting = sorted(self._waiting, key=lambda operation: operation[0]), []
        if self._memory.epoch != self.epoch:
            self._stop = FrontierOwnedError("another epoch has begun")
        answers = []
        for _, apply, answer in waiting:
            answers.append((answer, None if self._stop else apply()))
        self._snapshot = self._memory.snapshot()
        for answer, value in answers:
            if answer.done():
                continue
            if self._stop is not None:
                answer.set_exception(self._stop)
            else:
                answer.set_result(value)

    def _try_again(self, request: str | None) -> int:
        memory = self._memory
        if request in (None, memory.restart_request):
            return 0
        memory.restart_request = request
        for host_id, pace in memory.paces.items():
            memory.paces[host_id] = replace(pace, failures=0, openings=0)
        memory.robots = {origin: known for origin, known in memory.robots.items() if not known.failures}
        failed = [page for page in memory.in_state("done") if page.results[0].outcome.failed]
        again = [*failed, *memory.in_state("quarantined")]
        for page in again:
            page.state, page.attempts, page.retries = "pending", 0, 0
            page.results.clear()
        return len(again)

    def _admit(self, admission: Admission) -> dict[int, Host]:
        memory, latest = self._memory, self._clock.wall_ms() + admission.longest_wait_ms
        for host_id, until in memory.closed_until_ms.items():
            memory.closed_until_ms[host_id] = min(until, latest)
        for page in memory.in_state("deferred"):
            page.due_ms = min(page.due_ms, latest)
        approved = {memory.host(authority): authority for authority in admission.authorities}
        for url, authority in admission.seeds:
            self._add(Link(url, authority, memory.host(authority), 0))
        scope = admission.scope
        for page in memory.in_state("pending", "deferred", "excluded"):
            if scope.objection(page.url, page.depth) is not None:
                page.state = "excluded"
            elif page.state == "excluded":
                page.state = "pending"
        return {
            id_: Host(id_, authority, memory.closed_until_ms.get(id_, 0), memory.paces.get(id_, Pace()))
            for id_, authority in approved.items()
        }

    def _claim(self, wants: Mapping[int, int], limit: int, gates: Mapping[int, int]) -> Claimed:
        now = self._clock.wall_ms()
        late = [page for page in self._memory.in_state("leased") if page.lease_until_ms <= now]
        for page in late:
            self._give_back(page)
        for page in self._memory.in_state("deferred"):
            if page.due_ms <= now:
                page.state = "pending"
        left = dict(wants)
        budget = self._max_pages - self._memory.snapshot().counted
        leases: list[Lease] = []
        # What costs nothing of the budget first; sorting keeps the order of discovery.
        for page in sorted(self._memory.in_state("pending"), key=lambda page: not page.counted):
            if len(leases) >= limit or left.get(page.host_id, 0) < 1 or not (page.counted or budget > 0):
                continue
            left[page.host_id] -= 1
            budget -= not page.counted
            self._memory.tokens += 1
            page.state, page.counted, page.attempts = "leased", True, page.attempts + 1
            page.token, page.epoch, page.lease_until_ms = f"{self._memory.tokens:032x}", self.epoch, now + LEASE_MS
            leases.append(Lease(page.id, page.token, page.url, page.host_id, page.depth, page.attempts, page.retries))
        for host_id in {lease.host_id for lease in leases} & gates.keys():
            self._close_host(host_id, gates[host_id])
        return Claimed(tuple(leases), len(late), self._memory.snapshot())

    def _finish(self, lease: Lease, result: Result, links: Sequence[Link], host: HostState | None) -> Verdict:
        page = self._held(lease)
        if page is None:
            return Verdict.LOST
        page.state, page.attempts = "done", 0
        page.results.append(result)
        self._keep(page.host_id, host)
        for link in links:
            self._add(link)
        return Verdict.KEPT

    def _defer(self, lease: Lease, deferral: Deferral) -> Verdict:
        page = self._held(lease)
        if page is None:
            return Verdict.LOST
        page.state, page.due_ms, page.attempts, page.retries = "deferred", deferral.due_ms, 0, page.retries + 1
        self._keep(page.host_id, deferral.host)
        return Verdict.KEPT

    def _release(self, lease: Lease) -> bool:
        page = self._held(lease, also_late=True)
        if page is None:
            return False
        page.state, page.attempts = "pending", page.attempts - 1
        return True

    def _renew(self, lease: Lease) -> bool:
        page = self._held(lease)
        if page is None:
            return False
        page.lease_until_ms = self._clock.wall_ms() + LEASE_MS
        return True

    def _held(self, lease: Lease, *, also_late: bool = False) -> Page | None:
        """The page, if exactly this lease is the one that holds it."""
        page = self._memory.pages[lease.url]
        ours = page.state == "leased" and (page.token, page.epoch) == (lease.token, self.epoch)
        return page if ours and (also_late or page.lease_until_ms > self._clock.wall_ms()) else None

    def _give_back(self, page: Page) -> bool:
        page.state = "quarantined" if page.attempts >= QUARANTINE_AFTER else "pending"
        return True

    def _keep(self, host_id: int, host: HostState | None) -> None:
        if host is not None:
            # A restart counts good answers afresh: they only make a host's gap shrink a little later.
            self._memory.paces[host_id] = replace(host.pace, answers=0)
            self._close_host(host_id, host.closed_until_ms)

    def _close_host(self, host_id: int, until_ms: int) -> None:
        self._memory.closed_until_ms[host_id] = max(until_ms, self._memory.closed_until_ms.get(host_id, 0))

    def _close_all_of(self, host_id: int, outcome: Outcome, error: str) -> int:
        waiting = [page for page in self._memory.in_state("pending", "deferred") if page.host_id == host_id]
        for page in waiting:
            page.state = "done"
            page.results.append(Result(outcome, error=error))
        return len(waiting)

    def _add(self, link: Link) -> None:
        """A new page, or a shorter way to one that is not done; one that was left out comes in if it is covered now."""
        covered = link.host_id is not None
        page = self._memory.pages.get(link.url)
        if page is None:
            state = "pending" if covered else "excluded"
            host_id = self._memory.host(link.authority)
            self._memory.pages[link.url] = Page(len(self._memory.pages) + 1, link.url, host_id, link.depth, state)
        elif page.state == "excluded" or (covered and page.state != "done"):
            page.depth = min(page.depth, link.depth)
            if covered and page.state == "excluded":
                page.state = "pending"
