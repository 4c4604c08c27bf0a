"""A page that kills its process every time is set aside after three claims, and everything else is crawled."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.support.crawler import crawling, driver, judge, rows
from tests.support.website import Website, tree

from durable_crawler.frontier.model import QUARANTINE_AFTER
from durable_crawler.frontier.reader import FrontierReader

PAGES = 60
POISON = 17
RESTARTS = 12
"""What an operator would allow, more or less; without the quarantine they would never be enough."""


@pytest.mark.parametrize("workers", [1, 16])
async def test_scenario_24_a_page_that_kills_its_parser_is_quarantined_and_everything_else_completes(
    tmp_path: Path, workers: int
) -> None:
    """Also with many workers, where innocent pages are in flight beside it each time."""
    db = tmp_path / "frontier.db"
    expected = set(range(PAGES)) - {POISON} - below(POISON)
    async with Website(tree(PAGES), latency=0.002) as site:
        codes: list[int] = []
        arguments = ["--seed", site.url, "--workers", str(workers), "--per-host", str(workers), "--db", str(db)]
        while 0 not in codes and len(codes) < RESTARTS:
            async with crawling(*arguments, cwd=tmp_path, program=driver(poison=f"/{POISON}")) as run:
                codes.append(await run.end())
            judge(db, f"after end {len(codes)}")
        assert codes == [-signal.SIGABRT] * QUARANTINE_AFTER + [0]
        assert rows(db, "SELECT url FROM pages WHERE state = 'quarantined'") == [(f"{site.url}{POISON}",)]
        assert FrontierReader(db).finished_urls() == {f"{site.url}{number or ''}" for number in expected}
        assert site.requests[f"/{POISON}"] == QUARANTINE_AFTER
        assert run.summary["reason"] == "CrawlFinished"
        assert "1 quarantined" in run.summary["message"]


def below(number: int, fanout: int = 4) -> set[int]:
    """Pages of the tree that only this one leads to: they are not found, because it is never read."""
    children = range(number * fanout + 1, min(PAGES, number * fanout + fanout + 1))
    return set(children).union(*map(below, children))
