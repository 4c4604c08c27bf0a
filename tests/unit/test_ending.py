"""What is said of a crawl that is over."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.clock import ManualClock

from crawljob.manifest import parse
from durable_crawler import ending
from durable_crawler.frontier import Result, SqliteFrontier
from durable_crawler.frontier.opening import Admission
from durable_crawler.outcomes import Hop, Outcome

SEEDS = ("https://a.example/", "https://b.example/")
UNREACHABLE = Result(Outcome.ROBOTS_UNREACHABLE)


async def explain(folder: Path, *results: Result) -> tuple[str, str]:
    """How a crawl ends whose seeds have these results."""
    spec = parse({"seeds": list(SEEDS[: len(results)])})
    admission = Admission(tuple((seed, seed.split("/")[2]) for seed in spec.seeds), 16)
    frontier = await SqliteFrontier.open(folder / "frontier.db", admission, max_pages=9, clock=ManualClock())
    try:
        leases = (await frontier.claim(dict.fromkeys(frontier.hosts, 1), 9)).leases
        assert [lease.url for lease in leases] == list(spec.seeds)
        for lease, result in zip(leases, results, strict=True):
            await frontier.finish(lease, result, [])
        return await ending.explain(frontier, spec)
    finally:
        await frontier.close()


async def test_what_was_fetched_is_counted(tmp_path: Path) -> None:
    reason, message = await explain(tmp_path, Result(Outcome.OK, 200), UNREACHABLE)
    assert (reason, message) == ("CrawlFinished", "2 pages done, 1 of them failed")


async def test_a_robots_txt_that_nobody_could_fetch_is_a_reason_of_its_own(tmp_path: Path) -> None:
    reason, message = await explain(tmp_path, UNREACHABLE, UNREACHABLE)
    assert reason == "RobotsUnreachable"
    assert message.startswith("no page was fetched: https://a.example/ has a robots.txt that cannot be fetched")
    assert "https://b.example/" in message


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (Result(Outcome.ROBOTS_DISALLOWED), "https://a.example/ is disallowed by its robots.txt"),
        (Result(Outcome.HOST_DEAD), "https://a.example/ is on a host that could not be connected to"),
        (Result(Outcome.HTTP_ERROR, 404), "https://a.example/ answered 404"),
        (Result(Outcome.ADDRESS_REFUSED), "--allow-cidr"),
        (Result(Outcome.TLS_ERROR), "https://a.example/: tls error"),
        (
            Result(
                Outcome.REDIRECT_OUT_OF_SCOPE, 301, hops=(Hop("https://a.example/", 301, "https://www.a.example/"),)
            ),
            "https://a.example/ leads to https://www.a.example/, which no seed approves",
        ),
    ],
)
async def test_a_crawl_that_fetched_nothing_says_why(tmp_path: Path, result: Result, says: str) -> None:
    reason, message = await explain(tmp_path, result)
    assert reason == "NothingFetched"
    assert says in message
    reason, message = await explain_again(tmp_path)
    assert (reason, says in message) == ("NothingFetched", True), "nor does the next run know better"


async def explain_again(folder: Path) -> tuple[str, str]:
    """The same frontier, opened anew."""
    spec = parse({"seeds": list(SEEDS[:1])})
    admission = Admission(((SEEDS[0], "a.example"),), 16)
    frontier = await SqliteFrontier.open(folder / "frontier.db", admission, max_pages=9, clock=ManualClock())
    try:
        return await ending.explain(frontier, spec)
    finally:
        await frontier.close()
