"""What the frontier's file promises: commits that are on disk, one owner, migrations, damage that is told.

What any frontier promises is in ``tests/support/frontier_suite.py``.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.clock import ManualClock

from crawljob.exitcodes import ExitCode
from durable_crawler.frontier import (
    FrontierBrokenError,
    FrontierFullError,
    FrontierOwnedError,
    FrontierUnusableError,
    Lease,
    Link,
    Result,
    SqliteFrontier,
    opening,
    sqlite,
)
from durable_crawler.frontier.opening import APPLICATION_ID, Admission
from durable_crawler.frontier.reader import FrontierReader
from durable_crawler.frontier.statements import MIGRATIONS, SCHEMA_VERSION
from durable_crawler.outcomes import Hop, Outcome
from durable_crawler.scope import LeftOut, Scope

SEED = ("https://a.example/", "a.example")
OK = Result(Outcome.OK, 200, bytes=10, title="x")

OLD = Path(__file__).parent / "data"
"""Content of frontiers as older versions wrote them, one file a schema version."""

Open = Callable[..., Awaitable[SqliteFrontier]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "frontier.db"


@pytest.fixture
async def open_frontier(path: Path, clock: ManualClock) -> AsyncIterator[Open]:
    opened: list[SqliteFrontier] = []

    async def open_(
        *seeds: tuple[str, str], max_pages: int = 100, max_depth: int = 16, at: Path = path
    ) -> SqliteFrontier:
        admission = Admission(seeds or (SEED,), max_depth)
        frontier = await SqliteFrontier.open(at, admission, max_pages=max_pages, clock=clock)
        opened.append(frontier)
        return frontier

    yield open_
    for frontier in opened:
        await frontier.close()
    if path.exists() and opened:
        assert FrontierReader(path).broken_invariants() == []


async def claim(frontier: SqliteFrontier, slots: int = 10) -> tuple[Lease, ...]:
    claimed = await frontier.claim(dict.fromkeys(frontier.hosts, slots), slots * len(frontier.hosts))
    return claimed.leases


def links(frontier: SqliteFrontier, *urls: str, depth: int = 1) -> list[Link]:
    host = next(iter(frontier.hosts.values()))
    return [Link(url, host.authority, host.id, depth) for url in urls]


async def test_a_claim_is_committed_before_it_is_answered(open_frontier: Open, path: Path) -> None:
    frontier = await open_frontier()
    (lease,) = await claim(frontier)
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as reader:
        row = reader.execute("SELECT state, token, attempts, counted FROM pages").fetchone()
    reader.close()
    assert row == ("leased", lease.token, 1, 1)


async def test_page_links_and_done_are_one_commit(open_frontier: Open, path: Path) -> None:
    frontier = await open_frontier()
    (lease,) = await claim(frontier)
    result = Result(
        Outcome.OK, 200, final_url="https://a.example/home", hops=(Hop("https://a.example/", 301, "/home"),)
    )
    assert await frontier.finish(lease, result, links(frontier, "https://a.example/1", "https://a.example/2"))
    assert (frontier.snapshot.done, frontier.snapshot.pending) == (1, 2)
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as reader:
        (row,) = reader.execute("SELECT outcome, status, final_url, hops FROM results").fetchall()
    reader.close()
    assert row == ("ok", 200, "https://a.example/home", '[["https://a.example/",301,"/home"]]')


async def test_a_second_process_is_refused_and_changes_nothing(open_frontier: Open, path: Path) -> None:
    await open_frontier()
    before = hashlib.sha256(path.read_bytes()).digest()
    with pytest.raises(FrontierOwnedError) as caught:
        await open_frontier()
    assert caught.value.exit_code == ExitCode.OWNED
    assert hashlib.sha256(path.read_bytes()).digest() == before


@pytest.mark.parametrize("content", [b"not a database at all", b"SQLite format 3\0" + bytes(4080)], ids=["text", "db"])
async def test_a_foreign_file_is_left_alone(open_frontier: Open, tmp_path: Path, content: bytes) -> None:
    foreign = tmp_path / "precious"
    foreign.write_bytes(content)
    with pytest.raises(FrontierUnusableError, match="is not a frontier"):
        await open_frontier(at=foreign)
    assert foreign.read_bytes() == content
    assert list(tmp_path.iterdir()) == [foreign]


async def test_a_newer_schema_is_refused(open_frontier: Open, path: Path) -> None:
    await (await open_frontier()).close()
    with sqlite3.connect(path) as future:
        future.execute("PRAGMA user_version = 99")
    future.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    future.close()
    with pytest.raises(FrontierUnusableError, match="schema version 99"):
        await open_frontier()
    with sqlite3.connect(path) as present:
        present.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    present.close()


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
async def test_every_older_schema_is_brought_up_to_date(open_frontier: Open, path: Path, version: int) -> None:
    await (await open_frontier(at=path.with_name("fresh.db"))).close()
    old = sqlite3.connect(path, isolation_level=None)
    old.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    for number, script in enumerate(MIGRATIONS[:version], start=1):
        old.executescript(f"BEGIN; {script} PRAGMA user_version = {number}; COMMIT;")
    old.executescript((OLD / f"frontier_{version}.sql").read_text())
    old.execute("PRAGMA journal_mode = WAL")
    old.close()
    frontier = await open_frontier()
    assert schema(path) == schema(path.with_name("fresh.db"))
    assert (frontier.recovered, frontier.epoch) == (1, 8)
    assert frontier.snapshot.done == 1
    assert frontier.snapshot.deferred == 1
    assert frontier.snapshot.excluded == 1
    assert {lease.url for lease in await claim(frontier)} == {"https://a.example/", "https://a.example/leased"}


def schema(path: Path) -> set[str]:
    """All definitions, without comments and white space, which a migration does not change."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    connection.close()
    return {" ".join(re.sub(r"--[^\n]*", "", sql).split()) for (sql,) in rows}


