"""The counters, their catalogue and the Prometheus text: right numbers, bounded series, names as a Collector's."""

from __future__ import annotations

import math
import os
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from crawljob.summary import Progress
from crawljob_telemetry.environment import attempt_from
from crawljob_telemetry.metrics import Buckets, Histogram
from crawljob_telemetry.prometheus import render
from durable_crawler.board import Wait
from durable_crawler.frontier.group import OPERATIONS
from durable_crawler.outcomes import Exchange, Fetched, Outcome, PageRecord, Stage
from durable_crawler.settle import classify
from durable_crawler.telemetry import Stats
from durable_crawler.telemetry.catalogue import CATALOGUE, collect
from durable_crawler.telemetry.hosts import OTHER, RANKED, SHOWN, HostCounts
from durable_crawler.telemetry.requests import OVERFLOW
from durable_crawler.telemetry.volume import measure


class HandClock:
    """A clock that a test moves."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)

    def wall_ns(self) -> int:
        return int(self.now * 1e9)


def record(settled: str = "done", outcome: Outcome | None = Outcome.OK, authority: str = "site.test") -> PageRecord:
    url = f"http://{authority}/page"
    fetched = None
    if outcome is not None:
        exchange = Exchange(url, 0, 20_000_000, 200)
        fetched = Fetched(url, url, outcome, status=200, body_bytes=100, exchanges=(exchange,))
    stages = (Stage("fetch", 0, 20_000_000), Stage("parse", 20_000_000, 21_000_000))
    return PageRecord(url, authority, 1, 1, settled, fetched, stages if outcome else ())


def samples(stats: Stats) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """What Prometheus would store of a scrape."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(render(collect(stats)))
        for sample in family.samples
    }


@pytest.mark.parametrize(
    ("settled", "outcome", "counted"),
    [
        ("done", Outcome.OK, {"completed"}),
        ("done", Outcome.NOT_HTML, {"completed"}),
        ("done", Outcome.REDIRECT_OUT_OF_SCOPE, {"completed"}),
        ("done", Outcome.HTTP_ERROR, {"completed", "failures"}),
        ("deferred", Outcome.CONNECT_TIMEOUT, {"retries"}),
        ("deferred", None, set()),  # a host that must wait is no attempt
        ("quarantined", None, set()),
        ("released", None, set()),
        ("released", Outcome.OK, set()),
        ("lost", Outcome.OK, set()),  # lost leases are told by leases()
    ],
)
def test_each_settled_claim_is_counted_once(settled: str, outcome: Outcome | None, counted: set[str]) -> None:
    stats = Stats(Progress)
    stats.page_settled(record(settled, outcome))
    names = ("completed", "failures", "retries", "lost_leases", "expired_leases", "recovered_leases")
    assert {name for name in names if getattr(stats, name)} == counted
    kept = outcome is not None and settled in {"done", "deferred"}
    assert stats.outcomes == {(outcome.value if kept and outcome else "none", settled): 1}


