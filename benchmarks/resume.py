"""How soon a crawl that was killed asks for a page again: from the start of the process to its first request."""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
import time
from pathlib import Path

from durable_crawler.demo.site import Site

ROUNDS = 7


async def resume_seconds() -> list[float]:
    """Kill a small crawl with SIGKILL half-way and start it again, ``ROUNDS`` times; seconds to the first request."""
    found = []
    for _ in range(ROUNDS):
        site = Site()
        await site.start()
        try:
            with tempfile.TemporaryDirectory(prefix="bench-resume-") as folder:
                await _until(site, folder, after=len(site.expected()) // 2)
                asked = site.requests.total()
                started = time.perf_counter()
                await _until(site, folder, after=asked + 1)
                found.append(time.perf_counter() - started)
        finally:
            await site.aclose()
    return found


async def _until(site: Site, folder: str, after: int) -> None:
    """Crawl, and kill the crawler as soon as the site has had ``after`` requests for pages."""
    database = str(Path(folder) / "frontier.db")
    flags = ("--seed", site.url, "--allow-cidr", "127.0.0.0/8", "--db", database, "--metrics", str(_free_port()))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "durable_crawler", "run", *flags, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        while site.requests.total() < after and process.returncode is None:  # noqa: ASYNC110 - a process has no event
            await asyncio.sleep(0.002)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
