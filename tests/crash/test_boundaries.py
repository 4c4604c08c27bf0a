"""SIGKILL at every named boundary of a crawl's steps: the program that goes on has lost and doubled nothing."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.crash.driver import BOUNDARIES, OPENING
from tests.support.crawler import Row, crawl, crawling, driver, judge, rows, verdicts
from tests.support.website import Answer, Website, cut_short, file, in_turn, page, redirect, tree

from durable_crawler.frontier.opening import APPLICATION_ID
from durable_crawler.frontier.statements import MIGRATIONS, SCHEMA_VERSION
from durable_crawler.urls import url_hash

PAGES = 40
WORKERS = 4

ONCE = ("closing", "last checkpoint", "migration", "admission")
"""Steps that a run passes once; the others are also met in the middle of the crawl."""


def answers() -> dict[str, Answer]:
    """Forty pages with one of each fault; fresh ones for each crawl, because some answer differently in turn."""
    site = tree(PAGES)
    site["/3"] = in_turn(page(status=500), site["/3"])
    site["/5"] = redirect("/6", 301)
    site["/7"] = page(*(f"/leaf/{n}" for n in range(20)))
    site["/8"] = file()
    site["/9"] = page("/missing", "http://elsewhere.invalid/")
    site["/10"] = in_turn(cut_short("/11"), site["/10"])
    site |= {f"/leaf/{n}": page() for n in range(20)}
    return site


def arguments(site: Website, db: Path) -> list[str]:
    return ["--seed", site.url, "--workers", str(WORKERS), "--per-host", str(WORKERS), "--db", str(db)]


def comparable(verdict: dict[str, Row], site: Website) -> dict[str, Row]:
    """Verdicts without the port of the site, which differs from crawl to crawl."""
    return {
        url.replace(site.authority, "site"): tuple(str(value).replace(site.authority, "site") for value in row)
        for url, row in verdict.items()
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Row], int]:
    """What a crawl that nobody kills comes to, and how many requests it takes."""
    folder = tmp_path_factory.mktemp("undisturbed")

    async def measure() -> tuple[dict[str, Row], int]:
        async with Website(answers()) as site:
            code, run = await crawl(*arguments(site, folder / "frontier.db"), cwd=folder)
            assert code == 0, run.errors
            return comparable(verdicts(folder / "frontier.db"), site), site.requests.total()

    return asyncio.run(measure())


async def kill_and_go_on(site: Website, db: Path, undisturbed: tuple[dict[str, Row], int], **plan: Any) -> None:
    """Kill the crawl as planned, judge what it left, finish with the ordinary program, and compare."""
    expected, requests = undisturbed
    async with crawling(*arguments(site, db), cwd=db.parent, program=driver(**plan)) as run:
        assert await run.end() == -signal.SIGKILL, f"the boundary was not passed: {run.errors or run.raw[-2000:]}"
    in_flight = 0
    if db.exists() and rows(db, "PRAGMA user_version") == [(SCHEMA_VERSION,)]:
        judge(db, "after the kill")
        ((in_flight,),) = rows(db, "SELECT count(*) FROM pages WHERE state = 'leased'")
        assert in_flight <= WORKERS
    code, run = await crawl(*arguments(site, db), cwd=db.parent)
    assert code == 0, run.errors
    judge(db, "after going on")
    assert comparable(verdicts(db), site) == expected
    # A redirect is two requests of one page, hence twice.
    assert site.requests.total() <= requests + 2 * in_flight


@pytest.mark.parametrize(
    ("boundary", "passing"),
    [
        (boundary, passing)
        for boundary in (*BOUNDARIES, *OPENING)
        for passing in ((1,) if boundary.split()[-1] in ONCE or boundary.endswith("checkpoint") else (1, 9))
        if boundary != "retry wait" and not (boundary.endswith("defer commit") and passing > 1)
    ],
    ids=lambda value: str(value).replace(" ", "_"),
)
async def test_killed_at_a_boundary_nothing_is_lost_or_doubled(
    tmp_path: Path, undisturbed: tuple[dict[str, Row], int], boundary: str, passing: int
) -> None:
    async with Website(answers()) as site:
        plan = {"at": boundary, "passing": passing, "checkpoint_each_flush": "checkpoint" in boundary}
        await kill_and_go_on(site, tmp_path / "frontier.db", undisturbed, **plan)


@pytest.mark.parametrize("boundary", [name for name in OPENING if "migration" in name])
async def test_killed_in_the_migration_of_an_old_frontier(
    tmp_path: Path, undisturbed: tuple[dict[str, Row], int], boundary: str
) -> None:
    async with Website(answers()) as site:
        db = tmp_path / "frontier.db"
        begin_with_version_1(db, site)
        await kill_and_go_on(site, db, undisturbed, at=boundary)
        ((created, epoch),) = rows(db, "SELECT created_ms, epoch FROM meta")
        assert created == 1_800_000_000_000, "the frontier was made anew"
        assert epoch > 3


def begin_with_version_1(db: Path, site: Website) -> None:
    """A frontier of schema version 1 whose process was killed while it fetched the seed."""
    with closing(sqlite3.connect(db, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(f"BEGIN; {MIGRATIONS[0]} PRAGMA user_version = 1; COMMIT;")
        connection.execute(
            "INSERT INTO meta (one, canonicalisation, created_ms, epoch) VALUES (1, 1, 1800000000000, 3)"
        )
        connection.execute("INSERT INTO hosts (id, authority) VALUES (1, ?)", (site.authority,))
        high, low = url_hash(site.url)
        connection.execute(
            "INSERT INTO pages (hash_high, hash_low, url, host_id, depth) VALUES (?, ?, ?, 1, 0)", (high, low, site.url)
        )
        connection.execute(
            "UPDATE pages SET state = 'leased', counted = 1, attempts = 1, token = ?, epoch = 3, lease_until_ms = ?",
            ("0123456789abcdef" * 2, 1_800_000_100_000),
        )
