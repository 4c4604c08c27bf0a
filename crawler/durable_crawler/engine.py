"""Walks every page through its stages: claim → fetch → parse → settle → record → finish.

One dispatcher claims, one task per claimed page works, one heartbeat renews. Bounds hold by construction: a page is
claimed only for a free worker and a free slot of its host, so nothing is queued that is not in the frontier. ``run``
composes the parts and is the only caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from crawljob.spec import CrawlJobSpec
from durable_crawler.background import Background
from durable_crawler.board import Board
from durable_crawler.clock import Clock
from durable_crawler.frontier import Deferral, Frontier, FrontierFullError, Lease, Link, Result, Verdict
from durable_crawler.frontier.model import QUARANTINE_AFTER
from durable_crawler.heartbeat import Heartbeat
from durable_crawler.hostile import objection
from durable_crawler.outcomes import Fetched, Outcome, PageRecord, Stage
from durable_crawler.parse import Parsed, parse
from durable_crawler.settle import Done, RetryLater, settle
from durable_crawler.stop import Stop
from durable_crawler.urls import authority

DRAIN_SECONDS = 10.0
"""How long pages in flight may go on after a request to stop; all in all law L12 allows 25 s."""

BIG_BODY_BYTES = 256 * 1024
"""Bodies above are parsed in a thread: they would hold up the event loop, and a thread hop costs little beside them."""

PARSERS = 2
"""Large pages that are parsed at once; more would only take turns on the interpreter's lock."""

TRUST_MARGIN_SECONDS = 10.0
"""So long before it runs out a lease is not trusted any more (law L5): its page's work is thrown away unasked."""

RECHECK_SECONDS = 5.0
"""How often leases that nobody works on any more (lost ones) are looked at until they expire."""


class Fetcher(Protocol):
    """What the engine needs of ``fetch``."""

    async def fetch(self, url: str) -> Fetched:
        """One attempt at a URL; never raises for what the network or the server does."""
        ...


class Observer(Protocol):
    """What the engine tells telemetry; nothing of it may block or raise (law L16)."""

    def page_settled(self, record: PageRecord) -> None:
        """The work on a claim has ended."""
        ...

    def leases(self, *, expired: int = 0, lost: int = 0, recovered: int = 0) -> None:
        """Leases that ran out, or were found to be somebody else's."""
        ...

    def working(self, pages: int) -> None:
        """How many pages are being worked on."""
        ...

    def waiting(self, hosts: int) -> None:
        """How many hosts with pages may not be asked yet."""
        ...


@dataclass(slots=True, eq=False)
class _Job:
    """A page that is being worked on."""

    lease: Lease
    trusted_until: float
    """Monotonic seconds, moved on by each renewal."""
    task: asyncio.Task[None] | None = None
    lost: bool = False
    stages: list[Stage] = field(default_factory=list)
    fetched: Fetched | None = None
    links: int = 0


