"""Rows about what went wrong in other crawlers, of URLs, links, bodies, connections, redirects, addresses and traps.

Some are about a whole crawl: these start one.
"""

from __future__ import annotations

import asyncio
import gzip
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conformance.cases import AS_EXPECTED, NOT_OF_A_HEADER, Row, Scripts, rows
from tests.conformance.test_bodies import fetcher, one
from tests.support.codings import bomb
from tests.support.crawler import Run, crawl
from tests.support.misbehaving import HTML_HEAD, Answer, Names, endless, page, site, then, to
from tests.support.website import Answer as WebAnswer
from tests.support.website import Website, redirect
from tests.support.website import page as web_page

from durable_crawler.outcomes import Outcome
from durable_crawler.parse import Parsed, parse
from durable_crawler.traps import Trap, trap
from durable_crawler.urls import authority, canonical

if TYPE_CHECKING:
    from tests.conformance.conftest import Judge

AREAS = {"url", "extract", "redirect", "encoding", "scope", "body", "client", "ssrf", "trap", "parser"}

script = Scripts()


@rows("bugs.jsonl", lambda row: row["area"] in AREAS)
async def test_bug(row: Row, judge: Judge) -> None:
    judge(row, await script.play(row, row["scenario"]), AS_EXPECTED)


@rows("http/redirects.jsonl", lambda row: row["id"] in NOT_OF_A_HEADER)
async def test_redirect(row: Row, judge: Judge) -> None:
    judge(row, await script.play(row, row["note"]), AS_EXPECTED)


def read(html: str | bytes, url: str = "https://s.example/", content_type: str = "text/html") -> Parsed:
    return parse(html if isinstance(html, bytes) else html.encode(), content_type, url, 100)


def links(html: str, url: str = "https://s.example/") -> list[str]:
    return list(read(html, url).links)


async def crawled(
    answers: Mapping[str, WebAnswer], *flags: str, start: str = "", spec: str = ""
) -> tuple[Counter[str], Run]:
    """What a crawl asks a site for, robots.txt aside, and how it ended."""
    async with Website(answers) as website:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "crawljob.yaml"
            file.write_text(
                "apiVersion: durable-crawler.io/v1alpha1\nkind: CrawlJob\nmetadata: {name: bug}\n"
                f"spec: {{seeds: ['{website.url}{start}'], fetch: {{retries: 0}}, {spec}}}\n"
            )
            code, run = await crawl("-f", file, *flags, cwd=Path(folder))
            assert code == 0, run.errors
        return Counter(path for path in website.log if path != "/robots.txt"), run


# Links


@script("bug-015")
async def a_blank_before_a_link() -> None:
    assert links('<a href=" http://t.example/">', "https://s.example/?p=1") == ["http://t.example/"]


@script("bug-016")
async def line_breaks_around_a_link() -> None:
    assert links('<a href="\nhttp://t.example/a\n">') == ["http://t.example/a"]


@script("bug-017")
async def a_relative_base() -> None:
    html = '<base href="/forum/"><a href="index.php/fa/3/">'
    assert links(html, "https://s.example/forum/index.php/mv/1/2/") == ["https://s.example/forum/index.php/fa/3/"]


@script("bug-020")
async def links_behind_a_redirect() -> None:
    answers: dict[str, Answer] = {"/old/a": to("/new/dir/b"), "/new/dir/b": page(b'<a href="c">')}
    async with site(answers) as here, fetcher() as client:
        fetched = await client.fetch(here.url("/old/a"))
        assert fetched.body is not None
        assert links(fetched.body.decode(), fetched.final_url) == [here.url("/new/dir/c")]


@script("bug-021")
async def links_on_a_second_authority() -> None:
    assert links('<a href="/about">', "http://b.example/") == ["http://b.example/about"]


@script("bug-022")
async def links_relative_to_a_directory() -> None:
    assert links('<a href="scripts/">', "https://s.example/dev/repo/") == ["https://s.example/dev/repo/scripts/"]


@script("bug-023")
async def a_trailing_slash() -> None:
    assert canonical("dos", "https://s.example/uno") == "https://s.example/dos"
    assert canonical("dos", "https://s.example/uno/") == "https://s.example/uno/dos"


@script("bug-024", "bug-025")
async def the_request_line() -> None:
    for target in ("/index.php?/topic/1/", "/f.php?variable"):
        async with site({target: page()}) as here, fetcher() as client:
            (link,) = links(f'<a href="{target}">', here.url())
            await client.fetch(link)
            assert here.heads[0].startswith(f"GET {target} HTTP/1.1\r\n")


@script("bug-031")
async def a_data_url() -> None:
    assert links('<a href="data:image/png;base64,/9j/4AAQ//x">') == []


