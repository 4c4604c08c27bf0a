"""One flush: a set of operations as one transaction of a few statements over sets (law L13).

Called by ``sqlite``'s flusher with everything that queued up while the previous flush ran. Finishes come before claims,
so that links found a moment ago can be claimed in the same commit. Nothing is answered here; the flusher does that
after the commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from durable_crawler.frontier.found import Found, store
from durable_crawler.frontier.known import Known
from durable_crawler.frontier.model import (
    QUARANTINE_AFTER,
    Claimed,
    Deferral,
    FrontierOwnedError,
    Host,
    HostState,
    Lease,
    Link,
    Result,
    Snapshot,
    Verdict,
)
from durable_crawler.frontier.sets import ROWS_PER_STATEMENT, Run, as_json
from durable_crawler.outcomes import Outcome
from durable_crawler.politeness import Pace
from durable_crawler.robots import KnownRobots


@dataclass(slots=True, eq=False)
class Operation:
    """Something asked of the frontier, and the future that is answered after the commit."""

    name: ClassVar[str]
    """What it is called in metrics."""

    answer: asyncio.Future[Any]

    @property
    def pages(self) -> Collection[int]:
        """Ids of the pages whose leases it names."""
        return ()


@dataclass(slots=True, eq=False)
class Claim(Operation):
    name = "claim"

    wants: Mapping[int, int]
    limit: int
    gates: Mapping[int, int]


@dataclass(slots=True, eq=False)
class CloseHost(Operation):
    name = "close_host"

    host_id: int
    outcome: Outcome
    error: str


@dataclass(slots=True, eq=False)
class KeepRobots(Operation):
    name = "keep_robots"

    known: KnownRobots


@dataclass(slots=True, eq=False)
class Finish(Operation):
    name = "finish"

    lease: Lease
    result: Result
    links: Sequence[Link]
    host: HostState | None

    @property
    def pages(self) -> Collection[int]:
        return (self.lease.page_id,)


@dataclass(slots=True, eq=False)
class Defer(Operation):
    name = "defer"

    lease: Lease
    deferral: Deferral

    @property
    def pages(self) -> Collection[int]:
        return (self.lease.page_id,)


@dataclass(slots=True, eq=False)
class Release(Operation):
    name = "release"

    leases: Sequence[Lease]

    @property
    def pages(self) -> Collection[int]:
        return {lease.page_id for lease in self.leases}


@dataclass(slots=True, eq=False)
class Renew(Operation):
    name = "renew"

    leases: Sequence[Lease]

    @property
    def pages(self) -> Collection[int]:
        return {lease.page_id for lease in self.leases}


@dataclass(slots=True, eq=False)
class AdmitExternal(Operation):
    name = "admit_external"

    max_hosts: int
    max_links: int
    """In all, those of earlier runs included."""


OPERATIONS = tuple(kind.name for kind in (Claim, Finish, Defer, Release, Renew, CloseHost, KeepRobots, AdmitExternal))
"""All kinds of operations by name."""


@dataclass(slots=True)
class Flushed:
    """What a committed flush led to: an answer for each operation, hosts that gained or ran out of pending pages."""

    snapshot: Snapshot
    answers: list[tuple[Operation, Any]] = field(default_factory=list)
    stocked: set[int] = field(default_factory=set)
    drained: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for every statement of a flush: who we are, the time, how long a lease lasts, the page limit, what is
    remembered of earlier ones, and what they cost."""

    epoch: int
    now_ms: int
    lease_ms: int
    max_pages: int
    known: Known = field(default_factory=lambda: Known(0))
    spent: Sequence[tuple[str, int]] = ()
    """Time to be added up: milliseconds by cause."""


