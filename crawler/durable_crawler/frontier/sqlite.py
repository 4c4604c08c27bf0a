"""The frontier in one SQLite file: a queue of operations, one flusher, one writer.

``engine`` talks to it through the port in ``model``. Workers hand operations to the flusher and are answered after the
commit that holds them. A flush starts when the previous one has ended, with whatever has queued up by then: under load
that is one transaction for dozens of pages, and without load nobody waits for a timer.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from durable_crawler.clock import Clock
from durable_crawler.frontier import group, opening
from durable_crawler.frontier.database import Database
from durable_crawler.frontier.edges import DamagedError, next_wording
from durable_crawler.frontier.known import Known
from durable_crawler.frontier.model import (
    Claimed,
    Deferral,
    FrontierBrokenError,
    FrontierError,
    FrontierFullError,
    Host,
    HostState,
    Lease,
    Link,
    Result,
    Snapshot,
    Verdict,
)
from durable_crawler.frontier.opening import Admission
from durable_crawler.frontier.sets import Row, as_json
from durable_crawler.frontier.spent import DATABASE, PARSING, Spent
from durable_crawler.logs import Limited
from durable_crawler.outcomes import Outcome
from durable_crawler.robots import KnownRobots

_log = Limited(logging.getLogger(__name__), interval=60.0)

LEASE_MS = 120_000
"""How long a claim lasts without a renewal (law L5)."""

CHECKPOINT_SECONDS = 30.0
CHECKPOINT_BYTES = 8 * 1024 * 1024
CHECKPOINT_DEADLINE_SECONDS = 60.0
WAL_WARNING_BYTES = 64 * 1024 * 1024
"""A checkpoint is due after this time or this much WAL. It may take long after a long reader; flushes wait for it, and
that is back-pressure."""

RESERVE_MIN_BYTES = 8 * 1024 * 1024
RESERVE_MAX_BYTES = 64 * 1024 * 1024
RESERVE_SHARE = 0.05
"""Free space below which nothing is claimed: this share of the volume, within these bounds. What is in flight fits."""

LOOK_AT_DISK_SECONDS = 0.1
"""A thousand pages a second write 30 MB to the WAL: what comes between two looks must be less than the reserve."""

SPENT_SECONDS = 1.0
"""How often what time goes into is stored, with a flush that there is anyway; a kill takes no more than that."""

_UNLIMITED = 2**62

MAX_LINKS_PER_FLUSH = 20_000
"""Links that one transaction takes on; more pages wait for the next, which is back-pressure, not a failure."""


class SqliteFrontier:
    """Implements the port ``Frontier``. Make one with ``open``, and always ``close`` it: its thread is not a daemon."""

    def __init__(
        self,
        path: Path,
        opened: opening.Opened,
        database: Database,
        lock: opening.Lock,
        *,
        max_pages: int,
        clock: Clock,
    ) -> None:
        self._path = path
        self._opened = opened
        self._database = database
        self._lock = lock
        self._max_pages = max_pages
        self._clock = clock
        self._queue: deque[group.Operation] = deque()
        self._queued = asyncio.Event()
        self._failure: FrontierError | None = None
        self._closing = False
        self._known = Known(0)
        self._snapshot = Snapshot(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, None)
        self._stocked = set(opened.stocked)
        self._restocked: set[int] = set()
        self._hosts = {host.id: host for host in opened.hosts}
        self._verifying = False
        self._flusher: asyncio.Task[None] | None = None
        self._checkpointed = clock.monotonic()
        self._looked_at_disk = -math.inf  # the first claim looks: a restart on a full volume must not begin to fill it
        self.on_flush: Callable[[float, Sequence[str]], None] = lambda seconds, operations: None
        """Told the duration of every flush that committed, and the names of its operations (``group.OPERATIONS``)."""
        self.waits: Callable[[], Mapping[str, float]] = dict
        """Asked for the seconds that hosts have waited since this process began, by reason; kept for ``status``."""
        self._spent = Spent()
        self._kept_spent = clock.monotonic()

    @classmethod
    async def open(cls, path: Path, admission: Admission, *, max_pages: int, clock: Clock) -> Self:
        """Lock, check, recover and admit. Raises a ``FrontierError`` with one sentence; then nothing stays open."""
        path, lock = opening.lock(path, clock.wall_ms())
        try:
            opened = await asyncio.to_thread(opening.prepare, path, admission, clock.wall_ms())
            database = await Database.open(path)
            try:
                frontier = cls(path, opened, database, lock, max_pages=max_pages, clock=clock)
                ((*counts,),) = await database.run("snapshot", {})
                frontier._snapshot = Snapshot(*counts)
                frontier._known = Known(_next_wording(path, await database.run("last_edges", {})))
                ((_, verified),) = await database.run("verified", {})
                frontier._max_pages += verified  # they do not count against the limit
            except BaseException:
                await database.close()
                raise
        except BaseException:  # whatever it was, cancellation too: the lock must not outlive the failure
            lock.release()
            raise
        frontier._flusher = asyncio.create_task(frontier._flush_forever(), name="frontier flusher")
        return frontier

    @property
    def path(self) -> Path:
        """The database's file."""
        return self._path

    @property
    def snapshot(self) -> Snapshot:
        return self._snapshot

    @property
    def lease_ms(self) -> int:
        return LEASE_MS

    @property
    def stocked(self) -> Collection[int]:
        return self._stocked

    def restocked(self) -> Collection[int]:
        changed, self._restocked = self._restocked, set()
        return changed

    @property
    def hosts(self) -> Mapping[int, Host]:
        return self._hosts

    @property
    def finished(self) -> bool:
        counts = self._snapshot
        if not self._verifying:
            return counts.finished(self._max_pages)
        return not (counts.leased or counts.deferred or self._stocked)

    @property
    def again(self) -> int:
        """Pages that are tried again because a restart was requested."""
        return self._opened.again

    @property
    def recovered(self) -> int:
        """Leases of earlier epochs that were taken back when this one began."""
        return self._opened.recovered

    @property
    def epoch(self) -> int:
        """Number of this start of the frontier, from 1."""
        return self._opened.epoch

    async def claim(
        self, wants: Mapping[int, int], limit: int, gates: Mapping[int, int] = MappingProxyType({})
    ) -> Claimed:
        answer: Claimed = await self._ask(group.Claim(self._future(), wants, limit, gates))
        return answer

    async def finish(
        self, lease: Lease, result: Result, links: Sequence[Link], host: HostState | None = None
    ) -> Verdict:
        answer: Verdict = await self._ask(group.Finish(self._future(), lease, result, links, host))
        return answer

    async def defer(self, lease: Lease, deferral: Deferral) -> Verdict:
        answer: Verdict = await self._ask(group.Defer(self._future(), lease, deferral))
        return answer

    async def release(self, leases: Sequence[Lease]) -> int:
        answer: int = await self._ask(group.Release(self._future(), leases))
        return answer

    async def renew(self, leases: Sequence[Lease]) -> frozenset[int]:
        answer: frozenset[int] = await self._ask(group.Renew(self._future(), leases))
        return answer

    async def close_host(self, host_id: int, outcome: Outcome, error: str) -> int:
        answer: int = await self._ask(group.CloseHost(self._future(), host_id, outcome, error))
        return answer

    async def robots_of(self, origin: str) -> KnownRobots | None:
        rows = await self._database.run("robots", {"origin": origin})
        return KnownRobots(*rows[0]) if rows else None

    async def keep_robots(self, known: KnownRobots) -> None:
        await self._ask(group.KeepRobots(self._future(), known))

    async def admit_external(self, max_hosts: int, max_links: int) -> bool:
        """From now on, and only once the crawl itself is finished: links that lead out of it, ``max_links`` in all, of
        ``max_hosts`` hosts at a time. Whether there are any; then ``hosts`` are theirs.
        """
        self._verifying, self._max_pages = True, _UNLIMITED
        hosts: tuple[Host, ...] = await self._ask(group.AdmitExternal(self._future(), max_hosts, max_links))
        self._restocked = self._stocked | {host.id for host in hosts}
        self._hosts = {host.id: host for host in hosts}
        self._stocked = set(self._hosts)
        return bool(hosts)

    async def seed_results(self, limit: int) -> Sequence[Row]:
        """``(url, outcome, status, final_url, hops)`` of the first seeds, between flushes only."""
        return await self._database.run("seed_results", {"limit": limit})

    async def fetched_anything(self) -> bool:
        """Whether any page was usable."""
        ((any_page,),) = await self._database.run("usable_pages", {})
        return bool(any_page)

    async def close(self) -> None:
        """Flush what is queued, checkpoint (a reader that is in the way is no failure), and let go of the file."""
        if self._closing:
            return
        self._closing = True
        self._queued.set()
        try:
            if self._flusher is not None:
                await asyncio.gather(self._flusher, return_exceptions=True)
            if self._failure is None:
                if spent := self._spent_time():
                    await self._database.run("spend", {"spent": as_json(spent), "epoch": self._opened.epoch})
                await self._database.run("closed", {"epoch": self._opened.epoch})
                await self._database.run("last_checkpoint", {}, CHECKPOINT_DEADLINE_SECONDS)
        finally:
            await self._database.close()
            self._lock.release()

    def _future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    async def _ask(self, operation: group.Operation) -> Any:
        if self._failure is not None:
            raise self._failure
        if self._closing:
            raise FrontierBrokenError(f"{self._path}: the frontier is closed")
        self._queue.append(operation)
        self._queued.set()
        return await operation.answer

    async def _flush_forever(self) -> None:
        operations: list[group.Operation] = []
        try:
            while True:
                await self._queued.wait()
                operations = self._take()
                if operations:
                    await self._flush(operations)
                elif self._closing:
                    return
        except FrontierError as error:
            self._fail(error, operations)
        except Exception as error:  # noqa: BLE001 - a bug here must reach every waiting worker, not one task's log
            failure = FrontierBrokenError(f"{self._path}: the frontier failed ({type(error).__name__}: {error})")
            failure.__cause__ = error
            self._fail(failure, operations)
        except BaseException:  # cancelled, or the whole process is to end: whoever waits must not wait for ever
            self._fail(FrontierBrokenError(f"{self._path}: the frontier was stopped"), operations)
            raise

    def _take(self) -> list[group.Operation]:
        """The operations of the next flush.

        In the order in which they were asked for, except that nothing waits for pages with many links but such pages:
        free workers would stand still for as long as those take. Nothing overtakes an operation on its own page.
        """
        taken: list[group.Operation] = []
        waiting: deque[group.Operation] = deque()
        pages: set[int] = set()
        links = 0
        for operation in self._queue:
            found = len(operation.links) if isinstance(operation, group.Finish) else 0
            if pages.isdisjoint(operation.pages) and (not found or links <= MAX_LINKS_PER_FLUSH):
                links += found
                taken.append(operation)
            else:
                waiting.append(operation)
            pages.update(operation.pages)
        self._queue = waiting
        if not self._queue and not self._closing:
            self._queued.clear()
        return taken

    async def _flush(self, operations: Sequence[group.Operation]) -> None:
        started = self._clock.monotonic()
        self._notice_lost_file()
        operations = self._without_claims_on_a_full_volume(operations)
        if not operations:
            return
        spent = self._spent_time() if started - self._kept_spent >= SPENT_SECONDS else ()
        terms = group.Terms(self._opened.epoch, self._clock.wall_ms(), LEASE_MS, self._max_pages, self._known, spent)
        flushed = await self._transact(operations, terms)
        if spent:
            self._spent.stored(spent)
            self._kept_spent = started
        self._snapshot = flushed.snapshot
        self._take_stock(flushed)
        for operation, answer in flushed.answers:
            if not operation.answer.done():  # a worker that was cancelled does not wait any more
                operation.answer.set_result(answer)
        self.on_flush(self._clock.monotonic() - started, [operation.name for operation in operations])
        await self._checkpoint()
        self._spent.add(DATABASE, self._clock.monotonic() - started)
        parsed_ms = sum(operation.result.parse_ms for operation in operations if isinstance(operation, group.Finish))
        self._spent.add(PARSING, parsed_ms / 1000)

    def _spent_time(self) -> Sequence[tuple[str, int]]:
        self._spent.told(self.waits())
        return self._spent.due()

    def _take_stock(self, flushed: group.Flushed) -> None:
        """Note which hosts have pending pages now. Nothing here looks at more hosts than the flush did."""
        gained = {host for host in flushed.stocked - flushed.drained if host in self._hosts} - self._stocked
        drained = flushed.drained & self._stocked
        self._stocked |= gained
        self._stocked -= drained
        self._restocked |= gained | drained

    async def _checkpoint(self) -> None:
        """Move the WAL into the database from time to time; what a reader still needs stays until the next time."""
        age = self._clock.monotonic() - self._checkpointed
        if age < 1.0:
            return
        try:
            size = os.stat(f"{self._path}-wal").st_size  # noqa: PTH116 - as below
        except FileNotFoundError:
            return
        if age >= CHECKPOINT_SECONDS or size >= CHECKPOINT_BYTES:
            ((_, frames, moved),) = await self._database.run("checkpoint", {}, CHECKPOINT_DEADLINE_SECONDS)
            if size >= WAL_WARNING_BYTES and moved < frames:
                _log.warning("wal", "%s-wal has %d MiB: some reader keeps it from shrinking", self._path, size >> 20)
            self._checkpointed = self._clock.monotonic()

    def _without_claims_on_a_full_volume(self, operations: Sequence[group.Operation]) -> Sequence[group.Operation]:
        """Refuse claims under the watermark, so that what is in flight can still be finished."""
        now = self._clock.monotonic()
        claims = [operation for operation in operations if isinstance(operation, group.Claim)]
        if not claims or now - self._looked_at_disk < LOOK_AT_DISK_SECONDS:
            return operations
        self._looked_at_disk = now
        volume = os.statvfs(self._path.parent)
        free, total = volume.f_bavail * volume.f_frsize, volume.f_blocks * volume.f_frsize
        reserve = max(RESERVE_MIN_BYTES, min(RESERVE_MAX_BYTES, round(total * RESERVE_SHARE)))
        if free >= reserve:
            return operations
        self._looked_at_disk = -math.inf  # the next claim looks again
        for claim in claims:
            if not claim.answer.done():
                claim.answer.set_exception(
                    FrontierFullError(
                        f"{self._path}: the volume has {free >> 20} MiB left of {total >> 20}; "
                        "enlarge it and run again, nothing committed is lost"
                    )
                )
        return [operation for operation in operations if not isinstance(operation, group.Claim)]

    async def _transact(self, operations: Sequence[group.Operation], terms: group.Terms) -> group.Flushed:
        """A whole flush in one hop to the database's thread."""
        return await self._database.transact(lambda run: group.flush(run, operations, terms))

    def _notice_lost_file(self) -> None:
        """SQLite goes on writing to a file that was replaced or unlinked; what it writes would be lost (law L6)."""
        try:
            status = os.stat(self._path)  # noqa: PTH116 - once per flush; Path.stat costs several times as much
        except OSError as error:
            raise FrontierBrokenError(f"{self._path}: the file has gone ({error.strerror})") from None
        if (status.st_dev, status.st_ino) != self._opened.inode:
            raise FrontierBrokenError(f"{self._path}: the file was replaced by another one")

    def _fail(self, error: FrontierError, operations: Sequence[group.Operation]) -> None:
        self._failure = error
        for operation in (*operations, *self._queue):
            if not operation.answer.done():
                operation.answer.set_exception(error)
        self._queue.clear()


def _next_wording(path: Path, last: Sequence[Row]) -> int:
    """The first number that is free, behind the links that were stored last."""
    try:
        return next_wording(*last[0]) if last else 1
    except DamagedError as error:
        raise opening.explain(path, error) from error
