"""Which hosts may be asked for pages now: slots in use, gates that are closed, and whose turn it is.

Pure bookkeeping in the process, used by ``engine``; what must survive a crash (the gates) is in the frontier as well.
A host that must wait is left out of the next claim: it holds no worker and delays nobody (law L7).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping


class Board:
    """Slots and gates of the approved hosts. Times are monotonic seconds."""

    def __init__(self, per_host: int, closed_until: Mapping[int, float]) -> None:
        self._per_host = per_host
        self._closed_until = dict(closed_until)
        self._in_flight: dict[int, int] = {}
        self._turn: dict[int, int] = {}
        self._turns = 0

    def took(self, host: int) -> None:
        """A page of ``host`` is being worked on."""
        self._in_flight[host] = self._in_flight.get(host, 0) + 1
        self._turns += 1
        self._turn[host] = self._turns

    def gave_back(self, host: int) -> None:
        """The work on a page of ``host`` has ended."""
        left = self._in_flight[host] - 1
        if left:
            self._in_flight[host] = left
        else:
            del self._in_flight[host]

    def close(self, host: int, until: float) -> None:
        """No page of ``host`` before ``until``; a gate is only ever moved further away, so that parallel failures are
        one incident."""
        self._closed_until[host] = max(until, self._closed_until.get(host, 0.0))

    def is_open(self, host: int, now: float) -> bool:
        """Whether a page of ``host`` may be asked for."""
        return self._closed_until.get(host, 0.0) <= now

    def wants(self, stocked: Collection[int], free: int, now: float) -> dict[int, int]:
        """Slots to ask for by host, ``free`` at most in all, those first whose last page is longest ago."""
        wants: dict[int, int] = {}
        for host in sorted(stocked, key=lambda host: self._turn.get(host, 0)):
            if free <= 0:
                break
            slots = min(free, self._per_host - self._in_flight.get(host, 0))
            if slots > 0 and self.is_open(host, now):
                wants[host] = slots
                free -= slots
        return wants

    def waiting(self, stocked: Collection[int], now: float) -> int:
        """How many hosts with pages have a closed gate."""
        return sum(not self.is_open(host, now) for host in stocked)

    def next_opening(self, stocked: Collection[int], now: float) -> float | None:
        """When the next closed gate of a host with pages opens; ``None`` if none is closed."""
        times = (self._closed_until.get(host, 0.0) for host in stocked)
        return min((time for time in times if time > now), default=None)
