"""Serves the page about one frontier on loopback, until it is told to end. Read-only, whatever is asked.

A process of its own beside the crawl's: a report may take 300 MB, and the crawl must not feel it. Answers only to who
calls it localhost, so that no other site can lead a browser here under a name of its own (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import BinaryIO

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from crawljob import __version__
from crawljob.spec import CrawlJobSpec
from durable_crawler.background import Background
from durable_crawler.clock import Clock
from durable_crawler.frontier import FrontierError, Snapshot
from durable_crawler.frontier.overview import Overview
from durable_crawler.frontier.reader import FrontierReader
from durable_crawler.page import render
from durable_crawler.results.explain import explain
from durable_crawler.results.findings import collect
from durable_crawler.results.report import FORMATS, About

FAILURES = 20
URL_MAX = 8192
_CHUNK = 64 * 1024
_LOCAL = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]+)?", re.IGNORECASE)
_TYPES = {"html": "text/html", "markdown": "text/markdown", "json": "application/json", "junit": "application/xml"}
_SUFFIXES = {"html": "html", "markdown": "md", "json": "json", "junit": "xml"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


_LOG = logging.getLogger(__name__)
_LOG.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
"""What is no HTTP is refused, and no news to whoever started this."""


class PageServer:
    """Serves from ``start`` to ``aclose``. Each look at the frontier is a short transaction in a thread."""

    def __init__(self, db: Path, spec: CrawlJobSpec | None, clock: Clock) -> None:
        self._db = db
        self._reader = FrontierReader(db)
        self._spec = spec
        self._clock = clock
        self._looks = Background(2, "look")
        self._reports = Background(1, "report")
        self._answering = 0
        self._answered = clock.monotonic()
        self._before: tuple[float, int] | None = None
        self._rate = 0.0
        app = web.Application(client_max_size=1024, middlewares=[self._guard])
        app.router.add_get("/", self._main)
        app.router.add_get("/page.css", _resource("page.css", "text/css"))
        app.router.add_get("/page.js", _resource("page.js", "text/javascript"))
        app.router.add_get("/progress", self._progress)
        app.router.add_get("/explain", self._explain)
        app.router.add_get("/report/{form}", self._report)
        self._runner = web.AppRunner(
            app, logger=_LOG, access_log=None, handle_signals=False, shutdown_timeout=1.0, max_line_size=16_384
        )

    async def start(self, port: int) -> int:
        """Bind on 127.0.0.1 and serve; the port, which the system chooses for 0. Raises ``OSError``."""
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port, backlog=16).start()
        return int(self._runner.addresses[0][1])

    async def start_on(self, listening: socket.socket) -> None:
        """Serve on a socket that listens already. Raises ``OSError``."""
        await self._runner.setup()
        await web.SockSite(self._runner, listening).start()

    @property
    def idle_seconds(self) -> float:
        """For how long nobody has asked for anything."""
        return 0.0 if self._answering else self._clock.monotonic() - self._answered

    async def aclose(self) -> None:
        """Stop serving."""
        await self._runner.cleanup()

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if not _LOCAL.fullmatch(request.host):
            return web.Response(status=403, text="call this server localhost\n", headers=_HEADERS)
        self._answering += 1
        try:
            return await handler(request)
        except FrontierError as error:
            return self._html(render.trouble(self._name, str(error)), status=503)
        except web.HTTPException as error:
            error.headers.update({**_HEADERS, "Content-Type": "text/plain; charset=utf-8"})
            raise
        finally:
            self._answering -= 1
            self._answered = self._clock.monotonic()

    @property
    def _name(self) -> str:
        return f"Crawl of {self._db.name}"

    @staticmethod
    def _html(text: str, status: int = 200) -> web.Response:
        return web.Response(text=text, status=status, content_type="text/html", headers=_HEADERS)

    async def _main(self, _: web.Request) -> web.Response:
        now_ms = self._clock.wall_ms()
        overview, failures = await self._looks.run(lambda: self._look(now_ms))
        numbers = self._numbers(overview.counts)
        return self._html(render.main(self._name, overview, numbers, failures, now_ms))

    def _look(self, now_ms: int) -> tuple[Overview, list[render.Failure]]:
        overview = self._reader.overview(now_ms)
        return overview, list(self._failures()) if overview.counts.failed else []

    def _failures(self) -> Iterator[render.Failure]:
        for url, outcome, status, error, finished_ms in self._reader.failed_lately(FAILURES):
            why = outcome if status is None else f"{outcome}, status {status}"
            yield render.Failure(url, f"{why}: {error}" if error else why, finished_ms)

    def _numbers(self, counts: Snapshot) -> dict[str, float]:
        now = self._clock.monotonic()
        if self._before is None or now - self._before[0] >= 1.0:
            if self._before is not None:
                self._rate = max(0.0, (counts.done - self._before[1]) / (now - self._before[0]))
            self._before = (now, counts.done)
        found = asdict(counts)
        return {**{key: found[key] for key in render.NUMBERS if key in found}, "rate": self._rate}

    async def _progress(self, _: web.Request) -> web.Response:
        phase, counts = await self._looks.run(lambda: self._reader.standing(self._clock.wall_ms()))
        return web.json_response({"phase": phase, **self._numbers(counts)}, headers=_HEADERS)

    async def _explain(self, request: web.Request) -> web.Response:
        url = request.query.get("url", "")
        if not 0 < len(url) <= URL_MAX:
            raise web.HTTPBadRequest(text=f"say which URL: /explain?url=…, at most {URL_MAX} characters\n")

        def told() -> str:
            with self._reader.results() as connection:
                return render.story(self._name, explain(connection, url, self._spec, self._clock.wall_ms()))

        return self._html(await self._looks.run(told))

    async def _report(self, request: web.Request) -> web.StreamResponse:
        form = request.match_info["form"]
        if form not in FORMATS:
            raise web.HTTPNotFound(text=f"the formats are {', '.join(FORMATS)}\n")
        with tempfile.TemporaryFile() as file:
            await self._reports.run(lambda: self._write_report(form, file))
            response = web.StreamResponse(headers={**_HEADERS, "Content-Type": f"{_TYPES[form]}; charset=utf-8"})
            response.headers["Content-Disposition"] = f'attachment; filename="crawl-report.{_SUFFIXES[form]}"'
            response.content_length = file.tell()
            file.seek(0)
            await response.prepare(request)
            while chunk := await asyncio.to_thread(file.read, _CHUNK):
                await response.write(chunk)
            await response.write_eof()
            return response

    def _write_report(self, form: str, file: BinaryIO) -> None:
        about = About(str(self._db), self._clock.wall_ms(), __version__)
        with self._reader.results() as connection, collect(connection) as findings:
            parts = (part.encode("utf-8", "replace") for part in FORMATS[form](findings, about))
            try:
                file.writelines(parts)
            except OSError as error:
                why = f"the folder for temporary files cannot be written to ({error.strerror})"
                raise FrontierError(f"{why}; name another one in TMPDIR") from error


def _resource(name: str, content_type: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    text = files(__package__).joinpath(name).read_text(encoding="utf-8")

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=text, content_type=content_type, headers=_HEADERS)

    return answer
