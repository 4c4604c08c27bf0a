"""What the frontier promises: fenced leases, one commit, honest counts, one owner."""

from __future__ import annotations

import asyncio
import hashlib
import re
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from tests.support.clock import ManualClock

from crawljob.exitcodes import ExitCode
from durable_crawler.frontier import (
    Deferral,
    FrontierBrokenError,
    FrontierError,
    FrontierOwnedError,
    FrontierUnusableError,
    Lease,
    Link,
    Result,
    SqliteFrontier,
    Verdict,
)
from durable_crawler.frontier.opening import APPLICATION_ID, Admission
from durable_crawler.frontier.reader import FrontierReader
from durable_crawler.frontier.sqlite import LEASE_MS
from durable_crawler.frontier.statements import MIGRATIONS, SCHEMA_VERSION
from durable_crawler.outcomes import Hop, Outcome

SEED = ("https://a.example/", "a.example")
OTHER = ("https://b.example/", "b.example")
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


async def test_every_claim_has_a_fresh_token(open_frontier: Open) -> None:
    frontier = await open_frontier()
    tokens = set()
    for _ in range(3):
        (lease,) = await claim(frontier)
        tokens.add(lease.token)
        await frontier.release([lease])
    assert len(tokens) == 3
    assert all(len(token) == 32 for token in tokens)


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


async def test_a_known_link_is_added_once(open_frontier: Open) -> None:
    frontier = await open_frontier()
    (lease,) = await claim(frontier)
    same = links(frontier, "https://a.example/1", "https://a.example/1", "https://a.example/")
    await frontier.finish(lease, OK, same)
    assert frontier.snapshot.pending == 1


async def test_a_stale_token_can_do_nothing(open_frontier: Open) -> None:
    frontier = await open_frontier()
    (stale,) = await claim(frontier)
    await frontier.release([stale])
    (fresh,) = await claim(frontier)
    assert await frontier.finish(stale, OK, links(frontier, "https://a.example/lost")) is Verdict.LOST
    assert await frontier.defer(stale, Deferral(1)) is Verdict.LOST
    assert await frontier.release([stale]) == 0
    assert await frontier.renew([stale]) == frozenset()
    assert frontier.snapshot.pending == 0, "nothing of a lost lease's work is kept"
    assert await frontier.finish(fresh, OK, []) is Verdict.KEPT


async def test_a_lost_finish_does_not_take_the_rest_of_its_flush_along(open_frontier: Open) -> None:
    frontier = await open_frontier(SEED, OTHER)
    first, second = await claim(frontier)
    await frontier.release([first])
    verdicts = await asyncio.gather(frontier.finish(first, OK, []), frontier.finish(second, OK, []))
    assert verdicts == [Verdict.LOST, Verdict.KEPT]


async def test_a_lease_that_ran_out_is_lost_and_claimed_again(open_frontier: Open, clock: ManualClock) -> None:
    frontier = await open_frontier()
    (late,) = await claim(frontier)
    clock.advance(LEASE_MS / 1000 + 1)
    assert await frontier.finish(late, OK, []) is Verdict.LOST
    claimed = await frontier.claim({late.host_id: 1}, 1)
    assert claimed.expired == 1
    assert claimed.leases[0].page_id == late.page_id
    assert claimed.leases[0].token != late.token


async def test_a_renewed_lease_lives_on(open_frontier: Open, clock: ManualClock) -> None:
    frontier = await open_frontier()
    (lease,) = await claim(frontier)
    for _ in range(5):
        clock.advance(LEASE_MS / 1000 - 1)
        assert await frontier.renew([lease]) == {lease.page_id}
    assert await frontier.finish(lease, OK, []) is Verdict.KEPT


async def test_a_new_epoch_takes_over_at_once(open_frontier: Open) -> None:
    first = await open_frontier()
    (lease,) = await claim(first)
    await first.close()
    second = await open_frontier()
    assert (second.recovered, second.epoch) == (1, 2)
    (again,) = await claim(second)
    assert again.page_id == lease.page_id
    assert again.attempt == 2
    assert await second.finish(lease, OK, []) is Verdict.LOST


