"""The operator's own small HTTP server: ``/healthz`` (the loop turns), ``/readyz`` (all watches exist), ``/metrics``.

Ready is when a task is there for each watch: whether it hears anything, the resync and the watchdog judge.

Liveness says nothing of the API server: restarting us would not heal it. Only a process that has given up, and is about
to end, is not well.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Self

from aiohttp import web

from crawljob_telemetry import prometheus


class CannotListenError(Exception):
    """The address is taken, or is none of this machine."""


class HealthServer:
    """Serves on one address as long as it is entered."""

    def __init__(self, host: str, port: int, metrics: Callable[[], str]) -> None:
        """``metrics`` gives the text of ``/metrics``; it must not wait."""
        self._host, self._port = host, port
        self._text = metrics
        self.dead = False
        self.ready: Callable[[], bool] = lambda: False
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)

    async def __aenter__(self) -> Self:
        """Listen; raises ``CannotListenError``."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError as error:
            await self._runner.cleanup()
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            raise CannotListenError(f"{self._host}:{self._port} cannot be listened on ({why})") from error
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(status=500, text="given up\n") if self.dead else web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n") if self.ready() else web.Response(status=503, text="not all watches exist\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._text().encode(), headers={"Content-Type": prometheus.CONTENT_TYPE})
