"""The page's port beside a crawl, on loopback: whoever comes finds the page, which is started for them.

The page is a process of its own (``server`` says why) and few crawls are ever looked at, so until somebody comes there
is a socket and nothing more. It ends when nobody has asked for a while, and with the crawl, however that ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from pathlib import Path

from crawljob.spec import CrawlJobSpec
from crawljob_telemetry.limited import Limited

BACKLOG = 16
AGAIN_SECONDS = 1.0
"""Between two starts at least: a page that cannot be started must not be started all the time."""
END_SECONDS = 3.0

_log = logging.getLogger(__name__)
_warnings = Limited(_log, interval=60.0)


class Door:
    """Listens from ``open`` to ``aclose``. Nothing that happens here is the crawl's trouble: it is logged."""

    def __init__(self, db: Path, spec: CrawlJobSpec) -> None:
        self._db = db
        self._spec = spec
        self._socket: socket.socket | None = None
        self._serving: asyncio.Task[None] | None = None

    def open(self, port: int) -> None:
        """Listen at ``port`` of 127.0.0.1, if it is to be had."""
        try:
            self._socket = socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
        except (OSError, OverflowError) as error:
            cause = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            _log.warning("no page about the crawl: 127.0.0.1:%d cannot be listened on (%s)", port, cause)
            return
        self._socket.setblocking(False)
        _log.info("the page about the crawl is http://127.0.0.1:%d/", port)
        self._serving = asyncio.create_task(self._serve(self._socket), name="page")

    async def aclose(self) -> None:
        """End the page, if there is one, and listen no longer."""
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()

    async def _serve(self, listening: socket.socket) -> None:
        while True:
            await _somebody(listening)
            try:
                await self._page(listening)
            except OSError as error:
                _warnings.warning("start", "the page about the crawl cannot be started (%s)", error.strerror or error)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _page(self, listening: socket.socket) -> None:
        """One life of the page's process: it is told the spec, and ends when its standard input does."""
        command = (sys.executable, "-m", "durable_crawler", "page", "--db", str(self._db))
        process = await asyncio.create_subprocess_exec(
            *command,
            "--inherited",
            str(listening.fileno()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            pass_fds=(listening.fileno(),),
        )
        assert process.stdin is not None
        try:
            process.stdin.write(self._spec.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n")
            code = await process.wait()
            if code:
                _warnings.warning("end", "the page about the crawl ended with exit code %d", code)
        finally:
            if process.returncode is None:
                process.stdin.close()
                try:
                    await asyncio.wait_for(process.wait(), END_SECONDS)
                except TimeoutError:
                    process.kill()
                    await process.wait()


async def _somebody(listening: socket.socket) -> None:
    """Return when a connection waits to be accepted."""
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    loop.add_reader(listening.fileno(), came.set)
    try:
        await came.wait()
    finally:
        loop.remove_reader(listening.fileno())