async def test_a_killed_frontier_is_checked_and_a_closed_one_is_not(open_frontier: Open, path: Path) -> None:
    await (await open_frontier()).close()
    with sqlite3.connect(path) as editor:
        (clean,) = editor.execute("SELECT clean FROM meta").fetchone()
        editor.execute("UPDATE meta SET clean = 0")
    editor.close()
    assert clean == 1
    whole = path.read_bytes()
    # A row that breaks a CHECK: only a look at the whole file finds it.
    with sqlite3.connect(path) as editor:
        editor.execute("PRAGMA ignore_check_constraints = ON")
        editor.execute("UPDATE pages SET depth = -1")
    editor.close()
    with pytest.raises(FrontierUnusableError, match="CHECK constraint failed in pages"):
        await open_frontier()
    for leftover in ("-wal", "-shm"):
        path.with_name(path.name + leftover).unlink(missing_ok=True)
    path.write_bytes(whole)


async def test_a_damaged_file_is_one_sentence(open_frontier: Open, path: Path) -> None:
    await (await open_frontier()).close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(FrontierUnusableError, match="damaged"):
        await open_frontier()
    path.write_bytes(whole)


async def test_a_file_that_was_taken_away_ends_the_run(open_frontier: Open, path: Path) -> None:
    frontier = await open_frontier()
    (lease,) = await claim(frontier)
    aside = path.with_suffix(".aside")
    path.rename(aside)
    with pytest.raises(FrontierBrokenError, match="gone"):
        await frontier.finish(lease, OK, [])
    aside.rename(path)


def reasons(path: Path) -> dict[str, str | None]:
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as reader:
        rows = reader.execute("SELECT url, left_out FROM pages WHERE state = 'excluded'").fetchall()
    reader.close()
    return {url.removeprefix(SEED[0]): reason for url, reason in rows}