class Engine:
    """One run over a frontier. Make one, ``run`` it once."""

    def __init__(
        self,
        spec: CrawlJobSpec,
        frontier: Frontier,
        *,
        fetcher: Fetcher,
        observer: Observer,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        self._spec = spec
        self._frontier = frontier
        self._fetcher = fetcher
        self._observer = observer
        self._clock = clock
        self._random = random
        self._approved = {host.authority: host.id for host in frontier.hosts.values()}
        now_ms = clock.wall_ms()
        closed = {
            host.id: clock.monotonic() + (host.closed_until_ms - now_ms) / 1000
            for host in frontier.hosts.values()
            if host.closed_until_ms > now_ms
        }
        self._board = Board(spec.fetch.per_host, closed)
        self._background = Background(PARSERS, "parser")
        self._jobs: dict[int, _Job] = {}
        self._wake = asyncio.Event()
        self._suspects = False
        self._failure: BaseException | None = None
        self._full: FrontierFullError | None = None

    async def run(self, stop: Stop) -> bool:
        """Crawl until nothing is left or ``stop`` asks to end; whether the crawl is finished.

        Raises ``FrontierError`` when the frontier cannot go on, and whatever a bug raises.
        """
        heartbeat = Heartbeat(
            self._frontier,
            lambda: [job.lease for job in self._jobs.values()],
            self._lose,
            renewed=self._renewed,
            clock=self._clock,
        )
        beating = asyncio.create_task(heartbeat.run(), name="heartbeat")
        beating.add_done_callback(self._noticed)
        stopping = asyncio.create_task(self._wake_on(stop.requested), name="stop watch")
        try:
            try:
                await self._dispatch(stop)
            except FrontierFullError as error:
                self._full = error  # what is in flight still fits and is finished
            await self._drain(stop)
        finally:
            stopping.cancel()
            heartbeat.stop()  # joined before any job is cancelled
            await asyncio.gather(beating, stopping, return_exceptions=True)
            unsettled = await self._cancel_jobs()
        if self._failure is not None:
            raise self._failure
        if unsettled:
            await self._frontier.release(unsettled)
        if self._full is not None:
            raise self._full
        return self._finished()

    def _finished(self) -> bool:
        return self._frontier.snapshot.finished(self._spec.scope.max_pages)

    async def _dispatch(self, stop: Stop) -> None:
        while not stop.requested.is_set() and self._failure is None:
            self._wake.clear()
            await self._claim(stop)
            if not self._jobs and self._finished():
                return
            await self._something_to_do()

    async def _claim(self, stop: Stop) -> None:
        """Claim for the free workers, if any host may be asked or something has become due."""
        free = self._free()
        if free <= 0:
            return
        snapshot = self._frontier.snapshot
        wants = self._board.wants(self._frontier.stocked, free, self._clock.monotonic())
        due = snapshot.next_due_ms is not None and snapshot.next_due_ms <= self._clock.wall_ms()
        if not (wants or due or snapshot.leased > len(self._jobs)):
            return
        asked = self._clock.monotonic()
        claimed = await self._frontier.claim(wants, free)
        if claimed.expired:
            self._observer.leases(expired=claimed.expired)
        await self._give_up([self._jobs[lease.page_id] for lease in claimed.leases if lease.page_id in self._jobs])
        if stop.requested.is_set():  # asked while the claim was under way
            await self._frontier.release(claimed.leases)
            return
        if not await self._may_start(claimed.leases):
            return
        now = self._clock.monotonic()
        late = []
        for lease in claimed.leases:
            if self._board.is_open(lease.host_id, now):
                self._start(lease, asked)
            else:  # its host asked to be left alone while the claim was under way
                late.append(lease)
        if late:
            await self._frontier.release(late)
        free = self._free()
        if self._board.wants(self._frontier.stocked, free, self._clock.monotonic()).keys() - wants.keys():
            self._wake.set()  # hosts that this claim did not ask for: stocked by it, or it left workers free after all

    def _free(self) -> int:
        """How many pages may be claimed."""
        if self._suspects:
            return 0 if self._jobs else 1
        return self._spec.fetch.workers - len(self._jobs)

    async def _may_start(self, leases: Sequence[Lease]) -> bool:
        """Whether these pages may be worked on now; if not, they have been given back.

        A page whose last claims had no outcome may be what killed the process. Its last claim is worked on alone, or
        the pages that happened to be in flight beside it would be quarantined with it.
        """
        before, self._suspects = self._suspects, any(lease.attempt >= QUARANTINE_AFTER for lease in leases)
        if self._suspects and (self._jobs or len(leases) > 1):
            await self._frontier.release(leases)
            if not self._jobs:
                self._wake.set()
            return False
        if before and not self._suspects:
            self._wake.set()  # one worker was asked for; now the others have something to do again
        return True

    async def _something_to_do(self) -> None:
        """Wait for a page to settle, a retry to be due, a gate to open; or for the stop."""
        now = self._clock.monotonic()
        snapshot = self._frontier.snapshot
        self._observer.waiting(self._board.waiting(self._frontier.stocked, now))
        waits = []
        if self._free() > 0:
            if snapshot.next_due_ms is not None:
                waits.append((snapshot.next_due_ms - self._clock.wall_ms()) / 1000)
            opening = self._board.next_opening(self._frontier.stocked, now)
            if opening is not None:
                waits.append(opening - now)
            if snapshot.leased > len(self._jobs):
                waits.append(RECHECK_SECONDS)
        try:
            async with asyncio.timeout(max(0.0, min(waits)) if waits else None):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _wake_on(self, event: asyncio.Event) -> None:
        await event.wait()
        self._wake.set()

    def _start(self, lease: Lease, claimed: float) -> None:
        job = _Job(lease, self._trusted_until(claimed))
        self._jobs[lease.page_id] = job
        self._board.took(lease.host_id)
        self._observer.working(len(self._jobs))
        job.task = asyncio.create_task(self._work(job), name=f"page {lease.page_id}")
        job.task.add_done_callback(lambda task: self._ended(job, task))

    async def _give_up(self, jobs: Sequence[_Job]) -> None:
        """End the work on pages that were just claimed anew: their leases ran out (we were stopped, or too slow)."""
        tasks = [job.task for job in jobs if job.task is not None]
        for job in jobs:
            self._lose(job.lease)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, job: _Job, task: asyncio.Task[None]) -> None:
        del self._jobs[job.lease.page_id]
        self._board.gave_back(job.lease.host_id)
        self._observer.working(len(self._jobs))
        self._noticed(task)
        self._wake.set()

    def _noticed(self, task: asyncio.Task[None]) -> None:
        """The first failure of any task ends the run; a cancelled one is not a failure."""
        if not task.cancelled() and task.exception() is not None:
            self._failure = self._failure or task.exception()
            self._wake.set()

    def _trusted_until(self, asked: float) -> float:
        """When to stop trusting a lease that was asked for then; it began no earlier."""
        length = self._frontier.lease_ms / 1000
        return asked + length - min(TRUST_MARGIN_SECONDS, length / 4)

    def _renewed(self, pages: Collection[int], asked: float) -> None:
        for page in pages:
            if page in self._jobs:
                self._jobs[page].trusted_until = self._trusted_until(asked)

    def _lose(self, lease: Lease) -> None:
        job = self._jobs[lease.page_id]
        job.lost = True
        if job.task is not None:
            job.task.cancel()

    async def _work(self, job: _Job) -> None:
        settled = "released"
        try:
            fetched = await self._fetch(job)
            parsed = await self._parse(job, fetched)
            fetched = job.fetched or fetched
            decision = settle(fetched, job.lease.retries, self._spec.fetch.retries, self._random)
            closed = self._close_host(job.lease, decision.close_host_for)  # how the host is stays true in any case
            if self._clock.monotonic() >= job.trusted_until:
                job.lost = True
                return
            started = self._clock.wall_ns()
            match decision:
                case RetryLater():
                    due_ms = self._clock.wall_ms() + round(decision.delay * 1000)
                    verdict = await self._frontier.defer(job.lease, Deferral(due_ms, closed))
                    settled = "deferred"
                case Done():
                    links = self._links(job, parsed)
                    verdict = await self._frontier.finish(job.lease, _result(job, decision, parsed), links, closed)
                    settled = "done"
            job.stages.append(Stage("commit", started, self._clock.wall_ns()))
            job.lost = verdict is Verdict.LOST
        finally:
            if job.lost:
                settled = "lost"
                self._observer.leases(lost=1)
            self._record(job, settled)

    async def _fetch(self, job: _Job) -> Fetched:
        started = self._clock.wall_ns()
        job.fetched = await self._fetcher.fetch(job.lease.url)
        job.stages.append(Stage("fetch", started, self._clock.wall_ns()))
        return job.fetched

    async def _parse(self, job: _Job, fetched: Fetched) -> Parsed | None:
        if fetched.body is None:
            return None
        why_not = objection(fetched.body)
        if why_not:
            job.fetched = replace(fetched, outcome=Outcome.UNPARSABLE, body=None, error=why_not)
            return None
        started = self._clock.wall_ns()
        call = partial(
            parse, fetched.body, fetched.content_type, fetched.final_url, self._spec.scope.max_links_per_page
        )
        parsed = await self._background.run(call) if len(fetched.body) > BIG_BODY_BYTES else call()
        job.stages.append(Stage("parse", started, self._clock.wall_ns()))
        job.links = len(parsed.links)
        return parsed

    def _close_host(self, lease: Lease, seconds: float | None) -> int | None:
        """Close the gate of the page's host on the board; the time for the frontier to remember."""
        if seconds is None:
            return None
        self._board.close(lease.host_id, self._clock.monotonic() + seconds)
        return self._clock.wall_ms() + round(seconds * 1000)

    def _links(self, job: _Job, parsed: Parsed | None) -> Sequence[Link]:
        """All links; those outside of the spec (another authority, too deep) without a host."""
        if parsed is None:
            return ()
        depth = job.lease.depth + 1
        approved = self._approved if depth <= self._spec.scope.max_depth else {}
        links = []
        for url in parsed.links:
            where = authority(url)
            links.append(Link(url, where, approved.get(where), depth))
        return links

    def _record(self, job: _Job, settled: str) -> None:
        lease = job.lease
        self._observer.page_settled(
            PageRecord(
                url=lease.url,
                authority=self._frontier.hosts[lease.host_id].authority,
                depth=lease.depth,
                attempt=lease.retries + lease.attempt,
                settled=settled,
                fetched=job.fetched,
                stages=tuple(job.stages),
                links=job.links,
            )
        )

    async def _drain(self, stop: Stop) -> None:
        """Let pages in flight settle, for a while; not after a failure, nor when asked a second time."""
        urgent = asyncio.create_task(self._wake_on(stop.urgent), name="urgent stop watch")
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while self._jobs and self._failure is None and not stop.urgent.is_set():
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            return
        finally:
            urgent.cancel()
            await asyncio.gather(urgent, return_exceptions=True)

    async def _cancel_jobs(self) -> list[Lease]:
        """Cancel what still runs; the leases that may not be settled."""
        jobs = list(self._jobs.values())
        tasks = [job.task for job in jobs if job.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return [job.lease for job in jobs]


def _result(job: _Job, done: Done, parsed: Parsed | None) -> Result:
    fetched = job.fetched
    assert fetched is not None, "settled without having been fetched"
    first = job.stages[0]
    return Result(
        outcome=done.outcome,
        status=fetched.status,
        final_url=fetched.final_url if fetched.final_url != job.lease.url else None,
        content_type=fetched.content_type,
        bytes=fetched.body_bytes,
        title=parsed.title if parsed else "",
        links=len(parsed.links) if parsed else 0,
        dropped_links=parsed.truncated_links if parsed else 0,
        hops=fetched.hops,
        error=fetched.error,
        duration_ms=(first.ended_ns - first.started_ns) // 1_000_000,
    )
