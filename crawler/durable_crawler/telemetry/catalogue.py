"""Every metric of the crawler, once: its name, kind, unit, meaning and where its numbers come from.

``crawljob_telemetry`` sends this table over OTLP and renders it for ``/metrics``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from crawljob.summary import Progress
from crawljob_telemetry.metrics import Collected, Metric, Series, Value
from crawljob_telemetry.process import PROCESS
from durable_crawler.telemetry.stats import Stats
from durable_crawler.telemetry.volume import Volume


class Reading(NamedTuple):
    """What the table reads: the counters, the gauges of one snapshot, and the frontier's volume."""

    stats: Stats
    progress: Progress
    volume: Volume | None


def _one(read: Callable[[Stats], Value]) -> Callable[[Reading], Series]:
    return lambda now: {(): read(now.stats)}


def _snapshot(read: Callable[[Progress], int]) -> Callable[[Reading], Series]:
    return lambda now: {(): read(now.progress)}


def _volume(read: Callable[[Volume], int]) -> Callable[[Reading], Series]:
    return lambda now: {} if now.volume is None else {(): read(now.volume)}


def _by(read: Callable[[Stats], Mapping[str, Value]]) -> Callable[[Reading], Series]:
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
    Metric(
        "crawler.frontier.operations",
        "counter",
        "{operation}",
        "Operations of the frontier that were committed; one may name several pages.",
        _by(lambda s: s.operations),
        ("operation",),
    ),
    Metric(
        "crawler.database.size", "gauge", "By", "The frontier's database and its WAL.", _volume(lambda v: v.database)
    ),
    Metric("crawler.volume.size", "gauge", "By", "The file system that holds the frontier.", _volume(lambda v: v.size)),
    Metric(
        "crawler.volume.free",
        "gauge",
        "By",
        "What is free of the file system that holds the frontier.",
        _volume(lambda v: v.free),
    ),
    Metric(
        "crawler.attempt",
        "gauge",
        "{attempt}",
        "Which Pod of its CrawlJob this is, from 1; 1 outside a cluster.",
        _one(lambda s: s.attempt),
    ),
    Metric("crawler.in_flight", "gauge", "{page}", "Pages being fetched.", _one(lambda s: s.in_flight)),
    Metric(
        "crawler.host_waits",
        "gauge",
        "{host}",
        "Hosts with pages that may not be asked now, by what closed their gates.",
        _by(lambda s: s.host_waits.hosts()),
        ("reason",),
    ),
    Metric(
        "crawler.host_wait.time",
        "counter",
        "s",
        "For how long hosts with pages might not be asked, added up over all hosts (host-seconds: two that wait for a "
        "minute are two minutes), by what closed their gates.",
        _by(lambda s: s.host_waits.seconds()),
        ("reason",),
    ),
    Metric(
        "http.client.request.duration",
        "histogram",
        "s",
        "HTTP requests, redirects and those for robots.txt included, without the time until their turn came.",
        lambda now: dict(now.stats.requests.series().items()),
        ("http.request.method", "http.response.status_code", "error.type", "network.protocol.version"),
    ),
    Metric(
        "crawler.pages.limit",
        "gauge",
        "{page}",
        "Pages that are requested at most (scope.maxPages).",
        lambda now: {} if now.stats.page_limit is None else {(): now.stats.page_limit},
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
    *PROCESS,
)


def collect(stats: Stats) -> Collected:
    """All numbers now, the gauges from one snapshot. Safe from any thread; raises only what ``stats.gauges`` does.

    Not for the event loop: it waits for the frontier's file system.
    """
    now = Reading(stats, stats.gauges(), stats.volume())
    return [(metric, metric.read(now)) for metric in CATALOGUE]
