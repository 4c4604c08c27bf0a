"""Which trace a run joins, which pages are traced, and what their spans look like."""

from __future__ import annotations

from dataclasses import replace

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from crawljob.summary import Progress, RunSummary
from crawljob_telemetry.exporters import resource_from, scope
from crawljob_telemetry.finished import Origin
from durable_crawler.outcomes import Exchange, Fetched, Outcome, PageRecord, Stage
from durable_crawler.telemetry.spans import SpanBuilder
from durable_crawler.telemetry.trace import ALWAYS_TRACED_MAX, Chosen, Sampler, Trace, trace_from

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
URL = "http://site.test/page"
ORIGIN = Origin(Resource({}), scope("test"))


def record(url: str = URL, settled: str = "done", outcome: Outcome = Outcome.OK, attempt: int = 1) -> PageRecord:
    exchanges = (
        Exchange(url, 100, 200, 301, version="1.0", peer=("192.0.2.7", 80)),
        Exchange("https://site.test:8443/other", 200, 400, 200, version="1.1", peer=("2001:db8::1", 8443)),
    )
    fetched = Fetched(url, "https://site.test:8443/other", outcome, status=200, body_bytes=9, exchanges=exchanges)
    stages = (Stage("fetch", 90, 410), Stage("parse", 410, 500), Stage("commit", 500, 900))
    return PageRecord(url, "site.test", 2, attempt, settled, fetched, stages, links=4)


def build(page: PageRecord, trace: Trace | None = None) -> list[ReadableSpan]:
    trace = trace or trace_from({"TRACEPARENT": f"00-{TRACE}-{PARENT}-01"})
    return SpanBuilder(trace, ORIGIN).page(Chosen.of(page, 5000))


@pytest.mark.parametrize(
    "text",
    [
        f"00-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-00",
        f"01-{TRACE}-{PARENT}-01-more",
        f" 00-{TRACE}-{PARENT}-01\n",
    ],
)
def test_a_traceparent_is_continued(text: str) -> None:
    trace = trace_from({"TRACEPARENT": text})
    assert (f"{trace.trace_id:032x}", trace.parent_id) == (TRACE, int(PARENT, 16))
    assert trace.page_parent_id == trace.parent_id


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "garbage",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01-more",
        f"00-{TRACE[1:]}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01" * 1000,
        "\x00" * 55,
        "００-" + TRACE,
    ],
)
def test_a_malformed_or_absent_traceparent_begins_a_new_trace(text: str | None) -> None:
    environ = {} if text is None else {"TRACEPARENT": text}
    trace, another = trace_from(environ), trace_from(environ)
    assert trace.parent_id is None
    assert trace.page_parent_id == trace.run_id
    assert trace.trace_id not in {another.trace_id, int(TRACE, 16), 0}


def test_the_same_urls_are_chosen_in_every_process_and_as_many_as_the_ratio_says() -> None:
    urls = [f"http://site.test/{number}" for number in range(10_000)]
    first, second = Sampler(0.1), Sampler(0.1)
    chosen = [url for url in urls if first.chooses(record(url))]
    assert chosen == [url for url in urls if second.chooses(record(url, attempt=2))]
    assert 800 < len(chosen) < 1200
    half = Sampler(0.5)
    assert {url for url in urls if half.chooses(record(url))} > set(chosen)  # raising the ratio keeps what was traced


@pytest.mark.parametrize(("ratio", "expected"), [(0.0, False), (1.0, True)])
def test_the_ends_of_the_ratio_choose_none_and_all(ratio: float, expected: bool) -> None:
    sampler = Sampler(ratio)
    assert all(sampler.chooses(record(f"http://site.test/{number}")) is expected for number in range(1000))


@pytest.mark.parametrize(
    ("settled", "outcome", "traced"),
    [
        ("done", Outcome.HTTP_ERROR, True),
        ("quarantined", Outcome.OK, True),
        ("lost", Outcome.OK, True),
        ("deferred", Outcome.HTTP_ERROR, False),  # may still succeed
        ("done", Outcome.OK, False),
        ("released", Outcome.HTTP_ERROR, False),
    ],
)
def test_what_ended_badly_is_always_traced(settled: str, outcome: Outcome, traced: bool) -> None:
    assert Sampler(0.0).chooses(record(settled=settled, outcome=outcome)) is traced


def test_a_released_page_is_never_traced_since_its_next_attempt_has_the_same_ids() -> None:
    assert not Sampler(1.0).chooses(record(settled="released"))


