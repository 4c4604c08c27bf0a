"""Whatever fails while a crawl is put together, the process ends at once: the database's thread is not a daemon."""

from __future__ import annotations

import asyncio
import signal
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.crawler import crawling, driver, judge, rows
from tests.support.website import Website, tree

from crawljob.exitcodes import ExitCode

LIMIT_SECONDS = 2.0
"""From the failure to the end of the process."""


@pytest.mark.parametrize("part", ["telemetry", "fetcher", "engine"])
async def test_scenario_42_a_part_that_cannot_be_made_ends_the_process(tmp_path: Path, part: str) -> None:
    async with Website(tree(3)) as site:
        arguments = ["--seed", site.url, "--db", str(tmp_path / "frontier.db")]
        async with crawling(*arguments, cwd=tmp_path, program=driver(broken=part)) as run:
            code, errors = await ends_soon_after(run.process, b"cannot be made")
        assert code == ExitCode.INFRASTRUCTURE
        assert errors.startswith(b"error: the crawler failed (RuntimeError: ")
        assert errors.count(b"\n") == 1
        assert site.requests.total() == 0
        judge(tmp_path / "frontier.db")


async def ends_soon_after(process: asyncio.subprocess.Process, words: bytes) -> tuple[int, bytes]:
    """Wait for ``words`` in either output, and then for the end within the limit; exit code and standard error."""
    assert process.stdout is not None
    assert process.stderr is not None
    said = asyncio.Event()

    async def listen(stream: asyncio.StreamReader) -> bytes:
        heard = b""
        async for line in stream:
            heard += line
            if words in line:
                said.set()
        return heard

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        listeners = [group.create_task(listen(stream)) for stream in (process.stdout, process.stderr)]
        ending = group.create_task(process.wait())
        await said.wait()
        async with asyncio.timeout(LIMIT_SECONDS):
            code = await ending
        _, errors = await asyncio.gather(*listeners)
    return code, errors


async def test_a_port_that_is_taken_ends_the_process_in_one_sentence(tmp_path: Path) -> None:
    async with Website(tree(3)) as site:
        db = tmp_path / "frontier.db"
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            async with crawling("--seed", site.url, "--db", db, cwd=tmp_path, port=port) as run:
                assert await run.end(limit=20) == ExitCode.INFRASTRUCTURE
        assert run.errors.startswith("error: listen.address 127.0.0.1: cannot listen on")
        assert run.errors.count("\n") == 1, run.errors
        assert run.summary["reason"] == "ListenerFailed"
        assert not Path(f"{db}-wal").exists(), "the frontier was closed, not dropped"
        assert rows(db, "SELECT clean FROM meta") == [(1,)]
        judge(db)


async def test_a_frontier_that_opens_and_then_fails_ends_the_process(tmp_path: Path) -> None:
    """Its file is taken away between the opening and the first commit; the next flush notices."""
    async with Website(tree(3)) as site:
        db = tmp_path / "frontier.db"
        program = driver(at="before claim commit", send="SIGSTOP")
        async with crawling("--seed", site.url, "--db", db, cwd=tmp_path, program=program) as run:
            await stopped(run.process.pid)
            db.unlink()
            run.kill(signal.SIGCONT)
            assert await run.end(limit=20) == ExitCode.INFRASTRUCTURE
        assert "has gone" in run.errors, run.errors
        assert run.errors.count("\n") == 1


async def stopped(pid: int) -> None:
    """Wait until a process has stopped itself; there is nothing else to wait for than its state."""
    async with asyncio.timeout(30):
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            await asyncio.sleep(0.01)


async def test_a_frontier_that_another_process_holds_ends_the_process(tmp_path: Path) -> None:
    async with Website(tree(3)) as site:
        db = tmp_path / "frontier.db"
        with closing(sqlite3.connect(db, isolation_level=None)) as connection:
            connection.execute("PRAGMA application_id = 1145262662")
            connection.execute("BEGIN EXCLUSIVE")
            async with crawling("--seed", site.url, "--db", db, cwd=tmp_path) as run:
                assert await run.end(limit=20) == ExitCode.INFRASTRUCTURE
        assert run.errors.count("\n") == 1, run.errors