def test_the_text_format_has_every_metric_of_the_catalogue_with_its_value() -> None:
    progress = Progress(done=7, pending=6, leased=5, deferred=4, failed=3, quarantined=2, bytes=1)
    stats = Stats(lambda: progress, attempt=4, page_limit=50, database=Path(__file__))
    for outcome in (Outcome.OK, Outcome.OK, Outcome.TLS_ERROR):
        stats.page_settled(record("done", outcome))
    stats.page_settled(record("deferred", Outcome.HTTP_ERROR))
    stats.leases(expired=1, lost=2, recovered=3)
    stats.flush(0.004, ["claim", "finish", "finish"] * 4)
    stats.in_flight, stats.untraced = 9, 7

    found = samples(stats)
    plain = {name: value for (name, labels), value in found.items() if not labels}
    assert (
        plain.items()
        >= {
            "crawler_completed_total": 3,
            "crawler_failures_total": 1,
            "crawler_retries_total": 1,
            "crawler_expired_leases_total": 1,
            "crawler_lost_leases_total": 2,
            "crawler_recovered_leases_total": 3,
            "crawler_body_received_bytes_total": 400,
            "crawler_in_flight": 9,
            "crawler_attempt": 4,
            "crawler_pages_limit": 50,
            "crawler_database_size_bytes": Path(__file__).stat().st_size,
            "crawler_pages_done": 7,
            "crawler_pages_pending": 6,
            "crawler_pages_leased": 5,
            "crawler_pages_deferred": 4,
            "crawler_pages_failed": 3,
            "crawler_pages_quarantined": 2,
            "crawler_pages_body_bytes": 1,
            "crawler_fetch_duration_seconds_count": 4,
            "crawler_fetch_duration_seconds_sum": pytest.approx(0.08),
            "crawler_flush_duration_seconds_count": 1,
            "crawler_flush_size_sum": 12,
            "crawler_telemetry_untraced_total": 7,
        }.items()
    )
    assert found["crawler_outcomes_total", frozenset({("outcome", "ok"), ("state", "done")})] == 2
    assert found["crawler_requests_total", frozenset({("host", "site.test")})] == 4
    assert found["crawler_telemetry_spans_total", frozenset({("result", "sent")})] == 0

    assert found["crawler_frontier_operations_total", frozenset({("operation", "finish")})] == 8
    assert found["crawler_frontier_operations_total", frozenset({("operation", "renew")})] == 0
    assert plain["crawler_volume_size_bytes"] > plain["crawler_volume_free_bytes"] > 0

    families = list(text_string_to_metric_families(render(collect(stats))))
    assert [(family.name, family.type) for family in families] == [
        (metric.prometheus_name.removesuffix("_total"), metric.prometheus_type) for metric in CATALOGUE
    ]


def test_the_text_format_gives_back_what_a_label_contains() -> None:
    stats = Stats(Progress)
    hostile = 'a"b\\c\nd'
    stats.page_settled(record(authority=hostile))
    assert ("crawler_requests_total", frozenset({("host", hostile)})) in samples(stats)


def test_the_catalogue_names_each_metric_once_in_one_line() -> None:
    assert len({metric.prometheus_name for metric in CATALOGUE}) == len(CATALOGUE)
    for metric in CATALOGUE:
        assert re.fullmatch(r"(crawler|process|http\.client)(\.[a-z]+(_[a-z]+)*)+", metric.name)
        assert re.fullmatch(r"[A-Z][^\n\\]+\.", metric.description)


def test_ten_thousand_hosts_are_at_most_twenty_one_series() -> None:
    stats = Stats(Progress)
    for number in range(10_000):
        stats.page_settled(record(authority=f"h{number}.test"))
    series = next(values for metric, values in collect(stats) if metric.name == "crawler.requests")
    assert len(series) == SHOWN + 1
    assert series[(OTHER,)] == 10_000 - SHOWN


def test_no_metric_has_more_than_fifty_series_whatever_a_web_answers() -> None:
    """Every host, status, version, error, outcome, state, reason and operation that the code can produce."""
    stats = Stats(Progress, page_limit=9, database=Path(__file__))
    statuses = [None, *range(1000)]
    for number in range(10_000):
        url = f"http://h{number}.test/"
        outcome = list(Outcome)[number % len(Outcome)]
        status = statuses[number % len(statuses)]
        error = "" if number % 3 else outcome.value
        version = ("1.1", "1.0", "9.9", "")[number % 4]
        exchange = Exchange(url, 0, 1, status, error, version)
        fetched = Fetched(url, url, outcome, status=status, exchanges=(exchange,))
        for settled in ("done", "quarantined", "released", "lost"):
            stats.page_settled(PageRecord(url, f"h{number}.test", 0, 1, settled, fetched, ()))
        if classify(outcome, status, None)[0]:  # the only ones that are tried again
            stats.page_settled(PageRecord(url, f"h{number}.test", 0, 1, "deferred", fetched, ()))
        stats.page_settled(PageRecord(url, f"h{number}.test", 0, 1, "released", None, ()))
        stats.page_settled(PageRecord(url, f"h{number}.test", 0, 1, "done", None, (), refused=outcome))
    waits = [(why, stats._clock.monotonic() + 60) for why in Wait for _ in range(1000)]
    stats.host_waits.look(dict(enumerate(waits)))
    stats.flush(0.1, OPERATIONS * 100)
    series = {metric.name: len(values) for metric, values in collect(stats)}
    assert max(series.values()) <= 50, series
    assert min(series.values()) >= 1, series
    assert series["crawler.outcomes"] >= len(Outcome)
    requests = stats.requests.series()
    assert sum(buckets.count for buckets in requests.values()) == 10_000 * 4 + sum(
        count for (_, settled), count in stats.outcomes.items() if settled == "deferred"
    )


