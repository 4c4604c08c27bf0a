"""Rows about what went wrong in other crawlers, of robots.txt and of retries, and of a frontier's opening.

What a server does is done over real sockets; what takes minutes is done on virtual time.
"""

from __future__ import annotations

import asyncio
import gc
import random
import tempfile
import threading
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conformance.cases import AS_EXPECTED, Row, Scripts, rows
from tests.conformance.test_bodies import fetcher, one
from tests.conformance.test_bugs import crawled
from tests.sim.test_polite import A, Crawl, Web, fails, names, text
from tests.sim.test_polite import page as virtual_page
from tests.sim.test_polite import run as run_at_once
from tests.support.clock import ManualClock
from tests.support.memory_frontier import Memory, MemoryFrontier
from tests.support.misbehaving import Answer, Site, endless, page, site, then, to
from tests.support.website import page as web_page
from tests.support.website import redirect, robots

from durable_crawler.clock import SystemClock
from durable_crawler.frontier import SqliteFrontier
from durable_crawler.frontier.opening import Admission
from durable_crawler.outcomes import Fetched, Outcome
from durable_crawler.politeness import Pace, gap
from durable_crawler.robots import Robots
from durable_crawler.robots_gate import UNREACHABLE_WAITS_MS, Allowed, Disallowed, RobotsGate, Unreachable
from durable_crawler.settle import BACKOFF, RetryLater, settle

if TYPE_CHECKING:
    from tests.conformance.conftest import Judge

AREAS = {"robots", "retry"}
ALSO = {"bug-088", "bug-096"}
"""Of other areas, whose other rows tests of other tiers show."""
TOKEN = "durable-crawler"
FORBIDS_X = b"User-agent: *\nDisallow: /x\n"

script = Scripts()


@rows("bugs.jsonl", lambda row: row["area"] in AREAS or row["id"] in ALSO)
async def test_bug(row: Row, judge: Judge) -> None:
    judge(row, await script.play(row, row["scenario"]), AS_EXPECTED)


@dataclass(frozen=True)
class Gated:
    """A site of raw sockets, and a gate that asks it for its robots.txt; time passes by hand."""

    site: Site
    gate: RobotsGate
    clock: ManualClock

    async def verdict(self, target: str) -> Allowed | Disallowed | Unreachable:
        return await self.gate.verdict(self.site.url(target))


@asynccontextmanager
async def gated(answers: dict[str, Answer], **fetch: Any) -> AsyncIterator[Gated]:
    clock = ManualClock()
    async with site(answers) as here, fetcher(**fetch) as client:
        frontier = await MemoryFrontier.open(Memory(), Admission((), 0), max_pages=1, clock=clock)
        yield Gated(here, RobotsGate(client.fetch_robots, frontier, TOKEN, clock), clock)


def in_turn(*answers: Answer) -> Answer:
    """The first answer to the first request, and so on; the last to all that follow."""
    left = list(answers)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        turn = left.pop(0) if len(left) > 1 else left[0]
        if callable(turn):
            await turn(reader, writer)
        else:
            writer.write(turn)
            await writer.drain()

    return answer


async def whole(web: Web, **fields: Any) -> Crawl:
    """A crawl from its opening to its end, in a thread, for virtual time has a loop of its own."""
    crawl = Crawl.of(web, **fields)
    await asyncio.to_thread(run_at_once, crawl)
    return crawl


# robots.txt


@script("bug-001")
async def an_error_page_for_a_robots_txt() -> None:
    for body in (b"<html>oops</html>", b"User-agent: *\nAllow: /\n"):
        answers: dict[str, Answer] = {
            "/robots.txt": in_turn(page(body, status="500 Internal Server Error"), page(FORBIDS_X))
        }
        async with gated(answers) as here:
            assert isinstance(await here.verdict("/a"), Unreachable)
            here.clock.advance(UNREACHABLE_WAITS_MS[0] / 1000)
            assert await here.verdict("/a") == Allowed()
    web = Web({f"{A}robots.txt": fails(Outcome.HTTP_ERROR, 500)})
    crawl = await whole(web, robots="obey")
    assert web.pages == []
    assert len(web.robots) == 1 + len(UNREACHABLE_WAITS_MS)
    assert crawl.outcomes() == {A: Outcome.ROBOTS_UNREACHABLE}


