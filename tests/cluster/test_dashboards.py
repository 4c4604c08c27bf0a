"""Every panel of the dashboards and every alert has data: of real crawls of a site with faults, by both ways.

One Prometheus scrapes the Collector, which gets everything over OTLP; another scrapes the Pods, as the chart's
PodMonitors say. One crawl meets 25 hosts and is killed half-way, a second one is undisturbed.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from tests.support import grafana, product, promql
from tests.support.cluster import collector, testbed
from tests.support.cluster.prometheus import PodTargets, Prometheus
from tests.support.cluster.site import Site
from tests.support.product import CHART, Job

HOSTS = 25
PAGES = 40
SERIES_MAX = 50
WINDOW = "10m"
RULES = CHART / "files" / "rules.yaml"
# What the crawler's gauges say, and where the database has it.
GAUGES = {
    "crawler_pages_done": "done",
    "crawler_pages_pending": "pending",
    "crawler_pages_leased": "leased",
    "crawler_pages_deferred": "deferred",
    "crawler_pages_failed": "failed",
    "crawler_pages_quarantined": "quarantined",
    "crawler_pages_body_bytes": "bytes",
}
COUNTERS = {"crawler_completed_total": "done", "crawler_failures_total": "failed"}

FAULTS = """
location /broken { return 500; }
location /busy { add_header Retry-After 2 always; return 429; }
location /cut { return 444; }
location = /moved.html { return 302 /0.html; }
location /slow { limit_rate 8k; }
"""
FAULTY = (
    "broken-1",
    "broken-2",
    "missing-1",
    "missing-2",
    "busy",
    "cut",
    "moved.html",
    "slow.html",
    "private/page.html",
)

pytestmark = [
    pytest.mark.timeout(420),
    pytest.mark.skipif(testbed.mode() != "box", reason="many hosts by name exist in the outside world of the box only"),
]


@dataclass(frozen=True)
class Seen:
    """The run, when it is over: times in seconds since the epoch."""

    pushed: Prometheus
    scraped: Prometheus
    job: Job
    began: float
    ended: float

    def servers(self) -> dict[str, Prometheus]:
        return {"over OTLP": self.pushed, "scraped": self.scraped}


def content(folder: Path) -> Path:
    """Pages that are all linked from the first; one host's seed leads to the faults."""
    links = "".join(f'<a href="/{number}.html">{number}</a>' for number in range(PAGES))
    (folder / "index.html").write_text(links)
    for number in range(PAGES):
        (folder / f"{number}.html").write_text(f"<title>{number}</title>")
    (folder / "faults.html").write_text("".join(f'<a href="/{name}">{name}</a>' for name in FAULTY))
    (folder / "slow.html").write_text("<p>slow" * 4000)
    (folder / "robots.txt").write_text("User-agent: *\nDisallow: /private/\n")
    return folder


def manifest(name: str, *seeds: str, delay: str) -> str:
    return product.crawljob(
        name,
        *seeds,
        fetch={"workers": 8, "perHost": 1, "retries": 1},
        politeness={"delay": delay},
        network={"allowCIDRs": ["203.0.113.0/24"]},
        restartPolicy={"backoff": {"initialSeconds": 1}},
        telemetry={"endpoint": collector.GRPC, "tracesSampleRatio": 0.1},
    )


def monitors() -> list[PodTargets]:
    """The chart's PodMonitors, as it renders them where their kind is known."""
    known = ("--api-versions", "monitoring.coreos.com/v1/PodMonitor", "--api-versions", "monitoring.coreos.com/v1")
    shown = testbed.helm(
        *("template", product.RELEASE, str(CHART), "-n", product.NAMESPACE, "--set", "podMonitor.enabled=true", *known)
    )
    found = [item for item in yaml.safe_load_all(shown) if item and item["kind"] == "PodMonitor"]
    assert len(found) == 2, "one for the operator, one for the crawlers"
    return [PodTargets(monitor) for monitor in found]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    collector.deploy()
    product.install("--set", f"telemetry.endpoint={collector.GRPC}")
    service = testbed.get_json("service", "otel-collector", "-n", collector.NAMESPACE)
    target = {"job_name": "collector", "static_configs": [{"targets": [f"{service['spec']['clusterIP']}:8889"]}]}
    began = time.time()
    with ExitStack() as stack:
        pods = [stack.enter_context(monitor) for monitor in monitors()]
        pushed = stack.enter_context(Prometheus("pushed", 9095, [target], RULES))
        scraped = stack.enter_context(Prometheus("scraped", 9096, [pod.scrape() for pod in pods], RULES))
        site = stack.enter_context(Site(content(tmp_path_factory.mktemp("site")), extra=FAULTS))
        namespace = stack.enter_context(testbed.namespace("seen"))
        job = crawl(site, namespace)
        done = job.frontier().snapshot().done
        last = f'max(crawler_pages_done{{k8s_namespace_name="{namespace}", crawljob_name="{job.name}"}})'
        testbed.wait_until(lambda: [found.values for found in pushed.now(last)] == [(done,)], 20, "the last numbers")
        yield Seen(pushed, scraped, job, began, time.time())


