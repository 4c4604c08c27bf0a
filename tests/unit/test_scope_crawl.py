"""The scope as a whole crawl obeys it, on a real frontier: patterns, redirects, and edits between two runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.crawler import crawl, judge, rows
from tests.support.website import Website, page, redirect

from durable_crawler.frontier.reader import FrontierReader


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "frontier.db"


async def crawled(db: Path, *seeds: str, **scope: Any) -> dict[str, Any]:
    """One run to its end; its summary."""
    file = db.with_name("crawljob.json")  # YAML is a superset
    spec = {"seeds": seeds, "scope": scope}
    envelope = {"apiVersion": "durable-crawler.io/v1alpha1", "kind": "CrawlJob", "metadata": {"name": "scope"}}
    file.write_text(json.dumps({**envelope, "spec": spec}))
    code, run = await crawl("-f", file, "--db", db, cwd=db.parent)
    assert code == 0, run.errors
    judge(db)
    return run.summary


async def test_an_edit_takes_effect_at_the_restart_and_nothing_is_lost(db: Path) -> None:
    names = ("docs/1", "docs/2", "docs/1.pdf", "blog/1")
    async with Website({"/": page(*(f"/{name}" for name in names)), **{f"/{name}": page() for name in names}}) as site:
        await crawled(db, site.url, include=["/docs/*"], exclude=["*.pdf"])
        assert set(site.log) == {"/", "/docs/1", "/docs/2"}
        assert FrontierReader(db).refused() == {"excluded": 1, "not_included": 1}

        summary = await crawled(db, site.url, include=["/docs/*"])
        assert site.log[3:] == ["/docs/1.pdf"], "a wider scope admits what was left out, and asks for no page again"
        assert summary["progress"]["done"] == 4

        summary = await crawled(db, site.url, exclude=["/docs/*", "/blog/*"])
        assert len(site.log) == 4, "a narrower one asks for nothing"
        assert summary["progress"]["done"] == 4, "what is done stays done"

        await crawled(db, site.url)
        assert site.log[4:] == ["/blog/1"]
    assert FrontierReader(db).snapshot().excluded == 0


async def test_a_narrower_scope_closes_what_waits_with_its_reason(db: Path) -> None:
    async with Website({"/": page("/a/1", "/a/2", "/b/1", "/b/2")}) as site:
        await crawled(db, site.url, maxPages=1)
        assert rows(db, "SELECT count(*) FROM pages WHERE state = 'pending'") == [(4,)]
        await crawled(db, site.url, exclude=["/a/*"])
        assert set(site.log) == {"/", "/b/1", "/b/2"}
    left_out = rows(db, "SELECT url, left_out FROM pages WHERE state = 'excluded' ORDER BY id")
    assert left_out == [(f"{site.url}a/1", "excluded"), (f"{site.url}a/2", "excluded")]


async def test_a_redirect_to_what_a_pattern_leaves_out_is_recorded_and_not_requested(db: Path) -> None:
    answers = {
        "/": page("/docs/in", "/docs/out", "/docs/far"),
        "/docs/in": redirect("/private/1"),
        "/docs/out": redirect("/blog/"),
        "/docs/far": redirect("/docs/hop"),
        "/docs/hop": redirect("/private/2"),
        "/private/1": page("/private/deep"),
    }
    async with Website(answers) as site:
        summary = await crawled(db, site.url, include=["/docs/*", "/private/*"], exclude=["/private/*"])
        assert set(site.log) == {"/", "/docs/in", "/docs/out", "/docs/far", "/docs/hop"}
        assert summary["progress"]["failed"] == 0
        found = rows(
            db,
            "SELECT url, status, hops ->> '$[#-1][2]', error FROM pages JOIN results ON page_id = id"
            " WHERE outcome = 'redirect_excluded' ORDER BY url",
        )
        excluded = "the redirect's target is excluded by /private/*"
        assert found == [
            (f"{site.url}docs/far", 302, f"{site.url}private/2", excluded),
            (f"{site.url}docs/in", 302, f"{site.url}private/1", excluded),
            (
                f"{site.url}docs/out",
                302,
                f"{site.url}blog/",
                "the redirect's target matches no pattern of scope.include",
            ),
        ]
        site.log.clear()
        await crawled(db, site.url, exclude=["/private/2"])
        assert site.log == ["/private/1", "/blog/", "/private/deep"], "the targets are admitted by a wider scope"


async def test_a_redirect_to_a_seed_needs_no_pattern(db: Path) -> None:
    async with Website({"/": page("/docs/a"), "/docs/a": redirect("/"), "/b": page()}) as site:
        await crawled(db, site.url, include=["/docs/*"])
        assert rows(db, "SELECT outcome FROM results") == [("ok",), ("ok",)]


async def test_a_crawl_whose_only_page_leads_out_says_so(db: Path) -> None:
    async with Website({"/": redirect("/login")}) as site:
        summary = await crawled(db, site.url, exclude=["/login*"])
    assert summary["reason"] == "NothingFetched"
    assert f"{site.url}login, which scope.include or scope.exclude leaves out" in summary["message"]


async def test_scenario_05_a_redirect_off_the_site_is_recorded_and_reaches_nobody(db: Path) -> None:
    async with Website({"/": page()}) as other, Website({"/": page("/out"), "/out": redirect(other.url)}) as site:
        await crawled(db, site.url)
        assert (other.log, other.robots_asked) == ([], 0)
        assert set(site.log) == {"/", "/out"}
    found = rows(db, "SELECT url, status, hops ->> '$[0][2]' FROM pages JOIN results ON page_id = id WHERE depth = 1")
    assert found == [(f"{site.url}out", 302, other.url)]
    assert FrontierReader(db).outcomes() == {"ok": 1, "redirect_out_of_scope": 1}


async def test_scenario_12_six_spellings_are_six_pages(db: Path) -> None:
    six = ("/Foo", "/foo", "/?T=aB", "/?T=ab", "/a", "/a/")
    async with Website({"/": page(*six, *six), **{target: page() for target in six}}) as site:
        await crawled(db, site.url)
        assert site.requests == dict.fromkeys(("/", *six), 1)
    assert FrontierReader(db).outcomes() == {"ok": 7}
