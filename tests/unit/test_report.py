"""What a report says of a crawl, in each of its forms."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sqlite3
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support import faultysite
from tests.support.crawler import rows
from tests.support.website import Website, page, redirect
from tests.unit.test_results_stored import html, run

from crawljob.exitcodes import ExitCode
from durable_crawler import redirects
from durable_crawler.cli import cli
from durable_crawler.cli.report import CLASSES, FORMATS, FOUND
from durable_crawler.frontier.edges import pack_ids
from durable_crawler.frontier.statements import SCHEMA_VERSION
from durable_crawler.outcomes import Hop, Outcome
from durable_crawler.results import findings, reading
from durable_crawler.results.classify import Confidence, judge
from durable_crawler.results.fragments import is_missing
from durable_crawler.results.report import FORMATS as WRITERS
from durable_crawler.results.report.about import json_text

PAGE = reading.Page(
    *(1, "https://x.example/", "x.example", "done", 1, None, None, 0, "ok", 200, None, "text/html", 1, "", 0, 0, ()),
    *("", 1, 1, None, None, None, None, False, 0),
)


def asked(*arguments: Any) -> Any:
    return CliRunner().invoke(cli, ["report", *map(str, arguments)])


def found(db: Path, *arguments: Any) -> dict[str, Any]:
    done = asked("--db", db, "--format", "json", *arguments)
    assert done.exit_code == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.parametrize(
    ("status", "confidence"),
    [
        *((status, Confidence.BROKEN) for status in (400, 404, 405, 410, 418, 500, 501, 505, 599)),
        *((status, Confidence.BLOCKED) for status in (401, 402, 403, 406, 407, 429, 451, 999)),
        *((status, Confidence.UNREACHABLE) for status in (300, 304, 408, 425, 502, 503, 504, 520, 530)),
    ],
)
def test_a_status_has_a_class(status: int, confidence: Confidence) -> None:
    verdict = judge(replace(PAGE, outcome="http_error", status=status))
    assert (verdict.confidence, verdict.why) == (confidence, f"status {status}")


def test_every_outcome_has_a_class() -> None:
    judged = {
        outcome: judge(replace(PAGE, outcome=str(outcome), status=404, error="redirect: loop")).confidence
        for outcome in Outcome
    }
    assert {outcome for outcome, confidence in judged.items() if confidence is Confidence.BROKEN} == {
        Outcome.HTTP_ERROR,
        Outcome.REDIRECT_INVALID,
    }
    assert judged[Outcome.ROBOTS_DISALLOWED] is judged[Outcome.ADDRESS_REFUSED] is Confidence.UNCHECKED
    assert judged[Outcome.DNS_ERROR] is judged[Outcome.HOST_DEAD] is Confidence.UNREACHABLE
    assert judged[Outcome.TOO_LARGE] is judged[Outcome.NOT_HTML] is Confidence.OK


@pytest.mark.parametrize(
    ("statuses", "why"),
    [
        ([302], None),
        ([301], "301 to https://x.example/1"),
        ([301, 308], "308 to https://x.example/2"),
        ([301, 302], "301 to https://x.example/1"),
        ([302, 301], None),
        ([307, 308, 303], None),
    ],
)
def test_moved_for_good_is_what_the_first_redirects_say(statuses: list[int], why: str | None) -> None:
    """A link to what has moved for now is right, wherever that leads; and the address to write is the permanent one."""
    hops = tuple(
        Hop(f"https://x.example/{n}", status, f"https://x.example/{n + 1}") for n, status in enumerate(statuses)
    )
    verdict = judge(replace(PAGE, hops=hops))
    assert (verdict.confidence, verdict.why) == ((Confidence.REDIRECTED, why) if why else (Confidence.OK, "status 200"))


@pytest.mark.parametrize(
    ("hop", "confidence"),
    [
        (("https://x.example/", 302, "http://x.example/"), Confidence.INSECURE),
        (("https://x.example/", 301, "http://x.example/"), Confidence.INSECURE),
        (("http://x.example/", 302, "https://x.example/"), Confidence.OK),
    ],
)
def test_a_redirect_that_gives_up_encryption_is_told(hop: tuple[str, int, str], confidence: Confidence) -> None:
    assert judge(replace(PAGE, hops=(Hop(*hop),))).confidence is confidence


@pytest.mark.parametrize("location", [None, "/asked", "https:///", "https://[", "mailto:a@x.example", "/a/a/a/a", "/b"])
def test_a_redirect_is_broken_where_every_visitor_is_stopped(location: str | None) -> None:
    """And not where only we do not follow it: to another scheme, what looks like a trap, after the tenth."""
    asked = [f"https://x.example/{n}" for n in range(10)] + ["https://x.example/asked"]
    verdict = redirects.judge(location, asked)
    assert isinstance(verdict, redirects.Invalid)
    found = judge(replace(PAGE, outcome="redirect_invalid", status=302, error=f"redirect: {verdict.reason}"))
    stops_all = location in (None, "/asked", "https:///", "https://[")
    assert found.confidence is (Confidence.BROKEN if stops_all else Confidence.UNCHECKED)


@pytest.mark.parametrize("state", ["pending", "leased", "deferred", "quarantined", "excluded"])
def test_what_was_not_asked_for_is_not_judged(state: str) -> None:
    assert judge(replace(PAGE, state=state, outcome=None)).confidence is Confidence.UNCHECKED


@pytest.mark.parametrize(
    ("fragment", "missing"),
    [
        ("here", False), ("Here", True), ("nowhere", True), ("", False), ("top", False), ("TOP", False),
        (":~:text=x", False), ("here:~:text=x", False), ("nowhere:~:text=x", True), ("caf%C3%A9", False),
        ("%68ere", False), ("/route", False), ("!call", False), ("page=2", False), ("%FF", True),
    ],
)  # fmt: skip
def test_a_fragment_is_missing_only_where_a_browser_would_find_nothing(fragment: str, missing: bool) -> None:
    assert is_missing(fragment, pack_ids(["here", "café"])) is missing
    assert not is_missing(fragment, None)


async def test_where_a_redirect_names_the_place_the_links_own_is_not_looked_for(tmp_path: Path) -> None:
    """A browser goes to what the Location names, and keeps the link's place only where that names none."""
    db = tmp_path / "frontier.db"
    answers = {
        "/": page("/named#x", "/step#x", "/plain#x"), "/a": html("<p id=here>"),
        "/named": redirect("/a#here", 302), "/step": redirect("/named", 302), "/plain": redirect("/a", 302),
    }  # fmt: skip
    async with Website(answers) as site:
        await run(db, site.url)
        assert [(target["class"], target["url"]) for target in found(db)["targets"]] == [
            ("fragment", f"{site.url}plain")
        ]


