"""Every metric of the operator, once: its name, kind, unit, meaning and where its numbers come from.

``crawljob_telemetry`` sends this table over OTLP and renders it for ``/metrics``. No label names a CrawlJob or a Pod.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from crawljob import __version__
from crawljob_operator.telemetry.stats import Stats
from crawljob_telemetry.metrics import Collected, Histogram, Metric, Series, Value
from crawljob_telemetry.process import PROCESS


def _one(read: Callable[[Stats], Value]) -> Callable[[Stats], Series]:
    return lambda stats: {(): read(stats)}


def _by(read: Callable[[Stats], Mapping[str, Value]]) -> Callable[[Stats], Series]:
    return lambda stats: {(key,): value for key, value in dict(read(stats)).items()}


def _histograms(read: Callable[[Stats], Mapping[str, Histogram]]) -> Callable[[Stats], Series]:
    return lambda stats: {(key,): histogram.read() for key, histogram in read(stats).items()}


CATALOGUE: tuple[Metric[Stats], ...] = (
    Metric(
        "crawljob_operator.reconcile.duration",
        "histogram",
        "s",
        "One reconcile of one CrawlJob, its reads and writes included.",
        _histograms(lambda s: s.reconcile_seconds),
        ("result",),
    ),
    Metric(
        "crawljob_operator.jobs",
        "gauge",
        "{crawljob}",
        "CrawlJobs by phase, as the last full listing had them.",
        _by(lambda s: s.jobs),
        ("phase",),
    ),
    Metric(
        "crawljob_operator.restarts",
        "counter",
        "{restart}",
        "Pods that ended before their crawl did, by reason; each once, when this process entered it in the status.",
        _by(lambda s: s.restarts),
        ("reason",),
    ),
    Metric(
        "crawljob_operator.watch.age",
        "gauge",
        "s",
        "Time since a watch told of anything; it grows while nothing changes.",
        _by(lambda s: s.watch_ages()),
        ("resource",),
    ),
    Metric(
        "crawljob_operator.resync.drift",
        "counter",
        "{crawljob}",
        "CrawlJobs that a full listing showed in a state which the watch had not told by the next one.",
        _one(lambda s: s.drift),
    ),
    Metric(
        "crawljob_operator.queue.depth",
        "gauge",
        "{crawljob}",
        "CrawlJobs that wait for a reconcile.",
        _one(lambda s: s.queue_depth()),
    ),
    Metric(
        "crawljob_operator.queue.latency",
        "histogram",
        "s",
        "How long a CrawlJob waited for its reconcile.",
        _one(lambda s: s.queue_seconds.read()),
    ),
    Metric(
        "crawljob_operator.api.request.duration",
        "histogram",
        "s",
        "Requests to the API server, watches not included, by HTTP method and status; error where no answer came.",
        lambda stats: {key: histogram.read() for key, histogram in dict(stats.api_seconds).items()},
        ("verb", "code"),
    ),
    Metric(
        "crawljob_operator.build_info",
        "gauge",
        "{build}",
        "Always 1, for the version in its label.",
        lambda _: {(__version__,): 1},
        ("version",),
    ),
    Metric(
        "crawljob_operator.telemetry.spans",
        "counter",
        "{span}",
        "Spans by what became of them: sent, failed after retries, or dropped because the queue was full.",
        _by(lambda s: s.spans),
        ("result",),
    ),
    Metric(
        "crawljob_operator.telemetry.metric_exports",
        "counter",
        "{export}",
        "Exports of metrics by what became of them.",
        _by(lambda s: s.metric_exports),
        ("result",),
    ),
    *PROCESS,
)


def collect(stats: Stats) -> Collected:
    """All numbers now. Safe from any thread."""
    return [(metric, metric.read(stats)) for metric in CATALOGUE]
