"""Dashboards work with either source: what a real Collector shows of our metrics is what our own ``/metrics`` says."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as text_format
from tests.support.crawler import free_port
from tests.support.toolchain import binaries
from tests.support.toolchain.cache import Failed, Unavailable

from crawljob.summary import Progress
from crawljob.telemetry import Telemetry as Spec
from crawljob_operator.telemetry import Telemetry as OperatorTelemetry
from crawljob_telemetry.prometheus import render
from durable_crawler.board import Wait
from durable_crawler.clock import SystemClock
from durable_crawler.outcomes import Exchange, Fetched, Outcome, PageRecord, Stage
from durable_crawler.telemetry import Stats, Telemetry
from durable_crawler.telemetry.catalogue import collect

RESOURCE = {
    "k8s.namespace.name": "crawls",
    "crawljob.name": "docs",
    "crawljob.uid": "6f0c",
    "crawljob.attempt": "2",
}
ENVIRON = {"OTEL_RESOURCE_ATTRIBUTES": ",".join(f"{key}={value}" for key, value in RESOURCE.items())}
LABELS = {key.replace(".", "_"): value for key, value in RESOURCE.items()}

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@dataclass
class RealCollector:
    """Addresses of a Collector that runs."""

    endpoint: str
    metrics: str


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[RealCollector]:
    """The OpenTelemetry Collector with its Prometheus exporter, as a process of its own on loopback."""
    try:
        program = binaries.ensure("otelcol")["otelcol"]
    except Failed:
        raise  # it should have worked here
    except Unavailable as error:
        pytest.skip(str(error))
    otlp, metrics = free_port(), free_port()
    shown = {
        "endpoint": f"127.0.0.1:{metrics}",
        "resource_to_telemetry_conversion": {"enabled": True},
        "enable_open_metrics": True,
    }
    config = {
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{otlp}"}}}},
        "exporters": {"prometheus": shown},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"metrics": {"receivers": ["otlp"], "exporters": ["prometheus"]}},
        },
    }
    file = tmp_path / "collector.yaml"
    file.write_text(yaml.safe_dump(config))
    with (tmp_path / "log").open("wb") as log, subprocess.Popen([program, "--config", file], stderr=log) as process:
        try:
            yield RealCollector(f"http://127.0.0.1:{otlp}", f"http://127.0.0.1:{metrics}/metrics")
        finally:
            process.terminate()
            process.wait(20)


async def scrape(url: str, wanted: str, accept: str = "text/plain") -> str:
    """What it shows, once that has ``wanted``: the exports and its start take their time."""
    async with asyncio.timeout(60), aiohttp.ClientSession(headers={"Accept": accept}) as session:
        while True:
            try:
                async with session.get(url) as response:
                    text = await response.text()
            except aiohttp.ClientConnectionError:
                text = ""
            if wanted in text:
                return text
            await asyncio.sleep(0.1)


def samples(text: str, *, ours: bool) -> Samples:
    """The samples without what says who sent them; of a process's own numbers only that they are there."""
    found = {}
    for family in text_format(text):
        for sample in family.samples:
            if sample.name.startswith("target_info"):
                continue
            labels = {
                key: value
                for key, value in sample.labels.items()
                if ours or not key.startswith(("otel_scope_", "service_", "telemetry_sdk_", "job", "instance"))
            }
            if not ours:
                assert {key: labels.pop(key, "") for key in LABELS} == LABELS, sample
            moving = sample.name.startswith(("process_", "crawler_volume_", "crawljob_operator_"))
            value = 0.0 if moving else sample.value
            found[sample.name, frozenset(labels.items())] = value
    return found


def kinds(text: str) -> dict[str, str]:
    return {family.name: family.type for family in text_format(text) if family.name != "target_info"}


async def test_the_crawlers_metrics_are_the_same_in_both(collector: RealCollector) -> None:
    stats = Stats(lambda: Progress(done=3, pending=2), attempt=2, page_limit=9, database=Path(__file__))
    for status, error in ((200, ""), (404, ""), (None, Outcome.DNS_ERROR)):
        url = f"http://site.test/{status}"
        exchange = Exchange(url, 0, 30_000_000, status, error, "1.1" if status else "")
        fetched = Fetched(url, url, Outcome.OK, status=status, body_bytes=10, exchanges=(exchange,))
        stages = (Stage("fetch", 0, 30_000_000),)
        stats.page_settled(PageRecord(url, "site.test", 0, 1, "done", fetched, stages))
    stats.flush(0.004, ["claim", "finish"])
    stats.host_waits.look({1: (Wait.BACKOFF, 0.0)})
    sending = Telemetry(Spec(endpoint=collector.endpoint), stats, SystemClock(), ENVIRON, metrics_interval=0.2)
    sending.start()
    await scrape(collector.metrics, "crawler_completed")
    stats.completed += 1  # an export from now on has what the text has
    theirs = await scrape(collector.metrics, 'result="sent"')
    while samples(theirs, ours=False)["crawler_completed_total", frozenset()] != stats.completed:
        theirs = await scrape(collector.metrics, "crawler_completed")
    ours = render(collect(stats))
    await sending.aclose(10)

    def without_exports(found: Samples) -> Samples:
        return {key: 0.0 if "metric_exports" in key[0] else value for key, value in found.items()}

    assert without_exports(samples(theirs, ours=False)) == without_exports(samples(ours, ours=True))
    assert kinds(theirs) == kinds(ours)


async def test_the_operators_metrics_have_the_same_names_in_both(collector: RealCollector) -> None:
    async with OperatorTelemetry(Spec(endpoint=collector.endpoint), ENVIRON, metrics_interval=0.2) as telemetry:
        telemetry.called("GET", "200", 0.02)
        telemetry.heard("pods")
        telemetry.reconciled("success", 0.1)
        telemetry.listing()
        telemetry.listing_ended()
        telemetry.start()
        theirs = await scrape(collector.metrics, "process_memory_usage_bytes")
        ours = telemetry.text()
    assert samples(theirs, ours=False).keys() == samples(ours, ours=True).keys()
    assert kinds(theirs) == kinds(ours)


async def test_an_outlier_in_prometheus_leads_to_its_trace(collector: RealCollector) -> None:
    """An exemplar, in the format that has them."""
    stats = Stats(Progress)
    spec = Spec(endpoint=collector.endpoint, traces_sample_ratio=1.0)
    sending = Telemetry(spec, stats, SystemClock(), ENVIRON, metrics_interval=0.2)
    sending.start()
    started = SystemClock().wall_ns()
    exchange = Exchange("http://h/", started, started + 4_000_000_000, 200, "", "1.1")
    fetched = Fetched("http://h/", "http://h/", Outcome.OK, status=200, exchanges=(exchange,))
    stage = Stage("fetch", started, started + 4_000_000_000)
    sending.page_settled(PageRecord("http://h/", "h", 0, 1, "done", fetched, (stage,)))
    text = await scrape(collector.metrics, "trace_id=", "application/openmetrics-text")
    await sending.aclose(10)
    families: Any = open_metrics(text)  # type: ignore[no-untyped-call]
    exemplars = {sample.name: sample.exemplar for family in families for sample in family.samples if sample.exemplar}
    assert exemplars.keys() == {"crawler_fetch_duration_seconds_bucket", "http_client_request_duration_seconds_bucket"}
    for exemplar in exemplars.values():
        assert (exemplar.labels["trace_id"], exemplar.value) == (sending.trace_id, 4)
