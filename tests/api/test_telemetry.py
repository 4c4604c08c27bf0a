"""The operator's own telemetry against a real API server: spans that no restart loses, counts that none repeats."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from urllib.request import ProxyHandler, build_opener

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from prometheus_client.parser import text_string_to_metric_families
from tests.api.conftest import OPERATOR, RESYNC_SECONDS, Crawl, Operator
from tests.support.apiserver import ApiServer, Raw, wait_until
from tests.support.builders import summary
from tests.support.otlp import Collector, http_collector

from crawljob_operator import identity, names
from crawljob_operator.telemetry.spans import ATTEMPT, CRAWL

NS = 1_000_000_000


@pytest.fixture
def collector() -> Iterator[Collector]:
    """Where the operator sends."""
    with http_collector() as running:
        yield running


@pytest.fixture
def traced(server: ApiServer, collector: Collector, resting: None) -> Iterator[Operator]:
    """An operator that sends to the collector."""
    flags = (names.FLAG_OTLP_ENDPOINT, collector.endpoint, names.FLAG_OTLP_PROTOCOL, "http/protobuf")
    process = Operator(server, OPERATOR, *flags)
    process.start()
    yield process
    if process.running():
        assert process.terminate() == 0


def scraped(operator: Operator) -> dict[tuple[str, str], float]:
    """Its metrics by name and by the values of their labels."""
    with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{operator.port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def restarts(operator: Operator) -> float:
    """All restarts that this process has counted."""
    return sum(count for (name, _), count in scraped(operator).items() if name == "crawljob_operator_restarts_total")


def attempts(collector: Collector, uid: str) -> dict[str, list[Span]]:
    """Attempts of one CrawlJob that have arrived, by the id of their span."""
    found: dict[str, list[Span]] = {}
    for span in collector.spans:
        if span.name == ATTEMPT and span.trace_id.hex() == identity.trace_id(uid):
            found.setdefault(span.span_id.hex(), []).append(span)
    return found


def test_no_restart_of_the_operator_loses_a_span_or_counts_an_end_again(
    traced: Operator, collector: Collector, crawl: Crawl
) -> None:
    """It is killed as soon as an end is entered, which is before or after the span has left."""
    uid = crawl.apply()["metadata"]["uid"]
    pod: Raw = {"metadata": {"uid": ""}}
    for number, code in enumerate((1, 1, 0), start=1):
        pod = crawl.kubelet.new_pod(besides=pod["metadata"]["uid"])
        environment = {e["name"]: e.get("value") for e in pod["spec"]["containers"][0]["env"]}
        assert environment[names.ENV_TRACEPARENT].split("-")[2] == identity.attempt_span_id(uid, number)
        crawl.kubelet.run(pod)
        crawl.wait_phase("Running")
        crawl.kubelet.exit(pod, code, summary(done=3) if code == 0 else "")
        wait_until(lambda known=number: len(crawl.status().get("history", [])) == known, "the end's entry")  # type: ignore[misc]
        if number < 3:
            wait_until(lambda: restarts(traced) == 1, "one restart, counted by the one that entered it")
            traced.kill()
            traced.start()
            assert restarts(traced) == 0, "what the process before has counted"
    status = crawl.wait_phase("Complete")
    assert (status["restarts"], status["history"][0]["attempt"]) == (2, 3)

    ids = {identity.attempt_span_id(uid, number) for number in (1, 2, 3)}
    wait_until(lambda: attempts(collector, uid).keys() == ids, "three attempts")
    history = {end["podUID"]: end for end in status["history"]}
    for span_id, copies in attempts(collector, uid).items():
        assert all(copy == copies[0] for copy in copies), "sent again as it was"
        (span, *_) = copies
        told = {pair.key: pair.value for pair in span.attributes}
        end = history[told["k8s.pod.uid"].string_value]
        assert span_id == identity.attempt_span_id(uid, told["crawljob.attempt"].int_value)
        assert span.start_time_unix_nano == _ns(end["startedAt"])
        assert span.end_time_unix_nano == _ns(end["finishedAt"]) + NS - 1, "times are cut to seconds"
        assert (span.status.code == Status.STATUS_CODE_ERROR) is (end["exitCode"] == 1)
        assert span.parent_span_id.hex() == identity.crawl_span_id(uid)

    before = {span_id: len(copies) for span_id, copies in attempts(collector, uid).items()}
    assert traced.terminate() == 0
    traced.start()

    def again() -> bool:
        now = attempts(collector, uid)
        return all(len(now[span_id]) > count for span_id, count in before.items())

    wait_until(again, "the last hour once more")
    roots = [span for span in collector.spans if span.name == CRAWL and span.trace_id.hex() == identity.trace_id(uid)]
    assert {span.span_id.hex() for span in roots} == {identity.crawl_span_id(uid)}
    assert roots[0].end_time_unix_nano == _ns(status["completionTime"]) + NS - 1
    assert {span.parent_span_id for span in roots} == {b""}
    assert restarts(traced) == 0


def test_what_it_measures_of_itself_is_scraped(traced: Operator, crawl: Crawl) -> None:
    """Reads and writes by method and code, reconciles, watches that told something, and no drift."""
    crawl.apply()
    crawl.kubelet.run(crawl.kubelet.new_pod())
    crawl.wait_phase("Running")

    def listed() -> bool:
        return scraped(traced)["crawljob_operator_jobs", "Running"] >= 1

    wait_until(listed, "a listing", 10 * RESYNC_SECONDS)
    found = scraped(traced)
    for what in ("GET,200", "GET,404", "POST,201", "PATCH,200"):
        assert found["crawljob_operator_api_request_duration_seconds_count", what] > 0, what
    assert found["crawljob_operator_reconcile_duration_seconds_count", "success"] > 0
    assert found["crawljob_operator_queue_latency_seconds_count", ""] > 0
    for resource in ("crawljobs", "pods"):
        assert 0 <= found["crawljob_operator_watch_age_seconds", resource] < 60
    assert found["crawljob_operator_resync_drift_total", ""] == 0
    labels = {label for _, values in found for label in values.split(",")}
    assert not labels & {crawl.name, crawl.namespace, crawl.kubelet.pods()[0]["metadata"]["name"]}


def _ns(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp()) * NS
