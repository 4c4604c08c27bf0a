"""For how long hosts have been waited for: counted over all of them, by why their gates were closed.

The engine tells which gates were closed whenever it has nothing to do, and only what is new; that they open in time,
nobody tells. So each is remembered with the time at which it opens, and whoever reads the numbers works them out for
now.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence


class HostWaits:
    """The hosts that wait now and the time that has been waited, by reason. Safe from any thread."""

    def __init__(self, reasons: Sequence[str], monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._reasons = tuple(reasons)
        self._seconds = dict.fromkeys(reasons, 0.0)  # of those that do not wait any more
        self._closed: dict[int, tuple[str, float, float]] = {}  # why, since when, until when
        self._lock = threading.Lock()  # a counter that went back by a microsecond would count as one that began anew

    def look(self, news: Mapping[int, tuple[str, float] | None]) -> None:
        """Gates that are closed now by the ids of their hosts, where that is news: why each is, and until when
        (monotonic seconds); ``None`` for one that nobody waits for any more.
        """
        with self._lock:
            now = self._monotonic()
            for host, gate in news.items():
                before = self._closed.pop(host, None)
                if before is not None:
                    self._seconds[before[0]] += _waited(before, now)
                if gate is not None:
                    self._closed[host] = (gate[0], now, gate[1])

    def hosts(self) -> dict[str, int]:
        """How many hosts wait now, by reason."""
        with self._lock:
            now = self._monotonic()
            counts = dict.fromkeys(self._reasons, 0)
            for reason, _, until in self._closed.values():
                counts[reason] += until > now
            return counts

    def seconds(self) -> dict[str, float]:
        """The time that hosts have waited, added up over all of them, by reason."""
        with self._lock:
            now = self._monotonic()
            seconds = dict(self._seconds)
            for gate in self._closed.values():
                seconds[gate[0]] += _waited(gate, now)
            return seconds


def _waited(gate: tuple[str, float, float], now: float) -> float:
    _, since, until = gate
    return max(0.0, min(until, now) - since)
