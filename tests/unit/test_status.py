"""``status``: the whole document of a known frontier, beside a crawl that runs, and one sentence per failure."""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support.clock import ManualClock
from tests.support.crawler import crawl, crawling, rows
from tests.support.website import Website, page, tree
from tests.unit.test_results_stored import run

from crawljob.exitcodes import ExitCode
from durable_crawler.cli import cli
from durable_crawler.cli.status import document
from durable_crawler.frontier import Deferral, HostState, Link, SqliteFrontier
from durable_crawler.frontier import Result as PageResult
from durable_crawler.frontier.opening import Admission
from durable_crawler.frontier.overview import Phase
from durable_crawler.frontier.reader import FrontierReader
from durable_crawler.frontier.spent import DATABASE, Spent
from durable_crawler.frontier.statements import MIGRATIONS, SCHEMA_VERSION, STATEMENTS
from durable_crawler.outcomes import Outcome
from durable_crawler.politeness import Pace
from durable_crawler.robots import KnownRobots
from durable_crawler.scope import LeftOut

A, B, C = (f"https://{name}.example/" for name in "abc")
ADMISSION = Admission(tuple((url, url.split("/")[2]) for url in (A, B, C)), 16)


def status(db: Path, *flags: str) -> Result:
    return CliRunner().invoke(cli, ["status", "--db", str(db), *flags])


