"""A collector that is absent, silent, refusing or endless, for a whole crawl: it changes counters and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.support.crawler import crawl, crawling, judge, verdicts
from tests.support.otlp import COLLECTORS, PROTOCOLS, Faulty, Protocol
from tests.support.website import Website, after, page

from crawljob.exitcodes import ExitCode
from durable_crawler.frontier.group import OPERATIONS

PAGES = 800
BROKEN = 20
"""Links to nothing: such pages are always traced."""
ROUNDS = 3


@pytest.fixture
async def site() -> AsyncIterator[Website]:
    answers = {"/": page(*(f"/{number}" for number in range(PAGES + BROKEN)))}
    answers |= {f"/{number}": page(title=str(number)) for number in range(PAGES)}
    async with Website(answers) as running:
        yield running


@contextlib.contextmanager
def good(protocol: Protocol) -> Iterator[str]:
    """Takes everything."""
    with COLLECTORS[protocol]() as collector:
        yield collector.endpoint


@contextlib.contextmanager
def refusing(protocol: Protocol) -> Iterator[str]:
    """503, or UNAVAILABLE, to every export."""
    with COLLECTORS[protocol]() as collector:
        collector.refuses = lambda _: True
        yield collector.endpoint


STATES: dict[str, Callable[[Protocol], AbstractContextManager[str]]] = {
    "good": good,
    "absent": lambda _: Faulty.absent(),
    "frozen": lambda _: Faulty.frozen(),
    "refusing": refusing,
    "dripping": lambda _: Faulty.dripping(),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_no_state_of_a_collector_changes_what_a_crawl_does(
    site: Website, tmp_path: Path, protocol: Protocol
) -> None:
    """The states take turns, and of each the best round counts: what else the machine does is the same for all."""
    best: dict[str, float] = {}
    found: dict[str, Any] = {}
    for number in range(ROUNDS):
        for state, opened in STATES.items():
            with opened(protocol) as endpoint:
                folder = tmp_path / f"{state}-{number}"
                folder.mkdir()
                spans, rate = await _crawl(site, folder, {"endpoint": endpoint, "protocol": protocol})
            best[state] = max(best.get(state, 0.0), rate)
            judge(folder / "frontier.db", state)
            verdict = verdicts(folder / "frontier.db")
            assert found.setdefault("good", verdict) == verdict, state
            assert (spans["spans_sent"] > 0) is (state == "good"), (state, spans)
            # Of the bad ones some hold an export until after the end: what they did not take is not always counted.
            assert state != "good" or spans["spans_failed"] == spans["spans_dropped"] == 0
    ratios = {state: round(rate / best["good"], 2) for state, rate in best.items()}
    print(f"{protocol}: pages per second, beside a good collector: {ratios}")
    assert min(ratios.values()) >= 0.75, ratios


async def test_a_crawl_shows_its_numbers_while_it_runs_and_sends_them_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a Pod whose CrawlJob names no collector: attempt, endpoint and protocol are variables."""
    release = asyncio.Event()
    answers = {"/": page("/late"), "/late": after(release, page())}
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "crawljob.name=docs,crawljob.attempt=3")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    async with Website(answers) as site:
        with COLLECTORS["http/protobuf"]() as collector:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
            async with crawling("--seed", site.url, cwd=tmp_path) as run:
                assert await run.until(lambda: site.requests["/late"] == 1, site.asked)
                async with aiohttp.ClientSession() as session:
                    text = await (await session.get(f"http://127.0.0.1:{run.port}/metrics")).text()
                release.set()
                assert await run.end() == ExitCode.FINISHED
            sent = collector.last_metrics()
    families = text_string_to_metric_families(text)
    found = {(s.name, *sorted(s.labels.items())): s.value for family in families for s in family.samples}
    assert (found["crawler_attempt",], found["crawler_pages_limit",]) == (3, 10_000)
    assert found["crawler_database_size_bytes",] >= (tmp_path / "frontier.db").stat().st_size / 2
    assert found["crawler_volume_free_bytes",] > 0
    operations = {key[1][1]: value for key, value in found.items() if key[0] == "crawler_frontier_operations_total"}
    assert operations.pop("claim") >= 2
    assert operations == {**dict.fromkeys({*OPERATIONS} - {"claim"}, 0), "finish": 1, "keep_robots": 1}
    answered = ("http_request_method", "GET"), ("http_response_status_code", "404"), ("network_protocol_version", "1.1")
    assert found["http_client_request_duration_seconds_count", ("error_type", "404"), *answered] == 1  # robots.txt
    assert sent["crawler.completed"].sum.data_points[0].as_int == 2
    assert {span.name for span in collector.spans} >= {"crawl run"}


async def _crawl(site: Website, folder: Path, telemetry: dict[str, Any]) -> tuple[dict[str, int], float]:
    """What became of the spans, and pages per second from the first request to the last."""
    spec = {
        "seeds": [site.url],
        "fetch": {"workers": 8, "perHost": 8},
        "telemetry": {**telemetry, "tracesSampleRatio": 0.1},
    }
    body = {"apiVersion": "durable-crawler.io/v1alpha1", "kind": "CrawlJob", "spec": spec}
    (folder / "crawljob.yaml").write_text(yaml.safe_dump(body))
    before = len(site.log)
    code, run = await crawl("-f", "crawljob.yaml", cwd=folder)
    assert code == ExitCode.FINISHED, run.errors
    assert run.errors == ""
    moments = site.moments_ms[before:]
    assert len(moments) == len(set(site.log[before:])) == 1 + PAGES + BROKEN
    assert run.summary["progress"]["done"] == 1 + PAGES + BROKEN
    (closed,) = [line for line in run.lines if line["message"] == "telemetry closed"]
    return closed, len(moments) * 1000 / (moments[-1] - moments[0])
