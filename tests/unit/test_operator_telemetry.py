"""What the operator counts and traces: right numbers and ids, nothing lost or doubled, and no collector in the way."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode
from prometheus_client.parser import text_string_to_metric_families
from tests.support.builders import NOW, UID, around, ended, job, pod, summary
from tests.support.otlp import COLLECTORS, PROTOCOLS, Faulty, Protocol, grpc_collector, text_attributes

from crawljob import __version__
from crawljob.status import CrawlJobStatus
from crawljob.telemetry import Telemetry as TelemetrySpec
from crawljob_operator import backoff, classify, identity, kube
from crawljob_operator.cli import main
from crawljob_operator.decide import decide
from crawljob_operator.kube import CRAWLJOBS, PODS, ApiError, ConflictError, Kube
from crawljob_operator.netsettings import NetworkSettings
from crawljob_operator.observed import Job
from crawljob_operator.progress import ProgressReader
from crawljob_operator.reconcile import Reconciler
from crawljob_operator.telemetry import Telemetry
from crawljob_operator.telemetry.catalogue import CATALOGUE, collect
from crawljob_operator.telemetry.drift import Drift
from crawljob_operator.telemetry.ends import AttemptEnd, CrawlEnd, End, Owner, ends
from crawljob_operator.telemetry.spans import ATTEMPT, CRAWL, SpanBuilder
from crawljob_operator.telemetry.stats import OTHER, PHASES, RESTART_REASONS
from crawljob_operator.watchdog import Resync
from crawljob_operator.workqueue import Key, WorkQueue
from crawljob_telemetry.environment import headers_problem
from crawljob_telemetry.exporters import scope
from crawljob_telemetry.finished import Origin
from crawljob_telemetry.span_queue import QUEUED_SPANS_MAX
from durable_crawler import run

OWNER = Owner("crawls", "docs", UID)
NS = 1_000_000_000


def telemetry_for(endpoint: str | None = None, protocol: Protocol = "grpc", **options: Any) -> Telemetry:
    spec = TelemetrySpec(endpoint=endpoint, protocol=protocol)
    return Telemetry(spec, {}, **{"clock": lambda: NOW, **options})


def samples(telemetry: Telemetry) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """What Prometheus would store of a scrape."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(telemetry.text())
        for sample in family.samples
    }


def value(telemetry: Telemetry, name: str, **labels: str) -> float:
    return samples(telemetry)[name, frozenset(labels.items())]


def after(owner: Job, code: int | None, uid: str, **fields: Any) -> CrawlJobStatus:
    """The status when a Pod of this job has ended."""
    return decide(owner, around(owner, ended(owner, code, uid, **fields)), NOW).status


def life(*codes: int) -> list[Job]:
    """A job through the ends of its Pods, each time as its status was written."""
    states = [job()]
    for number, code in enumerate(codes, start=1):
        message = summary(done=7, failed=2) if code == 0 else ""
        status = after(states[-1], code, f"pod-{number}", attempt=number, message=message)
        states.append(replace(states[-1], status=status))
    return states


def with_end(status: CrawlJobStatus, **changes: Any) -> CrawlJobStatus:
    """The status with another newest end."""
    return status.model_copy(update={"history": (status.history[0].model_copy(update=changes), *status.history[1:])})


def raw(owner: Job, version: str = "1") -> dict[str, Any]:
    """The CrawlJob as a listing has it."""
    metadata = {"namespace": owner.namespace, "name": owner.name, "uid": owner.uid, "resourceVersion": version}
    return {"metadata": metadata, "status": owner.status.model_dump(mode="json", by_alias=True)}


def tell(telemetry: Telemetry, states: list[Job]) -> None:
    for before, now in itertools.pairwise(states):
        telemetry.written(before, now.status)


def list_all(telemetry: Telemetry, *jobs: Job) -> None:
    telemetry.listing()
    for number, owner in enumerate(jobs):
        telemetry.listed(raw(replace(owner, name=f"{owner.name}-{number}")))
    telemetry.listing_ended()


def queued(telemetry: Telemetry) -> list[End]:
    found = []
    while (end := telemetry._queue.take()) is not None:
        found.append(end)
    return found


