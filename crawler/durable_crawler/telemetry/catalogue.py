"""Every metric, once: its name, kind, unit, meaning and where its numbers come from.

``otlp_metrics`` sends this table, ``prometheus`` renders it. The names in the text format are those that a Collector's
Prometheus exporter makes of the OTLP ones, so that a dashboard works with either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from crawljob.summary import Progress
from durable_crawler.telemetry.stats import Buckets, Stats

Kind = Literal["counter", "gauge", "histogram"]
Value = int | float | Buckets
Series = Mapping[tuple[str, ...], Value]
"""Values by the attributes' values, in the order of ``Metric.attributes``; ``()`` where there are none."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: ``name`` and ``unit`` as OpenTelemetry writes them (UCUM; ``{page}`` is a comment)."""

    name: str
    kind: Kind
    unit: str
    description: str
    read: Callable[[Stats, Progress], Series]
    attributes: tuple[str, ...] = ()

    @property
    def prometheus_name(self) -> str:
        """The name in Prometheus: dots become underscores, the unit and ``_total`` are appended."""
        unit = {"s": "_seconds", "By": "_bytes"}.get(self.unit, "")
        return self.name.replace(".", "_") + unit + ("_total" if self.kind == "counter" else "")


def _one(read: Callable[[Stats], Value]) -> Callable[[Stats, Progress], Series]:
    return lambda stats, _: {(): read(stats)}


def _snapshot(read: Callable[[Progress], int]) -> Callable[[Stats, Progress], Series]:
    return lambda _, progress: {(): read(progress)}


def _by(read: Callable[[Stats], Mapping[str, int]]) -> Callable[[Stats, Progress], Series]:
    return lambda stats, _: {(key,): value for key, value in dict(read(stats)).items()}


CATALOGUE: tuple[Metric, ...] = (
    Metric("crawler.completed", "counter", "{page}", "Pages whose result was committed.", _one(lambda s: s.completed)),
    Metric(
        "crawler.outcomes",
        "counter",
        "{page}",
        "Claims that ended, by the fetch's outcome and by what became of the page.",
        lambda stats, _: {key: count for key, count in dict(stats.outcomes).items()},  # noqa: C416  a copy, retyped
        ("outcome", "state"),
    ),
    Metric(
        "crawler.failures",
        "counter",
        "{page}",
        "Completed pages that gave nothing usable.",
        _one(lambda s: s.failures),
    ),
    Metric("crawler.retries", "counter", "{retry}", "Attempts after which another follows.", _one(lambda s: s.retries)),
    Metric(
        "crawler.expired_leases",
        "counter",
        "{lease}",
        "Leases that ran out before their page was settled.",
        _one(lambda s: s.expired_leases),
    ),
    Metric(
        "crawler.lost_leases",
        "counter",
        "{lease}",
        "Leases that were found to be held by somebody else; the work was thrown away.",
        _one(lambda s: s.lost_leases),
    ),
    Metric(
        "crawler.recovered_leases",
        "counter",
        "{lease}",
        "Leases taken over from a process that ended without giving them back.",
        _one(lambda s: s.recovered_leases),
    ),
    Metric("crawler.body.received", "counter", "By", "Decoded bytes of bodies.", _one(lambda s: s.body_bytes)),
    Metric(
        "crawler.requests",
        "counter",
        "{request}",
        "HTTP requests for pages, by host: the busiest by name, the rest as other.",
        _by(lambda s: s.hosts.series()),
        ("host",),
    ),
    Metric(
        "crawler.fetch.duration",
        "histogram",
        "s",
        "One attempt at a page, redirects included.",
        _one(lambda s: s.fetch_seconds.read()),
    ),
    Metric(
        "crawler.flush.duration",
        "histogram",
        "s",
        "One transaction of the frontier.",
        _one(lambda s: s.flush_seconds.read()),
    ),
    Metric(
        "crawler.flush.size",
        "histogram",
        "{operation}",
        "Operations that shared a transaction.",
        _one(lambda s: s.flush_operations.read()),
    ),
    Metric("crawler.in_flight", "gauge", "{page}", "Pages being fetched.", _one(lambda s: s.in_flight)),
    Metric(
        "crawler.host_waits",
        "gauge",
        "{host}",
        "Hosts that pages wait for: a delay, a backoff, or an open circuit.",
        _one(lambda s: s.host_waits),
    ),
    Metric("crawler.pages.done", "gauge", "{page}", "Pages with a result.", _snapshot(lambda p: p.done)),
    Metric("crawler.pages.pending", "gauge", "{page}", "Pages that can be claimed.", _snapshot(lambda p: p.pending)),
    Metric("crawler.pages.leased", "gauge", "{page}", "Pages being worked on.", _snapshot(lambda p: p.leased)),
    Metric(
        "crawler.pages.deferred", "gauge", "{page}", "Pages that wait for a retry.", _snapshot(lambda p: p.deferred)
    ),
    Metric(
        "crawler.pages.failed",
        "gauge",
        "{page}",
        "The part of done that gave nothing usable.",
        _snapshot(lambda p: p.failed),
    ),
    Metric(
        "crawler.pages.quarantined",
        "gauge",
        "{page}",
        "Pages set aside after killing the process repeatedly.",
        _snapshot(lambda p: p.quarantined),
    ),
    Metric(
        "crawler.pages.body", "gauge", "By", "Decoded bytes of all bodies of the crawl.", _snapshot(lambda p: p.bytes)
    ),
    Metric(
        "crawler.telemetry.spans",
        "counter",
        "{span}",
        "Spans by what became of them: sent, failed after retries, or dropped because the queue was full.",
        _by(lambda s: s.spans),
        ("result",),
    ),
    Metric(
        "crawler.telemetry.metric_exports",
        "counter",
        "{export}",
        "Exports of metrics by what became of them.",
        _by(lambda s: s.metric_exports),
        ("result",),
    ),
    Metric(
        "crawler.telemetry.untraced",
        "counter",
        "{page}",
        "Failed pages without a span because the limit of a run was reached.",
        _one(lambda s: s.untraced),
    ),
)


def collect(stats: Stats) -> list[tuple[Metric, Series]]:
    """All numbers now, the gauges from one snapshot. Safe from any thread; raises only what ``stats.gauges`` does."""
    progress = stats.gauges()
    return [(metric, metric.read(stats, progress)) for metric in CATALOGUE]