def read(db: Path) -> Any:
    result = status(db, "--format", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "frontier.db"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def filled(db: Path, clock: ManualClock) -> SqliteFrontier:
    """A frontier with a page in each state."""
    frontier = await SqliteFrontier.open(db, ADMISSION, max_pages=100, clock=clock)
    hosts = {host.authority: host.id for host in frontier.hosts.values()}
    a, b, c = (await frontier.claim(dict.fromkeys(hosts.values(), 1), 3)).leases
    found = [Link(f"{A}{number}", "a.example", hosts["a.example"], 1) for number in range(3)]
    beside = [
        Link(f"{A}deep", "a.example", None, 17, LeftOut.DEPTH),
        Link(f"{A}private/1", "a.example", None, 1, LeftOut.EXCLUDED),
        Link(f"{A}private/2", "a.example", None, 1, LeftOut.EXCLUDED),
        Link("https://d.example/", "d.example", None, 1, LeftOut.AUTHORITY),
    ]
    refused = {"excluded": 2, "scheme": 4, "repeating_segments": 1}
    told = PageResult(Outcome.OK, 200, bytes=1000, dropped_links=5, refused=refused, nofollow=3, noindex=True)
    now = clock.wall_ms()
    await frontier.finish(a, told, [*found, *beside], HostState(Pace(0.5), now + 1000))
    await frontier.defer(b, Deferral(now + 7000, HostState(Pace(0, 0, 5, 1), now + 60_000)))
    await frontier.finish(c, PageResult(Outcome.HTTP_ERROR, 404, refused={"scheme": 1}), [])
    await frontier.keep_robots(KnownRobots("https://a.example", b"User-agent: *", 0, now + 86_400_000, now))
    await frontier.keep_robots(KnownRobots("http://a.example", b"", 0, now + 86_400_000, now))
    await frontier.keep_robots(KnownRobots("https://b.example", b"", 2, now + 90_000))
    return frontier


async def test_the_whole_document(db: Path, clock: ManualClock) -> None:
    """The keys are a promise (docs/reference/status.md)."""
    frontier = await filled(db, clock)
    await frontier.claim({1: 1}, 1)
    overview = FrontierReader(db).overview(clock.wall_ms())
    found = document(Path("x.db"), overview, clock.wall_ms())
    await frontier.close()
    robots = {"failures": 0, "askedAgain": "2027-01-16T08:00:00.000Z", "answered": "2027-01-15T08:00:00.000Z"}
    assert found == {
        "frontier": "x.db",
        "time": "2027-01-15T08:00:00.000Z",
        "phase": "running",
        "pages": {
            "done": 2,
            "failed": 1,
            "pending": 2,
            "leased": 1,
            "deferred": 1,
            "quarantined": 0,
            "leftOut": 4,
            "requested": 4,
        },
        "bytes": 1000,
        "nextRetry": "2027-01-15T08:00:07.000Z",
        "outcomes": {"http_error": 1, "ok": 1},
        "leftOut": {"excluded": 2, "authority": 1, "depth": 1},
        "refusedLinks": {
            "above_max_links": 5,
            "scheme": 5,
            "nofollow": 3,
            "excluded": 2,
            "repeating_segments": 1,
        },
        "timeLost": {},
        "noindexPages": 1,
        "waitingHosts": 2,
        "hosts": [
            {
                "host": "a.example",
                "pending": 2,
                "deferred": 0,
                "leased": 1,
                "nextRetry": None,
                "closedUntil": "2027-01-15T08:00:01.000Z",
                "gapSeconds": 0.5,
                "connectionFailures": 0,
                "circuit": "closed",
                "circuitOpenings": 0,
                "robots": [
                    {"origin": "http://a.example", "state": "none", "bytes": 0, **robots},
                    {"origin": "https://a.example", "state": "rules", "bytes": 13, **robots},
                ],
            },
            {
                "host": "b.example",
                "pending": 0,
                "deferred": 1,
                "leased": 0,
                "nextRetry": "2027-01-15T08:00:07.000Z",
                "closedUntil": "2027-01-15T08:01:00.000Z",
                "gapSeconds": 0.0,
                "connectionFailures": 5,
                "circuit": "open",
                "circuitOpenings": 1,
                "robots": [
                    {
                        "origin": "https://b.example",
                        "state": "unreachable",
                        "bytes": 0,
                        "failures": 2,
                        "askedAgain": "2027-01-15T08:01:30.000Z",
                        "answered": None,
                    }
                ],
            },
        ],
        "quarantined": [],
    }
    described = (Path(__file__).parents[2] / "docs" / "reference" / "status.md").read_text()
    for key in keys(found) - {"ok", *found["outcomes"]}:
        assert re.search(rf"[`.]{key}(\[\])?`", described), key


def keys(found: object) -> set[str]:
    """All keys of a document, at any depth."""
    if isinstance(found, Mapping):
        return set(found).union(*map(keys, found.values()))
    return set().union(*map(keys, found)) if isinstance(found, list) else set()


async def test_the_table_says_the_same_to_people(db: Path, clock: ManualClock) -> None:
    await (await filled(db, clock)).close()
    lines = status(db).stdout.splitlines()
    assert lines[0] == f"{db}: stopped (closed with pages left: interrupted, or at scope.maxPages)"
    words = {" ".join(line.split()) for line in lines}
    assert words >= {
        "done 2 1 of them failed, 1,000 bytes",
        "left out 4",
        "http_error 1",
        "excluded 2 matched by scope.exclude",
        "above_max_links 5 above scope.maxLinksPerPage",
        "1 page(s) ask not to be indexed",
    }
    (a,) = (line for line in words if line.startswith("a.example"))
    assert a.startswith("a.example 3 0 0 - ")
    assert a.endswith("no robots.txt, rules")


async def test_the_phases(db: Path, clock: ManualClock) -> None:
    def phase() -> Phase:
        return FrontierReader(db).overview(clock.wall_ms()).phase

    frontier = await SqliteFrontier.open(db, Admission(((A, "a.example"),), 16), max_pages=9, clock=clock)
    assert phase() is Phase.UNCLOSED
    (lease,) = (await frontier.claim({1: 1}, 1)).leases
    assert phase() is Phase.RUNNING
    clock.advance(121)
    assert phase() is Phase.UNCLOSED, "nobody renewed the lease"
    await frontier.release([lease])
    await frontier.close()
    assert phase() is Phase.STOPPED
    frontier = await SqliteFrontier.open(db, Admission(((A, "a.example"),), 16), max_pages=9, clock=clock)
    (lease,) = (await frontier.claim({1: 1}, 1)).leases
    await frontier.finish(lease, PageResult(Outcome.OK), [])
    assert phase() is Phase.FINISHED
    await frontier.close()
    assert phase() is Phase.FINISHED


async def test_at_most_twenty_hosts_and_twenty_quarantined_pages(db: Path, clock: ManualClock) -> None:
    seeds = tuple((f"https://h{n}.example/", f"h{n}.example") for n in range(30))
    for _ in range(3):
        frontier = await SqliteFrontier.open(db, Admission(seeds, 16), max_pages=99, clock=clock)
        await frontier.claim(dict.fromkeys(frontier.hosts, 1), 25)
        await frontier.close()
    more = (*seeds, *((f"https://h{n}.example/more", f"h{n}.example") for n in range(30)))
    await (await SqliteFrontier.open(db, Admission(more, 16), max_pages=99, clock=clock)).close()
    found = read(db)
    assert (len(found["hosts"]), found["waitingHosts"]) == (20, 30)
    assert [host["pending"] for host in found["hosts"]] == [2] * 5 + [1] * 15
    assert found["pages"]["quarantined"] == 25
    assert found["quarantined"] == [{"url": url, "claims": 3} for url, _ in seeds[:20]]
    lines = status(db).stdout.splitlines()
    assert "and 10 more host(s)" in lines
    assert "and 5 more page(s)" in lines


async def test_beside_a_crawl_that_runs(db: Path) -> None:
    """It sees what is committed at that moment, and the crawl does not notice."""
    async with (
        Website(tree(60), latency=0.02) as site,
        crawling("--seed", site.url, "--db", db, cwd=db.parent) as run,
    ):
        seen: list[Any] = []

        def half_way() -> bool:
            if db.exists():
                seen.append(read(db))
            return bool(seen) and seen[-1]["pages"]["done"] >= 30

        assert await run.until(half_way, site.asked)
        assert await run.end() == 0, run.errors
    for found in seen:
        pages = found["pages"]
        assert pages["done"] == sum(found["outcomes"].values())
        assert pages["pending"] == sum(host["pending"] for host in found["hosts"])
    assert seen[-1]["phase"] == "running"
    assert read(db)["phase"] == "finished"
    assert read(db)["outcomes"] == {"ok": 60}


async def test_it_changes_nothing_but_leaves_two_files_until_the_next_crawl_ends(db: Path, clock: ManualClock) -> None:
    async with Website({"/": page("/a")}) as site:
        code, run = await crawl("--seed", site.url, "--db", db, cwd=db.parent)
        assert code == 0, run.errors
    before, files = hashlib.sha256(db.read_bytes()).digest(), contents(db.parent)
    assert status(db).exit_code == 0
    assert status(db, "--format", "json").exit_code == 0
    assert hashlib.sha256(db.read_bytes()).digest() == before
    assert contents(db.parent) == files | {"frontier.db-wal", "frontier.db-shm"}
    assert (db.parent / "frontier.db-wal").stat().st_size == 0
    assert rows(db, "SELECT epoch FROM meta") == [(1,)]
    await (await SqliteFrontier.open(db, ADMISSION, max_pages=9, clock=clock)).close()
    assert contents(db.parent) == files


def contents(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@contextmanager
def where_one_may_not_write(db: Path) -> Iterator[Path]:
    """Copies of a frontier and its WAL in a folder that belongs to somebody else, for whoever runs the tests."""
    codecs.lookup("utf-8-sig")  # before who reads is somebody who may not read an interpreter of root's own
    with TemporaryDirectory() as place:  # not in pytest's folder, which nobody else may enter
        folder = Path(place)
        for path in db.parent.glob("frontier.db*"):
            if path.suffix in (".db", ".db-wal"):
                (folder / path.name).write_bytes(path.read_bytes())
                (folder / path.name).chmod(0o444)
        folder.chmod(0o555)
        root = os.geteuid() == 0
        if root:  # who may write everywhere
            os.seteuid(65534)
        try:
            yield folder / db.name
        finally:
            if root:
                os.seteuid(0)
            folder.chmod(0o755)


async def test_where_one_may_not_write_a_frontier_is_read_as_it_is(db: Path, clock: ManualClock) -> None:
    await (await filled(db, clock)).close()
    with where_one_may_not_write(db) as copy:
        assert read(copy)["pages"]["done"] == 2
        assert contents(copy.parent) == {"frontier.db"}


async def test_where_one_may_not_write_a_frontier_that_was_not_closed_is_to_be_copied(
    db: Path, clock: ManualClock, tmp_path: Path
) -> None:
    frontier = await filled(db, clock)
    with where_one_may_not_write(db) as copy:
        result = status(copy)
        assert result.exit_code == ExitCode.INFRASTRUCTURE
        assert result.stderr.startswith(f"error: {copy}: cannot be read without writing beside it")
        assert "copy it together with frontier.db-wal" in result.stderr
        assert result.stderr.count("\n") == 1
        found = {path.name: path.read_bytes() for path in copy.parent.iterdir()}
    await frontier.close()
    mine = tmp_path / "mine"
    mine.mkdir()
    for name, content in found.items():
        (mine / name).write_bytes(content)
    assert read(mine / "frontier.db")["pages"]["done"] == 2, "as it was told to do"


def test_no_statement_walks_all_pages_or_results() -> None:
    """The cost of a look does not grow with what is done (law L15)."""
    parameters = {"kind": "", "limit": 1, "origins": "[]"}
    with closing(sqlite3.connect(":memory:")) as connection:
        for script in MIGRATIONS:
            connection.executescript(script)
        looks = ("snapshot", "liveness", "tallies", "waiting_hosts", "robots_states", "quarantined")
        for name in (*looks, "finished_lately", "failed_lately"):
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {STATEMENTS[name]}", parameters)]
            for step in plan:
                walks = step.startswith(("SCAN pages", "SEARCH pages"))
                assert not walks or "INDEX pages_" in step or "PRIMARY KEY" in step, (name, step)
                assert not step.startswith("SCAN results") or "INDEX results_" in step, (name, step)


async def test_speed_is_told_from_what_was_finished_last_wherever_it_was_found(db: Path, clock: ManualClock) -> None:
    """Not from what was found last: of a slow host and a fast one, that may have been done for hours."""
    frontier = await SqliteFrontier.open(db, ADMISSION, max_pages=9, clock=clock)
    leases = {lease.url: lease for lease in (await frontier.claim(dict.fromkeys(frontier.hosts, 1), 3)).leases}
    for url, code in ((C, 200), (A, 404), (B, 500)):
        outcome = Outcome.OK if code == 200 else Outcome.HTTP_ERROR
        await frontier.finish(leases[url], PageResult(outcome, code, error="x"), [])
        clock.advance(1)
    await frontier.close()
    reader = FrontierReader(db)
    assert [host for host, *_ in reader.finished_lately(2)] == ["b.example", "a.example"]
    assert [(url, status) for url, _, status, *_ in reader.failed_lately(5)] == [(B, 500), (A, 404)]


async def test_where_the_time_went_is_added_up_over_all_processes(db: Path) -> None:
    """Gates that were closed, the parser, the database."""
    spec = {"politeness": {"delay": "800ms"}}
    async with Website({"/": page("/a", "/b"), "/a": page(), "/b": page()}) as site:
        await run(db, site.url, **spec, scope={"maxPages": 2})
        first = read(db)["timeLost"]
        await run(db, site.url, **spec)
    lost = read(db)["timeLost"]
    assert 0.6 < first["delay"] < lost["delay"] < 10
    assert 0 < first["database"] < lost["database"] < 5
    assert re.search(r"^time lost so far, added up over hosts: \d s politeness\.delay", status(db).stdout, re.MULTILINE)


def test_what_time_goes_into_is_stored_once_and_nothing_is_lost_by_rounding() -> None:
    spent = Spent()
    stored = 0
    for _ in range(1000):
        spent.add(DATABASE, 0.0004)
        due = spent.due()
        stored += sum(ms for _, ms in due)
        spent.stored(due)
    assert stored in (399, 400)
    spent.told({"delay": 2.5})
    assert spent.due() == [("delay", 2500)]
    spent.told({"delay": 2.5})
    assert spent.due() == [("delay", 2500)], "until it is committed"


def damage(db: Path) -> None:
    whole = db.read_bytes()
    db.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))


