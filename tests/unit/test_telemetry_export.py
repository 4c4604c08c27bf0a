"""Export against collectors on loopback: what arrives, and that no state of a collector matters to the crawl."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import logging
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from tests.support.otlp import (
    COLLECTORS,
    PROTOCOLS,
    Collector,
    Faulty,
    Protocol,
    answering,
    grpc_collector,
    text_attributes,
)

from crawljob.summary import Progress, RunSummary
from crawljob.telemetry import Telemetry as TelemetrySpec
from crawljob_telemetry.credentials import Credentials
from crawljob_telemetry.exporters import scope, span_exporter
from crawljob_telemetry.finished import Origin
from crawljob_telemetry.span_queue import BATCH_SPANS, QUEUED_SPANS_MAX, TRIES, SpanQueue, SpanSignal
from durable_crawler.clock import SystemClock
from durable_crawler.outcomes import Exchange, Fetched, Outcome, PageRecord, Stage
from durable_crawler.telemetry import Stats, Telemetry
from durable_crawler.telemetry.catalogue import CATALOGUE
from durable_crawler.telemetry.spans import SpanBuilder
from durable_crawler.telemetry.trace import Chosen, trace_from

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
ENVIRON = {"TRACEPARENT": f"00-{TRACE}-{PARENT}-01", "OTEL_RESOURCE_ATTRIBUTES": "crawljob.name=docs"}


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> Protocol:
    chosen: Protocol = request.param
    return chosen


@pytest.fixture
def collector(protocol: Protocol) -> Iterator[Collector]:
    with COLLECTORS[protocol]() as running:
        yield running


def page(url: str, settled: str = "done", outcome: Outcome = Outcome.OK) -> PageRecord:
    fetched = Fetched(url, url, outcome, status=200, body=b"x", exchanges=(Exchange(url, 100, 200, 200),))
    stages = (Stage("fetch", 100, 200), Stage("parse", 200, 300), Stage("commit", 300, 400))
    return PageRecord(url, "site.test", 0, 1, settled, fetched, stages)


def telemetry_for(
    endpoint: str | None, protocol: Protocol = "grpc", *, stats: Stats | None = None, ratio: float = 1.0, **options: Any
) -> Telemetry:
    spec = TelemetrySpec(endpoint=endpoint, protocol=protocol, traces_sample_ratio=ratio)
    return Telemetry(spec, stats or Stats(Progress), SystemClock(), options.pop("environ", ENVIRON), **options)


async def test_the_tree_that_arrives_is_whole(collector: Collector, protocol: Protocol) -> None:
    telemetry = telemetry_for(collector.endpoint, protocol)
    telemetry.start()
    for number in range(100):
        telemetry.page_settled(page(f"http://site.test/{number}"))
    await telemetry.aclose(30, RunSummary(outcome="finished", reason="CrawlFinished", exit_code=0))

    spans = collector.spans
    assert len(spans) == 1 + 100 * 4
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    by_id = {span.span_id: span for span in spans}
    assert len(by_id) == len(spans)
    assert sorted(span.name for span in spans if span.parent_span_id.hex() == PARENT) == ["crawl page"] * 100 + [
        "crawl run"
    ]
    children = [span for span in spans if span.parent_span_id.hex() != PARENT]
    assert all(by_id[child.parent_span_id].name == "crawl page" for child in children)
    assert (
        max(len(scope.spans) for r in collector.traces for rs in r.resource_spans for scope in rs.scope_spans)
        <= BATCH_SPANS
    )
    resource = text_attributes(collector.traces[0].resource_spans[0].resource.attributes)
    assert resource["service.name"] == "durable-crawler"
    assert resource["crawljob.name"] == "docs"
    assert resource.keys() >= {"service.version", "service.instance.id"}
    run = next(span for span in spans if span.name == "crawl run")
    assert (telemetry.trace_id, telemetry.span_id) == (TRACE, run.span_id.hex())


async def test_without_a_traceparent_the_run_is_the_root() -> None:
    with grpc_collector() as collector:
        telemetry = telemetry_for(collector.endpoint, environ={"TRACEPARENT": "nonsense"})
        telemetry.start()
        telemetry.page_settled(page("http://site.test/"))
        await telemetry.aclose(30)
    (root,) = [span for span in collector.spans if not span.parent_span_id]
    assert root.name == "crawl run"
    (shown,) = [span for span in collector.spans if span.name == "crawl page"]
    assert shown.parent_span_id == root.span_id


async def test_only_chosen_and_failed_pages_are_sent() -> None:
    with grpc_collector() as collector:
        telemetry = telemetry_for(collector.endpoint, ratio=0.0)
        telemetry.start()
        telemetry.page_settled(page("http://site.test/good"))
        telemetry.page_settled(page("http://site.test/bad", outcome=Outcome.HTTP_ERROR))
        await telemetry.aclose(30)
    assert [s.status.code for s in collector.spans if s.name == "crawl page"] == [Status.STATUS_CODE_ERROR]


async def test_the_last_metrics_are_the_final_counts(collector: Collector, protocol: Protocol) -> None:
    progress = Progress(pending=5)
    stats = Stats(lambda: progress, page_limit=50, database=Path(__file__))
    telemetry = telemetry_for(collector.endpoint, protocol, stats=stats, metrics_interval=0.01)
    telemetry.start()
    await collector.wait_until(lambda: len(collector.metrics) >= 2)
    for _ in range(3):
        telemetry.page_settled(page("http://site.test/"))
    stats.flush(0.004, ["claim"] * 12)
    progress = Progress(done=3, pending=0, leased=0, deferred=1, failed=2, quarantined=4, bytes=99)
    await telemetry.aclose(30)

    last = collector.last_metrics()
    points = {name: getattr(metric, str(metric.WhichOneof("data"))).data_points for name, metric in last.items()}
    gauges = {name.removeprefix("crawler.pages."): p[0].as_int for name, p in points.items() if ".pages." in name}
    assert gauges.pop("limit") == 50
    assert gauges == {"done": 3, "pending": 0, "leased": 0, "deferred": 1, "failed": 2, "quarantined": 4, "body": 99}
    assert points["crawler.completed"][0].as_int == 3
    assert {metric.name for metric in CATALOGUE} == last.keys()
    for metric in CATALOGUE:
        sent = last[metric.name]
        assert (sent.unit, sent.description) == (metric.unit, metric.description)
        assert sent.WhichOneof("data") == {"counter": "sum", "updowncounter": "sum"}.get(metric.kind, metric.kind)
        if "counter" in metric.kind:
            assert sent.sum.is_monotonic is (metric.kind == "counter")
            assert sent.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    (histogram,) = points["crawler.flush.duration"]
    assert (histogram.count, histogram.sum, sum(histogram.bucket_counts)) == (1, 0.004, 1)
    assert len(histogram.bucket_counts) == len(histogram.explicit_bounds) + 1
    assert text_attributes(points["crawler.requests"][0].attributes) == {"host": "site.test"}
    (duration,) = points["http.client.request.duration"]
    assert {pair.key: pair.value.string_value or pair.value.int_value for pair in duration.attributes} == {
        "http.request.method": "GET",
        "http.response.status_code": 200,  # an integer, by the conventions; and neither a host nor an error
    }
    assert "http://" not in str([text_attributes(p.attributes) for series in points.values() for p in series])
    starts = {p.start_time_unix_nano for p in points["crawler.completed"]}
    first = collector.metrics[0].resource_metrics[0].scope_metrics[0].metrics[0].sum.data_points[0]
    assert starts == {first.start_time_unix_nano}  # one cumulative series from the start to the end


async def test_a_bucket_leads_to_the_newest_traced_page_in_it(collector: Collector, protocol: Protocol) -> None:
    """And to no page that was not traced: half of the pages here are not, and of those that are each is in a bucket."""
    telemetry = telemetry_for(collector.endpoint, protocol, ratio=0.5)
    telemetry.start()
    slow, fast = 700_000_000, 7_000_000
    for number in range(100):
        took = slow if number % 10 == 0 else fast
        url, ended = f"http://site.test/{number}", 10**18 + number + took
        exchange = Exchange(url, ended - took, ended, 200, version="1.1")
        fetched = Fetched(url, url, Outcome.OK, status=200, exchanges=(exchange,))
        stages = (Stage("fetch", ended - took, ended),)
        telemetry.page_settled(PageRecord(url, "site.test", 0, 1, "done", fetched, stages))
    await telemetry.aclose(30)

    spans = {span.span_id: span for span in collector.spans}
    last = collector.last_metrics()
    for metric, name in (("crawler.fetch.duration", "crawl page"), ("http.client.request.duration", "GET")):
        (point,) = last[metric].histogram.data_points
        assert point.count == 100
        traced = [span for span in spans.values() if span.name == name]
        assert 20 < len(traced) < 80
        found = {exemplar.as_double: exemplar for exemplar in point.exemplars}
        assert sorted(found) == [fast / 1e9, slow / 1e9]
        for value, exemplar in found.items():
            assert exemplar.trace_id.hex() == TRACE
            span = spans[exemplar.span_id]
            took = round(value * 1e9)
            newest = max(s.end_time_unix_nano for s in traced if s.end_time_unix_nano - s.start_time_unix_nano == took)
            assert span.end_time_unix_nano == exemplar.time_unix_nano == newest


async def test_a_page_that_found_no_room_in_the_queue_is_no_exemplar() -> None:
    stats = Stats(Progress)
    telemetry = telemetry_for("http://127.0.0.1:1", stats=stats)  # not started: nobody takes anything out
    for number in range(QUEUED_SPANS_MAX):
        telemetry.page_settled(page(f"http://site.test/{number}"))
    (newest,) = stats.fetch_seconds.read().exemplars
    last_queued = f"http://site.test/{QUEUED_SPANS_MAX // 4 - 1}"  # four spans each
    assert newest.span_id == trace_from(ENVIRON).span_id(last_queued, 1, 0)
    assert stats.spans["dropped"] > 0


async def test_a_refused_batch_is_sent_again_with_the_same_ids() -> None:
    with grpc_collector() as collector:
        refused: list[Any] = []

        def refuse_once(request: Any) -> bool:
            if refused or not isinstance(request, trace_service_pb2.ExportTraceServiceRequest):
                return False
            refused.append(request)
            return True

        collector.refuses = refuse_once
        telemetry = telemetry_for(collector.endpoint)
        telemetry.start()
        telemetry.page_settled(page("http://site.test/"))
        await collector.wait_until(lambda: bool(collector.traces))
        await telemetry.aclose(30)
    assert refused[0].resource_spans == collector.traces[0].resource_spans


class FakeExporter(SpanExporter):
    """Takes what ``takes`` says, and keeps the names of the pages that it was offered."""

    def __init__(self, takes: Callable[[Sequence[ReadableSpan]], bool]) -> None:
        self._takes = takes
        self.offered: list[list[int]] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.offered.append([span.context.span_id for span in spans])
        return SpanExportResult.SUCCESS if self._takes(spans) else SpanExportResult.FAILURE


def signal_for(queue: SpanQueue[Chosen], exporter: SpanExporter) -> SpanSignal[Chosen]:
    return SpanSignal(queue, SpanBuilder(trace_from(ENVIRON), Origin(Resource({}), scope("test"))).page, exporter)


def test_a_batch_that_is_always_refused_is_given_up_after_some_tries() -> None:
    stats = Stats(Progress)
    queue: SpanQueue[Chosen] = SpanQueue(stats.spans)
    for number in range(17):  # a batch of 64 spans, and one page more
        queue.put(Chosen.of(page(f"http://site.test/{number}"), 0))
    exporter = FakeExporter(lambda spans: len(spans) < BATCH_SPANS)
    signal = signal_for(queue, exporter)
    for _ in range(TRIES - 1):
        assert next(iter(signal.batches())) is False
    assert list(signal.batches()) == [False, True]
    assert exporter.offered[:TRIES] == [exporter.offered[0]] * TRIES
    assert stats.spans == {"sent": 4, "failed": BATCH_SPANS, "dropped": 0}


def test_every_span_is_counted_once_as_sent_failed_or_dropped() -> None:
    stats = Stats(Progress)
    queue: SpanQueue[Chosen] = SpanQueue(stats.spans)
    for number in range(2000):
        queue.put(Chosen.of(page(f"http://site.test/{number}"), 0))
    assert stats.spans["dropped"] == 2000 * 4 - QUEUED_SPANS_MAX
    refusals = iter([False, True, True, *[False] * TRIES])
    signal = signal_for(queue, FakeExporter(lambda _: next(refusals, True)))
    batches = signal.batches()
    for _ in range(10):
        next(batches)
    signal.abandon()
    assert (stats.spans["sent"], stats.spans["failed"]) == (6 * BATCH_SPANS, BATCH_SPANS)
    assert sum(stats.spans.values()) == 2000 * 4


def test_a_queued_page_does_not_keep_its_body() -> None:
    queue: SpanQueue[Chosen] = SpanQueue(Stats(Progress).spans)
    queue.put(Chosen.of(page("http://site.test/"), 0))
    chosen = queue.take()
    assert chosen is not None
    assert chosen.record.fetched is not None
    assert chosen.record.fetched.body is None


@pytest.mark.parametrize("fault", ["absent", "frozen", "dripping", "refusing"])
async def test_no_state_of_a_collector_delays_or_floods(
    fault: str, protocol: Protocol, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    stats = Stats(Progress)
    with contextlib.ExitStack() as stack:
        if fault == "refusing":
            collector = stack.enter_context(COLLECTORS[protocol]())
            collector.refuses = lambda _: True
            endpoint = collector.endpoint
        else:
            endpoint = stack.enter_context(getattr(Faulty, fault)())
        telemetry = telemetry_for(endpoint, protocol, stats=stats, metrics_interval=0.01)
        telemetry.start()
        for number in range(5000):
            telemetry.page_settled(page(f"http://site.test/{number}"))
        started = time.monotonic()
        await telemetry.aclose()
        assert time.monotonic() - started < 4
        await asyncio.sleep(0)
    assert stats.completed == 5000
    assert stats.spans["sent"] == 0
    # What was not queued was dropped at once; a thread that hangs in an export has not counted what it holds.
    assert stats.spans["dropped"] >= 5000 * 4 - QUEUED_SPANS_MAX - 2 * BATCH_SPANS
    assert len(caplog.records) <= 4
    assert not [
        record for record in caplog.records if not record.name.startswith(("durable_crawler", "crawljob_telemetry"))
    ]


def _exported(endpoint: str) -> tuple[SpanExportResult, int]:
    """What an exporter over HTTP says of one batch, and how much memory it took at most."""
    spec = TelemetrySpec(endpoint=endpoint, protocol="http/protobuf")
    exporter = span_exporter(spec, Credentials())
    tracemalloc.start()
    try:
        return exporter.export([]), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        exporter.shutdown()


@pytest.mark.parametrize("status", [200, 302])
def test_an_answer_without_end_takes_no_memory(status: int) -> None:
    piece, told = b"x" * 65536, (("Location", "http://127.0.0.1:1/"),)
    with answering(status, told, lambda: repeat(piece, 1000)) as endpoint:
        _, memory = _exported(endpoint)
    assert memory < 8_000_000


def test_an_answer_that_grows_when_unpacked_takes_no_memory() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    told = (("Content-Encoding", "gzip"), ("Content-Length", str(len(bomb))))
    with answering(200, told, lambda: [bomb]) as endpoint:
        result, memory = _exported(endpoint)
    assert result is SpanExportResult.SUCCESS
    assert memory < 8_000_000


@pytest.mark.parametrize("status", [301, 304, 307])
def test_a_redirect_is_not_counted_as_taken(status: int) -> None:
    with answering(status, (("Location", "http://127.0.0.1:1/"), ("Content-Length", "0")), list) as endpoint:
        assert _exported(endpoint)[0] is SpanExportResult.FAILURE


async def test_close_before_start_and_twice_and_pages_after_it_are_harmless() -> None:
    stats = Stats(Progress)
    telemetry = telemetry_for("http://127.0.0.1:1", stats=stats)
    await telemetry.aclose()
    await telemetry.aclose()
    telemetry.start()
    telemetry.page_settled(page("http://site.test/"))
    assert stats.completed == 1


async def test_a_page_that_cannot_be_counted_does_not_raise(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = telemetry_for(None)
    telemetry.page_settled(None)  # type: ignore[arg-type]
    assert "could not be counted" in caplog.text


PROGRAM = """
import asyncio, sys, time
from crawljob.telemetry import Telemetry as Spec
from crawljob.summary import Progress
from durable_crawler.clock import SystemClock
from durable_crawler.outcomes import PageRecord
from durable_crawler.telemetry import Stats, Telemetry

