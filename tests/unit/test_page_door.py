"""The page beside a crawl: there for whoever comes, gone with the crawl, and a process only when somebody came."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from tests.support.crawler import Run, crawling
from tests.support.website import Website, after, page

LIMIT_SECONDS = 30


@asynccontextmanager
async def held_crawl(tmp_path: Path) -> AsyncIterator[tuple[Run, asyncio.Event]]:
    """A crawl that has one page and waits for another."""
    go = asyncio.Event()
    async with (
        Website({"/": page("/a"), "/a": after(go, page())}) as site,
        crawling("--seed", site.url, "--db", tmp_path / "frontier.db", cwd=tmp_path) as run,
    ):
        assert await run.until(lambda: site.requests["/a"] > 0, site.asked)
        yield run, go
        go.set()


async def got(run: Run, path: str) -> tuple[int, str]:
    url = f"http://127.0.0.1:{run.port + 1}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


def children(run: Run) -> list[str]:
    tasks = Path(f"/proc/{run.process.pid}/task").iterdir()
    return [child for task in tasks for child in (task / "children").read_text().split()]


async def test_whoever_comes_finds_the_page_and_it_ends_with_the_crawl(tmp_path: Path) -> None:
    async with held_crawl(tmp_path) as (run, go):
        assert children(run) == [], "nobody has come"
        status, text = await got(run, "/")
        assert (status, '<b data-key="done">1</b>' in text) == (200, True)
        assert len(children(run)) == 1
        status, text = await got(run, "/explain?url=http://elsewhere.example/")
        assert "no seed is on its host" in text, "it knows the spec"
        assert len(children(run)) == 1, "the same one"
        (child,) = children(run)
        go.set()
        assert await run.end() == 0
        assert run.errors == ""
        assert not Path(f"/proc/{child}").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_it_does_not_outlive_a_crawl_that_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    async with held_crawl(tmp_path) as (run, go):
        await got(run, "/")
        (child,) = children(run)
        run.kill(number)
        if number == signal.SIGTERM:
            go.set()
        await run.end()
        await ended(child)


async def ended(process: str) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while alive(process):
            await asyncio.sleep(0.05)


def alive(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_page_that_is_killed_comes_again_and_that_is_told_once(tmp_path: Path) -> None:
    killed = set()
    async with held_crawl(tmp_path) as (run, go):
        for _ in range(3):
            assert (await got(run, "/progress"))[0] == 200
            (child,) = children(run)
            killed.add(child)
            os.kill(int(child), signal.SIGKILL)
            await ended(child)
        go.set()
        assert await run.end() == 0
    assert len(killed) == 3
    assert len([line for line in run.lines if "ended with exit code" in line["message"]]) == 1


async def test_a_port_that_is_taken_is_told_and_no_trouble(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1] - 1
        async with Website({"/": page()}) as site:
            arguments = ("--seed", site.url, "--db", tmp_path / "frontier.db")
            async with crawling(*arguments, cwd=tmp_path, port=port) as run:
                assert await run.end() == 0
    (told,) = [line for line in run.lines if line["message"].startswith("no page about the crawl")]
    assert f"127.0.0.1:{port + 1}" in told["message"]
