"""The verification list, one test for each item, on the real program where a program can show it."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from tests.support.clock import ManualClock
from tests.support.crawler import crawl, crawling, driver, judge, rows
from tests.support.website import Answer, Tripwire, Website, after, cut_short, file, in_turn, page, redirect, tree

from crawljob.exitcodes import ExitCode
from durable_crawler.frontier import Lease, Result, SqliteFrontier, Verdict
from durable_crawler.frontier.opening import Admission
from durable_crawler.frontier.reader import FrontierReader
from durable_crawler.frontier.sqlite import LEASE_MS
from durable_crawler.outcomes import Outcome

ROOT = Path(__file__).resolve().parents[2]
ADMISSION = Admission((("http://a.example/", "a.example"),), 4)


def arguments(*seeds: str, db: Path, workers: int = 8, per_host: int = 8) -> list[str]:
    flags = [word for seed in seeds for word in ("--seed", seed)]
    return [*flags, "--workers", str(workers), "--per-host", str(per_host), "--db", str(db)]


def outcomes(db: Path, site: Website) -> dict[str, str]:
    found = rows(db, "SELECT url, outcome FROM pages JOIN results ON id = page_id")
    return {url.replace(site.url, "/"): outcome for url, outcome in found}


@pytest.mark.timeout(240)
def test_verification_01_the_unit_suites_pass_in_debug_mode_with_warnings_as_errors() -> None:
    """Slow callbacks are not failures here: on a busy machine everything is slow."""
    suites = [f"tests/unit/{name}" for name in ("test_engine.py", "test_frontier.py")]
    command = [sys.executable, "-X", "dev", "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", *suites]
    environment = {**os.environ, "PYTHONASYNCIODEBUG": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=220, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert re.search(r"\d+ passed", done.stdout)


async def test_verification_02_concurrency_stays_within_configuration(tmp_path: Path) -> None:
    pages = {f"/{number}": page() for number in range(60)}
    sites = [Website({"/": page(*pages), **pages}, latency=0.01) for _ in range(3)]
    together, most = 0, 0

    def counted(answer: Answer) -> Answer:
        async def counting(request: web.Request) -> web.StreamResponse:
            nonlocal together, most
            together += 1
            most = max(most, together)
            try:
                await asyncio.sleep(0.01)
                return await answer(request)
            finally:
                together -= 1

        return counting

    for site in sites:
        site.answers = {path: counted(answer) for path, answer in site.answers.items()}
    async with sites[0] as first, sites[1] as second, sites[2] as third:
        db = tmp_path / "frontier.db"
        seeds = (first.url, second.url, third.url)
        code, run = await crawl(*arguments(*seeds, db=db, workers=5, per_host=2), cwd=tmp_path)
        assert code == 0, run.errors
        assert [site.most_in_flight for site in sites] == [2, 2, 2]
        assert most == 5
        assert sum(site.requests.total() for site in sites) == 3 * 61


async def test_verification_03_cross_authority_redirects_never_contact_their_destination(tmp_path: Path) -> None:
    async with Tripwire() as forbidden:
        answers = {
            "/": page("/absolute", "/relative", "/hops", "/permanent", "/port"),
            "/absolute": redirect(forbidden.url),
            "/relative": redirect(f"//{forbidden.authority}/x", 307),
            "/hops": redirect("/hop"),
            "/hop": redirect(f"{forbidden.url}after?a=hop", 303),
            "/permanent": redirect(forbidden.url, 308),
            "/port": redirect("http://127.0.0.1:1/"),
        }
        async with Website(answers) as site:
            db = tmp_path / "frontier.db"
            code, run = await crawl(*arguments(site.url, db=db), cwd=tmp_path)
            assert code == 0, run.errors
            judge(db)
            found = outcomes(db, site)
            assert {path for path, outcome in found.items() if outcome == "redirect_out_of_scope"} == answers.keys() - {
                "/",
                "/hop",
            }
            (hops,) = rows(db, "SELECT hops FROM pages JOIN results ON id = page_id WHERE url LIKE '%/hops'")[0]
            assert f"{forbidden.url}after?a=hop" in hops, "recorded"
        assert forbidden.touched == 0, "never contacted"


async def test_verification_04_a_page_whose_heartbeat_is_stopped_during_a_renewal_still_finishes(
    tmp_path: Path,
) -> None:
    """A stop comes while renewals are under way all the time; the page that is in flight then is done afterwards."""
    release = asyncio.Event()
    answers = {"/": page("/slow", *(f"/{number}" for number in range(20))), "/slow": after(release, page())}
    async with Website(answers) as site:
        db = tmp_path / "frontier.db"
        program = driver(heartbeat_seconds=0.001)
        async with crawling(*arguments(site.url, db=db, workers=2), cwd=tmp_path, program=program) as run:
            assert await run.until(lambda: "/slow" in site.requests, site.asked)
            run.kill(signal.SIGTERM)
            release.set()
            code = await run.end()
        assert code in (0, 143), run.errors
        assert outcomes(db, site)["/slow"] == "ok"
        assert not any("driver" in line for line in run.lines), "no lease was lost"


@pytest.mark.parametrize("how", ["closed", "unavailable"])
async def test_verification_05_a_database_that_fails_under_a_crawl_ends_it_nonzero(tmp_path: Path, how: str) -> None:
    async with Website(tree(300), latency=0.01) as site:
        folder = tmp_path / "state"
        folder.mkdir(mode=0o700)
        db = folder / "frontier.db"
        program = driver(close_database_at=20) if how == "closed" else driver()
        async with crawling(*arguments(site.url, db=db), cwd=tmp_path, program=program) as run:
            if how == "unavailable":
                assert await run.until(lambda: site.requests.total() >= 30, site.asked)
                folder.rename(tmp_path / "elsewhere")
            code = await run.end()
        assert code == ExitCode.INFRASTRUCTURE, run.errors
        assert run.errors.count("\n") == 1, run.errors
        assert run.summary["outcome"] == "failed"
        if how == "unavailable":
            (tmp_path / "elsewhere").rename(folder)
        code, _ = await crawl(*arguments(site.url, db=db), cwd=tmp_path)
        assert code == 0
        assert len(FrontierReader(db).finished_urls()) == 300


async def test_verification_06_sigterm_in_a_slow_request_releases_exactly_its_lease_uncharged(tmp_path: Path) -> None:
    answers = {"/": page("/slow", "/fast"), "/slow": after(asyncio.Event(), page())}
    async with Website(answers) as site:
        db = tmp_path / "frontier.db"
        (tmp_path / "crawljob.yaml").write_text(
            "apiVersion: durable-crawler.io/v1alpha1\nkind: CrawlJob\nmetadata: {name: slow}\n"
            f"spec: {{seeds: ['{site.url}'], fetch: {{headerTimeout: 60s, totalTimeout: 60s}}}}\n"
        )
        async with crawling("-f", tmp_path / "crawljob.yaml", "--db", db, cwd=tmp_path) as run:
            assert await run.until(lambda: "/slow" in site.requests, site.asked)
            run.kill(signal.SIGTERM)
            code = await run.end(limit=25)
        assert code == 143, run.errors
        judge(db)
        states = rows(db, "SELECT url, state, attempts, retries FROM pages WHERE state <> 'done'")
        assert states == [(f"{site.url}slow", "pending", 0, 0)]


async def test_verification_07_after_a_kill_leases_are_taken_back_by_epoch_at_once(tmp_path: Path) -> None:
    held = {f"/{number}" for number in range(1, 5)}
    blocked = asyncio.Event()
    answers: dict[str, Answer] = {"/": page(*held)}
    answers |= {path: in_turn(after(blocked, page()), page()) for path in held}
    async with Website(answers) as site:
        db = tmp_path / "frontier.db"
        async with crawling(*arguments(site.url, db=db, workers=4), cwd=tmp_path) as run:
            assert await run.until(lambda: site.requests.keys() >= held, site.asked)
            run.kill()
            await run.end()
        assert FrontierReader(db).snapshot().leased == 4
        async with crawling(*arguments(site.url, db=db, workers=4), cwd=tmp_path, program=driver()) as run:
            assert await run.end(limit=30) == 0, "within less than the two minutes of a lease"
        assert {"driver": {"expired": 0, "lost": 0, "recovered": 4}} in run.lines
        assert outcomes(db, site) == {"/": "ok", **dict.fromkeys(held, "ok")}


async def claimed(frontier: SqliteFrontier) -> Lease:
    (lease,) = (await frontier.claim(dict.fromkeys(frontier.hosts, 1), 1)).leases
    return lease


async def test_verification_07_leases_that_nobody_renews_run_out_by_the_clock(tmp_path: Path) -> None:
    clock = ManualClock()
    frontier = await SqliteFrontier.open(tmp_path / "frontier.db", ADMISSION, max_pages=9, clock=clock)
    try:
        first = await claimed(frontier)
        clock.advance(LEASE_MS / 1000 - 0.001)
        early = await frontier.claim(dict.fromkeys(frontier.hosts, 1), 1)
        assert (early.leases, early.expired) == ((), 0)
        clock.advance(0.001)
        late = await frontier.claim(dict.fromkeys(frontier.hosts, 1), 1)
        assert late.expired == 1
        (second,) = late.leases
        assert (second.url, second.attempt) == (first.url, 2)
        assert second.token != first.token
    finally:
        await frontier.close()


async def test_verification_08_stale_tokens_cannot_renew_release_or_finish(tmp_path: Path) -> None:
    path, clock = tmp_path / "frontier.db", ManualClock()
    frontier = await SqliteFrontier.open(path, ADMISSION, max_pages=9, clock=clock)
    stale = [await claimed(frontier)]
    clock.advance(LEASE_MS / 1000)
    stale.append(await claimed(frontier))  # stale by the next epoch
    shutil.copy(path, tmp_path / "copy.db")
    await frontier.close()
    frontier = await SqliteFrontier.open(path, ADMISSION, max_pages=9, clock=clock)
    try:
        held = await claimed(frontier)
        for lease in stale:
            assert await frontier.renew([lease]) == frozenset()
            assert await frontier.release([lease]) == 0
            assert await frontier.finish(lease, Result(Outcome.HTTP_ERROR, 500), ()) is Verdict.LOST
        assert rows(path, "SELECT state, token FROM pages") == [("leased", held.token)]
        assert rows(path, "SELECT * FROM results") == []
        assert await frontier.finish(held, Result(Outcome.OK, 200), ()) is Verdict.KEPT
    finally:
        await frontier.close()
    assert FrontierReader(path).broken_invariants() == []


async def test_verification_09_duplicates_large_bodies_transient_and_terminal_statuses(tmp_path: Path) -> None:
    async def large(_: web.Request) -> web.StreamResponse:
        return web.Response(text="x" * (5 << 20), content_type="text/html")

    async def bomb(_: web.Request) -> web.StreamResponse:
        body = gzip.compress(bytes(64 << 20))
        return web.Response(body=body, headers={"Content-Type": "text/html", "Content-Encoding": "gzip"})

    transient = {f"/{status}": status for status in (408, 425, 429, 500, 502, 503, 504)}
    terminal = {f"/{status}": status for status in (400, 401, 403, 404, 410, 451, 501)}
    duplicates = ["/one", "/one", "/one#part", "/./one", "/x/../one", "/ONE", "/one?"]
    answers: dict[str, Answer] = {
        "/": page(*duplicates, "/large", "/bomb", "/file", "/cut", *transient, *terminal),
        "/one": page("/", "/one"),
        "/ONE": page(),
        "/one?": page(),
        "/large": large,
        "/bomb": bomb,
        "/file": file(),
        "/cut": in_turn(cut_short(), page()),
        **{path: in_turn(page(status=status), page()) for path, status in transient.items()},
        **{path: page(status=status) for path, status in terminal.items()},
    }
    async with Website(answers) as site:
        db = tmp_path / "frontier.db"
        code, run = await crawl(*arguments(site.url, db=db), cwd=tmp_path)
        assert code == 0, run.errors
        judge(db)
        expected = dict.fromkeys(("/", "/one", "/ONE", "/one?", "/cut", *transient), "ok")
        expected |= {"/large": "too_large", "/bomb": "too_large", "/file": "not_html"}
        expected |= dict.fromkeys(terminal, "http_error")
        assert outcomes(db, site) == expected
        # The server's framework shows no empty query: `/one` and `/one?` are two pages, and look the same to it.
        asked = Counter(path.rstrip("?") for path in expected) + Counter([*transient, "/cut"])
        assert site.requests == asked


@pytest.fixture
def lax_umask() -> Iterator[None]:
    """As most people's is."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("lax_umask")