async def main():
    spec = Spec(endpoint=sys.argv[1] or None, protocol=sys.argv[2], traces_sample_ratio=1.0)
    telemetry = Telemetry(spec, Stats(Progress), SystemClock(), {})
    telemetry.start()
    telemetry.page_settled(PageRecord("http://h/", "h", 0, 1, "done", None, ()))
    await telemetry.aclose()
    print("closed", flush=True)

asyncio.run(main())
if not sys.argv[1]:
    print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""


def run_program(endpoint: str, protocol: str) -> tuple[str, str, float]:
    """Standard output, standard error, and the seconds from the close to the end of the process."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, endpoint, protocol], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        output = process.stdout.readline()
        closed = time.monotonic()
        output += process.stdout.read()
        errors = process.stderr.read()  # a few lines at most: the pipe never fills up before
        process.wait(60)
        assert process.returncode == 0
        return output, errors, time.monotonic() - closed


def test_without_an_endpoint_opentelemetry_is_not_loaded() -> None:
    assert run_program("", "grpc")[0] == "closed\n[]\n"


@pytest.mark.parametrize("fault", ["absent", "frozen", "dripping"])
def test_the_process_ends_when_telemetry_is_closed(fault: str, protocol: Protocol) -> None:
    with getattr(Faulty, fault)() as endpoint:
        output, errors, seconds = run_program(endpoint, protocol)
    assert output == "closed\n"
    # One line of our own on standard error, where nothing is configured; none of the exporters'.
    assert len(errors.splitlines()) <= 2, errors
    assert seconds < 10
