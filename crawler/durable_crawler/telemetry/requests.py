"""HTTP requests by how they ended, as ``http.client.request.duration`` has them, in a bounded number of series.

Called by ``stats`` for every request. What a server may answer is folded so that no site can make series without end:
a status that is not in the list counts as the first of its class, as every client has to understand it (RFC 9110
section 15).
"""

from __future__ import annotations

from collections.abc import Iterable

from crawljob_telemetry.metrics import Buckets, Exemplar, Histogram
from durable_crawler.outcomes import Exchange

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""The bounds that the conventions advise."""

STATUSES = frozenset(
    {200, 204, 206, 300, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 408, 410, 425, 429, 451, 500, 502, 503, 504}
)
"""Those that have a series of their own."""

SERIES_MAX = 49
"""Series, besides the one for all that is beyond."""

Key = tuple[str, str, str, str]
"""Method, status (empty where there was none), error (empty where there is none), version of HTTP."""

OVERFLOW: Key = ("_OTHER", "", "_OTHER", "")


class Requests:
    """Histograms of how long requests took."""

    def __init__(self) -> None:
        self._seconds: dict[Key, Histogram] = {}

    def add(self, exchanges: Iterable[Exchange]) -> None:
        """Count requests that have ended; the time until their turn came is not theirs."""
        for exchange in exchanges:
            self._of(_key(exchange)).observe(_took(exchange))

    def traced(self, exchange: Exchange, trace_id: int, span_id: int) -> None:
        """A request that was counted has a span."""
        exemplar = Exemplar(_took(exchange), exchange.ended_ns, trace_id, span_id)
        self._of(_key(exchange)).exemplify(exemplar)

    def series(self) -> dict[Key, Buckets]:
        """A copy, from any thread."""
        return {key: histogram.read() for key, histogram in dict(self._seconds).items()}

    def _of(self, key: Key) -> Histogram:
        found = self._seconds.get(key)
        if found is None:
            if len(self._seconds) >= SERIES_MAX:
                key = OVERFLOW
            found = self._seconds.setdefault(key, Histogram(SECONDS))
        return found


def _took(exchange: Exchange) -> float:
    return max(0, exchange.ended_ns - exchange.started_ns - exchange.waited_ns) / 1e9


def _key(exchange: Exchange) -> Key:
    status = exchange.status
    if exchange.error or status is None:
        known = "" if status is None else str(_class(status))
        return exchange.method, known, exchange.error or "_OTHER", exchange.version
    known = str(status if status in STATUSES else _class(status))
    return exchange.method, known, known if status >= 400 else "", exchange.version


def _class(status: int) -> int:
    """The first status of its class; one of no class is a server's error, as RFC 9110 has it."""
    return status // 100 * 100 if 100 <= status < 600 else 500
