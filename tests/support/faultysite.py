"""A site of 300 pages on two hosts with 40 planted faults of every class, and 60 traps that look like faults."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web
from tests.support.website import Answer, Website, in_turn, page, redirect

PAGES = 300

BROKEN = [
    *[f"/missing/{number}" for number in range(9)],
    *[f"/gone/{number}" for number in range(5)],
    *["/error/500", "/error/501", "/error/400", "/error/405", "/error/414", "/error/505"],
    *["/loop/self", "/loop/there", "/to-missing", "/to-gone", "/without-location"],
]
BLOCKED = ["/login", "/forbidden", "/legal", "/robot", "/proxy", "/pay", "/picky"]
UNREACHABLE = ["/overloaded", "/gateway", "/reset", "/half"]
REDIRECTED = ["/moved/301", "/moved/308"]
FRAGMENTS = ["/place#nowhere", "/place#Here"]
FAULTS = [*BROKEN, *BLOCKED, *UNREACHABLE, *REDIRECTED, *FRAGMENTS]

_STATUSES = {
    "/login": 401, "/forbidden": 403, "/legal": 451, "/robot": 999, "/proxy": 407, "/pay": 402, "/picky": 406,
    "/overloaded": 503, "/gateway": 502,
}  # fmt: skip
_STATUSES |= {path: 404 for path in BROKEN if path.startswith("/missing")}
_STATUSES |= {path: 410 for path in BROKEN if path.startswith("/gone")}
_STATUSES |= {path: int(path[-3:]) for path in BROKEN if path.startswith("/error")}
_REDIRECTS = {
    "/loop/self": ("/loop/self", 302), "/loop/there": ("/loop/back", 302), "/loop/back": ("/loop/there", 302),
    "/to-missing": ("/missing/0", 302), "/to-gone": ("/gone/0", 301), "/without-location": ("", 302),
    "/moved/301": ("/place", 301), "/moved/308": ("/place", 308),
    **{f"/soon/{status}": ("/place", status) for status in (302, 303, 307)},
    **{f"/step/{number}": (f"/step/{number + 1}" if number < 5 else "/place", 302) for number in range(6)},
}  # fmt: skip

# What must not be called broken, each for a reason of its own.
TRAPS = [
    *[f"/soft/{number}" for number in range(20)],  # pages about errors
    *[f"/soon/{status}" for status in (302, 303, 307)],  # moved for now
    *[f"/step/{number}" for number in range(6)],  # moved for now, in several steps
    *[f"/flaky/{number}" for number in range(4)],  # fail once
    *["/file.pdf", "/empty", "/none", "/archive.zip", "/big"],
    *["/place#here", "/place#named", "/place#top", "/place#TOP", "/place#", "/place#:~:text=x", "/place#caf%C3%A9"],
    *["/place?a=1#here", "/place#/route", "/place#!call", "/Place", "/place/", "/a%20b", "/caf%C3%A9"],
    *["mailto:nobody@example.org", "tel:+4912345", "javascript:void(0)", "data:text/plain,x"],
    *["/closed/missing", "http://127.0.0.200:9/elsewhere", "/nofollow", "/place#x=1"],
]


@dataclass
class FaultySite:
    """Where it is served, and what a perfect report says of it."""

    home: str
    other: str

    def urls(self, paths: Sequence[str]) -> set[str]:
        """Where these faults or traps are linked to."""
        everything = [*FAULTS, *TRAPS]
        where = {path: (self.home, self.other)[number % 2] for number, path in enumerate(everything)}
        return {f"{where[path].rstrip('/')}{path}" for path in paths}


@asynccontextmanager
async def served() -> AsyncIterator[FaultySite]:
    """The site on two ports of loopback; every second fault and trap is linked to on the other."""
    async with Website({}) as home, Website({}) as other:
        site = FaultySite(home.url, other.url)
        for number, host in enumerate((home, other)):
            host.answers = _answers(number, other.url if not number else home.url)
        yield site


def _answers(host: int, other: str) -> Mapping[str, Answer]:
    wanted = [*FAULTS, *TRAPS][host::2]
    answers: dict[str, Answer] = {"/robots.txt": _text("User-agent: *\nDisallow: /closed/\n")}
    for path, status in _STATUSES.items():
        answers[path] = page(status=status)
    for path, (target, status) in _REDIRECTS.items():
        answers[path] = redirect(target, status) if target else page(status=status)
    for number in range(20):
        answers[f"/soft/{number}"] = page(title="404 Not Found")
    for number in range(4):
        answers[f"/flaky/{number}"] = in_turn(page(status=500), page())
    answers["/place"] = answers["/place?a=1"] = _text("<p id=here><a name=named></a><p id=café>", "text/html")
    answers["/Place"] = answers["/place/"] = answers["/a%20b"] = answers["/caf%C3%A9"] = page()
    answers["/file.pdf"], answers["/archive.zip"] = _text("%PDF", "application/pdf"), _text("PK", "application/zip")
    answers["/empty"], answers["/none"] = _text("", "text/html"), page(status=204)
    answers["/big"] = _text("<p>" + "x" * 200_000, "text/html")
    answers["/reset"], answers["/half"] = _broken_off(whole=False), _broken_off(whole=True)
    pages = PAGES // 2
    for number in range(pages):
        answers[f"/page/{number}"] = _linking(["/", wanted[number % len(wanted)]], number)
    answers["/"] = _linking([*(f"/page/{number}" for number in range(pages)), other, "/place"], -1)
    return answers


def _linking(links: list[str], number: int) -> Answer:
    body = "".join(f'<a href="{link}"{" rel=nofollow" * (link == "/nofollow")}>{link}</a>' for link in links)
    hidden = f"<!-- <a href=/hidden/{number}> --><script>'<a href=/script/{number}>'</script>"
    hidden += f"<template><a href=/template/{number}></template>"
    return _text(f"<!doctype html><title>{number}</title>{body}{hidden}", "text/html")


def _text(text: str, content_type: str = "text/plain") -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text=text, content_type=content_type)

    return answer


def _broken_off(*, whole: bool) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        if whole:
            response = web.StreamResponse(headers={"Content-Length": "1000", "Content-Type": "text/html"})
            await response.prepare(request)
            await response.write(b"<p>half")
        request.transport.abort()
        raise web.HTTPNotFound

    return answer
