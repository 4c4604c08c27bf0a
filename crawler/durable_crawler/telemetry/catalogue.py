"""Every metric of the crawler, once: its name, kind, unit, meaning and where its numbers come from.

``crawljob_telemetry`` sends this table over OTLP and renders it for ``/metrics``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from crawljob.summary import Progress
from crawljob_telemetry.metrics import Collected, Metric, Series, Value
from durable_crawler.telemetry.stats import Stats


class Reading(NamedTuple):
    """What the table reads: the counters, and the gauges of one snapshot."""

    stats: Stats
    progress: Progress


def _one(read: Callable[[Stats], Value]) -> Callable[[Reading], Series]:
    return lambda now: {(): read(now.stats)}


def _snapshot(read: Callable[[Progress], int]) -> Callable[[Reading], Series]:
    return lambda now: {(): read(now.progress)}


def _by(read: Callable[[Stats], Mapping[str, int]]) -> Callable[[Reading], Series]:
    return lambda now: {(key,): value for key, value in dict(read(now.stats)).items()}


CATALOGUE: tuple[Metric[Reading], ...] = (
    Metric("crawler.completed", "counter", "{page}", "Pages whose result was committed.", _one(lambda s: s.completed)),
    Metric(
        "crawler.outcomes",
        "counter",
        "{page}",
        "Claims that ended, by the fetch's outcome and by what became of the page.",
        lambda now: {key: count for key, count in dict(now.stats.outcomes).items()},  # noqa: C416  a copy, retyped
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


def collect(stats: Stats) -> Collected:
    """All numbers now, the gauges from one snapshot. Safe from any thread; raises only what ``stats.gauges`` does."""
    now = Reading(stats, stats.gauges())
    return [(metric, metric.read(now)) for metric in CATALOGUE]
