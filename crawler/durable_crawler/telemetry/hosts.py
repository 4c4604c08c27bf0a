"""Requests by host in a bounded number of series: the busiest 20 by name, everybody else as ``other``.

Called by ``stats`` once per page. A crawl may meet any number of hosts; a metric backend pays for each series.
"""

from __future__ import annotations

SHOWN = 20
"""Hosts that have a series of their own."""

RANKED = 1024
"""Hosts whose totals are remembered, to know who is busy."""

OTHER = "other"


class HostCounts:
    """Counters that only grow for as long as they exist, so that a backend's rates stay right.

    Places are given to the first hosts. A host that is not shown takes the place of the quietest shown one once it is
    twice as busy: the old series ends where it was, the new one starts at zero, and what was counted as ``other``
    stays there. Twice, because with less two similar hosts would take turns.
    """

    def __init__(self) -> None:
        self._shown: dict[str, int] = {}
        self._totals: dict[str, int] = {}
        self._other = 0

    def add(self, host: str, requests: int) -> None:
        """Count requests to a host."""
        if host in self._shown:
            self._shown[host] += requests
        elif len(self._shown) < SHOWN:
            self._shown[host] = requests
        else:
            self._other += requests
        self._rank(host, requests)

    def series(self) -> dict[str, int]:
        """A copy of the counters, at most ``SHOWN`` + 1; safe to call from another thread."""
        counts = dict(self._shown)
        if self._other:
            counts[OTHER] = counts.get(OTHER, 0) + self._other
        return counts

    def _rank(self, host: str, requests: int) -> None:
        if host not in self._totals:
            while len(self._totals) >= RANKED:
                self._forget_quiet_hosts()
        total = self._totals[host] = self._totals.get(host, 0) + requests
        if host in self._shown:
            return
        quietest = min(self._shown, key=self._shown_total)
        if total >= 2 * self._shown_total(quietest):
            del self._shown[quietest]
            self._shown[host] = 0

    def _shown_total(self, host: str) -> int:
        return self._totals.get(host, 0)

    def _forget_quiet_hosts(self) -> None:
        # Halving keeps the order, and whoever is busy now overtakes whoever was busy long ago.
        self._totals = {
            host: max(total // 2, 1) for host, total in self._totals.items() if total > 1 or host in self._shown
        }