def test_json_holds_nothing_that_a_terminal_obeys() -> None:
    said = "a\x1b[31m \x9b31m \x7f \u202e \u2066 \ud83d \uffff \\u0041 \U0001f600 ü"
    text = json_text({"text": said}, indent=2)
    assert json.loads(text) == {"text": said}
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "\U0001f600 ü" in text, "it can be read"
    text.encode()


async def test_of_300_pages_with_40_faults_and_60_traps_exactly_the_faults_are_told(tmp_path: Path) -> None:
    assert (len(set(faultysite.FAULTS)), len(set(faultysite.TRAPS))) == (40, 60)
    db = tmp_path / "frontier.db"
    async with faultysite.served() as site:
        await run(db, site.home, site.other, fetch={"retries": 1, "maxBodyBytes": 65536})
        told: dict[str, set[str]] = {}
        for target in found(db)["targets"]:
            where = target["url"] + (f"#{target['fragment']}" if target["fragment"] else "")
            told.setdefault(target["class"], set()).add(where)
            assert target["links"] == len(target["sources"]) == 3, "each is linked to on three pages"
        assert told == {
            "broken": site.urls(faultysite.BROKEN),
            "blocked": site.urls(faultysite.BLOCKED),
            "unreachable": site.urls(faultysite.UNREACHABLE),
            "redirected": site.urls(faultysite.REDIRECTED),
            "fragment": site.urls(faultysite.FRAGMENTS),
        }
    assert rows(db, "SELECT count(*) FROM pages WHERE url LIKE '%/page/%' AND state = 'done'") == [(faultysite.PAGES,)]
    _agrees_with_the_export(db)