async def test_why_a_page_is_left_out_is_kept_and_follows_the_spec(path: Path, clock: ManualClock) -> None:
    async def opened(depth: int = 16, **patterns: tuple[str, ...]) -> SqliteFrontier:
        admission = Admission((SEED,), depth, **patterns)  # type: ignore[arg-type]
        return await SqliteFrontier.open(path, admission, max_pages=100, clock=clock)

    frontier = await opened()
    (lease,) = await claim(frontier)
    elsewhere = Link("https://b.example/", "b.example", None, 1, LeftOut.AUTHORITY)
    await frontier.finish(lease, OK, [*links(frontier, *(SEED[0] + name for name in ("a", "b", "c"))), elsewhere])
    await frontier.close()
    assert reasons(path) == {"https://b.example/": "authority"}
    for edit, expected in [
        ({"exclude": ("/a",)}, {"a": "excluded"}),
        ({"include": ("/a",)}, {"b": "not_included", "c": "not_included"}),
        ({"include": ("/a", "/b"), "exclude": ("/b",)}, {"b": "excluded", "c": "not_included"}),
        ({"depth": 0, "exclude": ("/b",)}, {"a": "depth", "b": "depth", "c": "depth"}),
        ({}, {}),
    ]:
        await (await opened(**edit)).close()  # type: ignore[arg-type]
        assert reasons(path) == {"https://b.example/": "authority", **expected}
        assert FrontierReader(path).broken_invariants() == []


@pytest.mark.parametrize("kind", ["outcome", "left_out", "refused", "asks"])
@pytest.mark.parametrize(
    "spoil", ["DELETE FROM tallies WHERE kind = ?", "UPDATE tallies SET total = total + 1 WHERE kind = ?"]
)
async def test_a_tally_that_is_missing_or_wrong_is_noticed(
    path: Path, clock: ManualClock, kind: str, spoil: str
) -> None:
    frontier = await SqliteFrontier.open(path, Admission((SEED,), 16), max_pages=9, clock=clock)
    (lease,) = await claim(frontier)
    told = Result(Outcome.OK, dropped_links=5, refused={"scheme": 4}, nofollow=3, noindex=True)
    await frontier.finish(lease, told, [Link("https://b.example/", "b.example", None, 1, LeftOut.AUTHORITY)])
    await frontier.close()
    reader = FrontierReader(path)
    assert reader.broken_invariants() == []
    with closing(sqlite3.connect(path)) as editor, editor:
        editor.execute("INSERT INTO tallies VALUES (?, 'none', 0)", (kind,))
    assert reader.broken_invariants() == [], "one of nothing is as good as none"
    with closing(sqlite3.connect(path)) as editor, editor:
        editor.execute(spoil, (kind,))
    assert "tallies differ from the rows" in reader.broken_invariants()


