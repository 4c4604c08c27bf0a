"""The real crawler in a process of its own, for tests that kill it, starve it, or read what it prints."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from durable_crawler.frontier.reader import FrontierReader

LIMIT_SECONDS = 60.0
LOOPBACK = ("127.0.0.0/8",)
PROGRAM = ("-m", "durable_crawler")


@dataclass(slots=True)
class Run:
    """A crawler that was started; ``lines`` are its JSON log, complete once it has ended."""

    process: asyncio.subprocess.Process
    port: int
    lines: list[dict[str, Any]] = field(default_factory=list)
    raw: str = ""
    errors: str = ""

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    async def end(self, limit: float = LIMIT_SECONDS) -> int:
        """Wait for the end; the exit code, negative for a signal."""
        async with asyncio.timeout(limit):
            out, err = await self.process.communicate()
        self.raw, self.errors = out.decode(), err.decode()
        self.lines = [json.loads(line) for line in self.raw.splitlines() if line.startswith("{")]
        assert self.process.returncode is not None
        return self.process.returncode

    async def until(self, met: Callable[[], bool], news: asyncio.Event, limit: float = LIMIT_SECONDS) -> bool:
        """Wait until ``met``, looking at each ``news``; whether it was met before the crawler ended."""
        ended = asyncio.create_task(self.process.wait())
        try:
            async with asyncio.timeout(limit):
                while not met():
                    if ended.done():
                        return False
                    news.clear()
                    waiter = asyncio.create_task(news.wait())
                    await asyncio.wait({waiter, ended}, return_when=asyncio.FIRST_COMPLETED)
                    waiter.cancel()
        finally:
            ended.cancel()
        return self.process.returncode is None

    @property
    def summary(self) -> dict[str, Any]:
        """The summary that the run logged last."""
        summary: dict[str, Any] = next(line["summary"] for line in reversed(self.lines) if "summary" in line)
        return summary


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def crawling(
    *arguments: str | Path,
    cwd: Path,
    program: Sequence[str] = PROGRAM,
    port: int | None = None,
    allow: Sequence[str] = LOOPBACK,
) -> AsyncIterator[Run]:
    """Start ``durable-crawler run`` with ``arguments``; it is killed if it still runs at the end.

    ``allow`` are the ranges that it may connect to although they are not public.
    """
    port = free_port() if port is None else port
    environment = {**os.environ, "PYTHONWARNINGS": "error", "PYTHONPATH": os.pathsep.join(sys.path)}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *program,
        "run",
        "--metrics",
        str(port),
        "--log-format",
        "json",
        *(word for cidr in allow for word in ("--allow-cidr", cidr)),
        *map(str, arguments),
        cwd=cwd,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Run(process, port)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def crawl(
    *arguments: str | Path, cwd: Path, program: Sequence[str] = PROGRAM, allow: Sequence[str] = LOOPBACK
) -> tuple[int, Run]:
    """Run a crawl to its end."""
    async with crawling(*arguments, cwd=cwd, program=program, allow=allow) as run:
        return await run.end(), run


def driver(**plan: Any) -> tuple[str, ...]:
    """The program for ``crawling`` that follows a plan of ``tests.crash.driver``."""
    return ("-m", "tests.crash.driver", json.dumps(plan))


Row = tuple[Any, ...]


def rows(db: Path, sql: str, *parameters: Any) -> list[Row]:
    """What a query gives on the frontier, read-only, also beside a crawler that runs or was killed."""
    with closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True, timeout=5)) as connection:
        return connection.execute(sql, parameters).fetchall()


def verdicts(db: Path) -> dict[str, Row]:
    """What the crawl came to, page by page: everything that does not depend on the order of work."""
    columns = "pages.url, state, outcome, status, final_url, content_type, bytes, title, links, dropped_links, hops"
    found = rows(db, f"SELECT {columns} FROM pages LEFT JOIN results ON page_id = pages.id")
    return {url: tuple(verdict) for url, *verdict in found}


def judge(db: Path, note: str = "") -> None:
    """What holds of a frontier at every moment, also right after a kill."""
    assert FrontierReader(db).broken_invariants() == [], note
    ((urls, distinct),) = rows(db, "SELECT count(*), count(DISTINCT url) FROM pages")
    assert urls == distinct, f"{note}: a page is there twice"
    ((done, results),) = rows(
        db, "SELECT (SELECT count(*) FROM pages WHERE state = 'done'), (SELECT count(*) FROM results)"
    )
    assert done == results, f"{note}: {done} pages are done, {results} have a result"
