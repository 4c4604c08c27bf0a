"""A small documentation site with faults in it, served on loopback, that keeps the log which judges the crawl.

What a page links to follows from its number alone, so that everybody can work out what a crawl must find.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from aiohttp import web
from aiohttp.typedefs import Handler

from durable_crawler.outcomes import Outcome

PAGES = 240
"""Pages that answer with HTML."""

_LATENCY_SECONDS = 0.02  # as a site across a city: slow enough to watch and to interrupt
_BROKEN = 12
_MOVED = 8
_FLAKY_EVERY = 40
_FILE = "/files/manual.pdf"
_ELSEWHERE = "/elsewhere"


class Site:
    """Serves the site from ``start`` to ``aclose``; ``requests`` counts what was asked, by path."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self._runner: web.AppRunner | None = None
        self._flaky: set[int] = set()
        self.url = ""

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; without arguments on a free port of loopback."""
        app = web.Application()
        app.router.add_get("/", self._index)
        app.router.add_get("/page/{number}", self._page)
        app.router.add_get("/moved/{number}", self._moved)
        app.router.add_get("/now-here/{number}", self._now_here)
        app.router.add_get(_FILE, self._file)
        app.router.add_get(_ELSEWHERE, self._elsewhere)
        app.middlewares.append(self._count)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/"

    async def aclose(self) -> None:
        """Stop serving."""
        if self._runner is not None:
            await self._runner.cleanup()

    def expected(self) -> dict[str, Outcome]:
        """Every URL that a crawl of the site must finish, and how it ends."""
        paths = {"": Outcome.OK, _FILE[1:]: Outcome.NOT_HTML, _ELSEWHERE[1:]: Outcome.REDIRECT_OUT_OF_SCOPE}
        paths |= {f"page/{number}": Outcome.OK for number in range(PAGES - 1)}
        paths |= {f"missing/{number}": Outcome.HTTP_ERROR for number in range(_BROKEN)}
        paths |= {f"moved/{number}": Outcome.OK for number in range(_MOVED)}
        return {self.url + path: outcome for path, outcome in paths.items()}

    def asked(self, url: str) -> int:
        """How often one of the site's URLs was requested."""
        return self.requests["/" + url.removeprefix(self.url)]

    def needed(self, url: str) -> int:
        """How many requests a URL needs: pages that fail once need two."""
        kind, _, number = url.removeprefix(self.url).partition("/")
        return 2 if kind == "page" and _is_flaky(int(number)) else 1

    @web.middleware
    async def _count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == "/robots.txt":  # no page: a crawl has to ask, and may ask again
            raise web.HTTPNotFound
        self.requests[request.path] += 1
        await asyncio.sleep(_LATENCY_SECONDS)
        return await handler(request)

    async def _index(self, request: web.Request) -> web.Response:
        return _html("Start", [*(f"/page/{number}" for number in range(8)), _FILE, _ELSEWHERE])

    async def _page(self, request: web.Request) -> web.Response:
        number = _number(request)
        if number is None or number >= PAGES - 1:
            raise web.HTTPNotFound
        if _is_flaky(number) and number not in self._flaky:
            self._flaky.add(number)
            raise web.HTTPBadGateway  # once: a crawl that tries again gets the page
        links = [f"/page/{child}" for child in range(number * 3 + 8, number * 3 + 11) if child < PAGES - 1]
        links += [f"/page/{number // 2}", "/"]
        if number < _BROKEN:
            links.append(f"/missing/{number}")
        if number < _MOVED:
            links.append(f"/moved/{number}")
        return _html(f"Page {number}", links)

    async def _moved(self, request: web.Request) -> web.Response:
        raise web.HTTPMovedPermanently(f"/now-here/{_number(request) or 0}")

    async def _now_here(self, request: web.Request) -> web.Response:
        return _html("Moved", ["/"])

    async def _file(self, request: web.Request) -> web.Response:
        return web.Response(body=b"%PDF-1.7 not a page", content_type="application/pdf")

    async def _elsewhere(self, request: web.Request) -> web.Response:
        raise web.HTTPFound("http://elsewhere.invalid/")


def _is_flaky(number: int) -> bool:
    return number % _FLAKY_EVERY == _FLAKY_EVERY - 1


def _number(request: web.Request) -> int | None:
    text = request.match_info["number"]
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else None


def _html(title: str, links: list[str]) -> web.Response:
    items = "".join(f'<li><a href="{link}">{link}</a></li>' for link in links)
    page = f"<!doctype html><title>{title}</title><h1>{title}</h1><p>{'Lorem ipsum. ' * 40}</p><ul>{items}</ul>"
    return web.Response(text=page, content_type="text/html")
