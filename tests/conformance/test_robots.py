"""robots.txt as the standard and other programs' suites have it: the files, and what comes of fetching them."""

from __future__ import annotations

import asyncio
import base64
import gzip
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from tests.conformance.cases import AS_EXPECTED, Row, Scripts, rows
from tests.conformance.test_bodies import fetcher
from tests.support.clock import ManualClock
from tests.support.memory_frontier import Memory, MemoryFrontier
from tests.support.misbehaving import Answer, dripping, page, site, then, to

from durable_crawler.frontier.opening import Admission
from durable_crawler.outcomes import Fetched, Outcome
from durable_crawler.politeness import Pace, gap
from durable_crawler.robots import PARSED_BYTES, Robots
from durable_crawler.robots_gate import UNREACHABLE_WAITS_MS, Allowed, Disallowed, RobotsGate, Unreachable, Verdict
from durable_crawler.urls import Refusal, canonical

if TYPE_CHECKING:
    from tests.conformance.conftest import Judge

ALL = b"User-agent: *\nDisallow: /\n"
ORIGIN = "https://site.example"
PAGE = f"{ORIGIN}/y"

script = Scripts()


@rows("robots/cases.jsonl")
def test_file(row: Row, judge: Judge) -> None:
    body = base64.b64decode(row["robots_b64"]) if row.get("robots_b64") else row["robots_txt"].encode()
    url = canonical(row["url"])
    if isinstance(url, Refusal):
        url = row["url"]  # it would not be requested at all; the file says something about it nevertheless
    judge(row, Robots(body, row["user_agent"]).allows(url), row.get("rfc_allowed", row["allowed"]))


@rows("robots/fetch_cases.jsonl")
async def test_fetch(row: Row, judge: Judge) -> None:
    judge(row, await script.play(row, row["note"]), AS_EXPECTED)


class Origin:
    """One origin whose robots.txt is answered as told, one answer for each time it is asked; the last for ever."""

    def __init__(self, *answers: Fetched) -> None:
        self.clock = ManualClock()
        self.memory = Memory()
        self.asked = 0
        self._answers = list(answers)

    async def _fetch(self, url: str) -> Fetched:
        assert url == f"{ORIGIN}/robots.txt"
        self.asked += 1
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    async def gate(self) -> RobotsGate:
        """The gate of a process that has just begun; what one before it has learned is in the frontier."""
        self.memory.owned = False
        frontier = await MemoryFrontier.open(self.memory, Admission((), 0), max_pages=1, clock=self.clock)
        return RobotsGate(self._fetch, frontier, "durable-crawler", self.clock)

    async def verdict(self, url: str = PAGE) -> Verdict:
        """What a new process makes of a page."""
        return await (await self.gate()).verdict(url)


def answer(status: int, body: bytes = b"") -> Fetched:
    outcome = Outcome.OK if status < 300 else Outcome.HTTP_ERROR
    return Fetched("u", "u", outcome, status, body=body if outcome is Outcome.OK else None)


def failure(outcome: Outcome) -> Fetched:
    return Fetched("u", "u", outcome)


async def on_the_wire(answers: dict[str, Answer] | Answer, url: str = "/y", total_timeout: str = "15s") -> Verdict:
    """The verdict on a page of a real server that answers for its robots.txt."""
    clock = ManualClock()
    async with AsyncExitStack() as stack:
        known = answers if isinstance(answers, dict) else {"/robots.txt": answers}
        here = await stack.enter_async_context(site(known))
        client = await stack.enter_async_context(fetcher(total_timeout=total_timeout))
        frontier = await MemoryFrontier.open(Memory(), Admission((), 0), max_pages=1, clock=clock)
        return await RobotsGate(client.fetch_robots, frontier, "durable-crawler", clock).verdict(here.url(url))


@script("robfetch-001")
async def a_plain_file() -> None:
    assert await Origin(answer(200, ALL)).verdict() == Disallowed("2: Disallow: /")


@script("robfetch-002", "robfetch-004", "robfetch-005", "robfetch-006", "robfetch-007")
async def there_is_none() -> None:
    for status in (400, 401, 403, 404, 410, 451):
        assert await Origin(answer(status)).verdict() == Allowed()
    assert await on_the_wire(page(ALL, status="403 Forbidden")) == Allowed()


@script("robfetch-008")
async def too_many_requests() -> None:
    # It is about us, and not about the file: the polite reading.
    assert isinstance(await Origin(answer(429)).verdict(), Unreachable)


@script("robfetch-010", "robfetch-011", "robfetch-012")
async def the_server_fails() -> None:
    for status in (500, 502, 503, 504):
        origin = Origin(answer(status))
        verdict = await origin.verdict()
        assert verdict == Unreachable(origin.clock.wall_ms() + UNREACHABLE_WAITS_MS[0])
    assert isinstance(await on_the_wire(page(b"<html>error", status="502 Bad Gateway")), Unreachable)


