"""A collector that is absent, silent, refusing or endless, for a whole crawl: it changes counters and nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.crawler import crawl, judge, verdicts
from tests.support.otlp import COLLECTORS, PROTOCOLS, Faulty, Protocol
from tests.support.website import Website, page

from crawljob.exitcodes import ExitCode

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
