"""The crawler is killed at any moment, goes on, and has lost and doubled nothing."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest
from tests.support.crawler import Row, crawl, crawling, judge, rows, verdicts
from tests.support.website import Answer, Website, after, cut_short, file, in_turn, page, redirect, slow, tree

from crawljob.exitcodes import ExitCode
from durable_crawler.frontier.reader import FrontierReader

PAGES = 400
WORKERS = 16
KILLS = 20
"""In each run; with five seeds that is a hundred."""

LARGE = 5000
"""Pages of the site on which the crawl is killed at random; those behind its broken ones are never found."""


def faulty_site(site: Callable[[], Website]) -> dict[str, Answer]:
    """A large site with everything in it that servers do; fresh for each crawl, because some answers come in turn."""
    answers = tree(LARGE)
    for number in (7, 900):  # not 503: the host would be asked slowly for a while, as it should be
        answers[f"/{number}"] = in_turn(page(status=502), answers[f"/{number}"])
    for number in (15, 515, 1015):
        answers[f"/{number}"] = in_turn(page(status=500), answers[f"/{number}"])
    answers["/21"] = page(status=500)
    for number in range(40, LARGE, 97):
        answers[f"/{number}"] = redirect(f"/{number + 1}", 301)
    answers["/11"] = redirect("http://elsewhere.invalid/")
    for number in range(13, LARGE, 101):
        answers[f"/{number}"] = page(f"/missing/{number}", f"/{number + 1}", "http://elsewhere.invalid/x")
    for number in range(50, LARGE, 89):
        answers[f"/{number}"] = file()
    answers["/62"] = cut_short("/1")
    answers["/63"] = in_turn(cut_short("/1"), answers["/63"])
    for number in range(100, LARGE, 150):
        answers[f"/{number}"] = slow(site, answers[f"/{number}"], requests=20)
    return answers


@pytest.fixture
async def site() -> AsyncIterator[Website]:
    async with Website(tree(PAGES), latency=0.002) as website:
        yield website


def arguments(site: Website, db: Path) -> list[str]:
    return ["--seed", site.url, "--workers", str(WORKERS), "--per-host", str(WORKERS), "--db", str(db)]


def asked_for(site: Website, requests: int) -> bool:
    return site.requests.total() >= requests


async def crawl_large(
    db: Path, chance: random.Random | None = None
) -> tuple[dict[str, Row], Counter[str], Counter[str]]:
    """Crawl the large site, killed at random where ``chance`` is given.

    Verdicts by page, requests by path, and how often a page was in flight when its process was killed.
    """
    sites: list[Website] = []
    in_flight: Counter[str] = Counter()
    async with Website(faulty_site(lambda: sites[0])) as site:
        sites.append(site)
        for kill in range(KILLS if chance else 0):
            assert chance is not None
            async with crawling(*arguments(site, db), cwd=db.parent) as run:
                enough = site.requests.total() + chance.randint(40, 100)
                alive = await run.until(partial(asked_for, site, enough), site.asked)
                for _ in range(chance.randint(0, 300)):
                    await asyncio.sleep(0)
                assert alive, f"the crawl was over before kill {kill}"
                run.kill()
                assert await run.end() == -signal.SIGKILL, run.errors
            judge(db, f"after kill {kill}")
            in_flight.update(url for (url,) in rows(db, "SELECT url FROM pages WHERE state = 'leased'"))
        code, run = await crawl(*arguments(site, db), cwd=db.parent)
        assert code == 0, run.errors
        judge(db, "at the end")
        verdict = {
            url.replace(site.authority, "site"): tuple(str(value).replace(site.authority, "site") for value in row)
            for url, row in verdicts(db).items()
        }
        flown = Counter({url.removeprefix(site.url.rstrip("/")): count for url, count in in_flight.items()})
        return verdict, site.requests.copy(), flown


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Row], Counter[str]]:
    verdict, requests, _ = asyncio.run(crawl_large(tmp_path_factory.mktemp("undisturbed") / "frontier.db"))
    assert len(verdict) > LARGE * 0.7
    return verdict, requests


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(5))
async def test_scenario_01_killed_twenty_times_at_random_it_finishes_as_if_never_killed(
    tmp_path: Path, undisturbed: tuple[dict[str, Row], Counter[str]], seed: int
) -> None:
    print(f"seed {seed}")  # pytest shows it when the test fails
    expected, once = undisturbed
    verdict, requests, in_flight = await crawl_large(tmp_path / "frontier.db", random.Random(seed))
    assert verdict.keys() == expected.keys()
    assert {url: row for url, row in verdict.items() if row != expected[url]} == {}
    # A page in flight at a kill is asked for once more; one that redirects asks for its target too, by the way.
    again = {path: count - once[path] for path, count in requests.items() if count > once[path]}
    by_redirect = Counter({f"/{int(path[1:]) + 1}": count for path, count in in_flight.items() if path[1:].isdigit()})
    excess = {path: count for path, count in again.items() if count > in_flight[path] + by_redirect[path]}
    assert excess == {}, "refetched more often than it was in flight at a kill"
    assert sum(in_flight.values()) <= KILLS * WORKERS


async def test_scenario_19_a_finished_crawl_is_not_repeated(site: Website, tmp_path: Path) -> None:
    database = tmp_path / "frontier.db"
    assert (await crawl(*arguments(site, database), cwd=tmp_path))[0] == 0
    site.requests.clear()
    code, run = await crawl(*arguments(site, database), cwd=tmp_path)
    assert code == 0
    assert site.requests.total() == 0
    assert run.summary["reason"] == "CrawlFinished"


async def test_scenario_30_the_page_limit_holds_over_three_kills(tmp_path: Path) -> None:
    """A page counts at its first claim: what was in flight at a kill is asked for again, and is no other page."""
    limit, workers = 50, 32
    async with Website(tree(PAGES), latency=0.01) as site:
        db = tmp_path / "frontier.db"
        file = tmp_path / "crawljob.json"  # YAML is a superset
        fetch = {"workers": workers, "perHost": workers}
        spec = {"seeds": [site.url], "scope": {"maxPages": limit}, "fetch": fetch}
        envelope = {"apiVersion": "durable-crawler.io/v1alpha1", "kind": "CrawlJob", "metadata": {"name": "x"}}
        file.write_text(json.dumps({**envelope, "spec": spec}))
        for kill in range(1, 4):
            async with crawling("-f", file, "--db", db, cwd=tmp_path) as run:
                enough = site.requests.total() + 10
                assert await run.until(partial(asked_for, site, enough), site.asked)
                run.kill()
                assert await run.end() == -signal.SIGKILL
            judge(db, f"after kill {kill}")
        code, run = await crawl("-f", file, "--db", db, cwd=tmp_path)
        assert (code, run.summary["reason"]) == (0, "PageLimitReached")
        counts = FrontierReader(db).snapshot()
        assert counts.done + counts.quarantined == limit
        assert counts.quarantined <= 1, "who was alone in flight at the third kill, after two others"
        assert len(site.requests) == limit
        assert site.requests.total() <= limit + 3 * workers


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_graceful_stop_gives_back_what_it_holds(tmp_path: Path, number: signal.Signals) -> None:
    async with Website(tree(PAGES), latency=0.01) as site:
        database = tmp_path / "frontier.db"
        async with crawling(*arguments(site, database), cwd=tmp_path) as run:
            assert await run.until(lambda: site.requests.total() >= 40, site.asked)
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
    held = asyncio.Event()
    answers = tree(PAGES)
    answers["/1"] = after(held, answers["/1"])  # however slow the second one is to start, the first is not done
    async with Website(answers) as site:
        database = tmp_path / "frontier.db"
        async with crawling(*arguments(site, database), cwd=tmp_path) as first:
            await site.asked.wait()
            code, second = await crawl(*arguments(site, database), cwd=tmp_path)
            assert code == ExitCode.OWNED
            assert "another process" in second.errors
            assert second.errors.count("\n") == 1
            held.set()
            first.kill(signal.SIGTERM)
            await first.end()