@script("bug-033")
async def fragments() -> None:
    assert links('<a href="/a"><a href="/a#t"><a href="/a#u">') == ["https://s.example/a"]


@script("bug-036")
async def a_meta_element_the_other_way_round() -> None:
    html = '<meta content="text/html; charset=gbk" http-equiv="Content-Type"><title>中文</title>'.encode("gbk")
    assert read(html).title == "中文"


@script("bug-037")
async def a_meta_element_that_is_misspelt() -> None:
    html = '<meta httpequiv="ContentType" content="text/html; charset=gbk"><a href="/a">中文'.encode("gbk")
    assert read(html).links == ("https://s.example/a",)


@script("bug-038", "bug-039", "bug-040")
async def authorities() -> None:
    (link,) = links('<a href="http://evil.example/?ref=http://site.example/">')
    assert authority(link) == "evil.example"
    assert len({authority(f"http://{host}/1") for host in ("php.s.example", "asp.s.example", "s.example")}) == 3
    assert canonical("http://www.e.example/1") != canonical("http://e.example/1")


@script("bug-109")
async def many_pages_with_options() -> None:
    html = "<select><optgroup><option>a<option><select><option><a href=/a></select></select>" * 5
    for _ in range(10_000):
        read(html)


@script("bug-111")
async def nodes_that_are_no_elements() -> None:
    for html in ("", "<!-- a --><!doctype x><?pi?>", "\0", "<!--" * 99):
        assert read(html).links == ()


# Redirects


@script("bug-041", "redir-044")
async def a_target_that_is_linked_too() -> str | None:
    asked, _ = await crawled({"/": web_page("/a", "/b"), "/a": redirect("/b", 301), "/b": web_page()})
    assert asked["/a"] == 1
    return None if asked["/b"] == 1 else f"{asked['/b']} requests"


@script("bug-043")
async def ping_pong() -> None:
    asked, _ = await crawled({"/": web_page("/b"), "/b": redirect("/")})
    assert asked["/"] <= 2
    assert asked["/b"] == 1


@script("bug-044")
async def a_redirect_to_another_host() -> None:
    async with site({}) as other, site({"/out": to(other.url())}) as here, fetcher() as client:
        assert (await client.fetch(here.url("/out"))).outcome is Outcome.REDIRECT_OUT_OF_SCOPE
        assert other.connections == 0


@script("redir-048")
async def a_redirect_with_a_body_without_end() -> None:
    answers: dict[str, Answer] = {
        "/": endless(b"HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 10000000000\r\n\r\n", b"a" * 65_536),
        "/b": page(b"x"),
    }
    async with site(answers) as here, fetcher() as client:
        assert (await client.fetch(here.url())).body == b"x"
        assert here.connections == 2
        assert here.sent < 1 << 24


@script("bug-046")
async def eleven_redirects() -> None:
    chain = {f"/{n}": redirect(f"/{n + 1}") for n in range(20)}
    asked, run = await crawled({"/": web_page("/0", "/good"), "/good": web_page(), **chain})
    assert run.summary["progress"]["failed"] == 1
    assert asked["/good"] == 1
    assert asked["/11"] == 0


@script("bug-049")
async def an_escape_in_a_redirect() -> None:
    async with site({"/": to("/f?sig=a%27b"), "/f?sig=a%27b": page(b"x")}) as here, fetcher() as client:
        assert (await client.fetch(here.url())).body == b"x"


@script("bug-051")
async def a_redirect_to_itself() -> None:
    async with site({"/a": to("/a", 302)}) as here, fetcher() as client:
        fetched = await client.fetch(here.url("/a"))
        assert (fetched.outcome, fetched.retryable) == (Outcome.REDIRECT_INVALID, False)
        assert here.targets == ["/a"]


# Bodies and connections


@script("bug-052")
async def a_gigabyte_of_zeros() -> None:
    bomb = gzip.compress(bytes(1 << 24)) * 64
    fetched = await one(page(bomb, "Content-Encoding: gzip"), max_body_bytes=10 << 20)
    assert (fetched.outcome, fetched.body) == (Outcome.TOO_LARGE, None)


@script("bug-054")
async def a_reader_that_is_slow() -> None:
    body = b"a" * (20 << 20)

    async def half_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(page(body))
        writer.write_eof()
        await reader.read()

    async with site({"/": half_close}) as here, fetcher(max_body_bytes=32 << 20) as client:
        running = asyncio.create_task(client.fetch(here.url()))
        while not running.done():
            await asyncio.sleep(0)  # others have their turn too
        assert running.result().body == body


