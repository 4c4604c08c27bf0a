"""Pages with very many links, alone and all at once: no deadline is missed, and the rest of the crawl goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from tests.support.crawler import crawling, driver, judge, rows
from tests.support.website import Answer, Website, page

from durable_crawler.frontier.reader import FrontierReader

LEASE_MS = 10_000
HEARTBEAT_SECONDS = 1.0
"""Ten renewals in a lease: should the loop or the database be held up for seconds, a lease is lost, which is told."""


def job(folder: Path, site: Website, **spec: Any) -> Path:
    file = folder / "crawljob.yaml"
    body = {"seeds": [site.url], **spec}
    head = {"apiVersion": "durable-crawler.io/v1alpha1", "kind": "CrawlJob", "metadata": {"name": "large"}}
    file.write_text(yaml.safe_dump({**head, "spec": body}))
    return file


async def no_deadline_is_missed(folder: Path, site: Website, *, limit: float, **spec: Any) -> Path:
    db = folder / "frontier.db"
    program = driver(lease_ms=LEASE_MS, heartbeat_seconds=HEARTBEAT_SECONDS)
    async with crawling("-f", job(folder, site, **spec), "--db", db, cwd=folder, program=program) as run:
        assert await run.end(limit=limit) == 0, run.errors or run.raw[-2000:]
    assert not any("driver" in line for line in run.lines), f"leases were lost: {run.raw}"
    judge(db)
    return db


@pytest.mark.timeout(180)
async def test_one_page_with_twenty_thousand_links(tmp_path: Path) -> None:
    links = 20_000
    others = [f"/other/{number}" for number in range(60)]
    answers: dict[str, Answer] = {"/": page("/large", *others)}
    answers |= {path: page() for path in others}
    # Nothing of it is out of scope, and one page in a thousand is crawled: the limit is part of what is shown.
    answers["/large"] = page(*(f"/l/{number}" for number in range(links)))
    async with Website(answers, latency=0.01) as site:
        db = await no_deadline_is_missed(
            tmp_path,
            site,
            limit=120,
            scope={"maxLinksPerPage": links, "maxPages": 100},
            fetch={"workers": 4, "perHost": 4},
        )
        counts = FrontierReader(db).snapshot()
        assert counts.done == 100
        assert counts.done + counts.pending == links + len(others) + 2
        # The page was asked for first, and the small ones did not wait for its commit.
        assert site.log.index("/large") < site.log.index(others[-1]) < len(site.log)


@pytest.mark.timeout(180)
async def test_sixty_four_pages_with_two_thousand_links_each_at_once(tmp_path: Path) -> None:
    pages, links = 64, 2000
    arrived, together = 0, asyncio.Event()

    def large(number: int) -> Answer:
        content = page(*(f"/{number}/{link}" for link in range(links)))

        async def answer(request: web.Request) -> web.StreamResponse:
            nonlocal arrived
            arrived += 1
            if arrived == pages:
                together.set()
            await together.wait()
            return await content(request)

        return answer

    answers: dict[str, Answer] = {"/": page(*(f"/large/{number}" for number in range(pages)))}
    answers |= {f"/large/{number}": large(number) for number in range(pages)}
    async with Website(answers) as site:
        db = await no_deadline_is_missed(
            tmp_path,
            site,
            limit=150,
            scope={"maxPages": 400},
            fetch={"workers": pages, "perHost": pages},
        )
        assert arrived == pages, "all were in flight at once"
        counts = FrontierReader(db).snapshot()
        assert counts.done == 400
        assert counts.done + counts.pending == 1 + pages + pages * links
        commits = rows(db, "SELECT finished_ms FROM results JOIN pages ON id = page_id WHERE url LIKE '%/large/%'")
        first, last = min(commits)[0], max(commits)[0]
        meanwhile = [moment for moment in site.moments_ms if first < moment < last]
        assert last > first, "they were not all in one commit"
        assert meanwhile, "claims went on between the commits of the large pages"