def _agrees_with_the_export(db: Path) -> None:
    """Class by class, and link by link."""
    document = found(db)
    pages, links = (
        [json.loads(line) for line in CliRunner().invoke(cli, ["export", table, "--db", str(db)]).stdout.splitlines()]
        for table in ("pages", "links")
    )
    classes = {page["url"]: page["class"] for page in pages}
    targets = [target for target in document["targets"] if target["class"] != "fragment"]
    assert {target["url"]: target["class"] for target in targets} == {
        url: name for url, name in classes.items() if name not in ("ok", "unchecked")
    }
    told = Counter({name: count for name, count in document["classes"].items() if count})
    del told["fragment"]
    assert told == Counter(classes.values())
    assert document["crawl"]["pages"] == Counter(page["state"] for page in pages)
    assert document["crawl"]["outcomes"] == Counter(page["outcome"] for page in pages if page["outcome"])
    redirected = {page["url"] for page in pages if page["final_url"]}
    of_pages = [link for link in links if link["source"] not in redirected]
    assert document["crawl"]["links"] == len(of_pages)
    for target in document["targets"]:
        assert sorted((source["url"], source["position"], source["text"]) for source in target["sources"]) == sorted(
            (link["source"], link["position"], link["text"])
            for link in of_pages
            if link["target"] == target["url"]
            and (link["fragment"] or "") == (target["fragment"] or link["fragment"] or "")
        )


HOSTILE = "</td><script>alert(1)</script>`|]]>&amp;\x1b[31m\u202e"


@pytest.fixture
async def hostile(tmp_path: Path) -> Path:
    """The frontier of a site that attacks who reads about it."""
    db = tmp_path / "frontier.db"
    link = HOSTILE.replace("&", "&amp;").replace("<", "&lt;").replace("\x1b", "&#27;")
    body = (
        f"<title>{link}</title><a href='/gone?<script>alert(2)</script>&quot;\x27'>{link}</a><a href='/a#\"><b>'>x</a>"
        "<a href='/a# [x](https://y.example) @x'>y</a>"
    )
    async with Website({"/": html(body), "/a": page()}) as site:
        await run(db, site.url)
    return db


def test_what_a_site_says_stays_text(hostile: Path) -> None:
    (broken, fragment, _) = found(hostile)["targets"]
    assert broken["sources"][0]["text"] == HOSTILE
    assert fragment["fragment"] == '"><b>'

    shown = asked("--db", hostile).stdout
    assert shown.count("<script>") == 1, "its own"
    assert "alert(1)&lt;/script&gt;`|]]&gt;&amp;amp;" in shown
    assert "<b>" not in re.sub(r"<li><b>\d+</b>", "", shown)
    assert not {"\x1b", "\u202e"} & set(shown)

    root = ET.fromstring(asked("--db", hostile, "--format", "junit").stdout)
    assert [case.attrib["name"] for case in root.iter("testcase")][2].endswith('/a#"><b>')
    assert {element.tag for element in root.iter()} == {"testsuites", "testsuite", "testcase", "failure"}

    markdown = asked("--db", hostile, "--format", "markdown").stdout
    assert "``</td><script>alert(1)</script>`|]]>&amp;\ufffd[31m\ufffd``" in markdown
    assert "/a#[x](https://y.example)%20@x>: " in markdown, "with a space it would be no link, but the site's Markdown"


