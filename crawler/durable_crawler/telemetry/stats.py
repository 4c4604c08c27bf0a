"""What a run counts, as plain numbers: the only part of telemetry on the hot path.

The engine tells a ``Stats`` what happened; ``catalogue`` says under which names it is published, over OTLP and on
``/metrics``. Nothing here imports OpenTelemetry, waits or fails. The event loop's thread writes; other threads read
copies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from crawljob.summary import Progress
from crawljob_telemetry.metrics import Exemplar, Histogram
from durable_crawler.board import Wait
from durable_crawler.clock import Clock, SystemClock
from durable_crawler.frontier.group import OPERATIONS
from durable_crawler.outcomes import Exchange, PageRecord, Stage
from durable_crawler.telemetry.hosts import HostCounts
from durable_crawler.telemetry.requests import Requests
from durable_crawler.telemetry.trace import Trace
from durable_crawler.telemetry.volume import Volume, measure
from durable_crawler.telemetry.waits import HostWaits

FETCH_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0)
FLUSH_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
FLUSH_OPERATIONS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)

RATE_WINDOW_S = 30.0


class Rate:
    """Pages per second over the last half minute, from samples that are at least a second apart."""

    def __init__(self, now: float) -> None:
        self._samples: deque[tuple[float, int]] = deque([(now, 0)], maxlen=int(RATE_WINDOW_S) + 2)

    def note(self, now: float, count: int) -> None:
        """Tell the count so far; ``now`` in seconds of a monotonic clock."""
        if now - self._samples[-1][0] >= 1.0:
            self._samples.append((now, count))

    def read(self, now: float, count: int) -> float:
        """Pages per second between the newest sample that is as old as the window (or the oldest) and now."""
        samples = list(self._samples)
        since, base = samples[0]
        for moment, value in samples:
            if moment > now - RATE_WINDOW_S:
                break
            since, base = moment, value
        return max(count - base, 0) / max(now - since, 1.0)


class Stats:
    """Counters of this process, and the gauges that the database's last snapshot gives.

    ``gauges`` is asked from any thread and must not wait: it returns the counts of the last snapshot.
    """

    def __init__(
        self,
        gauges: Callable[[], Progress],
        clock: Clock | None = None,
        *,
        attempt: int = 1,
        page_limit: int | None = None,
        database: Path | None = None,
    ) -> None:
        """``attempt`` is the number of this Pod of its CrawlJob; ``database`` the frontier's file."""
        self.gauges = gauges
        self.attempt = attempt
        self.page_limit = page_limit
        self._database = database
        self._clock: Clock = SystemClock() if clock is None else clock
        self._rate = Rate(self._clock.monotonic())
        self.completed = 0
        self.failures = 0
        self.retries = 0
        self.expired_leases = 0
        self.lost_leases = 0
        self.recovered_leases = 0
        self.body_bytes = 0
        self.outcomes: dict[tuple[str, str], int] = {}
        """Settled claims by (their outcome or ``none``, how they were settled).

        Only of what was kept: with an outcome for each that was given back or lost it would be too many series.
        """
        self.hosts = HostCounts()
        self.fetch_seconds = Histogram(FETCH_SECONDS)
        self.flush_seconds = Histogram(FLUSH_SECONDS)
        self.flush_operations = Histogram(FLUSH_OPERATIONS)
        self.in_flight = 0
        """Pages being fetched now; set by the engine."""
        self.host_waits = HostWaits(tuple(Wait), self._clock.monotonic)
        self.requests = Requests()
        self.operations = dict.fromkeys(OPERATIONS, 0)
        """Committed operations of the frontier by name."""
        self.spans = {"sent": 0, "failed": 0, "dropped": 0}
        self.metric_exports = {"sent": 0, "failed": 0}
        self.untraced = 0
        """Failed pages without a span because the limit was reached."""

    def page_settled(self, record: PageRecord) -> None:
        """Count a claim that has ended."""
        fetched, outcome = record.fetched, record.outcome
        kept = outcome is not None and record.settled in {"done", "deferred"}
        key = (outcome.value if kept and outcome else "none", record.settled)
        self.outcomes[key] = self.outcomes.get(key, 0) + 1
        if record.settled == "done":
            self.completed += 1
            self._rate.note(self._clock.monotonic(), self.completed)
            self.failures += outcome is not None and outcome.failed
        if fetched is None:
            return
        if record.settled == "deferred":
            self.retries += 1
        self.body_bytes += fetched.body_bytes
        if fetched.exchanges:
            self.requests.add(fetched.exchanges)
            self.hosts.add(record.authority, len(fetched.exchanges))
        for stage in record.stages:
            if stage.name == "fetch":
                self.fetch_seconds.observe(_seconds(stage))

    def traced(self, record: PageRecord, trace: Trace) -> None:
        """A record that was counted becomes spans: its durations are exemplars, which lead from a bucket to them."""
        for number, exchange in enumerate(record.fetched.exchanges if record.fetched else (), start=1):
            self.requests.traced(exchange, trace.trace_id, trace.span_id(record.url, record.attempt, number))
        for stage in record.stages:
            if stage.name == "fetch":
                span_id = trace.span_id(record.url, record.attempt, 0)
                self.fetch_seconds.exemplify(Exemplar(_seconds(stage), stage.ended_ns, trace.trace_id, span_id))

    def requested(self, exchanges: Iterable[Exchange]) -> None:
        """Count requests that belong to no page: those for a robots.txt."""
        self.requests.add(exchanges)

    def flush(self, seconds: float, operations: Sequence[str]) -> None:
        """Count one committed flush: how long its transaction took, and the operations that shared it."""
        self.flush_seconds.observe(seconds)
        self.flush_operations.observe(len(operations))
        for name in operations:
            self.operations[name] += 1

    def leases(self, *, expired: int = 0, lost: int = 0, recovered: int = 0) -> None:
        """Count leases that ran out, that were found to be no longer ours, and that an older process had left.

        The only source of these three: a page that settles as ``lost`` is counted by outcome, not here again.
        """
        self.expired_leases += expired
        self.lost_leases += lost
        self.recovered_leases += recovered

    def volume(self) -> Volume | None:
        """What the frontier takes and has left; waits for the file system."""
        return None if self._database is None else measure(self._database)

    def progress(self) -> Progress:
        """The last snapshot with the rate of the last half minute, in pages per second."""
        rate = self._rate.read(self._clock.monotonic(), self.completed)
        return self.gauges().model_copy(update={"rate": round(rate, 2)})


def _seconds(stage: Stage) -> float:
    return max(0, stage.ended_ns - stage.started_ns) / 1e9
