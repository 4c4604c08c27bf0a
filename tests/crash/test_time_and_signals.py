"""Clocks that jump, processes that are stopped, signals at every step: leases keep their meaning, ends are in time."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.support.clock import ManualClock
from tests.support.crawler import Run, crawl, crawling, driver, judge, rows
from tests.support.website import ROBOTS, Website, after, in_turn, page, tree

from durable_crawler.frontier import Deferral, SqliteFrontier
from durable_crawler.frontier.model import HostState
from durable_crawler.frontier.opening import LONGEST_WAIT_MS, Admission
from durable_crawler.frontier.reader import FrontierReader
from durable_crawler.politeness import Pace

PAGES = 200
WORKERS = 4
HOUR = 3600


def arguments(site: Website, db: Path) -> list[str]:
    return ["--seed", site.url, "--workers", str(WORKERS), "--per-host", str(WORKERS), "--db", str(db)]


def leases_told(run: Run) -> dict[str, int]:
    """What telemetry was told of leases, summed up."""
    told = {"expired": 0, "lost": 0, "recovered": 0}
    for line in run.lines:
        for key, count in line.get("driver", {}).items():
            if key in told:
                told[key] += count
    return told


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_clock_that_is_set_by_an_hour_expires_no_lease(tmp_path: Path, hours: int) -> None:
    answers = tree(PAGES)
    answers["/9"] = in_turn(page(status=500), answers["/9"])  # a retry's time is wall time in the database
    async with Website(answers, latency=0.002) as site:
        db = tmp_path / "frontier.db"
        plan = {"at": "after fetch", "passing": 30, "send": "", "jump_seconds": hours * HOUR}
        async with crawling(*arguments(site, db), cwd=tmp_path, program=driver(**plan)) as run:
            assert await run.end(limit=30) == 0, run.errors
        assert any("jumped" in line.get("driver", {}) for line in run.lines)
        assert leases_told(run) == {"expired": 0, "lost": 0, "recovered": 0}
        assert len(FrontierReader(db).finished_urls()) == PAGES
        assert {path for path, count in site.requests.items() if count > 1} == {"/9"}


async def test_waits_of_a_clock_that_was_ahead_are_cut_when_it_is_right_again(tmp_path: Path) -> None:
    db, now, admission = tmp_path / "frontier.db", ManualClock(), Admission((("http://a.example/", "a.example"),), 3)
    ahead = ManualClock()
    ahead.jump(24 * HOUR)
    frontier = await SqliteFrontier.open(db, admission, max_pages=9, clock=ahead)
    (lease,) = (await frontier.claim(dict.fromkeys(frontier.hosts, 1), 1)).leases
    await frontier.defer(lease, Deferral(ahead.wall_ms() + 500, HostState(Pace(), ahead.wall_ms() + 500)))
    await frontier.close()
    frontier = await SqliteFrontier.open(db, admission, max_pages=9, clock=now)
    try:
        due = frontier.snapshot.next_due_ms
        assert due is not None
        assert due - now.wall_ms() <= LONGEST_WAIT_MS, "longer than any wait"
        (host,) = frontier.hosts.values()
        assert host.closed_until_ms - now.wall_ms() <= LONGEST_WAIT_MS
    finally:
        await frontier.close()


@pytest.mark.parametrize("answered", [True, False], ids=["answered_while_stopped", "answered_after_the_lease"])
async def test_a_process_that_was_stopped_past_its_leases_goes_on(tmp_path: Path, answered: bool) -> None:
    held = {f"/{number}": asyncio.Event() for number in (50, 51, 52)}
    answers = tree(PAGES)
    for path, event in held.items():
        answers[path] = in_turn(after(event, answers[path]), answers[path])
    async with Website(answers, latency=0.002) as site:
        db = tmp_path / "frontier.db"
        program = driver(lease_ms=1500, heartbeat_seconds=0.4)
        async with crawling(*arguments(site, db), cwd=tmp_path, program=program) as run:
            assert await run.until(lambda: all(path in site.requests for path in held), site.asked)
            run.kill(signal.SIGSTOP)
            if answered:
                for event in held.values():
                    event.set()
            await asyncio.sleep(2.0)  # longer than a lease: the time itself is the fault here
            run.kill(signal.SIGCONT)
            alive = await run.until(lambda: all(site.requests[path] >= 2 for path in held), site.asked, limit=20)
            assert alive, (await run.end(), run.errors, run.raw)
            for event in held.values():
                event.set()
            assert await run.end() == 0, run.errors + run.raw
        assert "Traceback" not in run.raw + run.errors
        told = leases_told(run)
        assert told["expired"] >= len(held)
        assert told["lost"] >= len(held)
        judge(db)
        counts = FrontierReader(db).snapshot()
        assert (counts.done, counts.quarantined) == (PAGES, 0)


async def test_scenario_02_a_second_interrupt_ends_at_once_and_the_crawl_goes_on(tmp_path: Path) -> None:
    answers = tree(PAGES)
    event = asyncio.Event()
    answers["/30"] = after(event, answers["/30"])
    async with Website(answers, latency=0.01) as site:
        db = tmp_path / "frontier.db"
        async with crawling(*arguments(site, db), cwd=tmp_path) as run:
            assert await run.until(lambda: "/30" in site.requests, site.asked)
            run.kill(signal.SIGINT)
            await asyncio.sleep(0.1)  # as fast as fingers are
            run.kill(signal.SIGINT)
            code = await run.end(limit=5)  # not the ten seconds that pages in flight may have
        assert code == 130, run.errors
        assert run.summary["outcome"] == "interrupted"
        nothing_is_held_or_charged(db)
        assert rows(db, "PRAGMA quick_check") == [("ok",)]
        event.set()
        code, run = await crawl(*arguments(site, db), cwd=tmp_path)
        assert code == 0, run.errors
        judge(db)
        assert FrontierReader(db).snapshot().done == PAGES


def nothing_is_held_or_charged(db: Path) -> None:
    judge(db)
    assert rows(db, "SELECT url, state, attempts FROM pages WHERE state = 'leased' OR attempts > 0") == []
    assert rows(db, "SELECT clean FROM meta") == [(1,)]


@pytest.mark.parametrize(
    ("boundary", "passing"),
    [
        ("before claim commit", 1),
        ("before claim commit", 5),
        ("after claim commit", 5),
        ("before fetch", 9),
        ("after fetch", 9),
        ("after parse", 9),
        ("before finish commit", 5),
        ("after finish commit", 5),
        ("retry wait", 1),
    ],
    ids=lambda value: str(value).replace(" ", "_"),
)
async def test_sigterm_at_any_step_ends_in_time_and_charges_nothing(
    tmp_path: Path, boundary: str, passing: int
) -> None:
    answers = tree(PAGES)
    if boundary == "retry wait":  # everything waits for one page
        answers["/"] = in_turn(page(status=503, headers={"Retry-After": "25"}), answers["/"])
    async with Website(answers) as site:
        db = tmp_path / "frontier.db"
        program = driver(at=boundary, passing=passing, send="SIGTERM")
        async with crawling(*arguments(site, db), cwd=tmp_path, program=program) as run:
            code = await run.end(limit=25)
        assert code == 143, run.errors or run.raw
        assert run.summary["reason"] == "Interrupted"
        nothing_is_held_or_charged(db)
        if boundary == "retry wait":
            assert rows(db, "SELECT state, retries FROM pages") == [("deferred", 1)]
            return
        code, _ = await crawl(*arguments(site, db), cwd=tmp_path)
        assert code == 0
        assert len(FrontierReader(db).finished_urls()) == PAGES
        assert set(site.requests.values()) == {1}, "what was in flight was finished, what was not was never asked for"


async def test_sigterm_before_the_first_claim(tmp_path: Path) -> None:
    async with Website(tree(PAGES)) as site:
        db = tmp_path / "frontier.db"
        program = driver(at="after admission", send="SIGTERM")
        async with crawling(*arguments(site, db), cwd=tmp_path, program=program) as run:
            code = await run.end(limit=25)
        assert code == 143, run.errors or run.raw
        assert site.requests.total() == 0
        nothing_is_held_or_charged(db)


@pytest.mark.parametrize("status", [None, 503], ids=["while_it_is_fetched", "while_its_host_waits"])
async def test_sigterm_in_the_wait_for_a_robots_txt(tmp_path: Path, status: int | None) -> None:
    asked, released = asyncio.Event(), asyncio.Event()

    async def robots_txt(_: web.Request) -> web.StreamResponse:
        asked.set()
        if status is None:
            await released.wait()
        return web.Response(status=status or 404)

    async with Website({**tree(PAGES), ROBOTS: robots_txt}) as site:
        db = tmp_path / "frontier.db"
        async with crawling(*arguments(site, db), cwd=tmp_path) as run:
            async with asyncio.timeout(30):
                await asked.wait()
            run.kill(signal.SIGTERM)
            code = await run.end(limit=25)
            released.set()
        assert code == 143, run.errors or run.raw
        assert site.requests.total() == 0
        nothing_is_held_or_charged(db)


async def test_sigterm_when_everything_is_done_is_a_finish(tmp_path: Path) -> None:
    async with Website(tree(3)) as site:
        db = tmp_path / "frontier.db"
        plan: dict[str, Any] = {"at": "before finish commit", "passing": 1}
        answers = dict(site.answers)
        site.answers = {"/": answers["/1"]}
        async with crawling(*arguments(site, db), cwd=tmp_path, program=driver(send="SIGTERM", **plan)) as run:
            code = await run.end(limit=25)
        # The page links back to the start only: its commit was the last.
        assert code == 0, run.errors or run.raw
        assert run.summary["reason"] == "CrawlFinished"
