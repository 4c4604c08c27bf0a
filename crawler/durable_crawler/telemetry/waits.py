"""For how long hosts have been waited for: counted over all of them, by why their gates were closed.

The engine shows which gates are closed whenever it has nothing to do; in between they open by themselves, and nobody
tells. So each is remembered with the time at which it opens, and whoever reads the numbers works them out for now.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence


class HostWaits:
    """The hosts that wait now and the time that has been waited, by reason. Safe from any thread."""

    def __init__(self, reasons: Sequence[str], monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._reasons = tuple(reasons)
        self._seconds = dict.fromkeys(reasons, 0.0)
        self._closed: Sequence[tuple[str, float]] = ()
        self._since = monotonic()
        self._lock = threading.Lock()  # a counter that went back by a microsecond would count as one that began anew

    def look(self, closed: Sequence[tuple[str, float]]) -> None:
        """The gates that are closed now: why each is, and until when (monotonic seconds)."""
        with self._lock:
            now = self._monotonic()
            self._seconds = self._until(now)
            self._closed, self._since = closed, now

    def hosts(self) -> dict[str, int]:
        """How many hosts wait now, by reason."""
        with self._lock:
            now = self._monotonic()
            counts = dict.fromkeys(self._reasons, 0)
            for reason, until in self._closed:
                counts[reason] += until > now
            return counts

    def seconds(self) -> dict[str, float]:
        """The time that hosts have waited, added up over all of them, by reason."""
        with self._lock:
            return self._until(self._monotonic())

    def _until(self, now: float) -> dict[str, float]:
        seconds = dict(self._seconds)
        for reason, until in self._closed:
            seconds[reason] += max(0.0, min(until, now) - self._since)
        return seconds