def spans_of(found: list[End]) -> list[ReadableSpan]:
    builder = SpanBuilder(Origin(Resource({}), scope("test")))
    return [span for end in found for span in builder.build(end)]


# Metrics


async def test_what_is_scraped_and_what_is_sent_is_the_table() -> None:
    with grpc_collector() as collector:
        async with telemetry_for(collector.endpoint) as telemetry:
            telemetry.called("GET", "200", 0.02)
            telemetry.heard("pods")
            list_all(telemetry, job())
            telemetry.start()
            await collector.wait_until(lambda: bool(collector.metrics))
        sent = collector.last_metrics()
    families = list(text_string_to_metric_families(telemetry.text()))
    assert [(family.name, family.type) for family in families] == [
        (metric.prometheus_name.removesuffix("_total"), metric.prometheus_type) for metric in CATALOGUE
    ]
    assert {name: (metric.unit, metric.description) for name, metric in sent.items()} == {
        metric.name: (metric.unit, metric.description) for metric in CATALOGUE
    }
    resource = text_attributes(collector.metrics[-1].resource_metrics[0].resource.attributes)
    assert (resource["service.name"], resource["service.version"]) == ("crawljob-operator", __version__)


def test_the_table_names_each_metric_once_and_nothing_of_a_crawl() -> None:
    assert len({metric.prometheus_name for metric in CATALOGUE}) == len(CATALOGUE)
    for metric in CATALOGUE:
        assert re.fullmatch(r"(crawljob_operator|process)(\.[a-z]+(_[a-z]+)*)+", metric.name)
        assert re.fullmatch(r"[A-Z][^\n\\|]+\.", metric.description)
        assert set(metric.attributes) <= {"result", "phase", "reason", "resource", "verb", "code", "version"}


def test_no_metric_has_more_than_fifty_series() -> None:
    """Whatever an API server, or a proxy before it, answers, and whoever ends a Pod."""
    telemetry = telemetry_for()
    verbs = set(re.findall(r'_call\("([A-Z]+)"', Path(kube.__file__).read_text()))
    assert verbs == {"GET", "POST", "PATCH", "DELETE"}
    for verb in verbs:
        for code in ("error", *map(str, range(1000))):
            telemetry.called(verb, code, 0.1)
    for number in range(10_000):
        telemetry.stats.restarted(f"Reason{number}")
    list_all(telemetry, *(job() for _ in range(100)))
    series = {metric.name: len(values) for metric, values in collect(telemetry.stats)}
    assert max(series.values()) <= 50, series


def test_jobs_are_those_of_the_last_whole_listing_by_phase() -> None:
    telemetry = telemetry_for()
    assert not [key for key in samples(telemetry) if key[0] == "crawljob_operator_jobs"], "nobody has looked yet"
    list_all(telemetry, *life(1), *life(1, 0)[-1:])
    found = {
        dict(labels)["phase"]: count for (name, labels), count in samples(telemetry).items() if name.endswith("_jobs")
    }
    assert found == {**dict.fromkeys(PHASES, 0), "Pending": 1, "Restarting": 1, "Complete": 1}
    telemetry.listing()
    telemetry.listed({"metadata": raw(job())["metadata"], "status": {"phase": "of a later version"}})
    assert value(telemetry, "crawljob_operator_jobs", phase="Complete") == 1, "the listing has not ended"
    telemetry.listing_ended()
    assert value(telemetry, "crawljob_operator_jobs", phase="Complete") == 0
    assert value(telemetry, "crawljob_operator_jobs", phase="Pending") == 1


def test_restarts_are_counted_by_a_reason_of_the_list() -> None:
    telemetry = telemetry_for()
    tell(telemetry, life(1, 143, 0))
    telemetry.written(job(), with_end(life(1)[-1].status, reason="Whatever"))
    counted = {reason: count for reason, count in telemetry.stats.restarts.items() if count}
    assert counted == {"Error": 1, "Interrupted": 1, OTHER: 1}, "the end that finished the crawl is no restart"
    assert value(telemetry, "crawljob_operator_restarts_total", reason="OOMKilled") == 0, "there before it happens"


