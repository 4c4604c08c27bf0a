"""The page about a crawl: what it answers, to whom, and that nothing of a hostile site becomes part of it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from tests.support.crawler import rows
from tests.support.website import Website, page
from tests.unit.test_report import HOSTILE, found
from tests.unit.test_results_stored import html, run

from durable_crawler.clock import SystemClock
from durable_crawler.frontier.reader import FrontierReader
from durable_crawler.page import render
from durable_crawler.page.server import PageServer


@pytest.fixture
async def db(tmp_path: Path) -> Path:
    path = tmp_path / "frontier.db"
    link = HOSTILE.replace("&", "&amp;").replace("<", "&lt;").replace("\x1b", "&#27;")
    async with Website(
        {"/": html(f"<title>{link}</title><a href='/gone?<b>\"'>{link}</a><a href=/a></a>"), "/a": page()}
    ) as site:
        await run(path, site.url)
    return path


@pytest.fixture
async def base(db: Path) -> AsyncIterator[str]:
    server = PageServer(db, None, SystemClock())
    yield f"http://127.0.0.1:{await server.start(0)}"
    await server.aclose()


async def got(url: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
        return response.status, await response.text(), dict(response.headers)


async def test_it_shows_what_the_database_has(base: str, db: Path) -> None:
    status, text, _ = await got(base)
    assert status == 200
    (counts,) = rows(db, "SELECT done, failed, pending, leased, deferred, quarantined, bytes FROM counters")
    shown = dict(re.findall(r'<b data-key="(\w+)">([\d,]+)</b>', text))
    assert tuple(int(shown[key].replace(",", "")) for key in list(render.NUMBERS)[:-1]) == counts
    _, progress, _ = await got(f"{base}/progress")
    assert json.loads(progress)["phase"] == "finished"
    assert [json.loads(progress)[key] for key in list(render.NUMBERS)[:-1]] == list(counts)
    assert text.count("why?") == 1, "the page that failed"


def test_a_slow_crawl_does_not_seem_to_stand_still(db: Path) -> None:
    numbers = {**dict.fromkeys(render.NUMBERS, 12_345.0), "rate": 0.26}
    shown = render.main("x", FrontierReader(db).overview(0), numbers, (), 0)
    assert '<b data-key="rate">0.3</b>' in shown
    assert '<b data-key="done">12,345</b>' in shown


async def test_what_is_polled_is_the_overviews(db: Path) -> None:
    overview = FrontierReader(db).overview(0)
    assert FrontierReader(db).standing(0) == (overview.phase, overview.counts)


async def test_it_explains_and_gives_the_report(base: str, db: Path) -> None:
    (url,) = [target["url"] for target in found(db)["targets"]]
    status, text, _ = await got(f"{base}/explain?url={url.replace('?', '%3F')}")
    assert (status, "http_error, status 404" in text) == (200, True)
    kinds = {"html": "text/html", "markdown": "text/markdown", "json": "application/json", "junit": "application/xml"}
    for form, kind in kinds.items():
        status, text, headers = await got(f"{base}/report/{form}")
        assert status == 200
        assert headers["Content-Type"].startswith(kind)
        assert "attachment" in headers["Content-Disposition"]
        assert url.partition("?")[0] in text


async def test_what_a_site_says_stays_text(base: str, db: Path) -> None:
    for path in ("", "/explain?url=https://x.example/%3Cscript%3E%22%27"):
        _, text, headers = await got(f"{base}{path}")
        assert re.findall(r"<script[^>]*>", text) == ['<script src="/page.js" defer>']
        assert not re.findall(r"<b>(?!</b>)[^<]*\"'", text)
        assert "\x1b" not in text
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:80", "127.0.0.1:80.evil.example", "169.254.169.254", ""]
)
async def test_who_calls_it_by_another_name_gets_nothing(base: str, host: str) -> None:
    status, text, _ = await got(base, Host=host)
    assert (status, "Crawl of" in text) in ((403, False), (400, False))


async def test_it_takes_no_other_method_and_no_other_path(base: str, db: Path) -> None:
    before = hashlib.sha256(db.read_bytes()).hexdigest()
    async with aiohttp.ClientSession() as session:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            async with session.request(method, base) as response:
                assert response.status == 405
    for path, expected in (
        ("/nope", 404),
        ("/report/exe", 404),
        ("/explain", 400),
        (f"/explain?url={'a' * 9000}", 400),
    ):
        status, _, headers = await got(f"{base}{path}")
        assert status == expected
        assert "Content-Security-Policy" in headers
    assert hashlib.sha256(db.read_bytes()).hexdigest() == before


async def test_a_frontier_that_goes_away_is_told(base: str, db: Path) -> None:
    db.unlink()
    status, text, _ = await got(base)
    assert (status, "no such frontier" in text) == (503, True)


async def test_the_command_serves_until_it_is_asked_to_end_and_refuses_what_it_cannot_read(db: Path) -> None:
    command = (sys.executable, "-m", "durable_crawler", "page", "--port", "0", "--db")
    process = await asyncio.create_subprocess_exec(*command, str(db), stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(30):
        line = (await process.stdout.readline()).decode()
        assert (await got(line.split()[0]))[0] == 200
        process.terminate()
        assert await process.wait() == 0
        missing = await asyncio.create_subprocess_exec(*command, str(db) + "x", stderr=asyncio.subprocess.PIPE)
        _, said = await missing.communicate()
    assert (missing.returncode, said.decode().endswith(": no such frontier\n")) == (1, True)


async def test_what_is_no_http_is_refused_without_a_word(base: str, caplog: pytest.LogCaptureFixture) -> None:
    status, text, _ = await got(f"{base}/explain?url={'a' * 20_000}")
    assert (status, "Traceback" in text) == (400, False)
    assert not caplog.records
