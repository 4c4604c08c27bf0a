"""The dashboard of one CrawlJob: how far it is, what it meets, what it waits for, and whether it survives."""

from __future__ import annotations

from tools.dashboards import panels, promql
from tools.dashboards.panels import Query, Row, lines, number

UID = "durable-crawler-crawl"

WHERE = 'k8s_namespace_name="$namespace", crawljob_name="$crawl"'


def page() -> str:
    """The dashboard as JSON."""
    return panels.render(
        UID,
        "Durable Crawler / Crawl",
        "One CrawlJob over all of its attempts. Gauges are those of the newest attempt and come from its database.",
        [
            panels.source(),
            panels.choice("namespace", "Namespace", "label_values(crawler_attempt, k8s_namespace_name)"),
            panels.choice(
                "crawl",
                "CrawlJob",
                'label_values(crawler_attempt{k8s_namespace_name="$namespace"}, crawljob_name)',
            ),
        ],
        [progress(), pages(), hosts(), latency(), frontier(), restarts(), resources(), telemetry()],
    )


def gauge(metric: str) -> str:
    """The newest attempt's value, as one series."""
    return f"max ({promql.newest(metric, WHERE)})"


def rate(metric: str, *labels: str, window: str = promql.RATE) -> str:
    """How fast a counter of this crawl grows."""
    return promql.rate(metric, WHERE, *labels, window=window)


def left() -> str:
    """Pages that are still to do: those found, or as many as the limit allows, whichever is less."""
    found = " + ".join(gauge(f"crawler_pages_{state}") for state in ("pending", "leased", "deferred"))
    allowed = f"{gauge('crawler_pages_limit')} - {gauge('crawler_pages_done')}"
    return f'min (label_replace({found}, "of", "found", "", "") or label_replace({allowed}, "of", "allowed", "", ""))'


def progress() -> Row:
    """What a person looks at first."""
    return Row(
        "Progress",
        [
            number("Done", "Pages with a result, failed ones included.", panels.COUNT, gauge("crawler_pages_done")),
            number(
                "To do",
                "Pages found and not done, or what the page limit leaves of them. It grows while pages are discovered.",
                panels.COUNT,
                left(),
            ),
            number(
                "Page limit",
                "scope.maxPages: the crawl is complete when this many are done.",
                panels.COUNT,
                gauge("crawler_pages_limit"),
            ),
            number(
                "Time left",
                "What is to do, at the speed of the last five minutes. Too low while much is still discovered; "
                "infinite while nothing is completed.",
                panels.SECONDS,
                f"{left()} / {rate('crawler_completed_total', window='5m')}",
            ),
            number(
                "Failed",
                "The part of what is done that gave nothing usable: see the outcomes for why.",
                panels.SHARE,
                f"{gauge('crawler_pages_failed')} / ({gauge('crawler_pages_done')} > 0)",
            ),
            number(
                "Attempt",
                "The number of the Pod that crawls. More than 1: it was restarted.",
                panels.COUNT,
                gauge("crawler_attempt"),
            ),
        ],
        height=4,
    )


def pages() -> Row:
    """Where the pages are, and how they end."""
    states = ("done", "pending", "leased", "deferred", "quarantined")
    return Row(
        "Pages",
        [
            lines(
                "Pages by state",
                "Done grows until it meets the limit or nothing is left. Many deferred: the site fails and is retried. "
                "Quarantined pages killed the crawler's process repeatedly.",
                panels.COUNT,
                *(Query(gauge(f"crawler_pages_{state}"), state) for state in states),
                Query(gauge("crawler_pages_limit"), "limit"),
            ),
            lines(
                "Outcomes",
                "Claims that ended, by the fetch's outcome and by what became of the page: done, deferred for a retry, "
                "released or lost. Zero of everything is a crawl that stands still.",
                panels.PAGES_PER_SECOND,
                Query(rate("crawler_outcomes_total", "outcome", "state"), "{{outcome}} → {{state}}"),
                stacked=True,
            ),
            lines(
                "Completed, failed, retried",
                "Pages per second. Failures near the height of completed: the site, or the way to it, is broken.",
                panels.PAGES_PER_SECOND,
                Query(rate("crawler_completed_total"), "completed"),
                Query(rate("crawler_failures_total"), "failed"),
                Query(rate("crawler_retries_total"), "retried"),
            ),
        ],
    )


def hosts() -> Row:
    """Whom it asks, and how politely."""
    return Row(
        "Hosts and politeness",
        [
            lines(
                "Requests by host",
                "Requests per second to the 20 busiest hosts, all others as other: what those sites see of this crawl.",
                panels.REQUESTS_PER_SECOND,
                Query(rate("crawler_requests_total", "host"), "{{host}}"),
                stacked=True,
            ),
            lines(
                "Hosts that are waited for",
                "Hosts with pages to do that may not be asked now, by reason. A crawl with all of its hosts here is "
                "as fast as politeness lets it be.",
                panels.COUNT,
                Query(
                    f"max by (reason) ({promql.newest('crawler_host_waits', WHERE)})",
                    "{{reason}}",
                ),
                stacked=True,
            ),
            lines(
                "Time waited for hosts",
                "Host-seconds per second, by reason: 3 means that three hosts with pages to do might not be asked, on "
                "average.",
                panels.SECONDS,
                Query(rate("crawler_host_wait_time_seconds_total", "reason"), "{{reason}}"),
                stacked=True,
            ),
        ],
    )