def crawl(site: Site, namespace: str) -> Job:
    """Two crawls, one of them killed half-way; returns that one when both are complete."""
    hosts = [f"http://h{number:02}.site.test:{site.port}" for number in range(HOSTS)]
    testbed.apply(manifest("walk", *hosts, f"{hosts[0]}/faults.html", delay="1500ms"), "-n", namespace)
    testbed.apply(manifest("calm", hosts[1], delay="1s"), "-n", namespace)
    job = Job("walk", namespace)
    job.until(lambda: job.done() >= HOSTS * PAGES // 2, 180, "half of the pages")
    (pod,) = job.owned("pod")
    testbed.kill_container(pod, namespace, "crawler")
    job.until(lambda: job.status.get("restarts") == 1, 60, "the restart")
    for each in (job, Job("calm", namespace)):
        each.wait("Complete", 240)
    return job


def shows(found: list[tuple[float, ...]]) -> bool:
    return any(math.isfinite(value) for values in found for value in values)


@pytest.mark.parametrize("way", ["over OTLP", "scraped"])
def test_no_panel_is_empty(seen: Seen, way: str) -> None:
    server = seen.servers()[way]
    values = {"namespace": seen.job.namespace, "crawl": seen.job.name, "interval": "1m"}
    empty = [
        str(shown)
        for shown in grafana.queries()
        if not shows(
            [
                found.values
                for found in server.course(grafana.filled(shown.expression, **values), seen.began, seen.ended)
            ]
        )
    ]
    assert empty == []


@pytest.mark.parametrize("way", ["over OTLP", "scraped"])
def test_every_alert_asks_for_series_that_there_are(seen: Seen, way: str) -> None:
    server = seen.servers()[way]
    rules = server.rules()
    assert len(rules) == sum(len(group["rules"]) for group in yaml.safe_load(RULES.read_text())["groups"])
    assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []
    missing = [
        (rule["name"], selector)
        for rule in rules
        for selector in promql.selectors(rule["query"])
        if not server.series(selector, seen.began, seen.ended)
    ]
    assert missing == []


@pytest.mark.parametrize("way", ["over OTLP", "scraped"])
def test_one_kill_alarms_nobody(seen: Seen, way: str) -> None:
    firing = seen.servers()[way].course('ALERTS{alertstate="firing"}', seen.began, seen.ended)
    assert [found.labels["alertname"] for found in firing] == []


def test_the_gauges_are_the_database_and_no_counter_exceeds_it(seen: Seen) -> None:
    counts = seen.job.frontier().snapshot()
    where = f'{{k8s_namespace_name="{seen.job.namespace}", crawljob_name="walk"}}'
    shown = {}
    for metric in GAUGES:
        (found,) = seen.pushed.now(f"{metric}{where} and on (crawljob_attempt) topk(1, crawler_attempt{where})")
        assert found.labels["crawljob_attempt"] == "2"
        shown[metric] = found.values[0]
    assert shown == {metric: getattr(counts, field) for metric, field in GAUGES.items()}
    assert counts.done > HOSTS * PAGES
    for metric, field in COUNTERS.items():
        (found,) = seen.pushed.now(f"sum(max_over_time({metric}{where}[{WINDOW}]))")
        assert 0 < found.values[0] <= getattr(counts, field), metric


@pytest.mark.parametrize("way", ["over OTLP", "scraped"])
def test_the_series_are_bounded_and_name_no_page(seen: Seen, way: str) -> None:
    """A histogram is one series, as OTLP has it: its buckets are fixed. What rules make of series is not counted."""
    ours = '{__name__!~"ALERTS.*", crawljob_name!="", le=""}'
    found = seen.servers()[way].series(ours, seen.began, seen.ended)
    sizes = Counter((labels["__name__"], labels["crawljob_name"], labels["crawljob_attempt"]) for labels in found)
    assert {key: size for key, size in sizes.items() if size > SERIES_MAX} == {}
    hosts = {labels["host"] for labels in found if labels["__name__"] == "crawler_requests_total"}
    assert "other" in hosts, "there are more hosts than may be named"
    named = {value for labels in found for value in labels.values()}
    assert [value for value in named if "://" in value or ".html" in value] == []