async def test_verification_10_files_are_private_and_only_the_configured_address_is_listened_on(
    tmp_path: Path,
) -> None:
    held = asyncio.Event()
    async with Website({"/": page("/slow"), "/slow": after(held, page())}) as site:
        state = tmp_path / "new" / "state"
        db = state / "frontier.db"
        async with crawling(*arguments(site.url, db=db), cwd=tmp_path) as run:
            assert await run.until(lambda: "/slow" in site.requests, site.asked)
            assert stat.S_IMODE(state.stat().st_mode) == 0o700
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in state.iterdir()}
            assert modes.keys() == {"frontier.db", "frontier.db-wal", "frontier.db-shm", "frontier.db.lock"}
            assert set(modes.values()) == {0o600}
            listening, connected = sockets(run.process.pid)
            assert listening == {("127.0.0.1", run.port), ("127.0.0.1", run.port + 1)}, "the page is on loopback, too"
            assert connected == {("127.0.0.1", int(site.authority.rpartition(":")[2]))}
            held.set()
            assert await run.end() == 0


def sockets(pid: int) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
    """Where a process listens, and the peers of its TCP connections, read from the kernel's own tables."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        target = str(descriptor.readlink())
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    listening, connected = set(), set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            local, peer, state, inode = words[1], words[2], words[3], words[9]
            if inode not in inodes:
                continue
            if state == "0A":
                listening.add(endpoint(local))
            else:
                connected.add(endpoint(peer))
    return listening, connected


def endpoint(text: str) -> tuple[str, int]:
    address, port = text.split(":")
    raw = bytes.fromhex(address)
    if len(raw) == 4:
        return ".".join(map(str, reversed(raw))), int(port, 16)
    return address, int(port, 16)


async def test_verification_11_nothing_outside_of_the_allowlist_is_contacted(tmp_path: Path) -> None:
    """Another port of the same host is another authority; names of other hosts are never even resolved."""
    async with Tripwire() as forbidden:
        outside = (
            forbidden.url,
            f"//{forbidden.authority}/x",
            f"http://localhost:{forbidden.authority.rpartition(':')[2]}/",
            "http://links.invalid/",
            "https://also.invalid/x",
            "ftp://127.0.0.1/",
            "mailto:somebody@links.invalid",
        )
        answers = {"/": page(*outside, *(f"/{number}" for number in range(20)), "/away"), "/away": redirect(outside[3])}
        answers |= {f"/{number}": page(*outside) for number in range(20)}
        async with Website(answers) as site:
            db = tmp_path / "frontier.db"
            program = driver(tell_sockets=True)
            async with crawling(*arguments(site.url, db=db), cwd=tmp_path, program=program) as run:
                assert await run.end() == 0, run.errors
        assert forbidden.touched == 0
        told = [line["driver"] for line in run.lines if "driver" in line]
        contacted = {tuple(entry["connect"]) for entry in told if "connect" in entry}
        resolved = {entry["resolve"] for entry in told if "resolve" in entry}
        assert contacted == {("127.0.0.1", int(site.authority.rpartition(":")[2]))}
        assert resolved == {"127.0.0.1"}