def latency() -> Row:
    """How fast the sites answer."""
    request, fetch = "http_client_request_duration_seconds", "crawler_fetch_duration_seconds"
    shares = (0.5, 0.9, 0.99)
    return Row(
        "Latency",
        [
            lines(
                "Duration of an HTTP request",
                "Redirects and robots.txt included, the wait for its turn not. 0.99: one request of a hundred took "
                "longer.",
                panels.SECONDS,
                *(Query(promql.quantile(share, request, WHERE), f"{share:g}") for share in shares),
            ),
            lines(
                "HTTP requests by answer",
                "Requests per second by status, or by the kind of error where no answer came.",
                panels.REQUESTS_PER_SECOND,
                Query(
                    rate(f"{request}_count", "http_request_method", "http_response_status_code", "error_type"),
                    "{{http_request_method}} {{http_response_status_code}} {{error_type}}",
                ),
                stacked=True,
            ),
            panels.heatmap(
                "Duration of a fetch",
                "One attempt at a page, redirects included, waiting for the host not. Darker: more fetches took that "
                "long.",
                panels.SECONDS,
                rate(f"{fetch}_bucket", "le"),
            ),
        ],
    )


def frontier() -> Row:
    """What the database does."""
    duration, size = "crawler_flush_duration_seconds", "crawler_flush_size"
    return Row(
        "Frontier",
        [
            lines(
                "Operations",
                "Claims, results, renewals and so on per second, by kind.",
                panels.PER_SECOND,
                Query(rate("crawler_frontier_operations_total", "operation"), "{{operation}}"),
                stacked=True,
            ),
            lines(
                "Duration of a transaction",
                "Each is one sync of the volume. A 0.99 near a second: the volume is slow, and the crawl with it.",
                panels.SECONDS,
                *(Query(promql.quantile(share, duration, WHERE), f"{share:g}") for share in (0.5, 0.99)),
            ),
            lines(
                "Operations in a transaction",
                "The mean. It grows with the load: operations that arrive during a sync share the next one.",
                panels.COUNT,
                Query(promql.mean(size, WHERE), "mean"),
            ),
        ],
    )


def restarts() -> Row:
    """Whether it survives."""
    leases = {
        "recovered": "crawler_recovered_leases_total",
        "expired": "crawler_expired_leases_total",
        "lost": "crawler_lost_leases_total",
    }
    return Row(
        "Restarts and leases",
        [
            lines(
                "Attempt",
                "A step is a new Pod. The reasons are in the CrawlJob's status.history, those of all crawls on the "
                "dashboard of the fleet.",
                panels.COUNT,
                Query(f"max by (crawljob_attempt) (crawler_attempt{{{WHERE}}})", "attempt {{crawljob_attempt}}"),
            ),
            lines(
                "Leases that changed hands",
                "Since each attempt began. Recovered: taken over from an attempt that was killed, at most one for each "
                "worker. Expired or lost: this one was too slow for its own leases; its work was thrown away.",
                panels.COUNT,
                *(
                    Query(
                        f"max by (crawljob_attempt) ({metric}{{{WHERE}}})", f"{name}, attempt {{{{crawljob_attempt}}}}"
                    )
                    for name, metric in leases.items()
                ),
            ),
        ],
    )


def resources() -> Row:
    """What it needs."""
    return Row(
        "Resources",
        [
            lines(
                "Memory",
                "Of the process. Compare with the limit in podTemplate.resources: over it the Pod ends as OOMKilled.",
                panels.BYTES,
                Query(gauge("process_memory_usage_bytes"), "resident"),
            ),
            lines(
                "CPU",
                "Processors in use. The event loop is one thread: near 1 it is what limits the crawl.",
                panels.COUNT,
                Query(rate("process_cpu_time_seconds_total"), "processors"),
            ),
            lines(
                "Volume",
                "The database with its log, against the volume. What is free must outlast the crawl: below its "
                "watermark the crawler stops with the reason OutOfDisk.",
                panels.BYTES,
                Query(gauge("crawler_database_size_bytes"), "database"),
                Query(gauge("crawler_volume_free_bytes"), "free"),
                Query(gauge("crawler_volume_size_bytes"), "volume"),
            ),
            lines(
                "Bodies",
                "Decoded bytes per second of what was fetched.",
                panels.BYTES_PER_SECOND,
                Query(rate("crawler_body_received_bytes_total"), "received"),
            ),
        ],
    )


def telemetry() -> Row:
    """Whether this dashboard can be believed."""
    return Row(
        "Telemetry itself",
        [
            lines(
                "Spans",
                "Per second, by what became of them. Dropped or failed: the Collector is away or slow. "
                "The crawl does not wait for it.",
                panels.PER_SECOND,
                Query(rate("crawler_telemetry_spans_total", "result"), "{{result}}"),
                Query(rate("crawler_telemetry_untraced_total"), "not traced: over the limit"),
            ),
            lines(
                "Exports of metrics",
                "Per second, by what became of them; zero where metrics are only scraped.",
                panels.PER_SECOND,
                Query(rate("crawler_telemetry_metric_exports_total", "result"), "{{result}}"),
            ),
        ],
        height=6,
    )