@script("bug-002")
async def a_failure_is_no_answer_to_keep() -> None:
    async with gated({"/robots.txt": in_turn(then("reset"), page(FORBIDS_X))}) as here:
        assert isinstance(await here.verdict("/y"), Unreachable)
        here.clock.advance(UNREACHABLE_WAITS_MS[0] / 1000)
        assert await here.verdict("/y") == Allowed()
        assert isinstance(await here.verdict("/x"), Disallowed)
    reset = fails(Outcome.TRUNCATED)
    web = Web({A: virtual_page(f"{A}x", f"{A}y"), f"{A}robots.txt": [reset, text(FORBIDS_X.decode())]})
    await whole(web, robots="obey")
    assert web.asked() == {A, f"{A}y"}
    assert web.times()[0] >= UNREACHABLE_WAITS_MS[0] / 1000


@script("bug-003", "bug-088")
async def no_robots_txt() -> None:
    pages = {f"/{number}" for number in range(1, 6)}
    asked, run = await crawled({"/": web_page(*pages), **{path: web_page() for path in pages}})
    assert asked == dict.fromkeys({"/", *pages}, 1)
    progress = run.summary["progress"]
    assert (progress["done"], progress["failed"]) == (6, 0)
    assert run.summary["reason"] == "CrawlFinished"
    assert run.errors == ""


@script("bug-005")
async def many_wait_for_a_robots_txt_that_fails() -> None:
    asked, released = asyncio.Event(), asyncio.Event()

    async def held_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await released.wait()
        await then("reset")(reader, writer)

    async with gated({"/robots.txt": held_back}) as here, asyncio.timeout(10):
        tasks = [asyncio.create_task(here.verdict(f"/{number}")) for number in range(5)]
        await asked.wait()
        assert not any(task.done() for task in tasks)
        released.set()
        verdicts = await asyncio.gather(*tasks)
        assert verdicts == [Unreachable(here.clock.wall_ms() + UNREACHABLE_WAITS_MS[0])] * 5
        assert here.site.targets == ["/robots.txt"]


@script("bug-006")
async def a_robots_txt_that_forbids_itself() -> None:
    answers: dict[str, Answer] = {"/robots.txt": to("/r.txt", 301), "/r.txt": page(b"User-agent: *\nDisallow: /\n")}
    async with gated(answers) as here:
        for target in ("/a", "/r.txt"):
            assert isinstance(await here.verdict(target), Disallowed)
        assert here.site.targets == ["/robots.txt", "/r.txt"]
    asked, _ = await crawled(
        {
            "/robots.txt": redirect("/r.txt", 301),
            "/r.txt": robots("User-agent: *\nDisallow: /r.txt\n"),
            "/": web_page("/a"),
            "/a": web_page(),
        }
    )
    assert asked == {"/": 1, "/r.txt": 1, "/a": 1}


@script("bug-007")
async def rules_that_name_other_hosts() -> None:
    body = b"User-agent: *\nDisallow: http://ms.example/\nDisallow: http://x.example/\n"
    for url in ("https://site.example/", "https://site.example/a"):
        assert Robots(body, TOKEN).allows(url)


@script("bug-009")
async def a_delay_that_is_no_number() -> None:
    file = Robots(b"User-agent: *\nCrawl-delay: 10s please\nDisallow: /x\n", TOKEN)
    assert not file.allows("https://site.example/x")
    assert file.allows("https://site.example/y")
    assert gap(Pace(), 2.0, file.crawl_delay, 60.0) == 2.0


@script("bug-011")
async def a_small_limit_for_pages() -> None:
    head = b"User-agent: *\n"
    body = head + b"#" * (30_000 - len(head) - 1) + b"\nDisallow: /x\n"
    body += b"#" * (40_000 - len(body))
    async with gated({"/robots.txt": page(body)}, max_body_bytes=1024) as here:
        assert isinstance(await here.verdict("/x"), Disallowed)
        assert await here.verdict("/y") == Allowed()


@script("bug-012")
async def two_gigabytes_behind_a_redirect() -> None:
    big = endless(page(FORBIDS_X, length=2 << 30), (b"#" * 99 + b"\n") * 655)
    async with gated({"/robots.txt": to("/r.txt", 301), "/r.txt": big}) as here:
        assert isinstance(await here.verdict("/x"), Disallowed)
        assert await here.verdict("/y") == Allowed()
        assert here.site.targets == ["/robots.txt", "/r.txt"]
        assert here.site.sent < 16 << 20, "500 KiB were read; the rest filled the sockets"