async def flush(run: Run, operations: Sequence[Operation], terms: Terms) -> Flushed:
    """Run one transaction. Raises whatever ``run`` raises, and ``FrontierOwnedError`` when another epoch has begun.

    Each page is named by one of the operations at most: statements tell by the page whether its lease was kept.
    """
    await run("begin", {})
    ((epoch,),) = await run("epoch", {})
    if epoch != terms.epoch:
        raise FrontierOwnedError("another process has taken over this frontier; this one was fenced")
    if terms.spent:
        await run("spend", {"spent": as_json(terms.spent), "epoch": terms.epoch})
    answers: list[tuple[Operation, Any]] = []
    stocked: set[int] = set()
    drained: set[int] = set()

    await _finish(run, [op for op in operations if isinstance(op, Finish)], terms, answers, stocked)
    await _defer(run, [op for op in operations if isinstance(op, Defer)], terms, answers)
    await _pace(run, operations, {id(op) for op, answer in answers if answer is Verdict.KEPT})
    await _release(run, [op for op in operations if isinstance(op, Release)], terms, answers, stocked)
    await _renew(run, [op for op in operations if isinstance(op, Renew)], terms, answers)
    for op in operations:
        match op:
            case CloseHost():
                answers.append((op, await _close_host(run, op, terms)))
                stocked.discard(op.host_id)
                drained.add(op.host_id)
            case AdmitExternal():
                answers.append((op, await _admit_external(run, op)))
            case KeepRobots(known=known):
                await run("keep_robots", {field: getattr(known, field) for field in KnownRobots.__slots__})
                answers.append((op, None))
    # The engine has one dispatcher: a flush holds one claim at most.
    claims = [(op, *await _claim(run, op, terms, stocked, drained)) for op in operations if isinstance(op, Claim)]

    (row,) = await run("snapshot", {})
    snapshot = Snapshot(*row)
    answers += [(claim, Claimed(leases, expired, snapshot)) for claim, leases, expired in claims]
    await run("commit", {})
    return Flushed(snapshot, answers, stocked, drained)


async def _finish(
    run: Run, finishes: Sequence[Finish], terms: Terms, answers: list[tuple[Operation, Any]], stocked: set[int]
) -> None:
    if not finishes:
        return
    fence = {"epoch": terms.epoch, "now": terms.now_ms}
    rows = await run("finish", {**fence, "leases": as_json([_named(op.lease) for op in finishes])})
    kept = {page_id for (page_id,) in rows}
    won = [op for op in finishes if op.lease.page_id in kept]
    answers += [(op, Verdict.KEPT if op.lease.page_id in kept else Verdict.LOST) for op in finishes]
    if not won:
        return
    found = [Found(op.lease.page_id, op.result, op.links) for op in won]
    stocked.update(await store(run, found, terms.known, terms.now_ms))


async def _defer(run: Run, defers: Sequence[Defer], terms: Terms, answers: list[tuple[Operation, Any]]) -> None:
    if not defers:
        return
    leases = as_json([[*_named(op.lease), op.deferral.due_ms] for op in defers])
    kept = {page_id for (page_id,) in await run("defer", {"epoch": terms.epoch, "now": terms.now_ms, "leases": leases})}
    answers += [(op, Verdict.KEPT if op.lease.page_id in kept else Verdict.LOST) for op in defers]
    attempts = [
        [op.lease.page_id, attempt.outcome, attempt.status, attempt.error, attempt.duration_ms, op.deferral.due_ms]
        for op in defers
        if op.lease.page_id in kept and (attempt := op.deferral.attempt) is not None
    ]
    if attempts:
        await run("note_attempts", {"attempts": as_json(attempts), "now": terms.now_ms})


async def _pace(run: Run, operations: Sequence[Operation], kept: Collection[int]) -> None:
    """Keep what became of hosts: of several states of one host the last, of several gates the one furthest away."""
    latest: dict[int, list[int]] = {}
    for op in operations:
        state: HostState | None = None
        match op:
            case Finish(lease=lease, host=state) | Defer(lease=lease, deferral=Deferral(host=state)):
                pass
        if state is not None and id(op) in kept:
            pace, until = state.pace, state.closed_until_ms
            before = latest.get(lease.host_id, [0, 0])[1]
            row = [lease.host_id, max(until, before), round(pace.gap * 1000), pace.failures, pace.openings]
            latest[lease.host_id] = row
    if latest:
        await run("pace_hosts", {"hosts": as_json(list(latest.values()))})