def test_failed_pages_are_traced_up_to_a_limit_and_the_rest_is_counted() -> None:
    sampler = Sampler(0.0)
    pages = [record(f"http://site.test/{n}", outcome=Outcome.DNS_ERROR) for n in range(ALWAYS_TRACED_MAX + 5)]
    assert sum(sampler.chooses(page) for page in pages) == ALWAYS_TRACED_MAX
    assert sampler.untraced == 5


def test_pages_that_the_ratio_chooses_do_not_use_up_the_limit() -> None:
    sampler = Sampler(1.0)
    assert all(
        sampler.chooses(record(f"http://x/{n}", outcome=Outcome.DNS_ERROR)) for n in range(ALWAYS_TRACED_MAX * 2)
    )


def test_a_page_is_a_tree_of_its_requests_and_stages() -> None:
    page, first, second, parse, commit = build(record())
    assert [span.name for span in (page, first, second, parse, commit)] == [
        "crawl page",
        "GET",
        "GET",
        "parse",
        "commit",
    ]
    assert (page.start_time, page.end_time) == (90, 900)
    assert page.parent is not None
    assert page.parent.is_remote
    assert f"{page.parent.span_id:016x}" == PARENT
    ids = {page.context.span_id}
    for child in (first, second, parse, commit):
        assert child.parent == page.context
        assert f"{child.context.trace_id:032x}" == TRACE
        assert 90 <= (child.start_time or 0) <= (child.end_time or 0) <= 900
        ids.add(child.context.span_id)
    assert len(ids) == 5
    assert page.attributes == {
        "url.full": URL,
        "crawler.depth": 2,
        "crawler.attempt": 1,
        "crawler.state": "done",
        "crawler.links": 4,
        "crawler.outcome": "ok",
        "crawler.body.size": 9,
        "http.response.status_code": 200,
    }
    assert page.status.status_code is StatusCode.UNSET


def test_a_request_follows_the_http_client_conventions() -> None:
    _, first, second, *_ = build(record())
    assert first.kind is second.kind is SpanKind.CLIENT
    assert first.attributes == {
        "http.request.method": "GET",
        "url.full": URL,
        "server.address": "site.test",
        "server.port": 80,
        "http.response.status_code": 301,
        "network.protocol.version": "1.0",
        "network.peer.address": "192.0.2.7",
        "network.peer.port": 80,
    }
    assert second.attributes == {
        "http.request.method": "GET",
        "url.full": "https://site.test:8443/other",
        "server.address": "site.test",
        "server.port": 8443,
        "http.response.status_code": 200,
        "http.request.resend_count": 1,  # for whatever reason, a redirect included
        "network.protocol.version": "1.1",
        "network.peer.address": "2001:db8::1",
        "network.peer.port": 8443,
    }


@pytest.mark.parametrize(
    ("status", "error", "error_type"),
    [
        (404, "", "404"),
        (None, "", "truncated"),
        (None, "header_timeout", "header_timeout"),
        (200, "too_large", "too_large"),
    ],
)
def test_a_failed_request_says_why(status: int | None, error: str, error_type: str) -> None:
    fetched = Fetched(URL, URL, Outcome.TRUNCATED, exchanges=(Exchange(URL, 1, 2, status, error),))
    page, request, *_ = build(replace(record(), fetched=fetched))
    assert request.attributes is not None
    assert request.attributes["error.type"] == error_type
    assert request.status.status_code is StatusCode.ERROR
    assert page.status.status_code is StatusCode.ERROR


def test_a_request_that_was_sent_again_says_why_whatever_came_of_the_page() -> None:
    exchanges = (Exchange(URL, 1, 2, None, "truncated"), Exchange(URL, 2, 3, 200))
    _, first, second, *_ = build(replace(record(), fetched=Fetched(URL, URL, Outcome.OK, exchanges=exchanges)))
    assert (first.attributes or {})["error.type"] == "truncated"
    assert "error.type" not in (second.attributes or {})
    assert (second.attributes or {})["http.request.resend_count"] == 1


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://a.test/?a=1&sig=abc%3D&b=2", "http://a.test/?a=1&sig=REDACTED&b=2"),
        (
            "https://a.test/?X-Amz-Credential=me&X-Amz-Signature=1f&X-Amz-Security-Token=t&b=2",
            "https://a.test/?X-Amz-Credential=REDACTED&X-Amz-Signature=REDACTED&X-Amz-Security-Token=REDACTED&b=2",
        ),
        ("http://a.test/?AWSAccessKeyId=K&Signature=S", "http://a.test/?AWSAccessKeyId=REDACTED&Signature=REDACTED"),
        ("http://a.test/?X-Goog-Signature=#x", "http://a.test/?X-Goog-Signature=REDACTED#x"),
        ("http://a.test/?SIG=1&design=2&sig", "http://a.test/?SIG=1&design=2&sig"),  # case matters, and whole keys
        ("http://me:secret@a.test/@b", "http://REDACTED:REDACTED@a.test/@b"),
        ("http://a.test/sig=1", "http://a.test/sig=1"),
    ],
)
def test_what_would_let_somebody_in_is_in_no_span(url: str, shown: str) -> None:
    fetched = Fetched(
        url, url, Outcome.ROBOTS_DISALLOWED, error=f"redirect to {url}", exchanges=(Exchange(url, 1, 2, 301),)
    )
    failed = replace(fetched, outcome=Outcome.ROBOTS_UNREACHABLE)
    page, request, *_ = build(replace(record(url), fetched=failed))
    assert (page.attributes or {})["url.full"] == (request.attributes or {})["url.full"] == shown
    assert page.status.description == f"redirect to {shown}"