@pytest.mark.parametrize(("name", "begins"), [("a.md", "# Crawl"), ("a.json", "{"), ("a.xml", "<?xml"), ("a", "<!doc")])
def test_a_report_has_the_form_that_its_file_says(hostile: Path, tmp_path: Path, name: str, begins: str) -> None:
    output = tmp_path / name
    assert asked("--db", hostile, "--output", output).exit_code == 0
    assert output.read_text().startswith(begins)


def test_the_policy_of_the_html_allows_its_own_script_and_style_only(hostile: Path) -> None:
    shown = asked("--db", hostile).stdout
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', shown)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert len(re.findall(r"'sha256-[\w+/=]{44}'", policy)) == 2
    assert "unsafe" not in policy
    assert not re.findall(r"<[^>]+ on\w+=|<[^>]+ style=", shown.split("<script>")[0])
    assert not re.findall(r'(?:src|href)="(?!http|#)', shown)


async def test_every_form_tells_the_same(tmp_path: Path) -> None:
    db = tmp_path / "frontier.db"
    async with Website({"/": page("/a", "/gone", "/a#x"), "/a": page("/gone", "/b"), "/b": page("/")}) as site:
        await run(db, site.url)
    document = found(db)
    assert document["crawl"]["links"] == rows(db, "SELECT sum(links) FROM results")[0][0] + 1, "a URL, twice"
    assert document["crawl"]["pages"] == {"done": 4}
    targets = [
        (target["class"], target["url"] + ("#x" if target["fragment"] else "")) for target in document["targets"]
    ]
    assert [confidence for confidence, _ in targets] == ["broken", "fragment"]
    cases = ET.fromstring(asked("--db", db, "--format", "junit").stdout).iter("testcase")
    assert [(case.get("classname"), case.get("name")) for case in cases][1:] == targets
    for form, mark in (("markdown", "<{}>"), ("html", '<a href="{}"')):
        shown = asked("--db", db, "--format", form).stdout
        assert all(mark.format(url) in shown for _, url in targets)
        assert all(shown.count(source["url"]) for target in document["targets"] for source in target["sources"])


async def test_orphans_duplicates_and_what_was_never_asked_for(tmp_path: Path) -> None:
    db = tmp_path / "frontier.db"
    answers = {
        "/": page("/copy/1", "/copy/2", "/closed", "/later"),
        "/robots.txt": html("User-agent: *\nDisallow: /closed"),
        **{f"/copy/{number}": html("<p>the same") for number in (1, 2)},
    }
    async with Website(answers) as site:
        await run(db, site.url, scope={"maxPages": 4})
        document = found(db)
        assert document["duplicates"] == [[f"{site.url}copy/1", f"{site.url}copy/2"]]
        assert document["disallowed"] == [{"url": f"{site.url}closed", "value": "2: Disallow: /closed"}]
        assert document["unfinished"] == [{"url": f"{site.url}later", "value": "pending"}]
        assert document["orphans"] == []
        suite = ET.fromstring(asked("--db", db, "--format", "junit").stdout)
        assert [case.get("name") for case in suite.iter("testcase")][-1] == "2 targets were not asked for"
        assert (suite.get("tests"), suite.get("skipped")) == ("2", "1"), "neither green nor red"
        await run(db, site.url, results={"edges": False}, scope={"maxPages": 5})
        assert [target["firstLinked"] for target in found(db)["targets"]] == [site.url]


async def test_an_orphan_is_a_page_to_which_nothing_leads(tmp_path: Path) -> None:
    """Not where a host begins; and a redirect leads to a page as a link does."""
    db = tmp_path / "frontier.db"
    answers = {
        "/": page("/old", "/linked"),
        "/old": redirect("/new", 301),
        "/new": page("/new", "/linked"),
        "/linked": page("/linked"),
        "/alone": page("/alone"),
        "/gone": redirect("/", 302),
    }
    async with Website(answers) as site:
        await run(db, site.url, f"{site.url}alone", f"{site.url}linked", f"{site.url}new", f"{site.url}gone")
        assert found(db)["orphans"] == [f"{site.url}alone"]