@script("robfetch-014", "robfetch-015", "robfetch-016", "robfetch-017")
async def the_network_fails() -> None:
    for outcome in (
        Outcome.HEADER_TIMEOUT,
        Outcome.CONNECT_ERROR,
        Outcome.TLS_ERROR,
        Outcome.DNS_ERROR,
        Outcome.PROTOCOL_ERROR,
        Outcome.TRUNCATED,
    ):
        assert isinstance(await Origin(failure(outcome)).verdict(), Unreachable)
    assert isinstance(await on_the_wire(then("reset")), Unreachable)


@script("robfetch-018")
async def it_recovers() -> None:
    origin = Origin(answer(503), answer(200, b"User-agent: *\nDisallow: /x\n"))
    gate = await origin.gate()
    assert isinstance(await gate.verdict(PAGE), Unreachable)
    origin.clock.advance(UNREACHABLE_WAITS_MS[0] / 1000)
    assert await gate.verdict(PAGE) == Allowed()
    assert isinstance(await gate.verdict(f"{ORIGIN}/x"), Disallowed)
    assert origin.asked == 2


@script("robfetch-019")
async def five_redirects() -> None:
    answers: dict[str, Answer] = {"/robots.txt": to("/r2", 301), "/r6": page(ALL)}
    answers |= {f"/r{number}": to(f"/r{number + 1}", 301) for number in range(2, 6)}
    assert isinstance(await on_the_wire(answers), Disallowed)


@script("robfetch-022")
async def a_redirect_to_the_metadata_service() -> None:
    assert isinstance(await on_the_wire(to("http://169.254.169.254/robots.txt")), Unreachable)


@script("robfetch-025")
async def no_text() -> None:
    assert await on_the_wire(page(b"\x89PNG\r\n\x1a\n\x00\xff", "Content-Type: image/png")) == Allowed()


@script("robfetch-027")
async def broken_gzip() -> None:
    # Nobody knows what the file says, and so nothing is asked for.
    assert isinstance(await on_the_wire(page(b"not gzip", "Content-Encoding: gzip")), Unreachable)


@script("robfetch-028")
async def a_rule_at_the_end_of_what_must_be_read() -> None:
    body = b"#" * 510_976 + b"\n" + ALL
    assert len(body) < PARSED_BYTES
    assert isinstance(await on_the_wire(page(body)), Disallowed)


@script("robfetch-029")
async def too_long_a_file_is_cut() -> None:
    body = b"User-agent: *\nDisallow: /x\n" + (b"#" * 99 + b"\n") * 6144
    assert isinstance(await on_the_wire(page(body), "/x"), Disallowed)
    assert await on_the_wire(page(body), "/y") == Allowed()


@script("robfetch-030")
async def a_line_that_the_limit_cuts() -> None:
    line = b"Disallow: /private\n"
    head = b"User-agent: *\n"
    for shown in range(len(line)):
        filling = PARSED_BYTES - len(head) - shown
        body = head + b"#" * (filling - 1) + b"\n" + line + b"#" * 999
        assert await on_the_wire(page(body), "/y") == Allowed(), shown


@script("robfetch-031")
async def a_bomb() -> None:
    body = gzip.compress(ALL + b"#\n" * (16 << 20))
    verdict = await on_the_wire(page(body, "Content-Encoding: gzip"))
    assert isinstance(verdict, Disallowed | Unreachable), "the beginning counts, or nobody knows"


@script("robfetch-032")
async def a_slow_one() -> None:
    assert isinstance(await on_the_wire(dripping(page(b"", length=1000), 0.05), total_timeout="200ms"), Unreachable)


@script("robfetch-036")
async def a_restart() -> None:
    origin = Origin(answer(200, ALL), failure(Outcome.CONNECT_ERROR))
    for _ in range(3):
        assert isinstance(await origin.verdict(), Disallowed)
    assert origin.asked == 1


@script("robfetch-037")
async def not_modified() -> None:
    assert isinstance(await Origin(answer(304)).verdict(), Unreachable)
    assert isinstance(await on_the_wire(page(b"", status="304 Not Modified", length=0)), Unreachable)


@script("robfetch-039")
async def a_day_between_pages() -> None:
    verdict = await Origin(answer(200, b"User-agent: *\nCrawl-delay: 86400\n")).verdict()
    assert verdict == Allowed(86_400)
    assert gap(Pace(), 0, verdict.crawl_delay, 60) == 60


@script("robfetch-041")
async def many_wildcards() -> None:
    robots = Robots(b"User-agent: *\nDisallow: /*a*a*a*a*a*a*a*a*a*a*a*a*b\n", "durable-crawler")
    loop = asyncio.get_running_loop()
    robots.allows(PAGE)
    started, used = loop.time(), time.process_time()
    assert robots.allows(f"{ORIGIN}/{'a' * 2000}")
    assert min(loop.time() - started, time.process_time() - used) < 0.05