async def test_an_owner_that_finds_a_newer_epoch_is_fenced(open_frontier: Open, path: Path) -> None:
    frontier = await open_frontier()
    (lease,) = await claim(frontier)
    with sqlite3.connect(path) as rival:  # a copied volume, a file system that does not honour locks
        rival.execute("UPDATE meta SET epoch = epoch + 1")
    rival.close()
    with pytest.raises(FrontierOwnedError):
        await frontier.finish(lease, OK, [])
    with pytest.raises(FrontierOwnedError):
        await frontier.claim({1: 1}, 1)


async def test_a_second_process_is_refused_and_changes_nothing(open_frontier: Open, path: Path) -> None:
    await open_frontier()
    before = hashlib.sha256(path.read_bytes()).digest()
    with pytest.raises(FrontierOwnedError) as caught:
        await open_frontier()
    assert caught.value.exit_code == ExitCode.OWNED
    assert hashlib.sha256(path.read_bytes()).digest() == before


async def test_a_page_that_never_has_an_outcome_is_quarantined(open_frontier: Open) -> None:
    for _ in range(3):
        frontier = await open_frontier()
        assert len(await claim(frontier)) == 1
        await frontier.close()
    frontier = await open_frontier()
    assert await claim(frontier) == ()
    assert frontier.snapshot.quarantined == 1
    assert frontier.snapshot.finished(100)


async def test_a_release_charges_no_attempt(open_frontier: Open) -> None:
    frontier = await open_frontier()
    for _ in range(10):
        (lease,) = await claim(frontier)
        assert lease.attempt == 1
        assert await frontier.release([lease]) == 1


async def test_deferred_pages_wait_and_are_not_an_end(open_frontier: Open, clock: ManualClock) -> None:
    frontier = await open_frontier()
    (lease,) = await claim(frontier)
    due = clock.wall_ms() + 5000
    assert await frontier.defer(lease, Deferral(due, due)) is Verdict.KEPT
    assert not frontier.snapshot.finished(100)
    assert await claim(frontier) == ()
    clock.advance(5.001)
    (again,) = await claim(frontier)
    assert (again.retries, again.attempt) == (1, 1)


async def test_gates_and_deferrals_survive_a_restart(open_frontier: Open, clock: ManualClock) -> None:
    frontier = await open_frontier()
    (lease,) = await claim(frontier)
    until = clock.wall_ms() + 7000
    await frontier.defer(lease, Deferral(until, until))
    await frontier.close()
    clock.advance(3)
    frontier = await open_frontier()
    assert frontier.hosts[lease.host_id].closed_until_ms == until
    assert frontier.snapshot.next_due_ms == until


async def test_stored_times_of_a_clock_that_was_ahead_are_clamped(open_frontier: Open, clock: ManualClock) -> None:
    clock.jump(86_400)
    frontier = await open_frontier()
    (lease,) = await claim(frontier)
    await frontier.defer(lease, Deferral(clock.wall_ms() + 1000, clock.wall_ms() + 1000))
    await frontier.close()
    clock.jump(-86_400)
    frontier = await open_frontier()
    assert frontier.snapshot.next_due_ms is not None
    assert frontier.snapshot.next_due_ms <= clock.wall_ms() + 3_600_000


async def test_max_pages_is_exact_across_restarts_and_retries(open_frontier: Open, clock: ManualClock) -> None:
    seen: set[int] = set()
    for _ in range(4):
        frontier = await open_frontier(max_pages=5)
        leases = await claim(frontier)
        seen |= {lease.page_id for lease in leases}
        await frontier.release(leases[1:])
        if leases:
            more = [f"https://a.example/{leases[0].page_id}/{n}" for n in range(9)]
            await frontier.finish(leases[0], OK, links(frontier, *more))
        await frontier.close()
    frontier = await open_frontier(max_pages=5)
    while leases := await claim(frontier):
        seen |= {lease.page_id for lease in leases}
        for lease in leases:
            await frontier.finish(lease, OK, [])
    assert len(seen) == 5
    assert frontier.snapshot.finished(5)
    assert not frontier.snapshot.finished(6)