def test_every_reason_that_the_code_itself_gives_is_in_the_list() -> None:
    given = {*backoff.REQUESTED, *classify._WORDS.values(), *run._REASONS.values()}
    assert given <= set(RESTART_REASONS)


class FakeKube(Kube):
    """Has one CrawlJob and a Pod that has failed; another writer may be faster."""

    def __init__(self, faster: bool) -> None:
        self._faster = faster
        self._observer = telemetry_for()
        self.job = {"metadata": {**raw(job())["metadata"], "generation": 1}, "spec": {"seeds": ["https://a.example/"]}}

    async def get(self, resource: Any, namespace: str, name: str) -> Any:
        if resource is CRAWLJOBS:
            return self.job
        if resource is not PODS:
            return None
        state = {"terminated": {"exitCode": 1, "reason": "Error"}}
        return {
            "metadata": {"name": name, "uid": "p", "ownerReferences": [{"controller": True, "uid": UID}]},
            "status": {"phase": "Failed", "containerStatuses": [{"name": "crawler", "state": state}]},
        }

    async def items(self, *_: Any, **__: Any) -> Any:
        for _ in ():
            yield

    async def create(self, *_: Any) -> Any:
        return {}

    async def patch(self, *_: Any, **__: Any) -> Any:
        if self._faster:
            raise ConflictError(409, "Conflict", "")
        return {}


@pytest.mark.parametrize(("faster", "restarts"), [(False, 1), (True, 0)])
async def test_only_the_writer_whose_status_was_taken_counts_a_restart(faster: bool, restarts: int) -> None:
    telemetry = telemetry_for()
    async with ProgressReader(30) as progress:
        reconciler = Reconciler(
            FakeKube(faster), progress, "image", NetworkSettings(), clock=lambda: NOW, observer=telemetry
        )
        await reconciler.reconcile(Key("crawls", "docs"))
    assert telemetry.stats.restarts["Error"] == sum(telemetry.stats.restarts.values()) == restarts


async def test_the_queue_tells_how_long_keys_waited_and_how_reconciles_ended() -> None:
    telemetry = telemetry_for()
    done = asyncio.Event()

    async def handler(key: Key) -> None:
        if key.name == "bad":
            raise RuntimeError("a bug")
        done.set()

    queue = WorkQueue(handler, workers=1, observer=telemetry)
    telemetry.stats.queue_depth = queue.depth
    queue.wake(Key("n", "bad"))
    queue.wake(Key("n", "good"))
    assert value(telemetry, "crawljob_operator_queue_depth") == 2
    task = asyncio.create_task(queue.run())
    await asyncio.wait_for(done.wait(), 5)
    await asyncio.sleep(0)
    task.cancel()
    assert value(telemetry, "crawljob_operator_queue_depth") == 0
    assert value(telemetry, "crawljob_operator_queue_latency_seconds_count") == 2
    assert value(telemetry, "crawljob_operator_reconcile_duration_seconds_count", result="error") == 1
    assert value(telemetry, "crawljob_operator_reconcile_duration_seconds_count", result="success") == 1


def test_what_the_watch_told_in_time_is_no_drift() -> None:
    drift = Drift()
    drift.began()
    drift.listed(("n", "a"), "1")  # the process has just started: nothing is told yet
    assert drift.ended() == 0
    drift.heard(("n", "a"), "1")
    drift.began()
    drift.listed(("n", "a"), "2")  # the listing was faster
    assert drift.ended() == 0
    drift.heard(("n", "a"), "2")
    drift.began()
    drift.heard(("n", "a"), "4")  # the watch was faster
    drift.listed(("n", "a"), "3")
    assert drift.ended() == 0
    drift.heard(("n", "a"), "")
    drift.began()
    assert drift.ended() == 0
    assert (drift._told, drift._suspects) == ({}, set())


def test_what_the_watch_has_not_told_by_the_next_listing_is_drift() -> None:
    drift = Drift()
    for name in ("changed", "gone", "quiet"):
        drift.heard(("n", name), "1")
    found = []
    for _ in range(3):
        drift.began()
        drift.listed(("n", "changed"), "2")
        drift.listed(("n", "quiet"), "1")
        found.append(drift.ended())
    assert found == [0, 2, 1], "a ghost is told once, a watch that stays deaf each time"
    assert ("n", "gone") not in drift._told


