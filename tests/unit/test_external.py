"""Links out of the crawl: verified once, politely, never expanded; and what a kill or an edit in between does."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web
from tests.support.crawler import crawling, rows
from tests.support.website import Answer, Website, page, redirect, robots
from tests.unit.test_report import found
from tests.unit.test_results_stored import run, write_spec

from crawljob.manifest import parse
from durable_crawler.external import foreign

CHECK = {"audit": {"externalLinks": "check"}, "politeness": {"delay": "0s"}}


def answering(head: int, get: int, seen: list[str]) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request.method)
        return web.Response(status=head if request.method == "HEAD" else get, text="x", content_type="text/html")

    return answer


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "frontier.db"


async def test_each_is_asked_for_once_and_nothing_behind_it(db: Path) -> None:
    seen: list[str] = []
    there = {
        "/ok": answering(200, 200, seen),
        "/more": page("/behind"),
        "/gone": page(status=410),
        "/login": page(status=401),
        "/moved": redirect("/ok", 301),
        "/closed/x": page(),
        "/robots.txt": robots("User-agent: *\nDisallow: /closed/"),
    }
    async with Website(there) as other:
        paths = ("ok", "ok#place", "more", "gone", "login", "moved", "closed/x")
        links = [f"{other.url}{path}" for path in paths]
        async with Website({"/": page(*links, "/a"), "/a": page(*links)}) as site:
            await run(db, site.url, **CHECK)
        targets = {target["url"].removeprefix(other.url): target["class"] for target in found(db)["targets"]}
        assert targets == {"gone": "broken", "login": "blocked", "moved": "redirected"}
        assert other.requests == {"/ok": 2, "/more": 1, "/gone": 2, "/login": 2, "/moved": 1}, "a redirect leads to /ok"
        assert seen == ["HEAD", "HEAD"]
        lists = found(db)["deepest"] + found(db)["slowest"]
        assert {row["url"] for row in lists} <= {site.url, f"{site.url}a"}, "other sites' pages are not the crawl's"
        await run(db, site.url, **CHECK)
        assert sum(other.requests.values()) == 8, "a second run has nothing to do"
    assert rows(db, "SELECT count(*) FROM pages WHERE url LIKE '%/behind'") == [(0,)]


@pytest.mark.parametrize(
    ("head", "get", "methods", "told"),
    [
        (200, 500, ["HEAD"], {}),
        (405, 200, ["HEAD", "GET"], {}),
        (501, 200, ["HEAD", "GET"], {}),
        (500, 200, ["HEAD", "GET"], {}),
        (403, 200, ["HEAD", "GET"], {}),
        (404, 200, ["HEAD", "GET"], {}),
        (404, 404, ["HEAD", "GET"], {"broken": 1}),
        (405, 403, ["HEAD", "GET"], {"blocked": 1}),
    ],
)
async def test_where_head_is_refused_get_is_believed(
    db: Path, head: int, get: int, methods: list[str], told: dict[str, int]
) -> None:
    seen: list[str] = []
    async with Website({"/x": answering(head, get, seen)}) as other, Website({"/": page(f"{other.url}x")}) as site:
        await run(db, site.url, fetch={"retries": 0}, **CHECK)
    assert seen == methods
    classes = found(db)["classes"]
    assert {name: count for name, count in classes.items() if count and name != "ok"} == told


async def test_they_do_not_count_as_pages_and_have_a_limit_of_their_own(db: Path) -> None:
    there = {f"/{number}": page() for number in range(5)}
    async with (
        Website(there) as other,
        Website({"/": page(*(f"{other.url}{path[1:]}" for path in there), "/a")}) as site,
    ):
        spec = {**CHECK, "scope": {"maxPages": 1}}
        await run(db, site.url, **{**spec, "audit": {"externalLinks": "check", "maxExternalLinks": 2}})
        assert (len(other.log), site.log) == (2, ["/"])
        await run(db, site.url, **{**spec, "audit": {"externalLinks": "check", "maxExternalLinks": 4}})
        assert (len(other.log), site.log) == (4, ["/"])
        await run(db, site.url, **{**spec, "scope": {"maxPages": 2}, "audit": {"externalLinks": "ignore"}})
        assert (len(other.log), site.log) == (4, ["/", "/a"]), "what was verified takes nothing of the budget"


async def test_a_host_that_becomes_part_of_the_crawl_is_read(db: Path) -> None:
    async with Website({"/": page("/deeper"), "/deeper": page()}) as other, Website({"/": page(other.url)}) as site:
        await run(db, site.url, **CHECK)
        assert rows(db, f"SELECT state, verified FROM pages WHERE url = '{other.url}'") == [("done", 1)]
        await run(db, site.url, other.url)
        assert rows(db, f"SELECT state, verified FROM pages WHERE url LIKE '{other.url}%'") == [("done", None)] * 2
        assert other.requests == {"/": 2, "/deeper": 1}


async def test_killed_while_it_verifies_it_goes_on_and_asks_for_none_twice(db: Path) -> None:
    names = [f"/{number}" for number in range(5)]
    async with Website({name: page() for name in names}) as other:
        home = page(*(f"{other.url}{name[1:]}" for name in names))
        async with Website({"/": home}) as site:
            spec = write_spec(db, site.url, **CHECK)
            async with crawling("-f", spec, "--db", db, cwd=db.parent) as first:
                assert await first.until(lambda: len(other.log) >= 3, other.asked)
                first.kill()
                await first.end()
            await run(db, site.url, **CHECK)
    assert set(other.log) == set(names)
    assert sum(other.requests.values()) <= len(names) + 1, "what was under way at the kill is asked for again"


def test_a_foreign_host_is_asked_for_one_page_at_a_time_and_not_more_often_than_each_second() -> None:
    wanted = foreign(parse({"seeds": ["https://x.example/"], "fetch": {"perHost": 16}, "politeness": {"delay": "0s"}}))
    assert (wanted.fetch.per_host, wanted.politeness.delay) == (1, "1s")
    assert foreign(parse({"seeds": ["https://x.example/"], "politeness": {"delay": "3s"}})).politeness.delay == "3s"