async def _close_host(run: Run, op: CloseHost, terms: Terms) -> int:
    closed = 0
    for statement in ("close_pending", "close_deferred"):
        while rows := await run(statement, {"host": op.host_id, "limit": ROWS_PER_STATEMENT}):
            part = as_json([page_id for (page_id,) in rows])
            await run("record_closed", {"pages": part, "outcome": op.outcome, "error": op.error, "now": terms.now_ms})
            closed += len(rows)
    return closed


async def _admit_external(run: Run, op: AdmitExternal) -> tuple[Host, ...]:
    """Make links that lead out of the crawl pending, of so many hosts; the hosts that have any now."""
    ((admitted, _),) = await run("verified", {})
    limit = min(ROWS_PER_STATEMENT, op.max_links - admitted)
    wanted = await run("external_hosts", {"limit": op.max_hosts}) if limit > 0 else ()
    if not wanted:
        return ()
    hosts = as_json([host_id for (host_id,) in wanted])
    stocked = {host_id for (host_id,) in await run("admit_external", {"hosts": hosts, "limit": limit})}
    rows = await run("hosts_by_id", {"hosts": as_json(sorted(stocked))})
    return tuple(
        Host(host_id, authority, closed, Pace(gap_ms / 1000, 0, failures, openings))
        for host_id, authority, closed, gap_ms, failures, openings in rows
    )


async def _release(
    run: Run, releases: Sequence[Release], terms: Terms, answers: list[tuple[Operation, Any]], stocked: set[int]
) -> None:
    leases = [_named(lease) for op in releases for lease in op.leases]
    rows = await run("release", {"epoch": terms.epoch, "leases": as_json(leases)}) if leases else ()
    released = {page_id for page_id, _ in rows}
    stocked.update(host_id for _, host_id in rows)
    answers += [(op, len(released.intersection(op.pages))) for op in releases]


async def _renew(run: Run, renewals: Sequence[Renew], terms: Terms, answers: list[tuple[Operation, Any]]) -> None:
    leases = [_named(lease) for op in renewals for lease in op.leases]
    parameters = {
        "epoch": terms.epoch,
        "leases": as_json(leases),
        "now": terms.now_ms,
        "until": terms.now_ms + terms.lease_ms,
    }
    rows = await run("renew", parameters) if leases else ()
    kept = {page_id for (page_id,) in rows}
    answers += [(op, frozenset(kept.intersection(op.pages))) for op in renewals]


async def _claim(
    run: Run, claim: Claim, terms: Terms, stocked: set[int], drained: set[int]
) -> tuple[tuple[Lease, ...], int]:
    expired = await run("expire", {"now": terms.now_ms, "limit": QUARANTINE_AFTER})
    promoted = await run("promote", {"now": terms.now_ms})
    again = {host_id for (host_id,) in (*expired, *promoted)}
    stocked |= again
    drained -= again
    if not claim.wants or claim.limit < 1:
        return (), len(expired)
    (row,) = await run("snapshot", {})
    budget = max(0, terms.max_pages - Snapshot(*row).counted)
    rows = await run(
        "claim",
        {
            "wants": as_json(list(claim.wants.items())),
            "limit": claim.limit,
            "budget": budget,
            "epoch": terms.epoch,
            "until": terms.now_ms + terms.lease_ms,
        },
    )
    leases = tuple(Lease(*row) for row in rows)
    gates = {lease.host_id: claim.gates[lease.host_id] for lease in leases if lease.host_id in claim.gates}
    if gates:
        await run("close_hosts", {"gates": as_json(list(gates.items()))})
    if len(leases) < claim.limit:
        # Not cut short by the limit: a host that gave less than it was asked for has nothing (affordable) left.
        given = dict.fromkeys(claim.wants, 0)
        for lease in leases:
            given[lease.host_id] += 1
        drained.update(host_id for host_id, slots in claim.wants.items() if given[host_id] < slots)
    return leases, len(expired)


def _named(lease: Lease) -> list[Any]:
    return [lease.page_id, lease.token]