@script("bug-056")
async def errors_with_bodies() -> None:
    answers: dict[str, Answer] = {"/": page(b"x" * 500, status="404 Not Found"), "/b": page(b"x")}
    async with site(answers) as here, fetcher(workers=1, per_host=1) as client:
        for _ in range(1000):
            assert (await client.fetch(here.url())).status == 404
        assert (await client.fetch(here.url("/b"))).body == b"x"


@script("bug-057")
async def connections_that_do_not_keep() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(page(b"x"))
        await writer.drain()
        writer.close()

    async with site({"/": once}) as here, fetcher() as client:
        for _ in range(200):
            assert (await client.fetch(here.url())).outcome is Outcome.OK


@script("bug-058", "bug-059")
async def a_strict_parser() -> None:
    answers: dict[str, Answer] = {
        "/a": page(b"", length=0) + b"extra",
        "/b": HTML_HEAD.replace(b"\r\n", b"\n") + b"Content-Length: 1\n\nx",
        "/c": page(b"x", "Set-Cookie: a=b\x01"),
        "/d": then(b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n"),
        "/e": page(b"good"),
    }
    async with site(answers) as here, fetcher() as client:
        outcomes = [(await client.fetch(here.url(f"/{name}"))).outcome for name in "abcd"]
        assert outcomes == [Outcome.OK, Outcome.OK, Outcome.OK, Outcome.PROTOCOL_ERROR]
        assert (await client.fetch(here.url("/e"))).body == b"good"


@script("bug-068")
async def codings_unpacked_in_full() -> None:
    packed = page(bomb("zstd", 512 << 20), "Content-Encoding: zstd")
    async with site({"/": packed}) as here, fetcher(max_body_bytes=256 << 20) as client:
        fetched = await client.fetch(here.url())
        assert (fetched.outcome, fetched.body) == (Outcome.TOO_LARGE, None)
        assert fetched.body_bytes <= 8 << 20


# Addresses


@script("bug-066")
async def a_redirect_to_a_literal() -> None:
    fetched = await one(to("http://169.254.169.254/"))
    assert (fetched.outcome, len(fetched.exchanges)) == (Outcome.REDIRECT_OUT_OF_SCOPE, 1)


@script("bug-067")
async def an_answer_that_changes() -> None:
    async with site({"/": page()}) as here, fetcher() as client:
        connector: Any = client._session.connector
        connector._resolver = Names({"a.example": [["10.9.9.9"], ["169.254.169.254"], ["::ffff:10.0.0.1"]]})
        connector._use_dns_cache = False
        for _ in range(3):
            assert (await client.fetch(f"http://a.example:{here.port}/")).outcome is Outcome.ADDRESS_REFUSED
        assert here.connections == 0


# Traps


def catch_all(links_of: Callable[[str], tuple[str, ...]]) -> WebAnswer:
    async def answer(request: Any) -> Any:
        return await web_page(*links_of(request.path_qs))(request)

    return answer


class Endless(dict[str, WebAnswer]):
    """A site that answers every path."""

    def __init__(self, links_of: Callable[[str], tuple[str, ...]], **answers: WebAnswer) -> None:
        super().__init__(answers)
        self._answer = catch_all(links_of)

    def get(self, key: str, default: Any = None) -> Any:
        return None if key == "/robots.txt" else super().get(key) or self._answer


@script("bug-026")
async def ever_more_parameters() -> None:
    url, requests = "https://s.example/p/?q=", 1
    while trap(url) is None:
        url, requests = f"{url}&q=", requests + 1
    assert trap(url) is Trap.SAME_PARAMETER
    assert requests == 6


@script("bug-028")
async def a_link_without_its_scheme() -> None:
    asked, run = await crawled(Endless(lambda _: ("www.x.example/p/", "/real")))
    assert asked["/real"] == 1
    # Below "/" and below "/real", three levels each at most.
    assert asked.total() <= 2 + 2 * 3
    assert run.summary["reason"] == "CrawlFinished"


@script("bug-030")
async def a_calendar() -> None:
    def next_year(path: str) -> tuple[str, ...]:
        year = int(path.rpartition("=")[2] or 0) if "=" in path else 0
        return (f"/cal?y={year + 1}",)

    asked, run = await crawled(Endless(next_year), spec="scope: {maxPages: 20, maxDepth: 1000}")
    assert asked.total() == 20
    assert run.summary["reason"] == "PageLimitReached"
    assert "maxPages" in run.summary["message"]


@script("bug-045")
async def excluded_redirect_target() -> None:
    answers = {"/": web_page("/food", "/good"), "/food": redirect("/forbidden"), "/forbidden": web_page()}
    asked, run = await crawled({**answers, "/good": web_page()}, spec="scope: {exclude: [/forbidden]}")
    assert asked == {"/": 1, "/food": 1, "/good": 1}
    assert run.summary["progress"]["failed"] == 0
