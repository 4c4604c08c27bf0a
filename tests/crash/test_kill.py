"""The crawler is killed at any moment, goes on, and has lost and doubled nothing."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.crawler import crawl, crawling
from tests.support.website import Website, in_turn, page, redirect, tree

from crawljob.exitcodes import ExitCode
from durable_crawler.frontier.reader import FrontierReader

PAGES = 400
WORKERS = 8


@pytest.fixture
async def site() -> AsyncIterator[Website]:
    answers = tree(PAGES)
    answers["/7"] = in_turn(page(status=503), answers["/7"])
    answers["/9"] = redirect("/10", 301)
    answers["/11"] = redirect("http://elsewhere.invalid/")
    answers["/13"] = page("/missing", "/37")
    async with Website(answers, latency=0.002) as website:
        yield website


def arguments(site: Website, db: Path) -> list[str]:
    return ["--seed", site.url, "--workers", str(WORKERS), "--per-host", str(WORKERS), "--db", str(db)]


@pytest.mark.parametrize("seed", range(3))
async def test_killed_at_random_moments_it_finishes_as_if_never_killed(
    site: Website, tmp_path: Path, seed: int
) -> None:
    undisturbed = tmp_path / "undisturbed.db"
    code, _ = await crawl(*arguments(site, undisturbed), cwd=tmp_path)
    assert code == 0
    expected = FrontierReader(undisturbed).finished_urls()
    assert len(expected) > PAGES * 0.8
    once = site.requests.copy()
    site.requests.clear()

    chance = random.Random(seed)
    database = tmp_path / "killed.db"
    reader = FrontierReader(database)
    kills, in_flight = 0, 0
    while True:
        async with crawling(*arguments(site, database), cwd=tmp_path) as run:
            asked_for = site.requests.total() + chance.randint(1, PAGES // 4)
            while run.process.returncode is None and site.requests.total() < asked_for:
                site.asked.clear()
                waiter = asyncio.create_task(site.asked.wait())
                ended = asyncio.create_task(run.process.wait())
                await asyncio.wait({waiter, ended}, return_when=asyncio.FIRST_COMPLETED)
                waiter.cancel()
                ended.cancel()
            if run.process.returncode is None:
                run.kill()
            code = await run.end()
        assert code in (0, -signal.SIGKILL), f"seed {seed}: {run.errors or run.raw[-2000:]}"
        assert reader.broken_invariants() == [], f"seed {seed}, after kill {kills}"
        if code == 0:
            break
        kills += 1
        in_flight += reader.snapshot().leased
    assert kills >= 2, f"seed {seed}: the crawl was over before it could be killed"
    assert reader.finished_urls() == expected, f"seed {seed}"
    assert reader.outcomes() == FrontierReader(undisturbed).outcomes(), f"seed {seed}"
    # A redirect is two requests of one page: hence twice.
    assert site.requests.total() <= once.total() + 2 * in_flight, f"seed {seed}"


async def test_a_finished_crawl_is_not_repeated(site: Website, tmp_path: Path) -> None:
    database = tmp_path / "frontier.db"
    assert (await crawl(*arguments(site, database), cwd=tmp_path))[0] == 0
    site.requests.clear()
    code, run = await crawl(*arguments(site, database), cwd=tmp_path)
    assert code == 0
    assert site.requests.total() == 0
    assert run.summary["reason"] == "CrawlFinished"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_graceful_stop_gives_back_what_it_holds(tmp_path: Path, number: signal.Signals) -> None:
    async with Website(tree(PAGES), latency=0.01) as site:
        database = tmp_path / "frontier.db"
        async with crawling(*arguments(site, database), cwd=tmp_path) as run:
            while site.requests.total() < 40:
                site.asked.clear()
                await site.asked.wait()
            run.kill(number)
            code = await run.end()
        assert code == 128 + number, run.errors
        assert run.summary["outcome"] == "interrupted"
        counts = FrontierReader(database).snapshot()
        assert counts.leased == 0
        assert counts.pending > 0
        code, _ = await crawl(*arguments(site, database), cwd=tmp_path)
        assert code == 0
        assert set(site.requests.values()) == {1}, "nothing that was in flight at a graceful stop is fetched again"


async def test_a_second_crawler_on_the_same_frontier_is_refused(tmp_path: Path) -> None:
    async with Website(tree(PAGES), latency=0.01) as site:
        database = tmp_path / "frontier.db"
        async with crawling(*arguments(site, database), cwd=tmp_path) as first:
            await site.asked.wait()
            code, second = await crawl(*arguments(site, database), cwd=tmp_path)
            assert code == ExitCode.OWNED
            assert "another process" in second.errors
            assert second.errors.count("\n") == 1
            first.kill(signal.SIGTERM)
            await first.end()
