"""The dashboard of all CrawlJobs and of the operator that keeps them alive."""

from __future__ import annotations

from tools.dashboards import panels, promql
from tools.dashboards.panels import Query, Row, lines, number

UID = "durable-crawler-fleet"

WHERE = 'k8s_namespace_name=~"$namespace", crawljob_name!=""'
_CRAWL = "{{k8s_namespace_name}}/{{crawljob_name}}"
_SHOWN = 10


def page() -> str:
    """The dashboard as JSON."""
    return panels.render(
        UID,
        "Durable Crawler / Fleet",
        "All CrawlJobs, and the operator. The namespaces narrow the crawls; the operator's numbers are of all it sees.",
        [
            panels.source(),
            panels.choice("namespace", "Namespace", "label_values(crawler_attempt, k8s_namespace_name)", many=True),
        ],
        [totals(), jobs(), crawls(), work(), hearing(), resources()],
    )


def total(metric: str) -> str:
    """A gauge over all crawls, each by its newest attempt."""
    return f"sum ({promql.newest(metric, WHERE)})"


def top(metric: str) -> str:
    """The crawls in which a counter grows fastest."""
    return f"topk({_SHOWN}, {promql.rate(metric, WHERE, *promql.CRAWL)})"


def totals() -> Row:
    """What a person looks at first."""
    running = f"count (count by ({promql.by(*promql.CRAWL)}) (crawler_attempt{{{WHERE}}}))"
    return Row(
        "Crawls",
        [
            number("Crawls seen", "Crawls that sent or showed metrics in the last minutes.", panels.COUNT, running),
            number("Pages done", "Over these crawls.", panels.COUNT, total("crawler_pages_done")),
            number("Pages pending", "Over these crawls.", panels.COUNT, total("crawler_pages_pending")),
            number(
                "Pages per second",
                "Completed over all crawls.",
                panels.PAGES_PER_SECOND,
                promql.rate("crawler_completed_total", WHERE),
            ),
            number(
                "Failed",
                "The part of what is done that gave nothing usable.",
                panels.SHARE,
                f"{total('crawler_pages_failed')} / ({total('crawler_pages_done')} > 0)",
            ),
            number("In flight", "Pages being fetched now.", panels.COUNT, total("crawler_in_flight")),
        ],
        height=4,
    )


def jobs() -> Row:
    """What the operator makes of them."""
    return Row(
        "CrawlJobs",
        [
            lines(
                "CrawlJobs by phase",
                "As of the operator's last full listing, so up to five minutes old. Stalled ones wait for a person.",
                panels.COUNT,
                Query("sum by (phase) (crawljob_operator_jobs)", "{{phase}}"),
                stacked=True,
            ),
            lines(
                "Restarts by reason",
                "Pods that ended before their crawl did, in each interval; empty while none did. Suspended, "
                "SpecChanged and RestartRequested were asked for; OOMKilled and Error were not.",
                panels.COUNT,
                Query(
                    f"sum by (reason) (increase(crawljob_operator_restarts_total[{promql.RATE}])) > 0",
                    "{{reason}}",
                ),
            ),
        ],
    )


def crawls() -> Row:
    """Which of them stand out."""
    return Row(
        "Top crawls",
        [
            lines(
                "By pages completed",
                f"The {_SHOWN} fastest.",
                panels.PAGES_PER_SECOND,
                Query(top("crawler_completed_total"), _CRAWL),
            ),
            lines(
                "By failures",
                f"The {_SHOWN} with most failed pages per second.",
                panels.PAGES_PER_SECOND,
                Query(top("crawler_failures_total"), _CRAWL),
            ),
            lines(
                "By memory",
                f"The {_SHOWN} largest processes.",
                panels.BYTES,
                Query(
                    f"topk({_SHOWN}, max by ({promql.by(*promql.CRAWL)}) "
                    f"({promql.newest('process_memory_usage_bytes', WHERE)}))",
                    _CRAWL,
                ),
            ),
        ],
    )


def work() -> Row:
    """How fast the operator does its work."""
    reconcile, waited = "crawljob_operator_reconcile_duration_seconds", "crawljob_operator_queue_latency_seconds"
    return Row(
        "The operator's work",
        [
            lines(
                "Reconciles",
                "Per second, by result. Errors are tried again with a growing delay; a lasting level of them is a "
                "CrawlJob that cannot be served, named in the operator's log.",
                panels.PER_SECOND,
                Query(promql.rate(f"{reconcile}_count", "", "result"), "{{result}}"),
            ),
            lines(
                "Duration of a reconcile",
                "0.99: one of a hundred took longer. Above a second the API server is slow.",
                panels.SECONDS,
                *(Query(promql.quantile(share, reconcile), f"{share:g}") for share in (0.5, 0.99)),
            ),
            lines(
                "Queue",
                "CrawlJobs that wait for a reconcile. It is near zero unless the operator has just started.",
                panels.COUNT,
                Query("sum (crawljob_operator_queue_depth)", "waiting"),
            ),
            lines(
                "Wait in the queue",
                "How long they waited, 0.99.",
                panels.SECONDS,
                Query(promql.quantile(0.99, waited), "0.99"),
            ),
        ],
    )


def hearing() -> Row:
    """Whether the operator hears what happens."""
    request = "crawljob_operator_api_request_duration_seconds"
    return Row(
        "The API server, as the operator sees it",
        [
            lines(
                "Requests by code",
                "Per second, without watches. 409 now and then is normal; 403 is a missing right, 429 and 5xx an API "
                "server under pressure, error no answer at all.",
                panels.REQUESTS_PER_SECOND,
                Query(promql.rate(f"{request}_count", "", "verb", "code"), "{{verb}} {{code}}"),
                stacked=True,
            ),
            lines(
                "Age of the watches",
                "Time since a watch told of anything. It grows while nothing changes, so judge it with the drift.",
                panels.SECONDS,
                Query("max by (resource) (crawljob_operator_watch_age_seconds)", "{{resource}}"),
            ),
            lines(
                "Drift",
                "CrawlJobs that a full listing showed otherwise than the watch had told. Any step is a deaf watch.",
                panels.COUNT,
                Query("sum (crawljob_operator_resync_drift_total)", "missed since its start"),
            ),
        ],
    )


def resources() -> Row:
    """What the operator needs, and whether its telemetry arrives."""
    return Row(
        "The operator's process",
        [
            lines(
                "Memory",
                "It grows with the number of CrawlJobs and Pods; compare with the chart's resources.limits.memory.",
                panels.BYTES,
                Query(f"max ({promql.of_the_operator('process_memory_usage_bytes')})", "resident"),
            ),
            lines(
                "CPU",
                "Processors in use.",
                panels.COUNT,
                Query(
                    f"sum ({promql.of_the_operator(f'rate(process_cpu_time_seconds_total[{promql.RATE}])')})",
                    "processors",
                ),
            ),
            lines(
                "Telemetry",
                "Spans and exports of metrics per second, of the operator, by what became of them. Nothing waits for "
                "a Collector that is away; what it does not take is dropped.",
                panels.PER_SECOND,
                Query(promql.rate("crawljob_operator_telemetry_spans_total", "", "result"), "spans {{result}}"),
                Query(
                    promql.rate("crawljob_operator_telemetry_metric_exports_total", "", "result"),
                    "metrics {{result}}",
                ),
            ),
            lines(
                "Version",
                "Operators that run, by version. More than one for longer than an upgrade takes is one too many.",
                panels.COUNT,
                Query("count by (version) (crawljob_operator_build_info)", "{{version}}"),
            ),
        ],
    )