def test_of_a_closed_namespace_nothing_was_missed_and_of_the_others_all_is_noticed() -> None:
    drift = Drift()
    for namespace in ("open", "closed"):
        drift.heard((namespace, "a"), "1")
    found = []
    for _ in range(3):
        drift.began()
        drift.listed(("open", "a"), "2")
        found.append(drift.ended(closed=["closed"]))
    assert found == [0, 1, 1]
    drift.heard(("open", "a"), "2")
    for _ in range(2):  # it is open again, without the CrawlJob: its deletion was told to nobody
        drift.began()
        drift.listed(("open", "a"), "2")
        assert drift.ended() == 0


async def test_a_namespace_that_is_closed_does_not_end_the_count_of_the_others() -> None:
    class Door:
        async def items(self, resource: kube.Resource, namespace: str, **_: Any) -> AsyncIterator[dict[str, Any]]:
            if namespace == "closed":
                raise ApiError(403, "Forbidden", "no")
            if resource == CRAWLJOBS:
                yield raw(job())

    telemetry = telemetry_for()
    await Resync(cast("Kube", Door()), ("closed", "open"), 300, lambda _: None, telemetry).first()
    assert value(telemetry, "crawljob_operator_jobs", phase="Pending") == 1


# Spans


def test_the_spans_of_a_life_make_the_tree_that_the_crawlers_hang_in() -> None:
    telemetry = telemetry_for("http://127.0.0.1:1")
    states = life(1, 143, 0)
    tell(telemetry, states)
    *attempts, crawl = spans_of(queued(telemetry))
    assert [span.name for span in attempts] == [ATTEMPT] * 3
    for number, span in enumerate(attempts, start=1):
        _, trace, parent, _ = identity.traceparent(UID, number).split("-")
        assert (f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}") == (trace, parent)
        assert span.parent is not None
        assert span.parent.span_id == crawl.context.span_id
        assert (span.start_time, span.end_time) == (int(NOW.timestamp() - 30) * NS, int(NOW.timestamp()) * NS + NS - 1)
        assert span.attributes is not None
        assert span.attributes["crawljob.attempt"] == number
        assert span.attributes["k8s.pod.uid"] == f"pod-{number}"
    assert [(span.status.status_code, dict(span.attributes or {})["process.exit.code"]) for span in attempts] == [
        (StatusCode.ERROR, 1),
        (StatusCode.UNSET, 143),
        (StatusCode.UNSET, 0),
    ]
    assert dict(attempts[0].attributes or {})["error.type"] == "Error"
    assert (crawl.name, crawl.parent) == (CRAWL, None)
    status = states[-1].status
    assert crawl.start_time == int(datetime.fromisoformat(str(status.start_time)).timestamp()) * NS
    assert crawl.end_time == int(NOW.timestamp()) * NS + NS - 1
    assert dict(crawl.attributes or {}) == {
        "crawljob.name": "docs",
        "crawljob.uid": UID,
        "crawljob.phase": "Complete",
        "crawljob.reason": "CrawlFinished",
        "crawljob.restarts": 2,
        "crawler.pages.done": 7,
        "crawler.pages.failed": 2,
        "k8s.namespace.name": "crawls",
    }


def test_a_crawl_that_failed_is_an_error_and_so_is_its_last_attempt() -> None:
    telemetry = telemetry_for("http://127.0.0.1:1")
    tell(telemetry, life(2))
    attempt, crawl = spans_of(queued(telemetry))
    assert [span.status.status_code for span in (attempt, crawl)] == [StatusCode.ERROR] * 2
    assert dict(crawl.attributes or {})["error.type"] == "InvalidConfiguration"