async def test_slots_of_each_host_are_kept(open_frontier: Open) -> None:
    frontier = await open_frontier(SEED, OTHER)
    a = next(host.id for host in frontier.hosts.values() if host.authority == "a.example")
    b = next(host.id for host in frontier.hosts.values() if host.authority == "b.example")
    lease = next(lease for lease in await claim(frontier) if lease.host_id == a)
    await frontier.finish(lease, OK, [Link(f"https://a.example/{n}", "a.example", a, 1) for n in range(9)])
    claimed = await frontier.claim({a: 3, b: 2}, 16)
    assert [lease.host_id for lease in claimed.leases] == [a, a, a]
    assert a in frontier.stocked
    assert b not in frontier.stocked, "a host that gave less than it was asked for has run out"


async def test_a_narrower_spec_leaves_out_and_a_wider_one_takes_back_in(open_frontier: Open) -> None:
    frontier = await open_frontier(SEED, OTHER)
    (lease, _) = await claim(frontier)
    await frontier.finish(lease, OK, links(frontier, "https://a.example/1", "https://a.example/2"))
    await frontier.close()
    frontier = await open_frontier(SEED, max_depth=0)
    assert await claim(frontier) == ()
    assert frontier.snapshot.excluded == 3
    assert frontier.snapshot.finished(100)
    await frontier.close()
    frontier = await open_frontier(SEED, max_depth=1)
    assert {lease.url for lease in await claim(frontier)} == {"https://a.example/1", "https://a.example/2"}
    await frontier.close()
    frontier = await open_frontier(SEED, OTHER)
    assert {lease.url for lease in await claim(frontier)} == {
        "https://a.example/1",
        "https://a.example/2",
        "https://b.example/",
    }


async def test_links_that_the_spec_does_not_cover_are_kept_for_when_it_does(open_frontier: Open) -> None:
    frontier = await open_frontier(max_depth=0)
    (lease,) = await claim(frontier)
    (host,) = frontier.hosts.values()
    left_out = [
        Link("https://a.example/deep", host.authority, None, 1),
        Link("https://b.example/other", "b.example", None, 1),
    ]
    await frontier.finish(lease, OK, left_out)
    assert frontier.snapshot.excluded == 2
    assert frontier.snapshot.finished(100)
    await frontier.close()
    frontier = await open_frontier(SEED, OTHER, max_depth=1)
    found = {lease.url for lease in await claim(frontier)}
    assert found == {"https://a.example/deep", "https://b.example/other", "https://b.example/"}


async def test_a_shorter_way_brings_in_what_was_too_deep(open_frontier: Open) -> None:
    frontier = await open_frontier(SEED, OTHER)
    first, second = await claim(frontier)
    host = frontier.hosts[first.host_id]
    url = f"https://{host.authority}/far"
    await frontier.finish(first, OK, [Link(url, host.authority, None, 17)])
    await frontier.finish(second, OK, [Link(url, host.authority, host.id, 3)])
    (lease,) = await claim(frontier)
    assert (lease.url, lease.depth) == (url, 3)


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


async def test_closing_twice_is_safe_and_later_work_is_refused(open_frontier: Open) -> None:
    frontier = await open_frontier()
    await frontier.close()
    await frontier.close()
    with pytest.raises(FrontierError):
        await frontier.claim({1: 1}, 1)


async def test_files_are_private(open_frontier: Open, tmp_path: Path) -> None:
    path = tmp_path / "state" / "frontier.db"
    await open_frontier(at=path)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}
