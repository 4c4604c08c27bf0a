"""A site on loopback whose log judges a crawl: what was asked, when, and how much at once."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

from aiohttp import web

ROBOTS = "/robots.txt"

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class Website:
    """Serves ``answers`` by path; any other path is a 404. Use it as an async context manager.

    Requests for ``/robots.txt`` are no pages: they are counted apart, and not in the log.
    """

    answers: Mapping[str, Answer]
    latency: float = 0.0
    requests: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)
    moments_ms: list[int] = field(default_factory=list)
    """When each request of ``log`` arrived, by the wall clock."""
    robots_asked: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by each request; tests clear it and wait."""
    url: str = ""
    authority: str = ""
    _runner: web.AppRunner | None = None
    _waiters: list[asyncio.Future[None]] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.authority = f"{host}:{port}"
        self.url = f"http://{self.authority}/"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def next_request(self) -> None:
        """Wait for the next request; any number may wait."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path_qs == ROBOTS:
            self.robots_asked += 1
            if ROBOTS not in self.answers:
                raise web.HTTPNotFound
            return await self.answers[ROBOTS](request)
        self.requests[request.path_qs] += 1
        self.log.append(request.path_qs)
        self.moments_ms.append(time.time_ns() // 1_000_000)
        self.asked.set()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if self.latency:
                await asyncio.sleep(self.latency)
            answer = self.answers.get(request.path_qs)
            if answer is None:
                raise web.HTTPNotFound
            return await answer(request)
        finally:
            self.in_flight -= 1


@dataclass(slots=True)
class Tripwire:
    """A port of loopback that nobody may touch, and how often it was. Use it as an async context manager."""

    touched: int = 0
    authority: str = ""
    url: str = ""
    _server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._touch, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.authority = f"{host}:{port}"
        self.url = f"http://{self.authority}/"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _touch(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.touched += 1
        writer.close()


def page(*links: str, title: str = "page", status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """An HTML page with links."""

    async def answer(_: web.Request) -> web.StreamResponse:
        body = "".join(f'<a href="{link}">link</a>' for link in links)
        return web.Response(
            text=f"<!doctype html><title>{title}</title>{body}",
            content_type="text/html",
            status=status,
            headers=headers,
        )

    return answer


def robots(text: str, status: int = 200) -> Answer:
    """A robots.txt."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text=text, status=status)

    return answer


def redirect(location: str, status: int = 302) -> Answer:
    """A redirect."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={"Location": location})

    return answer


def in_turn(*answers: Answer) -> Answer:
    """The first answer to the first request, and so on; the last to all that follow."""
    left = list(answers)

    async def answer(request: web.Request) -> web.StreamResponse:
        return await (left.pop(0) if len(left) > 1 else left[0])(request)

    return answer


def after(event: asyncio.Event, then: Answer) -> Answer:
    """An answer that is held back until ``event`` (or until the client has gone)."""

    async def answer(request: web.Request) -> web.StreamResponse:
        await event.wait()
        return await then(request)

    return answer


def file(content_type: str = "application/pdf") -> Answer:
    """A document of another type."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=b"%PDF-1.7 and so on", content_type=content_type)

    return answer


def cut_short(*links: str) -> Answer:
    """A body that ends before the length that was announced."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/html", "Content-Length": "100000"})
        await response.prepare(request)
        await response.write("".join(f'<a href="{link}">link</a>' for link in links).encode())
        assert request.transport is not None
        request.transport.close()
        return response

    return answer


def slow(site: Callable[[], Website], then: Answer, requests: int, seconds: float = 0.5) -> Answer:
    """An answer that waits until the site was asked for ``requests`` more pages, or ``seconds`` where it is not."""

    async def answer(request: web.Request) -> web.StreamResponse:
        website = site()
        enough = len(website.log) + requests
        try:
            async with asyncio.timeout(seconds):
                while len(website.log) < enough:
                    await website.next_request()
        except TimeoutError:
            pass
        return await then(request)

    return answer


def tree(pages: int, fanout: int = 4) -> dict[str, Answer]:
    """``/`` and ``/1`` to ``/pages-1``, each linking to its children and back to the start."""
    answers: dict[str, Answer] = {}
    for number in range(pages):
        children = range(number * fanout + 1, min(pages, number * fanout + fanout + 1))
        answers["/" if number == 0 else f"/{number}"] = page("/", *(f"/{child}" for child in children))
    return answers