def test_a_pod_that_nobody_saw_start_or_end_has_one_second() -> None:
    seen = replace(job(), status=decide(job(), around(job(), pod(job())), NOW).status)
    later = NOW + timedelta(seconds=400)
    telemetry = telemetry_for("http://127.0.0.1:1")
    telemetry.written(seen, decide(seen, around(seen), later).status)
    (span,) = spans_of(queued(telemetry))
    assert dict(span.attributes or {})["crawljob.termination.reason"] == "PodDeleted"
    assert f"{span.context.span_id:016x}" == identity.attempt_span_id(UID, 1)
    assert (span.start_time, span.end_time) == (int(later.timestamp()) * NS, int(later.timestamp()) * NS + NS - 1)


def test_an_operator_that_starts_sends_the_last_hour_again_with_the_same_ids() -> None:
    states = life(1, 0)
    first = telemetry_for("http://127.0.0.1:1")
    tell(first, states)
    sent = spans_of(queued(first))
    list_all(first, replace(states[-1], name="docs"))
    assert queued(first) == [], "not by the one that has sent them"

    second = telemetry_for("http://127.0.0.1:1")
    second.listing()
    second.listed(raw(states[-1]))
    second.listing_ended()
    again = spans_of(queued(second))
    assert [span.to_json() for span in again] == [span.to_json() for span in sent]
    second.listing()
    second.listed(raw(states[-1]))
    second.listing_ended()
    assert queued(second) == []
    assert sum(second.stats.restarts.values()) == 0, "the restart was the first one's"

    late = telemetry_for("http://127.0.0.1:1", clock=lambda: NOW + timedelta(hours=1))
    list_all(late, states[-1])
    assert queued(late) == []


def test_an_end_whose_write_had_an_unknown_outcome_is_found_by_the_next_listing() -> None:
    """The answer was lost: the next reconcile finds the end entered already, and says nothing of it."""
    telemetry = telemetry_for("http://127.0.0.1:1")
    state = life(1)[-1]
    telemetry.written(state, state.status)
    assert queued(telemetry) == []
    list_all(telemetry, state)
    assert len(queued(telemetry)) == 1


def test_an_end_is_known_for_an_hour_and_no_longer() -> None:
    now = [NOW]
    telemetry = telemetry_for("http://127.0.0.1:1", clock=lambda: now[0])
    tell(telemetry, life(1))
    list_all(telemetry)
    assert len(telemetry._queued) == 1
    now[0] += timedelta(hours=1)
    list_all(telemetry)
    assert telemetry._queued == {}


def test_an_end_of_a_status_without_numbers_or_times_is_left_out() -> None:
    status = CrawlJobStatus.model_validate(
        {"history": [{"podUID": "a", "reason": "Error"}, {"podUID": "b", "attempt": 1, "reason": "Error"}]}
    )
    assert [end.end.pod_uid for end in ends(OWNER, status) if isinstance(end, AttemptEnd)] == ["b"]
    telemetry = telemetry_for("http://127.0.0.1:1")
    telemetry.written(job(), status)
    assert queued(telemetry) == []


def test_a_crawl_that_runs_again_has_a_root_that_ends_later() -> None:
    status = life(0)[-1].status
    later = status.model_copy(update={"completion_time": "2031-05-06T09:00:00Z"})
    keys = {end.key for state in (status, later) for end in ends(OWNER, state) if isinstance(end, CrawlEnd)}
    assert len(keys) == 2