def test_the_known_answers_of_a_usual_web_need_no_overflow() -> None:
    stats = Stats(Progress)
    answers = [(status, "") for status in range(100, 600)] + [(None, error.value) for error in Outcome]
    stats.requested(Exchange("http://h/", 0, 1, status, error, "1.1" if status else "") for status, error in answers)
    assert OVERFLOW not in stats.requests.series()


def test_the_busiest_hosts_are_the_ones_with_a_name() -> None:
    hosts = HostCounts()
    for number in range(5000):  # more than are ranked, before the busy ones come
        hosts.add(f"quiet{number}.test", 1)
    for _ in range(50):
        for number in range(SHOWN):
            hosts.add(f"busy{number}.test", 1)
    assert set(hosts.series()) == {f"busy{number}.test" for number in range(SHOWN)} | {OTHER}


def test_a_series_never_goes_down_while_it_exists() -> None:
    hosts = HostCounts()
    before: dict[str, int] = {}
    for step in range(20_000):
        hosts.add(f"h{(step * step) % 1999}.test", 1 + step % 3)
        after = hosts.series()
        assert all(after[host] >= count for host, count in before.items() if host in after)
        before = after
    assert len(hosts._totals) <= RANKED


def test_a_host_called_other_is_folded_into_the_rest() -> None:
    hosts = HostCounts()
    hosts.add(OTHER, 5)
    for number in range(SHOWN + 5):
        hosts.add(f"h{number}.test", 1)
    assert hosts.series()[OTHER] == 5 + 6


def test_a_value_on_a_bound_belongs_to_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (-1.0, 1.0, 1.5, 2.0, 2.25):
        histogram.observe(value)
    assert histogram.read() == Buckets((1.0, 2.0), (2, 2, 1), 0.0 + 1.0 + 1.5 + 2.0 + 2.25)
    assert histogram.read().count == 5


def test_the_rate_is_that_of_the_last_half_minute() -> None:
    clock = HandClock()
    stats = Stats(lambda: Progress(done=3), clock)
    assert stats.progress() == Progress(done=3)
    for _ in range(100):  # ten a second for ten seconds
        clock.now += 0.1
        stats.page_settled(record())
    assert stats.progress().rate == pytest.approx(10, rel=0.01)
    for _ in range(100):  # one a second for a hundred seconds: the fast start is forgotten
        clock.now += 1
        stats.page_settled(record())
    assert stats.progress().rate == pytest.approx(1, rel=0.05)
    clock.now += 10_000
    assert stats.progress().rate == pytest.approx(0, abs=0.01)


def test_only_pages_that_are_done_make_the_rate() -> None:
    clock = HandClock()
    stats = Stats(Progress, clock)
    clock.now += 10
    stats.page_settled(record("deferred", Outcome.HTTP_ERROR))
    assert stats.progress().rate == 0


def test_a_page_whose_clock_was_set_back_is_counted_as_instant() -> None:
    stats = Stats(Progress)
    stats.page_settled(replace(record(), stages=(Stage("fetch", 10, 5),)))
    read = stats.fetch_seconds.read()
    assert (read.count, read.total) == (1, 0)
    assert math.copysign(1, read.total) == 1


def test_hosts_wait_until_their_gates_open_whether_or_not_anybody_looks() -> None:
    clock = HandClock()
    stats = Stats(Progress, clock)
    now = clock.now
    stats.host_waits.look({1: (Wait.DELAY, now + 5), 2: (Wait.BACKOFF, now + 60), 3: (Wait.BACKOFF, now + 60)})
    assert stats.host_waits.hosts() == {**dict.fromkeys(Wait, 0), Wait.DELAY: 1, Wait.BACKOFF: 2}
    clock.now = now + 20
    assert stats.host_waits.hosts() == {**dict.fromkeys(Wait, 0), Wait.BACKOFF: 2}
    assert stats.host_waits.seconds() == {**dict.fromkeys(Wait, 0.0), Wait.DELAY: 5.0, Wait.BACKOFF: 40.0}
    stats.host_waits.look({2: None, 3: None, 4: (Wait.ROBOTS, now + 300)})  # pages of the others were closed meanwhile
    clock.now = now + 50
    expected = {**dict.fromkeys(Wait, 0.0), Wait.DELAY: 5.0, Wait.BACKOFF: 40.0, Wait.ROBOTS: 30.0}
    assert stats.host_waits.seconds() == expected
    assert samples(stats)["crawler_host_wait_time_seconds_total", frozenset({("reason", "robots")})] == 30


