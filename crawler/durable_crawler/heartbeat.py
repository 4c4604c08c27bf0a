"""Keeps the leases of all jobs alive, in one statement every 30 seconds (law L5).

Started and stopped by ``engine``. It has its own stop and is joined before any job is cancelled: a renewal that is
under way when a page finishes must not take the page's worker with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from durable_crawler.clock import Clock, SystemClock
from durable_crawler.frontier.model import Frontier, Lease

INTERVAL_SECONDS = 30.0
"""A quarter of the lease: three renewals may fail to be sent before it runs out."""


class Heartbeat:
    """Renews what ``active`` returns, and reports leases that were not ours any more to ``lost``.

    ``renewed`` is told what was still ours and when (monotonic seconds) that was asked for: the new lease began then.
    """

    def __init__(
        self,
        frontier: Frontier,
        active: Callable[[], Collection[Lease]],
        lost: Callable[[Lease], None],
        *,
        renewed: Callable[[Collection[int], float], None] = lambda pages, asked: None,
        clock: Clock | None = None,
        interval: float | None = None,
    ) -> None:
        self._frontier = frontier
        self._active = active
        self._lost = lost
        self._renewed = renewed
        self._clock = clock or SystemClock()
        self._interval = INTERVAL_SECONDS if interval is None else interval
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Until ``stop``. Raises ``FrontierError`` when the frontier cannot go on."""
        while not await self._stopped_within(self._interval):
            leases = tuple(self._active())
            if not leases:
                continue
            asked = self._clock.monotonic()
            kept = await self._frontier.renew(leases)
            self._renewed(kept, asked)
            # A page that settled while the renewal was under way is no longer active, and not lost either.
            active = {lease.page_id: lease for lease in self._active()}
            for lease in leases:
                if lease.page_id not in kept and active.get(lease.page_id) == lease:
                    self._lost(lease)

    def stop(self) -> None:
        """Ask ``run`` to end after the renewal that may be under way."""
        self._stop.set()

    async def _stopped_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return False
        return True