# Retries


async def refused(status: str, retry_after: str) -> Fetched:
    """What the fetcher makes of such an answer."""
    fetched = await one(page(b"", f"Retry-After: {retry_after}", status=status))
    assert (fetched.outcome, fetched.retryable, fetched.host_incident) == (Outcome.HTTP_ERROR, True, True)
    return fetched


@script("bug-062")
async def a_wait_for_ever() -> None:
    huge = str(2**64 - 1)
    longest = settle(await refused("429 Too Many Requests", huge), 0, 3, lambda: 1.0, max_retry_after=float("inf"))
    assert isinstance(longest, RetryLater)
    assert longest.delay * 1000 < 2**62, "milliseconds, as the frontier keeps them"
    # A real frontier keeps the capped wait of the host, and the crawl goes on after it.
    answers = {"/": web_page("/a", "/b"), "/a": web_page(status=429, headers={"Retry-After": huge}), "/b": web_page()}
    spec = "politeness: {maxRetryAfter: 1s}"
    asked, run = await crawled(answers, spec=spec)
    assert asked == {"/": 1, "/a": 1, "/b": 1}
    assert run.summary["progress"]["failed"] == 1


@script("bug-063")
async def a_wait_that_is_negative() -> None:
    fetched = await refused("429 Too Many Requests", "-5")
    assert fetched.retry_after is None
    web = Web({A: lambda url: replace(fetched, url=url, final_url=url)})
    crawl = await whole(web, fetch={"retries": 8})
    assert crawl.outcomes() == {A: Outcome.HTTP_ERROR}
    waits = [after - before for before, after in pairwise(web.times())]
    assert len(waits) == 8
    assert waits[0] >= BACKOFF
    for before, after in pairwise(waits[:5]):
        assert after >= 1.5 * before
    assert min(waits[5:]) >= waits[3], "and it does not become shorter again"
    # Of many pages, ever fewer are asked for in a minute.
    web = Web({A: virtual_page(*names(50)), **dict.fromkeys(names(50), lambda url: replace(fetched, url=url))})
    await whole(web, fetch={"retries": 3})
    times = web.times()
    a_minute = [sum(start <= at < start + 60 for at in times) for start in (0, 60, 120)]
    assert a_minute[0] > a_minute[1] >= a_minute[2] > 0


@script("bug-064")
async def a_wait_until_long_ago() -> str | None:
    fetched = await refused("503 Service Unavailable", "Wed, 21 Oct 2015 07:28:00 GMT")
    assert fetched.retry_after == 0
    web = Web({A: lambda url: replace(fetched, url=url, final_url=url)})
    crawl = await whole(web, fetch={"retries": 2})
    assert crawl.outcomes() == {A: Outcome.HTTP_ERROR}
    assert len(web.times()) == 3, "each attempt is counted"
    decided = settle(fetched, 0, 2, lambda: 0.0)
    assert isinstance(decided, RetryLater)
    return None if decided.delay == 0 else f"waits {decided.delay:g} s"


# The frontier


@script("bug-096")
async def openings_that_are_cancelled() -> None:
    chance = random.Random(96)
    admission = Admission(((A, "a.example"),), 1)
    ends = {"opened": 0, "cancelled": 0}

    async def open_and_cancel(folder: Path) -> None:
        for number in range(100):
            opening = SqliteFrontier.open(folder / f"{number}.db", admission, max_pages=9, clock=SystemClock())
            task = asyncio.create_task(opening)
            await asyncio.sleep(chance.uniform(0, 0.02))
            task.cancel()
            try:
                await (await task).close()
                ends["opened"] += 1
            except asyncio.CancelledError:
                ends["cancelled"] += 1

    def left_open() -> list[str]:
        files = (str(file.resolve()) for file in Path("/proc/self/fd").iterdir())
        return [file for file in files if file.startswith(folder)]

    with tempfile.TemporaryDirectory() as folder:
        threads = set(threading.enumerate())
        with warnings.catch_warnings():
            # A connection that came about when nobody waited for it any more is the collector's to close.
            warnings.simplefilter("ignore", ResourceWarning)
            await asyncio.to_thread(asyncio.run, open_and_cancel(Path(folder)))
            gc.collect()
        # What is left besides belongs to the loop's own pool.
        left = [thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")]
        assert set(left) <= threads
        assert left_open() == []
    assert ends["cancelled"] > 10, ends