async def test_spans_arrive_and_the_end_waits_for_them() -> None:
    with grpc_collector() as collector:
        async with telemetry_for(collector.endpoint) as telemetry:
            telemetry.start()
            tell(telemetry, life(1, 0))
    assert sorted(span.name for span in collector.spans) == [ATTEMPT, ATTEMPT, CRAWL]
    assert Status.STATUS_CODE_ERROR in {span.status.code for span in collector.spans}
    assert {span.kind for span in collector.spans} == {Span.SPAN_KIND_INTERNAL}
    assert value(telemetry, "crawljob_operator_telemetry_spans_total", result="sent") == 3


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("fault", ["absent", "frozen", "dripping", "refusing"])
async def test_no_state_of_a_collector_delays_floods_or_fills_the_memory(
    fault: str, protocol: Protocol, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    before, now = life(1)
    with contextlib.ExitStack() as stack:
        if fault == "refusing":
            collector = stack.enter_context(COLLECTORS[protocol]())
            collector.refuses = lambda _: True
            endpoint = collector.endpoint
        else:
            endpoint = stack.enter_context(getattr(Faulty, fault)())
        async with telemetry_for(endpoint, protocol, metrics_interval=0.01) as telemetry:
            telemetry.start()
            spent = 0.0
            for number in range(2 * QUEUED_SPANS_MAX):
                status = with_end(now.status, pod_uid=f"pod-{number}")
                started = time.thread_time()
                telemetry.written(before, status)
                spent += time.thread_time() - started
                await asyncio.sleep(0)
            closing = time.monotonic()
        assert time.monotonic() - closing < 3
    assert spent / (2 * QUEUED_SPANS_MAX) < 0.001, "seconds of a reconcile"
    assert telemetry.stats.restarts["Error"] == 2 * QUEUED_SPANS_MAX
    assert telemetry.stats.spans["sent"] == 0
    assert telemetry.stats.spans["dropped"] >= QUEUED_SPANS_MAX - 64
    assert len(caplog.records) <= 4
    assert not [record for record in caplog.records if not record.name.startswith("crawljob")]


def test_what_cannot_be_counted_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = telemetry_for("http://127.0.0.1:1")
    for _ in range(100):
        telemetry.written(None, None)  # type: ignore[arg-type]
        telemetry.listed({})
    assert len(caplog.records) == 2
    assert queued(telemetry) == []


async def test_without_an_endpoint_nothing_is_kept_and_no_thread_is_started() -> None:
    async with telemetry_for() as telemetry:
        telemetry.start()
        tell(telemetry, life(1, 0))
        list_all(telemetry, *life(1))
        assert (queued(telemetry), telemetry._queued, telemetry._sinks) == ([], {}, [])
    assert telemetry.stats.restarts["Error"] == 1


@pytest.mark.parametrize(
    ("flags", "named"),
    [(["--otlp-endpoint", "collector:4317"], "--otlp-endpoint"), (["--otlp-protocol", "http/json"], "--otlp-protocol")],
)
def test_a_wrong_option_is_named_before_anything_starts(flags: list[str], named: str) -> None:
    done = CliRunner().invoke(main, ["--crawler-image", "crawler:1", *flags])
    assert done.exit_code == 2
    assert named in done.output
    assert "Traceback" not in done.output


SECRET = "not-for-logs"


def test_a_password_in_the_endpoint_is_named_and_not_shown() -> None:
    flags = ["--otlp-endpoint", f"https://user:{SECRET}@collector:4317"]
    done = CliRunner().invoke(main, ["--crawler-image", "crawler:1", *flags])
    assert done.exit_code == 2
    assert "must not contain credentials" in done.output
    assert SECRET not in done.output


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        (f"x-api-key={SECRET}\nx-other=b\n", "the value of header 1 must be one line"),
        (f"a=b,x-api-key:{SECRET}", "header 2 is no key=value"),
        (f"x-api-key={SECRET}%0A", "the value of header 1 must be one line"),
        (f"x-api-key={SECRET}%C3%BC", "the value of header 1 must be one line"),
        (f"x api={SECRET}", "header 1 is no key=value"),
    ],
)
def test_headers_that_cannot_be_sent_are_told_without_their_values(headers: str, says: str) -> None:
    """The operator starts all the same: here it ends with the cluster that it is not given."""
    problem = headers_problem({"OTEL_EXPORTER_OTLP_HEADERS": headers})
    assert says in problem
    assert SECRET not in problem
    environment = {"OTEL_EXPORTER_OTLP_HEADERS": headers, "KUBECONFIG": os.devnull, "CRAWLER_IMAGE": "crawler:1"}
    told = CliRunner().invoke(main, ["--otlp-endpoint", "http://127.0.0.1:1"], env=environment)
    assert says in told.output
    assert SECRET not in told.output
    assert "KUBECONFIG" in told.output


@pytest.mark.parametrize("headers", ["", "a=b\n", "Authorization=Bearer%20x,x-b=", "authorization=Basic dTpw==,"])
def test_headers_that_the_exporters_understand_are_no_problem(headers: str) -> None:
    assert headers_problem({"OTEL_EXPORTER_OTLP_HEADERS": headers}) == ""