@pytest.mark.parametrize("settled", ["quarantined", "lost"])
def test_a_page_without_an_attempt_is_one_instant_span_with_an_error(settled: str) -> None:
    (page,) = build(replace(record(settled=settled), fetched=None, stages=()))
    assert (page.start_time, page.end_time) == (5000, 5000)
    assert page.status.status_code is StatusCode.ERROR
    assert page.attributes is not None
    assert page.attributes["error.type"] == settled


def test_a_fetch_without_a_request_is_shown_as_a_stage() -> None:
    fetched = Fetched(URL, URL, Outcome.DNS_ERROR, error="no such host")
    spans = build(replace(record(), fetched=fetched))
    assert [span.name for span in spans] == ["crawl page", "fetch", "parse", "commit"]
    assert spans[0].status.description == "no such host"


def test_ids_depend_on_trace_url_and_attempt_only() -> None:
    def ids(page: PageRecord, trace: Trace | None = None) -> list[int]:
        return [span.context.span_id for span in build(page, trace)]

    assert ids(record()) == ids(record())
    others = [ids(record(attempt=2)), ids(record(URL + "x")), ids(record(), Trace(1, 2, 3))]
    assert not any(set(ids(record())) & set(other) for other in others)


def test_a_url_that_no_parser_takes_and_a_clock_that_went_back_still_make_spans() -> None:
    fetched = Fetched(
        URL, URL, Outcome.PROTOCOL_ERROR, exchanges=(Exchange("http://[bad:99999999/\ud800", 9, 2, None),)
    )
    page, request, *_ = spans = build(replace(record(URL + "\ud800"), fetched=replace(fetched, error="\udcff")))
    assert len(encode_spans(spans).resource_spans[0].scope_spans[0].spans) == 4
    assert request.attributes is not None
    assert "server.address" not in request.attributes
    assert request.end_time == request.start_time == 9
    assert page.start_time == 2


def test_the_run_is_a_span_of_its_own() -> None:
    trace = trace_from({"TRACEPARENT": f"00-{TRACE}-{PARENT}-01"})
    builder = SpanBuilder(trace, ORIGIN)
    summary = RunSummary(
        outcome="failed", reason="DatabaseError", message="too slow", exit_code=1, progress=Progress(done=3, failed=1)
    )
    run = builder.run(1, 2, summary)
    assert (run.name, run.context.span_id) == ("crawl run", trace.run_id)
    assert run.parent is not None
    assert f"{run.parent.span_id:016x}" == PARENT
    assert (run.status.status_code, run.status.description) == (StatusCode.ERROR, "too slow")
    assert run.attributes is not None
    assert run.attributes["crawler.pages.done"] == 3
    assert SpanBuilder(trace_from({}), ORIGIN).run(1, 2, None).parent is None


def test_the_environment_describes_the_resource() -> None:
    environ = {"OTEL_RESOURCE_ATTRIBUTES": "crawljob.name=docs,k8s.pod.name=a%20b, service.version = 9 ,broken,=x"}
    attributes = resource_from("durable-crawler", environ, "me").attributes
    assert attributes["service.name"] == "durable-crawler"
    assert attributes["service.instance.id"] == "me"
    assert attributes["crawljob.name"] == "docs"
    assert attributes["k8s.pod.name"] == "a b"
    assert attributes["service.version"] == "9"
    assert "broken" not in attributes
    assert "" not in attributes
    named = resource_from("durable-crawler", {**environ, "OTEL_SERVICE_NAME": "mine"}, "me")
    assert named.attributes["service.name"] == "mine"