def of_version(version: int, db: Path) -> None:
    with closing(sqlite3.connect(db)) as editor, editor:
        editor.execute(f"PRAGMA user_version = {version}")


@pytest.mark.parametrize(
    ("spoil", "code", "says"),
    [
        (lambda db: db.unlink(), ExitCode.INFRASTRUCTURE, "no such frontier"),
        (lambda db: db.write_bytes(b"a diary"), ExitCode.UNUSABLE_FRONTIER, "is not a frontier"),
        (lambda db: db.write_bytes(b""), ExitCode.UNUSABLE_FRONTIER, "is empty"),
        (damage, ExitCode.UNUSABLE_FRONTIER, "is damaged"),
        (lambda db: db.write_bytes(db.read_bytes()[:5000]), ExitCode.UNUSABLE_FRONTIER, "is damaged"),
        (lambda db: of_version(99, db), ExitCode.UNUSABLE_FRONTIER, "use a newer program"),
        (lambda db: of_version(SCHEMA_VERSION - 1, db), ExitCode.UNUSABLE_FRONTIER, "brings it up to date"),
    ],
    ids=["absent", "foreign", "empty", "damaged", "cut", "newer", "older"],
)
@pytest.mark.parametrize("form", ["table", "json"])
async def test_every_failure_is_one_sentence(
    db: Path, clock: ManualClock, spoil: Any, code: ExitCode, says: str, form: str
) -> None:
    await (await filled(db, clock)).close()
    spoil(db)
    result = status(db, "--format", form)
    assert (result.exit_code, result.stdout) == (code, "")
    assert says in result.stderr
    assert result.stderr.startswith(f"error: {db}: ")
    assert result.stderr.count("\n") == 1


def test_a_folder_is_no_frontier(tmp_path: Path) -> None:
    result = status(tmp_path)
    assert result.exit_code == ExitCode.INVALID
    assert "is a directory" in result.stderr
