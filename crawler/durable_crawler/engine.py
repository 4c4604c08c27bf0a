"""Decides which pages are worked on, and when that ends: claims, leases, hosts' turns, the stop.

One dispatcher claims, one task per claimed page works (``work``), one heartbeat renews. Bounds hold by construction: a
page is claimed only for a free worker and a free slot of its host, so nothing is queued that is not in the frontier.
``run`` composes the parts and is the only caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from crawljob.spec import CrawlJobSpec
from durable_crawler.board import Board, Wait
from durable_crawler.clock import Clock
from durable_crawler.frontier import Frontier, FrontierFullError, Lease
from durable_crawler.frontier.model import QUARANTINE_AFTER
from durable_crawler.heartbeat import Heartbeat
from durable_crawler.outcomes import Outcome
from durable_crawler.robots_gate import RobotsGate
from durable_crawler.stop import Stop
from durable_crawler.work import Fetcher, Job, Records, Work

DRAIN_SECONDS = 10.0
"""How long pages in flight may go on after a request to stop; all in all law L12 allows 25 s."""

TRUST_MARGIN_SECONDS = 10.0
"""So long before it runs out a lease is not trusted any more (law L5): its page's work is thrown away unasked."""

RECHECK_SECONDS = 5.0
"""How often leases that nobody works on any more (lost ones) are looked at until they expire."""


class Observer(Records, Protocol):
    """What the engine tells telemetry; nothing of it may block or raise (law L16)."""

    def working(self, pages: int) -> None:
        """How many pages are being worked on."""
        ...

    def waiting(self, hosts: Mapping[int, tuple[Wait, float] | None]) -> None:
        """Hosts with pages that may not be asked yet, where that is news: why, and until when (monotonic seconds).

        ``None`` for one that does not wait any more although its time has not come.
        """
        ...


class Engine:
    """One run over a frontier. Make one, ``run`` it once."""

    def __init__(
        self,
        spec: CrawlJobSpec,
        frontier: Frontier,
        *,
        fetcher: Fetcher,
        robots: RobotsGate | None,
        observer: Observer,
        clock: Clock,
        random: Callable[[], float],
        verifying: bool = False,
    ) -> None:
        """``verifying`` is for links out of the crawl: whether they lead to something, and no more."""
        self._spec = spec
        self._frontier = frontier
        self._observer = observer
        self._clock = clock
        self._board = Board(spec, frontier.hosts.values(), clock, robots=robots is not None)
        for host in frontier.stocked:
            self._board.stock(host, has_pages=True)
        self._work = Work(
            spec,
            frontier,
            self._board,
            fetcher=fetcher,
            robots=robots,
            records=observer,
            clock=clock,
            random=random,
            verifying=verifying,
        )
        self._jobs: dict[int, Job] = {}
        self._at_work: set[int] = set()
        """Pages of ``_jobs`` that hold a worker and a slot of their host; the others are handed to the flusher."""
        self._wake = asyncio.Event()
        self._board.opened = self._wake.set
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
        return self._frontier.finished

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
        self._take_stock()
        await self._bury_the_dead()
        snapshot = self._frontier.snapshot
        wants = self._wants(free)
        due = snapshot.next_due_ms is not None and snapshot.next_due_ms <= self._clock.wall_ms()
        if not (wants or due or snapshot.leased > len(self._jobs)):
            return
        asked = self._clock.monotonic()
        claimed = await self._frontier.claim(wants, free, self._board.gates(wants, self._clock))
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
        if self._wants(self._free()).keys() - wants.keys() or self._board.unburied:
            self._wake.set()  # hosts that this claim did not ask for: stocked by it, or it left workers free after all

    def _wants(self, free: int) -> dict[int, int]:
        """What the hosts that have pages now may be asked for."""
        self._take_stock()
        return self._board.wants(free, self._clock.monotonic())

    def _take_stock(self) -> None:
        """Tell the board which hosts have pages now, or have none left, since it was told last."""
        stocked = self._frontier.stocked
        for host in self._frontier.restocked():
            self._board.stock(host, has_pages=host in stocked)

    async def _bury_the_dead(self) -> None:
        """Close all that waits for hosts that were given up; one commit each, however many pages.

        Once for those that are deferred, too, and again for what was in flight then.
        """
        for host in sorted(self._board.unburied):
            await self._frontier.close_host(host, Outcome.HOST_DEAD, "the host could not be connected to")
            if host not in self._frontier.stocked:
                self._board.unburied.discard(host)

    def _free(self) -> int:
        """How many pages may be claimed."""
        if self._suspects:
            return 0 if self._jobs else 1
        workers = self._spec.fetch.workers
        # What waits to be stored holds no worker, so that a commit stores it and claims the next page. There is an end
        # to that: a slow disk must not be given ever more pages.
        return min(workers - len(self._at_work), 2 * workers - len(self._jobs))

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
        if self._wants(self._free()):
            return  # a gate opened since the claim looked: nothing else would tell
        snapshot = self._frontier.snapshot
        self._observer.waiting(self._board.waiting())
        waits = []
        if self._free() > 0:
            if snapshot.next_due_ms is not None:
                waits.append((snapshot.next_due_ms - self._clock.wall_ms()) / 1000)
            opening = self._board.next_opening()
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
        job = Job(lease, self._trusted_until(claimed))
        job.let_go = lambda: self._let_go(lease)
        self._jobs[lease.page_id] = job
        self._at_work.add(lease.page_id)
        self._board.took(lease.host_id, self._clock.monotonic())
        self._observer.working(len(self._at_work))
        job.task = asyncio.create_task(self._work.page(job), name=f"page {lease.page_id}")
        job.task.add_done_callback(lambda task: self._ended(job, task))

    async def _give_up(self, jobs: Sequence[Job]) -> None:
        """End the work on pages that were just claimed anew: their leases ran out (we were stopped, or too slow)."""
        tasks = [job.task for job in jobs if job.task is not None]
        for job in jobs:
            self._lose(job.lease)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _let_go(self, lease: Lease) -> None:
        """Free the worker and the slot of a page, if it still has them."""
        if lease.page_id in self._at_work:
            self._at_work.discard(lease.page_id)
            self._board.gave_back(lease.host_id)
            self._observer.working(len(self._at_work))
            self._wake.set()

    def _ended(self, job: Job, task: asyncio.Task[None]) -> None:
        del self._jobs[job.lease.page_id]
        self._let_go(job.lease)
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

    async def _drain(self, stop: Stop) -> None:
        """Let pages in flight settle, for a while; not after a failure, nor when asked a second time."""
        self._observer.waiting(self._board.waiting() | dict.fromkeys(self._frontier.hosts))  # nobody waits any more
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
