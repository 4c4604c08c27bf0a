"""The crawler's small web server: ``/healthz``, ``/readyz``, ``/metrics`` and ``/progress``.

Asked by the kubelet, by Prometheus and by the operator; composed by the command line next to the engine. It only reads
numbers that are there already, and a client cannot make it hold more than a few connections.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
from collections.abc import Callable

from aiohttp import web

from crawljob_telemetry import prometheus
from durable_crawler.background import Background
from durable_crawler.logs import Limited
from durable_crawler.telemetry.catalogue import collect
from durable_crawler.telemetry.stats import Stats

CONNECTIONS_MAX = 64
"""Open connections; the oldest makes room for a new one, so that idle clients cannot shut out the kubelet."""

_log = Limited(logging.getLogger(__name__))


class ListenerError(Exception):
    """The address cannot be listened on. The message is a sentence that names the field and the cause."""


class Listener:
    """Serves one process's state from ``start`` to ``aclose``; only GET and HEAD, only the four paths."""

    def __init__(self, address: str, port: int, stats: Stats, ready: Callable[[], bool]) -> None:
        """Port 0 lets the system choose one (see ``port``); ``ready`` is asked on every ``/readyz``."""
        self._address = address
        self._port = port
        self._stats = stats
        self._ready = ready
        app = web.Application(client_max_size=1024)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/progress", self._progress)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, keepalive_timeout=30, shutdown_timeout=1.0, max_line_size=2048
        )
        self._server: asyncio.Server | None = None
        self._scrapes = Background(1, "scrape")  # the frontier's file system may hang

    @property
    def port(self) -> int:
        """The port that is bound; the configured one before ``start``."""
        return self._port

    async def start(self) -> None:
        """Bind and serve. Raises ``ListenerError``; nothing is left open then."""
        sock = self._bind()
        try:
            await self._runner.setup()
            self._server = await asyncio.get_running_loop().create_server(self._connection, sock=sock)
        except BaseException:  # whatever it was, cancellation too: nothing is left open
            sock.close()
            await self._runner.cleanup()
            raise
        self._port = sock.getsockname()[1]

    async def aclose(self) -> None:
        """Stop serving; requests under way have a second. May be called at any time, and twice."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        await self._runner.cleanup()

    def _bind(self) -> socket.socket:
        where = f"[{self._address}]:{self._port}" if ":" in self._address else f"{self._address}:{self._port}"
        try:
            ip = ipaddress.ip_address(self._address)
        except ValueError:
            raise ListenerError(f"listen.address {self._address}: is not an IP address") from None
        try:
            return socket.create_server(
                (self._address, self._port),
                family=socket.AF_INET6 if ip.version == 6 else socket.AF_INET,
                backlog=CONNECTIONS_MAX,
                # `::` means every address, as it does for other servers in a cluster.
                dualstack_ipv6=ip.version == 6 and ip.is_unspecified and socket.has_dualstack_ipv6(),
            )
        except OSError as error:
            # create_server words its own message around the cause.
            cause = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error)
            hint = (
                "; choose another port with --metrics ADDRESS:PORT or listen.port"
                if error.errno == errno.EADDRINUSE
                else ""
            )
            message = f"listen.address {self._address}: cannot listen on {where} ({cause}){hint}"
            raise ListenerError(message) from error

    def _connection(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None, "serving follows setup"
        if len(open_ones := server.connections) >= CONNECTIONS_MAX:
            open_ones[0].force_close()
        return server()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")  # the answer itself says that the event loop turns

    async def _readyz(self, _: web.Request) -> web.Response:
        if self._ready():
            return web.Response(text="ok\n")
        return web.Response(status=503, text="not ready\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        text = await self._scrapes.run(lambda: prometheus.render(collect(self._stats)))
        return web.Response(body=text.encode(), headers={"Content-Type": prometheus.CONTENT_TYPE})

    async def _progress(self, _: web.Request) -> web.Response:
        return web.Response(text=self._stats.progress().model_dump_json(by_alias=True), content_type="application/json")


__all__ = ["Listener", "ListenerError"]
