"""Pages made to hurt: what they cost in memory is measured in a process of their own, and all are answered."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import timeit
from collections.abc import Callable
from random import Random

import pytest
from selectolax.lexbor import LexborHTMLParser
from tests.support.codings import COMPRESS, bomb
from tests.support.misbehaving import page as served
from tests.support.misbehaving import site

from durable_crawler.parse import parse
from durable_crawler.parse_guard import SHORT, harmless

LIMIT_MIB = 256

PROGRAM = r"""
import asyncio, gzip, json, resource, sys
from functools import partial
from durable_crawler.background import Background
from durable_crawler.fetch_body import Body
from durable_crawler.fetch_failure import Failure
from durable_crawler.memory import one_heap
from durable_crawler.parse import parse
from durable_crawler.work import PARSERS

MIB = 1 << 20
LARGEST = 4 * MIB  # fetch.maxBodyBytes


def numbered(form, size):
    return b"".join(form % n for n in range(size // len(form % 9999)))


PAGES = {
    "nesting": lambda size: b"<div>" * (size // 5),
    "nesting of lists": lambda size: b"<ul><li>" * (size // 8),
    "formatting": lambda size: b"<b><i><u><p>" * (size // 64),
    "foreign": lambda size: b"<svg>" * (size // 5) + b"<a href=x>",
    "tables": lambda size: b"<table><tr><td>" * (size // 15),
    "templates": lambda size: b"<template>" * (size // 10),
    "links": lambda size: numbered(b"<a href=%d>", size),
    "one million links": lambda size: b"<a href>" * (size // 8),
    "attribute": lambda size: b"<a href='/" + b"a" * (size - 20) + b"'>",
    "attributes": lambda size: b"<a " + numbered(b"a%d=1 ", size - 20) + b"href=x>",
    "title": lambda size: b"<title>" + b"t" * (size - 7),
    "comment": lambda size: b"<!--" + b"-" * (size - 4),
    "text": lambda size: b"\xff" * size,
    "entities": lambda size: b"&amp;&notit;&#x10ffff;" * (size // 22),
    "script": lambda size: b"<script>" + b"<" * (size - 8),
    "metas": lambda size: b"<meta name=robots content=none>" * (size // 31),
    "bases": lambda size: b"<base href=/b/>" * (size // 15) + b"<a href=x>",
    "prescan": lambda size: b"<meta " * (size // 6),
    "utf-16": lambda size: b"\xff\xfe" + b"<\0a\0>\0" * (size // 6),
    "selects": lambda size: b"<select><option>" * (size // 16),
}

"""

ONE_AFTER_THE_OTHER = r"""
done = 0
for turn in range(10):
    for name, make in PAGES.items():
        body = make(LARGEST if turn == 0 else LARGEST // 8)
        page = parse(body, "text/html", f"https://x.example/{turn}/", 5000, robots_tags=["x" * 512] * 16)
        assert len(page.links) <= 5000
        done += 1
        del body, page
        if turn == 0:
            used = resource.getrusage(resource.RUSAGE_SELF)
            print(f"{name}: peak {used.ru_maxrss // 1024} MiB, {used.ru_utime:.1f} s", file=sys.stderr)

bomb = gzip.compress(bytes(MIB)) * 2
for _ in range(20):
    body = Body("gzip", LARGEST)
    try:
        for _ in range(5000):
            body.feed(bomb)
    except Failure as failure:
        assert failure.outcome == "too_large", failure
    else:
        raise AssertionError("a bomb was taken")

"""

EIGHT_AT_ONCE = r"""
together = [PAGES[name](LARGEST) for name in ("links", "one million links", "metas", "bases")] * 2
together[0] = numbered(b"<a href=/%d>a link</a>", LARGEST)


async def at_once():
    one_heap()
    background = Background(PARSERS, "parser")
    pages = (partial(parse, body, "text/html", "https://x.example/", 5000) for body in together)
    return await asyncio.gather(*map(background.run, pages))


done = len(asyncio.run(at_once()))

"""

PEAK = r"""
# Not ru_maxrss: that of a process begins with what its parent had when it was forked.
status = open("/proc/self/status").read()
peak = int(status.split("VmHWM:")[1].split()[0])
json.dump({"pages": done, "peak_mib": peak / 1024}, sys.stdout)
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("course", "pages", "limit"),
    [(ONE_AFTER_THE_OTHER, 200, LIMIT_MIB), (EIGHT_AT_ONCE, 8, LIMIT_MIB)],
    ids=["200", "8 at once"],
)
def test_hostile_pages_fit_in_memory(course: str, pages: int, limit: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + course + PEAK], capture_output=True, text=True, timeout=580, check=False
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["pages"] == pages
    assert seen["peak_mib"] < limit, done.stderr


VICTIM = r"""
import asyncio, ipaddress, json, pathlib, sys
from crawljob.spec import Fetch
from durable_crawler.clock import SystemClock
from durable_crawler.fetch import Fetcher

PROC = pathlib.Path("/proc/self")


def memory(field):
    return int((PROC / "status").read_text().split(field + ":")[1].split()[0]) * 1024


async def main(max_body_bytes, warm, bomb):
    allowed = (ipaddress.ip_network("127.0.0.0/8"),)
    async with Fetcher(Fetch(max_body_bytes=max_body_bytes), SystemClock(), allowed=allowed) as client:
        assert (await client.fetch(warm)).outcome == "ok"
        (PROC / "clear_refs").write_text("5")  # the peak begins here
        before = memory("VmRSS")
        fetched = await client.fetch(bomb)
        growth = memory("VmHWM") - before
    print(json.dumps({"outcome": fetched.outcome, "decoded": fetched.body_bytes, "growth": growth}))


asyncio.run(main(int(sys.argv[1]), *sys.argv[2:]))
"""

MIB = 1 << 20


def thousandfold(coding: str, size: int) -> bytes:
    """Decodes to 1,000 times as much: with a KiB of noise in each MiB, where the coding would do better than that."""
    chance = Random(33)
    noisy = b"".join(chance.randbytes(1024) + bytes(MIB - 1024) for _ in range(size // MIB))
    packed = COMPRESS[coding](noisy if coding in ("br", "zstd") else bytes(size))
    assert 900 < size / len(packed) < 1100
    return packed


@pytest.mark.parametrize("limit", [4 * MIB, 256 * MIB], ids=["by default", "at most"])
@pytest.mark.parametrize("make", [thousandfold, bomb], ids=["thousandfold", "zeros"])
@pytest.mark.parametrize("coding", COMPRESS)
async def test_scenario_33_a_bomb_is_stopped_by_8_mib_and_costs_less_than_32_mb(
    coding: str, make: Callable[[str, int], bytes], limit: int
) -> None:
    field = f"Content-Encoding: {coding}"
    answers = {"/": served(COMPRESS[coding](b"<p>"), field), "/bomb": served(make(coding, 256 * MIB), field)}
    async with site({**answers}) as here:
        victim = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", VICTIM, str(limit), here.url(), here.url("/bomb")),
            stdout=subprocess.PIPE,
        )
        out, _ = await victim.communicate()
    assert victim.returncode == 0
    seen = json.loads(out)
    assert seen["outcome"] == "too_large"
    assert seen["decoded"] <= 8 * MIB
    assert seen["growth"] < 32_000_000


@pytest.mark.parametrize(
    "html",
    [
        "<p>x" * 30_000,
        "<table>" + "<tr><td>x" * 30_000,
        "<ul>" + "<li><a href=x>x</a>" * 30_000,
        "<a href=x>" * 30_000,
        "<div><span>x</span></div>" * 30_000,
        "<img src='data:image/png;base64," + "A" * 200_000 + "'>",
        "<div data-json='" + '{"a": 1, "b": 2} ' * 30_000 + "'>",
        "<script>" + "if (a<b || c>d) e=f; " * 9_000 + "</script>",
    ],
)
def test_large_honest_pages_are_read_whole(html: str) -> None:
    assert len(html) > SHORT
    assert harmless(html) == html


def test_what_comes_before_the_depth_is_read() -> None:
    page = parse(
        b"<a href=/before></a>" + b"<div>" * 100_000 + b"<a href=/after>", "text/html", "https://x.example/", 9
    )
    assert page.links == ("https://x.example/before",)
    assert page.cut
    assert not parse(b"<a href=/a>", "text/html", "https://x.example/", 9).cut


@pytest.mark.parametrize("page", ["<div></span>" * 100_000, "<b></i>" * 100_000, "<DIV></p>" * 100_000])
def test_end_tags_of_what_is_not_open_hide_no_depth(page: str) -> None:
    assert len(harmless(page)) < len(page)


@pytest.mark.parametrize(
    "html",
    [
        "<p>" + "".join(f"<b id={n}>" for n in range(1000)) + "<p>x" * 3000,
        "<table>" + "".join(f"<i id={n}>" for n in range(2000)) + "<tr>x" * 2000,
        "<rt>" * 65_000,
        "<rp>" * 65_000,
        "<optgroup>" * 65_000,
        "<td>x<td><b>" * 65_000,
        "<svg>" + "<input>" * 65_000,
        "<svg><li>x<g>" * 65_000,
        "<span><div></span>" * 65_000,
        "<div><select></div></select>" * 65_000,
        "<div><!--</div>-->" * 65_000,
        "<div><script>'</div>'</script>" * 65_000,
        "<b><div><object></b>" * 65_000,
        "".join(f"<b id={n}>" + "<div>" * 9 + "</b>" + "</div>" * 9 for n in range(6000)),
        "<a" + "".join(f"/a{n}" for n in range(200_000)) + ">",
        "<a x='>'" + "".join(f" a{n}='>'" for n in range(20_000)) + ">",
        "<b>" * 3 + "<div>" * 20_000 + "</b>" * 20_000,
        "<div>" * 4_000 + "<hr>" * 200_000,
        "".join(f"<html a{n}>" for n in range(20_000)),
    ],
)
def test_what_the_parser_would_pay_for_is_cut(html: str) -> None:
    given = harmless(html)
    assert len(given) < len(html)
    LexborHTMLParser(given)


def test_an_ordinary_page_is_let_through_for_next_to_nothing() -> None:
    text = "Some text that says what there is to say, in a few plain words. "
    html = f"<div class=post><h2>Head</h2><p>{text}<b>Nothing</b> about <a href=/p/1>this</a>.<br>{text}</p></div>" * 45
    assert harmless(html) == html
    guard = min(timeit.repeat(lambda: harmless(html), number=20, repeat=5))
    whole = min(timeit.repeat(lambda: parse(html.encode(), "text/html", "https://x.example/", 99), number=20, repeat=5))
    assert guard < whole / 8  # some ten microseconds
