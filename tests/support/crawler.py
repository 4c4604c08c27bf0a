"""The real crawler in a process of its own, for tests that kill it, starve it, or read what it prints."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 60.0


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

    async def end(self) -> int:
        """Wait for the end; the exit code, negative for a signal."""
        async with asyncio.timeout(LIMIT_SECONDS):
            out, err = await self.process.communicate()
        self.raw, self.errors = out.decode(), err.decode()
        self.lines = [json.loads(line) for line in self.raw.splitlines() if line.startswith("{")]
        assert self.process.returncode is not None
        return self.process.returncode

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
    *arguments: str | Path, cwd: Path, program: Sequence[str] = ("-m", "durable_crawler")
) -> AsyncIterator[Run]:
    """Start ``durable-crawler run`` with ``arguments``; it is killed if it still runs at the end."""
    port = free_port()
    environment = {**os.environ, "PYTHONWARNINGS": "error", "PYTHONPATH": os.pathsep.join(sys.path)}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *program,
        "run",
        "--metrics",
        str(port),
        "--log-format",
        "json",
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


async def crawl(*arguments: str | Path, cwd: Path) -> tuple[int, Run]:
    """Run a crawl to its end."""
    async with crawling(*arguments, cwd=cwd) as run:
        return await run.end(), run
