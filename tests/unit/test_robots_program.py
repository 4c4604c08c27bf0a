"""robots.txt and the real program, over real sockets."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.support.crawler import crawl, rows
from tests.support.website import ROBOTS, Website, page, redirect, robots

RULES = "User-agent: durable-crawler\nDisallow: /private  # ours\n\nUser-agent: *\nDisallow: /\n"


def job(folder: Path, seed: str, **politeness: Any) -> Path:
    """A file for a crawl of one site."""
    file = folder / "crawljob.json"
    spec = {"seeds": [seed], "politeness": politeness, "fetch": {"perHost": 8}}
    identity = {"apiVersion": "durable-crawler.io/v1alpha1", "kind": "CrawlJob", "metadata": {"name": "site"}}
    file.write_text(json.dumps({**identity, "spec": spec}))
    return file


def site() -> dict[str, Any]:
    """Three pages and a redirect, two of them private."""
    answers = {"/": page("/open", "/private/a", "/hop"), "/open": page(), "/private/a": page(), "/private/b": page()}
    return {**answers, "/hop": redirect("/private/b"), ROBOTS: robots(RULES)}


async def test_what_is_disallowed_is_not_asked_for_but_recorded_with_the_line(tmp_path: Path) -> None:
    async with Website(site()) as website:
        code, run = await crawl("-f", job(tmp_path, website.url), cwd=tmp_path)
        assert (code, run.summary["reason"]) == (0, "CrawlFinished"), run.errors
        assert website.requests == {"/": 1, "/open": 1, "/hop": 1}
        assert website.robots_asked == 1
        assert run.summary["progress"]["done"] == 4
        assert run.summary["progress"]["failed"] == 0, "to be told no is no failure"
        found = rows(
            tmp_path / "frontier.db", "SELECT url, outcome, error FROM pages JOIN results ON page_id = pages.id"
        )
        assert {url.removeprefix(website.url): (outcome, error) for url, outcome, error in found} == {
            "": ("ok", ""),
            "open": ("ok", ""),
            "private/a": ("robots_disallowed", "2: Disallow: /private"),
            "hop": ("robots_disallowed", f"redirect to {website.url}private/b"),
        }


async def test_a_second_run_does_not_ask_again(tmp_path: Path) -> None:
    async with Website(site()) as website:
        for _ in range(2):
            code, _ = await crawl("-f", job(tmp_path, website.url), cwd=tmp_path)
            assert code == 0
        await crawl("-f", job(tmp_path, f"{website.url}more"), cwd=tmp_path)
        assert "/more" in website.requests
        assert website.robots_asked == 1


async def test_ignore_asks_for_no_robots_txt(tmp_path: Path) -> None:
    async with Website(site()) as website:
        code, _ = await crawl("-f", job(tmp_path, website.url, robots="ignore"), cwd=tmp_path)
        assert code == 0
        assert website.robots_asked == 0
        assert website.requests == {"/": 1, "/open": 1, "/hop": 1, "/private/a": 1, "/private/b": 1}


async def test_a_seed_that_is_disallowed_is_named(tmp_path: Path) -> None:
    async with Website({**site(), ROBOTS: robots("User-agent: *\nDisallow: /\n")}) as website:
        code, run = await crawl("-f", job(tmp_path, website.url), cwd=tmp_path)
        assert (code, run.summary["reason"]) == (0, "NothingFetched")
        assert run.summary["message"] == f"no page was fetched: {website.url} is disallowed by its robots.txt"
        assert website.requests == {}


async def test_a_crawl_delay_is_kept(tmp_path: Path) -> None:
    answers = {**site(), ROBOTS: robots("User-agent: *\nCrawl-delay: 0.3\n")}
    async with Website(answers) as website:
        code, _ = await crawl("-f", job(tmp_path, website.url), cwd=tmp_path)
        assert code == 0
        starts = [at for at, path in zip(website.moments_ms, website.log, strict=True) if path != "/private/b"]
        assert len(starts) == 4
        assert min(after - before for before, after in pairwise(starts)) >= 280


async def test_a_hostile_robots_txt_holds_nobody_up(tmp_path: Path) -> None:
    hostile = {**site(), ROBOTS: robots("User-agent: *\n" + "\n" * 200_000 + "Disallow: /private\n")}
    async with Website(hostile) as bad, Website({**site(), ROBOTS: robots("")}) as good:
        code, run = await crawl("--seed", bad.url, "--seed", good.url, cwd=tmp_path)
        assert code == 0, run.errors
        assert bad.requests == {"/": 1, "/open": 1, "/hop": 1}
        assert good.requests == {"/": 1, "/open": 1, "/hop": 1, "/private/a": 1, "/private/b": 1}