async def test_pages_are_judged_again_only_when_the_spec_has_changed(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart must not cost what a large frontier holds."""
    asked: set[str] = set()
    monkeypatch.setattr(Scope, "objection", lambda _, url, depth: asked.add(url))
    for exclude, expected in [(("/a", "/b"), {SEED[0]}), (("/b", "/a"), set()), (("/b",), {SEED[0]})]:
        asked.clear()
        admission = Admission((SEED,), 16, exclude=exclude)
        await (await SqliteFrontier.open(path, admission, max_pages=100, clock=clock)).close()
        assert asked == expected


async def test_a_locked_database_ends_the_run_within_the_deadline(open_frontier: Open, path: Path) -> None:
    frontier = await open_frontier()
    rival = sqlite3.connect(path, isolation_level=None)
    rival.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(FrontierBrokenError):
            await frontier.claim({1: 1}, 1)
        with pytest.raises(FrontierBrokenError):  # and stays so: a database error is never an empty queue
            await frontier.claim({1: 1}, 1)
    finally:
        rival.execute("ROLLBACK")
        rival.close()


async def test_files_are_private(open_frontier: Open, tmp_path: Path) -> None:
    path = tmp_path / "state" / "frontier.db"
    await open_frontier(at=path)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
async def test_what_is_no_file_is_left_alone(open_frontier: Open, tmp_path: Path, kind: str) -> None:
    special = Path("/dev/full") if kind == "device" else tmp_path / "special"
    if kind == "pipe":
        os.mkfifo(special)
    if kind == "folder":
        special.mkdir()
    before = special.stat()
    with pytest.raises(FrontierUnusableError, match="is not a file"):
        await open_frontier(at=special)
    assert (special.stat().st_mode, special.stat().st_ino) == (before.st_mode, before.st_ino)


@pytest.mark.parametrize("link", ["symbolic", "hard"])
async def test_another_name_is_the_same_frontier(open_frontier: Open, path: Path, link: str) -> None:
    await (await open_frontier()).close()
    other = path.with_name("other.db")
    if link == "symbolic":
        other.symlink_to(path)
    else:
        other.hardlink_to(path)
    frontier = await open_frontier()
    with pytest.raises(FrontierOwnedError):
        await open_frontier(at=other)
    assert len(await claim(frontier)) == 1, "the first one goes on"


async def test_a_link_to_nothing_leads_to_where_it_points(open_frontier: Open, path: Path) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    await open_frontier(at=link)
    assert link.is_symlink()
    assert path.exists()


async def test_a_frontier_without_its_tables_is_damaged(open_frontier: Open, path: Path) -> None:
    await (await open_frontier()).close()
    whole = path.read_bytes()
    with sqlite3.connect(path) as editor:
        editor.execute("DROP TABLE hosts")
    editor.close()
    with pytest.raises(FrontierUnusableError, match="damaged"):
        await open_frontier()
    path.write_bytes(whole)


async def test_the_log_of_writes_stays_small_while_others_read(
    open_frontier: Open, path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our readers read in short transactions; after each, a checkpoint lets the WAL begin anew."""
    monkeypatch.setattr(sqlite, "CHECKPOINT_BYTES", 256 * 1024)
    monkeypatch.setattr(opening, "WAL_KEPT_BYTES", 128 * 1024)
    frontier = await open_frontier(max_pages=10_000)
    reader, largest = FrontierReader(path), 0
    for number in range(120):
        leases = await claim(frontier, 1)
        more = [f"https://a.example/{number}/{n}" for n in range(100)]
        await frontier.finish(leases[0], OK, links(frontier, *more))
        assert reader.snapshot().done == number + 1
        clock.advance(2)
        largest = max(largest, path.with_name(f"{path.name}-wal").stat().st_size)
    assert path.stat().st_size > 1024 * 1024, "much more was written than the WAL ever held"
    assert largest < 1024 * 1024


async def test_a_long_reader_loses_nothing_and_when_it_is_gone_the_log_shrinks(
    open_frontier: Open, path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "CHECKPOINT_BYTES", 64 * 1024)
    monkeypatch.setattr(opening, "WAL_KEPT_BYTES", 32 * 1024)
    frontier = await open_frontier(max_pages=10_000)
    wal = path.with_name(f"{path.name}-wal")
    long = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
    long.execute("BEGIN")
    (before,) = long.execute("SELECT count(*) FROM pages").fetchone()

    async def write(rounds: range) -> None:
        for number in rounds:
            leases = await claim(frontier, 1)
            more = [f"https://a.example/{number}/{n}" for n in range(100)]
            await frontier.finish(leases[0], OK, links(frontier, *more))
            clock.advance(2)

    await write(range(40))
    assert long.execute("SELECT count(*) FROM pages").fetchone() == (before,), "its snapshot is its own"
    grown = wal.stat().st_size
    long.execute("COMMIT")
    long.close()
    await write(range(40, 60))
    assert frontier.snapshot.done == 60
    assert wal.stat().st_size < grown / 2


def test_a_disk_error_on_a_full_volume_is_a_full_volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
    assert isinstance(opening.explain(tmp_path / "f.db", error), FrontierBrokenError)
    volume = os.statvfs(tmp_path)
    full = os.statvfs_result((*volume[:3], 0, 0, *volume[5:]))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    assert isinstance(opening.explain(tmp_path / "f.db", error), FrontierFullError)
    monkeypatch.undo()
    too_large = OSError(errno.EFBIG, "File too large")
    assert isinstance(opening.explain(tmp_path / "f.db", too_large), FrontierFullError)