async def test_what_is_found_in_a_page_is_not_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor where pages lead to themselves only, and so to no other."""
    db = tmp_path / "frontier.db"
    pages = {f"/{number}": html("".join(f"<a href=#{n}>x</a>" for n in range(100))) for number in range(20)}
    async with Website(pages) as site:
        await run(db, *(f"{site.url}{number}" for number in range(20)))
    kept: list[int] = []
    flush = findings._Collector._flush

    def watched(self: findings._Collector) -> None:
        kept.append(len(self._found))
        flush(self)

    monkeypatch.setattr(findings, "_BATCH", 150)
    monkeypatch.setattr(findings._Collector, "_flush", watched)
    assert len(found(db)["targets"]) == sum(kept) == 20 * 100
    assert max(kept) == 200, "after the page with which the batch is full"


async def test_of_a_full_folder_for_temporary_files_it_says_which(
    hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the frontier's volume, which a report does not write to."""
    monkeypatch.setattr(findings, "_SPILL", f"{findings._SPILL} PRAGMA max_page_count = 5;")
    output = tmp_path / "report.html"
    done = asked("--db", hostile, "--output", output)
    assert (done.exit_code, done.stderr) == (
        1,
        "error: the folder for temporary files is full; name another one in TMPDIR\n",
    )
    assert not output.exists()


async def test_a_report_can_fail_a_pipeline(tmp_path: Path) -> None:
    db, output = tmp_path / "frontier.db", tmp_path / "report.html"
    async with Website({"/": page("/gone")}) as site:
        await run(db, site.url)
    done = asked("--db", db, "--fail-on", "blocked,broken", "--output", output)
    assert (done.exit_code, done.stderr) == (FOUND, "error: --fail-on: the crawl found 1 broken\n")
    assert "/gone" in output.read_text()
    assert asked("--db", db, "--fail-on", "blocked").exit_code == 0
    assert asked("--db", db, "--fail-on", "borken").exit_code == 2


def test_the_names_of_the_command_line_are_the_programs() -> None:
    """They stand there once more, so that ``--help`` waits for nothing."""
    assert tuple(WRITERS) == FORMATS
    assert {*CLASSES, "ok"} == set(Confidence)


def _empty(db: Path) -> None:
    db.touch()


def _half(db: Path) -> None:
    db.write_bytes(db.read_bytes()[:5000])


def _of_version(version: int, db: Path) -> None:
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute(f"PRAGMA user_version = {version}")


