"""The database is locked, full, read-only, corrupt or gone under the crawler: it says so, ends, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.crawler import PROGRAM, Run, crawl, crawling, driver, judge
from tests.support.faults import ext4_volume, small_volume
from tests.support.website import Website, tree

from crawljob.exitcodes import ExitCode
from durable_crawler.frontier.reader import FrontierReader

PAGES = 400
WORKERS = 8


@pytest.fixture
async def site() -> AsyncIterator[Website]:
    async with Website(tree(PAGES), latency=0.02) as website:
        yield website


def arguments(site: Website, db: Path) -> list[str]:
    return ["--seed", site.url, "--workers", str(WORKERS), "--per-host", str(WORKERS), "--db", str(db)]


def said_one_sentence(run: Run, *words: str) -> None:
    assert run.errors.startswith("error: ")
    assert run.errors.count("\n") == 1, run.errors
    assert all(word in run.errors for word in words), run.errors
    assert run.summary["outcome"] == "failed"


async def goes_on(site: Website, db: Path, *, refetches: int) -> None:
    """The next crawl finishes everything, and asks again for no more than was in flight."""
    code, run = await crawl(*arguments(site, db), cwd=db.parent)
    assert code == 0, run.errors
    judge(db)
    assert len(FrontierReader(db).finished_urls()) == PAGES
    assert site.requests.total() <= PAGES + refetches


async def test_scenario_08_a_lock_that_is_held_ends_the_crawl_and_loses_nothing(site: Website, tmp_path: Path) -> None:
    db = tmp_path / "frontier.db"
    async with crawling(*arguments(site, db), cwd=tmp_path) as run:
        assert await run.until(lambda: site.requests.total() >= 50, site.asked)
        with closing(sqlite3.connect(db, isolation_level=None, timeout=5)) as other:
            other.execute("BEGIN IMMEDIATE")
            code = await run.end(limit=8)  # well before the ten seconds for which the lock would be held
            other.execute("ROLLBACK")
    assert code == ExitCode.INFRASTRUCTURE
    said_one_sentence(run, "locked")
    judge(db)
    await goes_on(site, db, refetches=WORKERS)


async def test_a_lock_that_is_let_go_within_a_second_is_waited_for(site: Website, tmp_path: Path) -> None:
    db = tmp_path / "frontier.db"
    async with crawling(*arguments(site, db), cwd=tmp_path) as run:
        assert await run.until(lambda: site.requests.total() >= 50, site.asked)
        with closing(sqlite3.connect(db, isolation_level=None, timeout=5)) as other:
            other.execute("BEGIN IMMEDIATE")
            await asyncio.sleep(0.7)  # how long it takes is what this is about
            other.execute("ROLLBACK")
        assert await run.end() == 0, run.errors
    judge(db)
    assert site.requests.total() == PAGES


async def test_a_lock_that_is_held_at_the_start_is_no_empty_queue(site: Website, tmp_path: Path) -> None:
    db = tmp_path / "frontier.db"
    async with crawling(*arguments(site, db), cwd=tmp_path) as run:
        assert await run.until(lambda: site.requests.total() >= 50, site.asked)
        run.kill()
        await run.end()
    with closing(sqlite3.connect(db, isolation_level=None, timeout=5)) as other:
        other.execute("BEGIN IMMEDIATE")
        code, run = await crawl(*arguments(site, db), cwd=tmp_path)
        other.execute("ROLLBACK")
    assert code == ExitCode.INFRASTRUCTURE
    said_one_sentence(run, "locked")
    await goes_on(site, db, refetches=WORKERS)


async def test_scenario_18_under_the_watermark_nothing_is_claimed_and_what_is_in_flight_is_finished(
    site: Website, tmp_path: Path
) -> None:
    with small_volume(tmp_path / "volume", 64) as volume:
        db = volume.path / "frontier.db"
        async with crawling(*arguments(site, db), cwd=tmp_path) as run:
            assert await run.until(lambda: site.requests.total() >= 50, site.asked)
            # Just under the watermark: what is claimed before the crawler looks again, a moment later, needs room.
            filler = volume.fill(leave_bytes=7 << 20)
            code = await run.end()
        assert code == ExitCode.OUT_OF_DISK
        said_one_sentence(run, "enlarge", "nothing committed is lost")
        judge(db)
        counts = FrontierReader(db).snapshot()
        assert (counts.leased, counts.done) == (0, site.requests.total())

        filler.unlink()  # the end has given back what the WAL took
        volume.fill(leave_bytes=4 << 20)
        asked = site.requests.total()
        code, run = await crawl(*arguments(site, db), cwd=tmp_path)
        assert code == ExitCode.OUT_OF_DISK, "it is still full"
        assert site.requests.total() == asked, "a start under the watermark claims nothing"
        volume.resize(128)
        await goes_on(site, db, refetches=0)


async def test_a_volume_that_is_filled_by_others_ends_the_crawl_and_loses_nothing(
    site: Website, tmp_path: Path
) -> None:
    with small_volume(tmp_path / "volume", 24) as volume:
        db = volume.path / "frontier.db"
        # Without the reserve, so that SQLite itself meets the end of the volume in the middle of a transaction.
        async with crawling(*arguments(site, db), cwd=tmp_path, program=driver(reserve_bytes=0)) as run:
            assert await run.until(lambda: site.requests.total() >= 50, site.asked)
            filler = volume.fill()
            code = await run.end()
        assert code == ExitCode.OUT_OF_DISK, run.errors
        said_one_sentence(run, "full", "nothing committed is lost")
        judge(db)
        code, run = await crawl(*arguments(site, db), cwd=tmp_path)
        assert code == ExitCode.OUT_OF_DISK, run.errors
        said_one_sentence(run, "full" if "full" in run.errors else "enlarge")
        filler.unlink()
        await goes_on(site, db, refetches=WORKERS)


async def test_a_volume_that_is_read_only_at_the_start(site: Website, tmp_path: Path) -> None:
    with small_volume(tmp_path / "volume", 24) as volume:
        db = volume.path / "frontier.db"
        async with crawling(*arguments(site, db), cwd=tmp_path) as run:
            assert await run.until(lambda: site.requests.total() >= 50, site.asked)
            run.kill()
            await run.end()
        volume.read_only()
        code, run = await crawl(*arguments(site, db), cwd=tmp_path)
        assert code == ExitCode.INFRASTRUCTURE
        said_one_sentence(run, "Read-only file system")


async def test_a_volume_that_becomes_read_only_under_a_crawl(site: Website, tmp_path: Path) -> None:
    path, image = tmp_path / "volume", tmp_path / "image"
    with ext4_volume(path, image) as volume:
        db = path / "frontier.db"
        async with crawling(*arguments(site, db), cwd=tmp_path) as run:
            assert await run.until(lambda: site.requests.total() >= 50, site.asked)
            volume.fail()
            code = await run.end()
        assert code == ExitCode.INFRASTRUCTURE, run.errors
        said_one_sentence(run, "the database failed")
    with ext4_volume(path, image):
        judge(db)
        await goes_on(site, db, refetches=WORKERS)


async def unclean(site: Website, db: Path, program: Sequence[str] = PROGRAM) -> None:
    """A crawl that was killed with most of it in the main file, not in the WAL."""
    async with crawling(*arguments(site, db), cwd=db.parent, program=program) as run:
        assert await run.until(lambda: site.requests.total() >= 200, site.asked)
        run.kill()
        await run.end()


@pytest.mark.parametrize("seed", range(3))
async def test_a_corrupt_file_is_refused(site: Website, tmp_path: Path, seed: int) -> None:
    db = tmp_path / "frontier.db"
    await unclean(site, db, driver(checkpoint_each_flush=True))
    with closing(sqlite3.connect(db)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        ((size,),) = connection.execute("PRAGMA page_size")
        ((root,),) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'pages'")
    print(f"seed {seed}")
    chance = random.Random(seed)
    with db.open("r+b") as file:
        file.seek((root - 1) * size + 8)
        file.write(chance.randbytes(size - 8))
    asked = site.requests.total()
    code, run = await crawl(*arguments(site, db), cwd=tmp_path)
    assert code == ExitCode.UNUSABLE_FRONTIER, run.errors
    said_one_sentence(run, "damaged", "restore it from a copy or begin anew")
    assert site.requests.total() == asked, "nothing is asked for on the word of a file that cannot be trusted"


async def test_a_file_that_is_something_else_is_refused_and_left_alone(site: Website, tmp_path: Path) -> None:
    db = tmp_path / "frontier.db"
    db.write_bytes(b"a letter to my mother " * 400)
    before = db.read_bytes()
    code, run = await crawl(*arguments(site, db), cwd=tmp_path)
    assert code == ExitCode.UNUSABLE_FRONTIER
    said_one_sentence(run, "is not a frontier")
    assert db.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["frontier.db"]


@pytest.mark.parametrize("how", ["deleted", "replaced"])
async def test_a_file_that_was_taken_away_is_noticed(site: Website, tmp_path: Path, how: str) -> None:
    db = tmp_path / "frontier.db"
    async with crawling(*arguments(site, db), cwd=tmp_path) as run:
        assert await run.until(lambda: site.requests.total() >= 50, site.asked)
        if how == "deleted":
            db.unlink()
        else:
            shutil.copy(db, tmp_path / "copy.db")
            os.replace(tmp_path / "copy.db", db)  # noqa: PTH105
        asked = site.requests.total()
        code = await run.end()
    assert code == ExitCode.INFRASTRUCTURE
    said_one_sentence(run, "has gone" if how == "deleted" else "was replaced")
    assert site.requests.total() <= asked + 2 * WORKERS, "it went on for no more than a flush"


async def test_a_signal_while_the_database_is_locked_still_ends_in_time(site: Website, tmp_path: Path) -> None:
    db = tmp_path / "frontier.db"
    async with crawling(*arguments(site, db), cwd=tmp_path) as run:
        assert await run.until(lambda: site.requests.total() >= 50, site.asked)
        with closing(sqlite3.connect(db, isolation_level=None, timeout=5)) as other:
            other.execute("BEGIN IMMEDIATE")
            run.kill(signal.SIGTERM)
            code = await run.end(limit=25)
            other.execute("ROLLBACK")
    assert code == ExitCode.INFRASTRUCTURE, "an end that could not be written is not an orderly one"
    await goes_on(site, db, refetches=WORKERS)
