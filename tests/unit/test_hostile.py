"""Pages made to hurt: two hundred of them are parsed in a process that may use 256 MiB, and all are answered."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from durable_crawler.parse import parse
from durable_crawler.parse_guard import SMALL, harmless

LIMIT_MIB = 256

PROGRAM = r"""
import gzip, json, resource, sys
from durable_crawler.fetch_body import Body
from durable_crawler.fetch_failure import Failure
from durable_crawler.parse import parse

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

# Not ru_maxrss: that of a process begins with what its parent had when it was forked.
status = open("/proc/self/status").read()
peak = int(status.split("VmHWM:")[1].split()[0])
json.dump({"pages": done, "peak_mib": peak / 1024}, sys.stdout)
"""


@pytest.mark.timeout(600)
def test_two_hundred_hostile_pages_fit_in_256_mib() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["pages"] == 200
    assert seen["peak_mib"] < LIMIT_MIB, done.stderr


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
    assert len(html) > SMALL
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