def _foreign(db: Path) -> None:
    db.write_text("no frontier at all, but a text that is long enough for a header of 100 bytes" * 3)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A frontier, and no event loop: ``page`` has one of its own."""

    async def crawled() -> None:
        async with Website({"/": page()}) as site:
            await run(db, site.url)

    db = tmp_path / "frontier.db"
    asyncio.run(crawled())
    return db


READERS = (
    ["status"], ["report"], ["export", "pages"], ["export", "links", "--format", "parquet"],
    ["explain", "https://x.example/"], ["page", "--port", "0"],
)  # fmt: skip
"""Commands that read a frontier."""


@pytest.mark.parametrize(
    "damage",
    [_empty, _half, _foreign, partial(_of_version, SCHEMA_VERSION + 1), partial(_of_version, SCHEMA_VERSION - 1)],
    ids=["empty", "half", "foreign", "newer", "older"],
)
def test_what_is_no_frontier_is_told_in_one_sentence_and_left_as_it_is(small: Path, damage: Any) -> None:
    db = small
    if damage is _empty:
        db.unlink()
    damage(db)
    before = hashlib.sha256(db.read_bytes()).hexdigest()
    for command in READERS:
        done = CliRunner().invoke(cli, [*command, "--db", str(db)])
        assert (done.exit_code, done.stdout) == (ExitCode.UNUSABLE_FRONTIER, ""), command
        assert done.stderr.startswith(f"error: {db}: ")
        assert done.stderr.count("\n") == 1
    assert hashlib.sha256(db.read_bytes()).hexdigest() == before


@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_a_frontier_that_is_locked_is_told_in_one_sentence(small: Path, command: list[str]) -> None:
    """By some other program: a crawl locks no readers out."""
    db = small
    with closing(sqlite3.connect(db, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        before = hashlib.sha256(db.read_bytes()).hexdigest()
        done = CliRunner().invoke(cli, [*command, "--db", str(db)])
        assert hashlib.sha256(db.read_bytes()).hexdigest() == before
    assert (done.exit_code, done.stdout) == (ExitCode.INFRASTRUCTURE, "")
    assert done.stderr == f"error: {db}: the database failed (database is locked)\n"


async def test_a_frontier_is_the_same_after_a_report(tmp_path: Path) -> None:
    db = tmp_path / "frontier.db"
    async with Website({"/": page("/a")}) as site:
        await run(db, site.url)
    before = hashlib.sha256(db.read_bytes()).hexdigest()
    for form in FORMATS:
        assert asked("--db", db, "--format", form).exit_code == 0
    assert hashlib.sha256(db.read_bytes()).hexdigest() == before


def test_an_output_that_cannot_be_written_is_told_and_nothing_is_left(tmp_path: Path, hostile: Path) -> None:
    done = asked("--db", hostile, "--output", tmp_path / "missing" / "report.html")
    assert done.exit_code == 1
    assert "cannot be written (No such file or directory); nothing was changed" in done.stderr


MEASURED = """
import sys
from pathlib import Path
from durable_crawler.cli import cli
try:
    cli.main(["report", "--db", sys.argv[1], "--format", sys.argv[2], "--output", sys.argv[3]], standalone_mode=False)
finally:
    print(Path("/proc/self/status").read_text())
"""


@pytest.mark.parametrize("form", ["json", "html"])
async def test_a_million_links_are_reported_within_300_megabytes(tmp_path: Path, form: str) -> None:
    """All of them broken, the worst that a report can be asked for."""
    db, output = tmp_path / "frontier.db", tmp_path / "report"
    async with Website({"/": page(*(f"/gone/{number}" for number in range(1000)))}) as site:
        await run(db, site.url)
    multiply(db, 1000)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, db, form, output], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (peak,) = re.findall(r"^VmHWM:\s+(\d+) kB$", done.stdout, re.MULTILINE)
    with output.open() as lines:
        sources = sum(line.count('"position"') + line.count("<li><a ") for line in lines)
    assert sources == 1_000_000
    assert int(peak) <= 300_000, f"{peak} kB"


def multiply(db: Path, pages: int) -> None:
    """Give the frontier as many pages as are asked for with the links of its first."""
    connection = sqlite3.connect(db)
    with connection:
        series = f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {pages - 1})"
        connection.execute(
            f"{series} INSERT INTO pages (id, hash_high, hash_low, url, host_id, depth, state) "
            "SELECT 100000 + i, i, i, 'http://127.0.0.1/copy/' || i, 1, 1, 'pending' FROM n"
        )
        connection.execute("UPDATE pages SET state = 'done', counted = 1 WHERE id > 100000")
        connection.execute(
            "INSERT INTO results (page_id, outcome, status, failed, finished_ms) "
            "SELECT id, 'ok', 200, 0, 0 FROM pages WHERE id > 100000"
        )
        connection.execute(
            "INSERT INTO edges SELECT id * 1000, id, (SELECT packed FROM edges) FROM pages WHERE id > 100000"
        )
    connection.close()