def test_the_time_that_hosts_waited_never_goes_down() -> None:
    clock = HandClock()
    stats = Stats(Progress, clock)
    before = 0.0
    for step in range(1000):
        clock.now += 0.3 * (step % 5)
        if step % 3 == 0:
            stats.host_waits.look({number: (Wait.DELAY, clock.now + number % 4) for number in range(step % 7)})
        after = stats.host_waits.seconds()[Wait.DELAY]
        assert after >= before
        before = after
    assert before > 0


@pytest.mark.parametrize(
    ("status", "error", "labels"),
    [
        (200, "", {"http_response_status_code": "200"}),
        (404, "", {"http_response_status_code": "404", "error_type": "404"}),
        (418, "", {"http_response_status_code": "400", "error_type": "400"}),  # as 400, by RFC 9110 section 15
        (299, "", {"http_response_status_code": "200"}),
        (999, "", {"http_response_status_code": "500", "error_type": "500"}),
        (200, "truncated", {"http_response_status_code": "200", "error_type": "truncated"}),
        (None, "dns_error", {"error_type": "dns_error"}),
    ],
)
def test_a_request_is_counted_by_the_http_conventions(status: int | None, error: str, labels: dict[str, str]) -> None:
    stats = Stats(Progress)
    version = "" if status is None else "1.1"
    stats.requested([Exchange("http://h/", 0, 3_000_000_000, status, error, version, waited_ns=1_000_000_000)])
    labels = {**labels, "http_request_method": "GET", **({"network_protocol_version": version} if version else {})}
    found = samples(stats)
    assert found["http_client_request_duration_seconds_sum", frozenset(labels.items())] == 2
    assert found["http_client_request_duration_seconds_bucket", frozenset({**labels, "le": "2.5"}.items())] == 1


def test_the_process_says_what_it_takes() -> None:
    before = samples(Stats(Progress))
    spent = time.process_time()
    while time.process_time() < spent + 0.02:
        pass
    after = samples(Stats(Progress))
    cpu = ("process_cpu_time_seconds_total", frozenset[tuple[str, str]]())
    assert before[cpu] + 0.02 <= after[cpu] <= time.process_time()
    assert after["process_memory_usage_bytes", frozenset()] > 10 * 1024 * 1024


def test_the_wal_belongs_to_the_database_and_a_file_that_has_gone_has_no_size(tmp_path: Path) -> None:
    database = tmp_path / "frontier.db"
    assert measure(database) is None
    database.write_bytes(b"x" * 1000)
    (tmp_path / "frontier.db-wal").write_bytes(b"x" * 234)
    measured = measure(database)
    assert measured is not None
    room = os.statvfs(tmp_path)
    assert (measured.database, measured.size) == (1234, room.f_blocks * room.f_frsize)
    gone = {name for name, _ in samples(Stats(Progress, database=tmp_path / "gone"))}
    assert not gone & {"crawler_database_size_bytes", "crawler_volume_size_bytes", "crawler_volume_free_bytes"}


@pytest.mark.parametrize(
    ("attributes", "attempt"),
    [("crawljob.attempt=3,a=b", 3), ("", 1), ("crawljob.attempt=x", 1), ("crawljob.attempt=", 1)],
)
def test_the_attempt_is_the_environments(attributes: str, attempt: int) -> None:
    assert attempt_from({"OTEL_RESOURCE_ATTRIBUTES": attributes}) == attempt


def test_a_page_that_robots_txt_closed_is_counted_by_that() -> None:
    stats = Stats(Progress)
    for refused in (Outcome.ROBOTS_DISALLOWED, Outcome.ROBOTS_UNREACHABLE):
        stats.page_settled(replace(record(outcome=None), refused=refused))
    assert stats.outcomes == {("robots_disallowed", "done"): 1, ("robots_unreachable", "done"): 1}
    assert (stats.completed, stats.failures) == (2, 1)  # to be forbidden is no failure; not to know is one
