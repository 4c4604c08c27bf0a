"""The story of one URL: what it must tell in each case, from real crawls."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.crawler import crawling
from tests.support.website import Website, in_turn, page, redirect, robots
from tests.unit.test_results_stored import html, run, write_spec
from tools.generate import ROOT

from durable_crawler.cli import cli
from durable_crawler.results.explain import TOPICS


def told(db: Path, url: str, *, spec: bool = False) -> dict[str, Any]:
    """The document; with the CrawlJob that was run last, if it is asked for."""
    file = ["-f", str(db.with_name("crawljob.json"))] if spec else []
    done = CliRunner().invoke(cli, ["explain", "--db", str(db), *file, "--format", "json", url])
    assert done.exit_code == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert {part["about"] for part in document["story"]} <= TOPICS.keys()
    return document


def texts(story: dict[str, Any], about: str) -> list[tuple[str, str | None]]:
    return [(part["text"], part["url"]) for part in story["story"] if part["about"] == about]


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "frontier.db"


async def test_how_it_was_found_and_what_became_of_it(db: Path) -> None:
    answers = {"/": page("/a"), "/a": page("/b", "/b"), "/b": in_turn(page(status=500), page(status=404))}
    async with Website(answers) as site:
        await run(db, site.url)
        story = told(db, f"{site.url}b#part")
        assert (story["url"], story["state"], story["class"]) == (f"{site.url}b", "done", "broken")
        assert texts(story, "spelling")[0][1] == f"{site.url}b"
        assert texts(story, "found") == [
            ("at depth 2, first linked on", f"{site.url}a"),
            ("at depth 1, first linked on", site.url),
            ("which is a seed", None),
        ]
        ((attempt, _),) = texts(story, "attempt")
        assert re.fullmatch(r"http_error, status 500 after 0\.\d s; to be tried again at 20\d\d-.*Z", attempt)
        assert texts(story, "result")[0][0].startswith("http_error, status 404")
        assert texts(story, "links") == [("1 page(s) link to it", None), ("one of them", f"{site.url}a")]
        assert texts(told(db, site.url), "found") == [("it is a seed", None)]


async def test_where_it_was_redirected_to_and_who_is_redirected_here(db: Path) -> None:
    answers = {"/": page("/old"), "/old": redirect("/new", 301), "/new": html("<link rel=canonical href=/real>")}
    async with Website({**answers, "/": page("/old", "/new")}) as site:
        await run(db, site.url)
        old, new = told(db, f"{site.url}old"), told(db, f"{site.url}new")
        assert old["class"] == "redirected"
        assert texts(old, "redirect") == [("status 301 leads to", f"{site.url}new")]
        assert ("what it gave came from", f"{site.url}new") in texts(old, "alias")
        assert ("it names another URL as its canonical one", f"{site.url}real") in texts(new, "alias")
        assert ("it is where another one is redirected to", f"{site.url}old") in texts(new, "alias")


async def test_whether_the_place_in_the_page_is_there(db: Path) -> None:
    """As a report says it: both are asked about the same link."""
    answers = {"/": page("/a#x", "/a#y", "/old#z"), "/a": html("<p id=x>"), "/old": redirect("/a#x", 302)}
    async with Website(answers) as site:
        await run(db, site.url)
        assert texts(told(db, f"{site.url}a#x"), "fragment") == [("nothing is missing there", None)]
        assert texts(told(db, f"{site.url}a#y"), "fragment") == [
            ("no element has the id y: a report lists a link to it", None)
        ]
        ((words, _),) = texts(told(db, f"{site.url}old#z"), "fragment")
        assert words == "the ids of this page are not known, so that no link to one is called missing"
        assert not texts(told(db, f"{site.url}a"), "fragment")


async def test_links_that_were_not_kept_are_not_denied(db: Path) -> None:
    answers = {"/": html("<a href=/c rel=nofollow></a><a href=/a></a><a href=/b></a>"), "/a": page()}
    async with Website(answers) as site:
        await run(db, site.url, scope={"maxLinksPerPage": 2})
        for path in ("b", "c"):
            assert texts(told(db, f"{site.url}{path}"), "unknown") == [
                ("no link to it was kept, and it is no seed", None),
                ("it may be among 1 links that the site does not want to be followed", None),
                ("it may be among 1 links above scope.maxLinksPerPage", None),
            ]


async def test_which_rule_left_it_out(db: Path) -> None:
    answers = {
        "/robots.txt": robots("User-agent: *\nDisallow: /closed"),
        "/": page("/closed", "/x.pdf", "http://y.example/"),
    }
    async with Website(answers) as site:
        await run(db, site.url, scope={"exclude": ["*.pdf"]})
        assert texts(told(db, f"{site.url}closed"), "robots") == [("robots_disallowed (2: Disallow: /closed)", None)]
        assert texts(told(db, f"{site.url}x.pdf", spec=True), "scope") == [
            ("left out: a pattern of scope.exclude matches it", None),
            ("left out by *.pdf of scope.exclude", None),
        ]
        assert texts(told(db, "http://y.example/"), "scope") == [("left out: no seed is on its host", None)]


async def test_what_would_become_of_one_that_was_never_seen(db: Path) -> None:
    async with Website({"/robots.txt": robots("User-agent: *\nDisallow: /closed"), "/": page()}) as site:
        await run(db, site.url, scope={"include": ["/docs/*"]})
        assert texts(told(db, f"{site.url}docs/1", spec=True), "scope") == [("covered by /docs/*", None)]
        blog = told(db, f"{site.url}blog", spec=True)
        assert blog["state"] is None
        assert texts(blog, "scope") == [("no pattern of scope.include matches it", None)]
        assert texts(told(db, f"{site.url}closed"), "robots") == [("disallowed by line 2: Disallow: /closed", None)]
        assert texts(told(db, f"{site.url}{'a/' * 30}"), "refused")[0][0].startswith(
            "a link to it would not be followed"
        )
        assert texts(told(db, "https://z.example/"), "robots") == [
            ("https://z.example/robots.txt has not been asked for", None)
        ]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("mailto:nobody@x.example", "it is neither http nor https"),
        ("https://user:secret@x.example/", "it has a user name or a password in it"),
        ("not a url", "it is no URL"),
        (f"https://x.example/{'a' * 3000}", "it has more than 2,048 characters"),
    ],
)
async def test_what_can_be_no_page_is_told_so(db: Path, url: str, why: str) -> None:
    async with Website({"/": page()}) as site:
        await run(db, site.url)
    assert texts(told(db, url), "refused") == [(why, None)]


async def test_what_it_waits_for(db: Path) -> None:
    async with Website({"/": page("/later"), "/later": page(status=503, headers={"Retry-After": "20"})}) as site:
        async with crawling("-f", write_spec(db, site.url), "--db", db, cwd=db.parent) as crawl:
            assert await crawl.until(lambda: "/later" in site.log, site.asked)
            async with asyncio.timeout(10):
                while (story := told(db, f"{site.url}later"))["state"] != "deferred":
                    await asyncio.sleep(0.05)
            crawl.kill()
            await crawl.end()
        assert story["state"] == "deferred"
        waits = texts(story, "waits")
        assert waits[0] == ("tried again after", None)
        assert waits[1][0] == f"{site.authority} is left alone until"
        assert all(part["time"] for part in story["story"] if part["about"] == "attempt")


async def test_the_budget_is_told(db: Path) -> None:
    async with Website({"/": page("/a"), "/a": page()}) as site:
        await run(db, site.url, scope={"maxPages": 1})
        story = told(db, f"{site.url}a", spec=True)
    assert texts(story, "budget") == [
        ("scope.maxPages (1) is used up; it is not asked for unless that is raised", None)
    ]


async def test_what_a_site_says_does_not_reach_the_terminal_as_it_is(db: Path) -> None:
    async with Website({"/robots.txt": robots("User-agent: *\nDisallow: /\x1b[31m"), "/": page("/%1B[31m")}) as site:
        await run(db, site.url)
        before = hashlib.sha256(db.read_bytes()).hexdigest()
        done = CliRunner().invoke(cli, ["explain", "--db", str(db), f"{site.url}\x1b[31m"])
        assert done.exit_code == 0
        assert "\x1b" not in done.stdout
        assert hashlib.sha256(db.read_bytes()).hexdigest() == before


def test_the_topics_of_the_reference_are_the_programs() -> None:
    reference = (ROOT / "docs/reference/explain.md").read_text()
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", reference.partition("| topic |")[2], re.MULTILINE)) == TOPICS
