"""A site on loopback whose log judges a crawl: what was asked, when, and how much at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class Website:
    """Serves ``answers`` by path; any other path is a 404. Use it as an async context manager."""

    answers: Mapping[str, Answer]
    latency: float = 0.0
    requests: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by each request; tests clear it and wait."""
    url: str = ""
    authority: str = ""
    _runner: web.AppRunner | None = None

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

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests[request.path_qs] += 1
        self.log.append(request.path_qs)
        self.asked.set()
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


def tree(pages: int, fanout: int = 4) -> dict[str, Answer]:
    """``/`` and ``/1`` to ``/pages-1``, each linking to its children and back to the start."""
    answers: dict[str, Answer] = {}
    for number in range(pages):
        children = range(number * fanout + 1, min(pages, number * fanout + fanout + 1))
        answers["/" if number == 0 else f"/{number}"] = page("/", *(f"/{child}" for child in children))
    return answers
