"""What a crawl stores of its pages: links with their wording, ids, hashes, attempts."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.support.crawler import crawl, judge, rows
from tests.support.website import Answer, Website, in_turn, page

from durable_crawler.frontier.edges import DamagedError, Edges, Wording, has_id, next_wording, pack, pack_ids, unpack
from durable_crawler.frontier.reader import FrontierReader
from durable_crawler.latest import Latest
from durable_crawler.parse import FRAGMENT_MAX, IDS_MAX, TEXT_MAX, Parsed, Reference, parse
from durable_crawler.results import reading

URL = "https://x.example/dir/page"


def read(html: str, max_links: int = 100) -> Parsed:
    return parse(html.encode(), "text/html; charset=utf-8", URL, max_links, references=True, ids=True)


def html(text: str) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text=text, content_type="text/html")

    return answer


WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
WORDING = st.builds(Wording, st.integers(1, 2**40), WORDS, WORDS, WORDS)


@given(
    st.integers(1, 2**40),
    st.lists(WORDING, max_size=20),
    st.lists(st.tuples(st.integers(1, 2**40), st.integers(0, 300)), max_size=50),
)
def test_edges_come_out_as_they_went_in(first: int, wordings: list[Wording], gaps: list[tuple[int, int]]) -> None:
    links, position = [], -1
    for number, gap in gaps:
        position += gap + 1
        links.append((number, position))
    edges = Edges(wordings, links)
    packed = pack(first, edges)
    assert unpack(first, packed) == edges
    assert next_wording(first, packed) == first + max(1, len(wordings))


def test_strings_that_no_page_can_have_do_no_harm() -> None:
    edges = Edges([Wording(1, "a\0b", "lone \ud800", "")], [(1, 0)])
    assert unpack(1, pack(1, edges)).wordings == [Wording(1, "a\ufffdb", "lone ?", "")]


def test_links_that_repeat_take_two_bytes_each() -> None:
    edges = Edges([], [(1000 + number * 7 % 60, number) for number in range(100)])
    assert len(pack(2000, edges)) <= 2 * len(edges.links)


def test_a_packed_value_that_is_damaged_is_told() -> None:
    packed = pack(1, Edges([Wording(7, "f", "text", "rel")] * 9, [(number, number) for number in range(9)]))
    for end in range(len(packed)):
        with pytest.raises(DamagedError, match=r"damaged|too early|strings"):
            unpack(1, packed[:end])


@given(st.sets(st.text(), max_size=50))
def test_every_id_of_a_page_is_found_again(ids: set[str]) -> None:
    packed = pack_ids(ids)
    assert all(has_id(packed, name) for name in ids)
    assert not has_id(packed, "\0no element has it")


def test_what_is_used_is_kept_and_the_rest_forgotten() -> None:
    latest: Latest[int, str] = Latest(generation=2)
    for key in range(4):
        latest.put(key, str(key))
        assert latest.get(0) == "0", "asked for every time"
    assert latest.get(1) is None


def test_references_say_where_how_and_in_which_words() -> None:
    found = read(
        "<a href='b#one' rel='NoOpener  external'> First <b>link</b>\n</a><a href=b#one>again</a><a href=b#two></a>"
        "<a href=mailto:x@y.example>no page</a><a href=/c><img src=i alt='A picture'></a><a href=c rel=nofollow>n</a>"
        f"<a href=d>{'x' * 300}</a><a href='d#{'f' * 300}'>e</a><a href='e# a\tb '>f</a>"
    )
    d = "https://x.example/dir/d"
    assert found.references == (
        Reference("https://x.example/dir/b", "one", "First link", "noopener external", 0),
        Reference("https://x.example/dir/b", "two", "", "", 2),
        Reference("https://x.example/c", "", "A picture", "", 4),
        Reference("https://x.example/dir/c", "", "n", "nofollow", 5),
        Reference(d, "", "x" * TEXT_MAX, "", 6),
        Reference("https://x.example/dir/e", "ab", "f", "", 8),
    )
    assert len("f" * 300) > FRAGMENT_MAX


def test_references_are_no_more_than_links_may_be() -> None:
    assert len(read("".join(f"<a href='p#{number}'></a>" for number in range(50)), max_links=10).references) == 10


def test_the_text_of_nested_links_is_bounded() -> None:
    """``object`` lets one link stand in another, as often as one likes."""
    found = read("".join(f"<a href={number}><object>" for number in range(1000)) + "word " * 1000, max_links=1000)
    assert len(found.references) == 1000
    assert all(len(reference.text) <= TEXT_MAX for reference in found.references)


def test_ids_are_those_that_a_fragment_finds() -> None:
    assert read("<p id=a><a name=b>x</a><img name=c id=''><b id=a>").ids == ("a", "b")
    assert read("<i id=0>" + "".join(f"<i id={number}>" for number in range(1, IDS_MAX + 1))).ids is None


@pytest.mark.parametrize(
    ("head", "canonical"),
    [
        ("<link rel=canonical href=/real>", "https://x.example/real"),
        ("<link rel='alternate CANONICAL' href='//y.example/#top'>", "https://y.example/"),
        ("<link rel=canonical href=mailto:x@y.example>", ""),
        ("<link rel=stylesheet href=/style>", ""),
    ],
)
def test_the_canonical_url_is_what_the_page_says(head: str, canonical: str) -> None:
    assert read(f"{head}<p>text").canonical == canonical


def write_spec(db: Path, *seeds: str, **spec: Any) -> Path:
    """A CrawlJob beside the frontier."""
    file = db.with_name("crawljob.json")
    envelope = {"apiVersion": "durable-crawler.io/v1alpha1", "kind": "CrawlJob", "metadata": {"name": "results"}}
    file.write_text(json.dumps({**envelope, "spec": {"seeds": seeds, **spec}}))
    return file


async def run(db: Path, *seeds: str, **spec: Any) -> None:
    """A crawl to its end, and nothing that must not be in the frontier."""
    code, run_ = await crawl("-f", write_spec(db, *seeds, **spec), "--db", db, cwd=db.parent)
    assert code == 0, run_.errors
    judge(db)


SITE = {
    "/": html(
        "<p id=top><a href=a#x>To A</a> <a href=/b rel=nofollow>B</a> <a href=//127.0.0.3:1/>Other</a><a href=a>"
    ),
    "/a": html("<title>A</title><link rel=canonical href=/><h1 id=x><a href=/>Home</a><a href=./>Home</a>"),
}


def links(db: Path) -> list[tuple[str, str, str, str, int]]:
    with FrontierReader(db).results() as connection:
        return [
            (link.source, link.target, link.fragment, link.text, link.position) for link in reading.links(connection)
        ]


async def test_a_crawl_stores_each_link_as_it_stands_in_the_page(tmp_path: Path) -> None:
    db = tmp_path / "frontier.db"
    async with Website(SITE) as site:
        await run(db, site.url)
        home, a = site.url, f"{site.url}a"
        assert links(db) == [
            (home, a, "x", "To A", 0),
            (home, "http://127.0.0.3:1/", "", "Other", 2),
            (home, a, "", "", 3),
            (a, home, "", "Home", 0),
        ]
        with FrontierReader(db).results() as connection:
            pages = {page.url: page for page in reading.pages(connection)}
            hashes = dict(connection.execute("SELECT url, hashes FROM fragments JOIN pages ON pages.id = page_id"))
    assert pages[a].title == "A"
    assert (pages[a].canonical, pages[a].found_on, pages[a].depth) == (home, home, 1)
    assert pages[home].content_hash != pages[a].content_hash
    assert pages["http://127.0.0.3:1/"].left_out == "authority"
    assert has_id(hashes[a], "x")
    assert not has_id(hashes[a], "top")


async def test_the_same_links_are_stored_when_every_page_has_a_process_of_its_own(tmp_path: Path) -> None:
    """What a process remembers of links is gone with it."""
    whole, parts = tmp_path / "whole" / "f.db", tmp_path / "parts" / "f.db"
    names = [f"/{number}" for number in range(6)]
    navigation = "".join(f"<a href={name}#{name[1:]}>Page {name[1:]}</a>" for name in names)
    async with Website(
        {"/": html(navigation), **{name: html(f"{navigation}<a href=/>Home</a>") for name in names}}
    ) as site:
        for db in (whole, parts):
            db.parent.mkdir()
        await run(whole, site.url)
        for pages in range(1, 8):
            await run(parts, site.url, scope={"maxPages": pages})
        assert links(parts) == links(whole)
    assert len(links(whole)) == 6 * 8


async def test_without_edges_and_fragments_nothing_of_them_is_stored(tmp_path: Path) -> None:
    db = tmp_path / "frontier.db"
    async with Website(SITE) as site:
        await run(db, site.url, results={"edges": False}, audit={"fragments": False})
    for table in ("edges", "fragments"):
        assert rows(db, f"SELECT count(*) FROM {table}") == [(0,)]
    assert rows(db, "SELECT count(*) FROM results") == [(2,)]


async def test_attempts_that_were_not_the_last_are_kept(tmp_path: Path) -> None:
    db = tmp_path / "frontier.db"
    async with Website({"/": in_turn(page(status=503), page(status=500), page())}) as site:
        await run(db, site.url)
    attempts = rows(db, "SELECT outcome, status, due_ms > ended_ms FROM attempts ORDER BY id")
    assert attempts == [("http_error", 503, 1), ("http_error", 500, 1)]
    assert rows(db, "SELECT outcome FROM results") == [("ok",)]


async def test_links_make_the_file_half_as_large_again_at_most(tmp_path: Path) -> None:
    """300 pages with 30 links each, in the words that a table of contents has."""
    chance = Random(1)
    pages = 300
    answers = {}
    for number in range(pages):
        targets = [(number + step) % pages for step in (1, 2, 3)] + [chance.randrange(pages) for _ in range(27)]
        listed = "".join(f"<li><a href=/part/{target}>Part {target}: what it is about</a>" for target in targets)
        answers[f"/part/{number}"] = html(f"<title>Part {number}</title><h1 id=top>Part</h1>{listed}")
    sizes = {}
    async with Website(answers) as site:
        for edges in (False, True):
            db = tmp_path / str(edges) / "frontier.db"
            db.parent.mkdir()
            await run(db, f"{site.url}part/0", results={"edges": edges}, scope={"maxDepth": 1000})
            assert rows(db, "SELECT count(*) FROM results") == [(pages,)]
            sizes[edges] = db.stat().st_size
    assert sizes[True] <= 1.5 * sizes[False], sizes
