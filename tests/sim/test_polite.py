"""What the owners of sites are owed, on virtual time; the sites' own logs are the judges."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from tests.support import virtual_time
from tests.support.memory_frontier import Memory, MemoryFrontier
from tests.support.virtual_time import VirtualClock

from crawljob.manifest import parse
from durable_crawler.board import Wait
from durable_crawler.engine import Engine
from durable_crawler.frontier.opening import Admission
from durable_crawler.outcomes import Fetched, Hop, Outcome, PageRecord
from durable_crawler.politeness import FAILURES_TO_OPEN, FIRST_GAP, OPEN_FIRST, OPENINGS_TO_GIVE_UP, RECOVERY
from durable_crawler.robots_gate import UNREACHABLE_WAITS_MS, RobotsGate
from durable_crawler.settle import classify
from durable_crawler.stop import Stop
from durable_crawler.urls import authority
from durable_crawler.work import MayFollow, TakeTurn

A = "https://a.example/"
B = "https://b.example/"
CLOCK_ERROR = 0.002
LATENCY = 0.1
DAY = 24 * 3600.0

Answer = Callable[[str], Fetched]


def page(*links: str) -> Answer:
    body = "".join(f'<a href="{link}">x</a>' for link in links).encode()
    return lambda url: Fetched(url, url, Outcome.OK, 200, "text/html", body, len(body))


def fails(outcome: Outcome, status: int | None = None, retry_after: float | None = None) -> Answer:
    retryable, incident = classify(outcome, status, retry_after)
    return lambda url: Fetched(
        url, url, outcome, status, retryable=retryable, retry_after=retry_after, host_incident=incident
    )


def busy(retry_after: float | None = None, status: int = 429) -> Answer:
    return fails(Outcome.HTTP_ERROR, status, retry_after)


REFUSED = fails(Outcome.CONNECT_ERROR)


def text(body: str) -> Answer:
    return lambda url: Fetched(url, url, Outcome.OK, 200, "text/plain", body.encode())


@dataclass
class Web:
    """Answers by URL, one for each time it is asked, the last for ever; pages and robots.txt are logged apart."""

    answers: Mapping[str, Answer | list[Answer]]
    redirects: Mapping[str, str] = field(default_factory=dict)
    latency: float = LATENCY
    allows: Callable[[float], bool] = lambda _: True
    """Whether the site puts up with a request that arrives now; it answers 429 to others."""
    connecting: Callable[[int], float] = lambda _: 0.0
    """How long it takes until a request can be sent, by the number of requests before."""
    refused: list[float] = field(default_factory=list)
    pages: list[tuple[str, float]] = field(default_factory=list)
    robots: list[tuple[str, float]] = field(default_factory=list)

    async def fetch(self, url: str, may_follow: MayFollow, take_turn: TakeTurn) -> Fetched:
        await asyncio.sleep(self.connecting(len(self.pages)))
        if (turn := take_turn()) is not None:
            await turn
        now = asyncio.get_running_loop().time()
        self.pages.append((url, now))
        allowed = self.allows(now)
        await asyncio.sleep(self.latency)
        if not allowed:
            self.refused.append(now)
            return busy()(url)
        target = self.redirects.get(url)
        if target is None:
            return self._answer(url, page())
        hops = (Hop(url, 302, target),)
        objection = await may_follow(target)
        if objection is not None:
            return Fetched(url, url, objection, 302, hops=hops, error=f"redirect to {target}")
        return await self.fetch(target, may_follow, take_turn)

    async def fetch_robots(self, url: str) -> Fetched:
        self.robots.append((url, asyncio.get_running_loop().time()))
        await asyncio.sleep(LATENCY)
        return self._answer(url, fails(Outcome.HTTP_ERROR, 404))

    def times(self, prefix: str = "") -> list[float]:
        """When pages below ``prefix`` were asked for."""
        return [at for url, at in self.pages if url.startswith(prefix)]

    def asked(self) -> set[str]:
        """Which pages were asked for."""
        return {url for url, _ in self.pages}

    def _answer(self, url: str, otherwise: Answer) -> Fetched:
        answers = self.answers.get(url, otherwise)
        if isinstance(answers, list):
            return (answers.pop(0) if len(answers) > 1 else answers[0])(url)
        return answers(url)


class Silent:
    """Telemetry that nobody reads."""

    def page_settled(self, record: PageRecord) -> None:
        """Nothing."""

    def leases(self, *, expired: int = 0, lost: int = 0, recovered: int = 0) -> None:
        """Nothing."""

    def working(self, pages: int) -> None:
        """Nothing."""

    def waiting(self, hosts: Mapping[int, tuple[Wait, float] | None]) -> None:
        """Nothing."""


@dataclass
class Crawl:
    """A spec and a frontier; any number of processes, one after the other."""

    web: Web
    spec: Any
    memory: Memory = field(default_factory=Memory)
    jitter: float = 0.0
    """Of backoffs, as a share of the most that there can be."""
    commits: list[int] = field(default_factory=list)
    """Results after each commit."""

    @classmethod
    def of(
        cls,
        web: Web,
        *seeds: str,
        fetch: Mapping[str, Any] | None = None,
        robots: str = "ignore",
        **politeness: Any,
    ) -> Crawl:
        spec = {"seeds": list(seeds or [A]), "fetch": fetch or {}, "politeness": {"robots": robots, **politeness}}
        return cls(web, parse(spec))

    async def process(self, stop: Stop | None = None) -> bool:
        """From the opening to the end."""
        clock = VirtualClock(asyncio.get_running_loop())
        longest = round(1000 * DAY)
        admission = Admission(tuple((url, authority(url)) for url in self.spec.seeds), 16, longest)
        self.memory.owned = False  # a process that was killed does not say goodbye
        frontier = await MemoryFrontier.open(self.memory, admission, max_pages=10_000, clock=clock)
        obey = self.spec.politeness.robots == "obey"
        engine = Engine(
            self.spec,
            frontier,
            fetcher=self.web,
            robots=RobotsGate(self.web.fetch_robots, frontier, "durable-crawler", clock) if obey else None,
            observer=Silent(),
            clock=clock,
            random=lambda: self.jitter,
        )
        watching = asyncio.create_task(self._watch())
        try:
            return await engine.run(stop or Stop())
        finally:
            watching.cancel()
            self._look()

    async def killed_at(self, seconds: float) -> None:
        """A process that ends as by SIGKILL: nothing that it would do at its end is done."""
        task = asyncio.create_task(self.process())
        await asyncio.sleep(seconds - asyncio.get_running_loop().time())
        before = self._committed()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert self._committed() == before

    def _committed(self) -> object:
        return dict(self.memory.closed_until_ms), dict(self.memory.paces)

    async def _watch(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(0.01)

    def _look(self) -> None:
        done = len(self.memory.in_state("done"))
        if not self.commits or self.commits[-1] != done:
            self.commits.append(done)

    def outcomes(self) -> dict[str, Outcome]:
        """Results by page."""
        assert self.memory.in_state("pending", "leased", "deferred", "quarantined") == []
        return {done.url: result.outcome for done in self.memory.in_state("done") for result in done.results}

    def errors(self) -> dict[str, str]:
        """What is recorded for people, by page."""
        return {done.url: result.error for done in self.memory.in_state("done") for result in done.results}


def run(crawl: Crawl, limit: float = DAY) -> None:
    """One process that nobody disturbs."""

    async def main() -> None:
        assert await crawl.process()

    virtual_time.run(main(), limit)


def names(count: int, start: str = A) -> list[str]:
    return [f"{start}{number}" for number in range(count)]


def smallest_gap(times: list[float]) -> float:
    return min(after - before for before, after in pairwise(times))


# One incident


@pytest.mark.parametrize("retry_after", [None, 0])
def test_scenario_09_eight_429s_in_parallel_are_one_incident(retry_after: float | None) -> None:
    pages = names(8)
    web = Web({A: page(*pages), **{url: [busy(retry_after), page()] for url in pages}})
    crawl = Crawl.of(web, fetch={"perHost": 8, "workers": 8})
    run(crawl)
    burst, again = web.times()[1:9], web.times()[9:]
    assert burst[-1] - burst[0] < LATENCY, "in parallel"
    assert crawl.memory.paces[1].gap == 0
    assert again[0] - (burst[-1] + LATENCY) >= 0.5 - CLOCK_ERROR, "the base backoff, not none"
    assert again[-1] - (burst[-1] + LATENCY) <= 0.6, "and no more than that"
    assert len(again) == 8


def test_a_second_burst_of_429s_spreads_the_requests() -> None:
    pages = names(8)
    web = Web({A: page(*pages), **{url: [busy(), busy(), page()] for url in pages}})
    crawl = Crawl.of(web, fetch={"perHost": 8, "workers": 8})
    run(crawl)
    last = web.times()[17:]
    assert len(last) == 8
    for number, (before, after) in enumerate(pairwise(last), 1):
        assert after - before >= FIRST_GAP * RECOVERY**number - CLOCK_ERROR
    assert crawl.memory.paces[1].gap > 0, "and after a restart, too"


@pytest.mark.parametrize("jitter", [0.0, 1.0])
def test_one_503_in_a_thousand_pages_costs_less_than_a_tenth_of_the_time(jitter: float) -> None:
    took = []
    for answer in (page(), [busy(status=503), page()]):
        web = Web({A: page(*names(1000)), f"{A}400": answer}, latency=0.02)
        crawl = Crawl.of(web, fetch={"perHost": 2})
        crawl.jitter = jitter
        run(crawl)
        took.append(web.times()[-1])
    assert took[0] == pytest.approx(10, abs=0.1)
    assert took[0] < took[1] < 1.1 * took[0]


def no_more_than(rate: float, burst: int) -> Callable[[float], bool]:
    """A limit of ``rate`` per second, besides ``burst`` at once, as servers count it: by a leaky bucket."""
    level, last = 0.0, 0.0

    def allows(now: float) -> bool:
        nonlocal level, last
        left = max(0.0, level - (now - last) * rate)
        if left > burst:
            return False
        level, last = left + 1, now
        return True

    return allows


@pytest.mark.parametrize("burst", [0, 1, 5, 20])
@pytest.mark.parametrize(("limit", "most_refused"), [(1, 0.03), (5, 0.03), (20, 0.02)])
def test_it_settles_at_what_a_host_allows_and_is_rarely_refused(limit: int, most_refused: float, burst: int) -> None:
    pages = min(200 * limit, 800)
    web = Web({A: page(*names(pages))}, latency=0.02, allows=no_more_than(limit, burst))
    crawl = Crawl.of(web, fetch={"perHost": 2})
    run(crawl)
    assert set(crawl.outcomes().values()) == {Outcome.OK}, "no page is lost to it"
    times = web.times()
    assert len(web.refused) <= most_refused * len(times) + 6
    half = times[len(times) // 2 :]
    took = half[-1] - half[0]
    assert 0.6 * limit * took <= len(half) <= 1.05 * limit * took + burst, "the bucket is emptied in quiet times"


def test_a_host_that_comes_back_from_an_outage_is_soon_asked_as_before() -> None:
    web = Web({A: page(*names(1000))}, latency=0.02, allows=lambda now: not 2 < now < 32)
    run(Crawl.of(web, fetch={"perHost": 2, "retries": 10}))
    during = [at for at in web.times() if 2.1 < at < 32]
    assert len(during) <= 10
    back = next(at for at in web.times() if at > 32)
    doubled = 2 * (back - during[-1])  # is what the first answer still waits for
    assert web.times()[-1] - back <= doubled + 10 + 5 * FIRST_GAP


def test_429s_that_arrive_one_after_the_other_are_one_incident_if_they_were_asked_for_together() -> None:
    pages = names(8)

    @dataclass
    class Staggered(Web):
        async def fetch(self, url: str, may_follow: MayFollow, take_turn: TakeTurn) -> Fetched:
            if url != A and url not in self.asked():
                self.pages.append((url, asyncio.get_running_loop().time()))
                await asyncio.sleep(0.9 * (1 + pages.index(url)))
                return busy()(url)
            return await super().fetch(url, may_follow, take_turn)

    web = Staggered({A: page(*pages)})
    crawl = Crawl.of(web, fetch={"perHost": 8, "workers": 8})
    run(crawl)
    assert crawl.memory.paces[1].gap == 0
    assert web.times()[-1] <= LATENCY + 8 * 0.9 + 0.5 + 0.1


def test_pages_that_hang_now_and_then_make_no_gap() -> None:
    hang = fails(Outcome.HEADER_TIMEOUT)
    pages = names(400)
    web = Web({A: page(*pages), **dict.fromkeys(pages[7::20], hang)}, latency=0.4)
    crawl = Crawl.of(web, fetch={"perHost": 2})
    run(crawl)
    assert set(crawl.outcomes().values()) == {Outcome.OK, Outcome.HEADER_TIMEOUT}
    times = web.times()
    assert max(after - before for before, after in pairwise(times)) <= 1.5
    assert times[-1] <= 0.4 * 460 / 2 + 80 * 0.9


def test_pages_that_all_hang_make_a_gap() -> None:
    web = Web({A: page(*names(60)), **dict.fromkeys(names(60), fails(Outcome.HEADER_TIMEOUT))})
    run(Crawl.of(web, fetch={"perHost": 2, "retries": 0}))
    assert smallest_gap(web.times()[-5:]) >= 30


def test_a_host_that_resets_some_requests_is_not_dead() -> None:
    cut_off, good = names(12, f"{A}waf"), names(50, f"{A}good")
    web = Web({A: page(*cut_off, *good), **dict.fromkeys(cut_off, fails(Outcome.TRUNCATED))})
    crawl = Crawl.of(web)
    run(crawl)
    outcomes = crawl.outcomes()
    assert {outcomes[url] for url in good} == {Outcome.OK}
    assert {outcomes[url] for url in cut_off} == {Outcome.TRUNCATED}
    assert web.times()[-1] <= 100


@pytest.mark.parametrize("first", [True, False], ids=["from the first page on", "after the first page"])
def test_hosts_that_hang_leave_workers_to_one_that_answers(first: bool) -> None:
    timeout = 30.0
    hanging = [f"https://h{number}.example/" for number in range(20)]

    @dataclass
    class Hanging(Web):
        async def fetch(self, url: str, may_follow: MayFollow, take_turn: TakeTurn) -> Fetched:
            if url.startswith(A) or (url in hanging and not first):
                return await super().fetch(url, may_follow, take_turn)
            self.pages.append((url, asyncio.get_running_loop().time()))
            await asyncio.sleep(timeout)
            return fails(Outcome.HEADER_TIMEOUT)(url)

    seeds = hanging if not first else [page for host in hanging for page in (host, *names(3, host))]
    web = Hanging({A: page(*names(1500)), **{host: page(*names(5, host)) for host in hanging}}, latency=0.05)
    run(Crawl.of(web, A, *seeds, fetch={"workers": 16, "perHost": 2}))
    times = [at for at in web.times(A) if at > timeout + 1]
    alone = 2 / 0.05
    assert len(times) > 200
    assert len(times) / (times[-1] - times[0]) >= 0.95 * alone


# Retry-After


def test_scenario_03_retry_after_holds_for_the_host_and_for_no_other() -> None:
    web = Web({A: page(*names(4)), B: page(*names(50, B)), f"{A}0": [busy(7), page()]})
    run(Crawl.of(web, A, B, fetch={"perHost": 1}))
    (asked, again) = (at for url, at in web.pages if url == f"{A}0")
    assert again >= asked + LATENCY + 7 - CLOCK_ERROR
    assert [at for at in web.times(A) if asked < at < asked + LATENCY + 7 - CLOCK_ERROR] == []
    assert web.times(B)[-1] <= 51 * LATENCY + 0.1, "the other host goes on at its own pace"


def test_scenario_03_retry_after_survives_a_kill() -> None:
    web = Web({A: page(*names(4)), f"{A}0": [busy(7), page()]})
    crawl = Crawl.of(web, fetch={"perHost": 1})

    async def main() -> None:
        await crawl.killed_at(2 * LATENCY + 3)
        (asked,) = (at for url, at in web.pages if url == f"{A}0")
        assert await crawl.process()
        first = next(at for at in web.times() if at > asked)
        assert first >= asked + LATENCY + 7 - CLOCK_ERROR
        assert first >= 2 * LATENCY + 3 + 4 - CLOCK_ERROR

    virtual_time.run(main(), DAY)
    assert set(crawl.outcomes().values()) == {Outcome.OK}


def test_a_longer_retry_after_than_the_spec_allows_is_cut() -> None:
    web = Web({A: [busy(86_400), page()]})
    run(Crawl.of(web, maxRetryAfter="2m"))
    assert 120 - CLOCK_ERROR <= web.times()[1] - web.times()[0] - LATENCY <= 121


# Gaps


def test_scenario_04_a_crawl_delay_of_half_a_second_is_kept_by_eight_slots() -> None:
    robots = {f"{A}robots.txt": text("User-agent: *\nCrawl-delay: 0.5\n")}
    web = Web({A: page(*names(30)), **robots})
    run(Crawl.of(web, fetch={"perHost": 8, "workers": 8}, robots="obey"))
    assert len(web.times()) == 31
    assert smallest_gap(web.times()) >= 0.5 - CLOCK_ERROR
    assert web.times()[-1] <= 31 * 0.55, "and no slower than it must be"


def test_a_crawl_delay_is_kept_also_where_the_page_that_learned_it_is_disallowed() -> None:
    robots = {f"{A}robots.txt": text("User-agent: *\nCrawl-delay: 0.5\nDisallow: /no\n")}
    web = Web(robots)
    run(Crawl.of(web, f"{A}no", *names(10), fetch={"perHost": 8, "workers": 8}, robots="obey"))
    assert len(web.times()) == 10
    assert smallest_gap(web.times()) >= 0.5 - CLOCK_ERROR


@pytest.mark.parametrize("after", [0.001, 0.1, 3.0])
@pytest.mark.parametrize("kill", [True, False], ids=["killed", "asked to stop"])
def test_a_crawl_delay_is_kept_over_restarts_right_after_each_page(after: float, kill: bool) -> None:
    web = Web({A: page(*names(6)), f"{A}robots.txt": text("User-agent: *\nCrawl-delay: 5\n")})
    crawl = Crawl.of(web, fetch={"perHost": 8, "workers": 8}, robots="obey")

    async def main() -> None:
        for number in range(1, 7):
            stop = Stop()
            process = asyncio.create_task(crawl.process(stop))
            while len(web.times()) < number:
                await asyncio.sleep(0.01)
            await asyncio.sleep(LATENCY + after)
            if kill:
                process.cancel()
            else:
                stop.request(signal.SIGINT)
            await asyncio.gather(process, return_exceptions=True)
        assert await crawl.process()

    virtual_time.run(main(), DAY)
    assert len(web.times()) == 7
    assert smallest_gap(web.times()) >= 5 - CLOCK_ERROR


def test_a_delay_is_kept_between_requests_however_long_their_connections_take() -> None:
    web = Web({A: page(*names(30))}, connecting=lambda number: (0.0, 0.4, 0.2)[number % 3])
    run(Crawl.of(web, fetch={"perHost": 8}, delay="500ms"))
    assert len(web.times()) == 31
    assert smallest_gap(web.times()) >= 0.5 - CLOCK_ERROR


def test_each_hop_of_a_redirect_keeps_the_delay() -> None:
    chain = {f"{A}r{number}": f"{A}r{number + 1}" for number in range(8)}
    web = Web({A: page(f"{A}r0", *names(3))}, redirects=chain)
    run(Crawl.of(web, delay="2s"))
    assert len(web.times()) == 13
    assert smallest_gap(web.times()) >= 2 - CLOCK_ERROR


def test_the_delay_of_the_spec_is_kept_by_each_host_apart_and_over_a_restart() -> None:
    web = Web({A: page(*names(9)), B: page(*names(9, B))})
    crawl = Crawl.of(web, A, B, fetch={"perHost": 8}, delay="2s")

    async def main() -> None:
        await crawl.killed_at(7.9)
        assert await crawl.process()

    virtual_time.run(main(), DAY)
    for seed in (A, B):
        assert smallest_gap(web.times(seed)) >= 2 - CLOCK_ERROR
        assert web.times(seed)[-1] <= 12 * 2.1


# Circuits


def test_a_circuit_opens_and_doubles_until_the_host_is_dead_and_its_pages_are_closed_at_once() -> None:
    pages = names(100)
    web = Web({A: page(*pages), **dict.fromkeys(pages, REFUSED)})
    crawl = Crawl.of(web, fetch={"perHost": 1, "retries": 20})
    run(crawl)
    times = web.times()[1:]
    assert len(times) == FAILURES_TO_OPEN + OPENINGS_TO_GIVE_UP - 1
    waits = [after - before for before, after in pairwise(times)][FAILURES_TO_OPEN - 1 :]
    for number, wait in enumerate(waits):
        assert -CLOCK_ERROR <= wait - OPEN_FIRST * 2**number - LATENCY <= 1, (
            "one request finds out, after twice the time"
        )
    outcomes = crawl.outcomes()
    assert outcomes.pop(A) is Outcome.OK
    assert set(outcomes.values()) == {Outcome.HOST_DEAD}
    assert crawl.commits == [0, 1, 101], "one commit, however many pages"
    assert set(crawl.errors().values()) == {"", "the host could not be connected to"}


def test_a_dead_host_whose_pages_all_wait_for_a_retry_is_closed_without_waiting_longer() -> None:
    web = Web({A: REFUSED})
    crawl = Crawl.of(web, fetch={"retries": 20})
    took: list[float] = []

    async def main() -> None:
        assert await crawl.process()
        took.append(asyncio.get_running_loop().time())

    virtual_time.run(main(), DAY)
    assert crawl.outcomes() == {A: Outcome.HOST_DEAD}
    assert took[0] - web.times()[-1] <= LATENCY + 0.1


def test_a_host_that_comes_back_is_crawled_as_if_nothing_had_been() -> None:
    pages = names(40)
    down = [REFUSED] * 2
    web = Web({A: page(*pages), **{url: [*down, page()] for url in pages[:3]}})
    crawl = Crawl.of(web, fetch={"perHost": 4})
    run(crawl)
    assert set(crawl.outcomes().values()) == {Outcome.OK}
    assert len(web.times()) == 41 + 6


def test_a_dead_neighbour_costs_a_healthy_host_nothing() -> None:
    ended = []
    for seeds in ([A], [A, B]):
        web = Web({A: page(*names(300)), B: REFUSED})
        crawl = Crawl.of(web, *seeds, fetch={"perHost": 2, "workers": 4})
        run(crawl)
        assert len(web.times(A)) == 301
        ended.append(web.times(A)[-1])
    assert ended[0] >= 0.95 * ended[1], "at least 95 % of the throughput that it has alone"


# robots.txt


def test_scenario_13_a_robots_txt_that_is_never_reached_forbids_all_and_the_run_ends() -> None:
    web = Web({f"{A}robots.txt": fails(Outcome.HTTP_ERROR, 503)})
    crawl = Crawl.of(web, A, f"{A}x", f"{A}y", robots="obey")
    run(crawl, limit=sum(UNREACHABLE_WAITS_MS) / 1000 + 60)
    assert web.pages == []
    assert set(crawl.outcomes().values()) == {Outcome.ROBOTS_UNREACHABLE}
    assert len(crawl.outcomes()) == 3
    assert len(web.robots) == 1 + len(UNREACHABLE_WAITS_MS)
    assert all(page.attempts <= 1 for page in crawl.memory.pages.values()), "waiting costs no attempt"


@pytest.mark.parametrize("first", [REFUSED, fails(Outcome.HTTP_ERROR, 503), fails(Outcome.TOTAL_TIMEOUT)])
def test_scenario_14_a_robots_txt_that_recovers_lets_the_crawl_go_on(first: Answer) -> None:
    web = Web({f"{A}robots.txt": [first, text("User-agent: *\nDisallow: /1\n")], A: page(*names(3))})
    crawl = Crawl.of(web, robots="obey")
    run(crawl)
    assert web.asked() == {A, f"{A}0", f"{A}2"}
    assert web.times()[0] >= UNREACHABLE_WAITS_MS[0] / 1000
    assert crawl.outcomes()[f"{A}1"] is Outcome.ROBOTS_DISALLOWED
    assert crawl.errors()[f"{A}1"] == "2: Disallow: /1"
    assert not Outcome.ROBOTS_DISALLOWED.failed


def test_another_host_is_crawled_while_a_robots_txt_cannot_be_reached() -> None:
    web = Web({f"{A}robots.txt": fails(Outcome.HTTP_ERROR, 503), B: page(*names(50, B))})
    run(Crawl.of(web, A, B, robots="obey", fetch={"perHost": 1, "workers": 1}))
    assert len(web.times(B)) == 51
    assert web.times(B)[-1] <= 55 * LATENCY


def test_a_robots_txt_is_asked_for_once_whoever_restarts() -> None:
    web = Web({A: page(*names(40))})
    crawl = Crawl.of(web, robots="obey", fetch={"perHost": 1})

    async def main() -> None:
        await crawl.killed_at(1.05)
        stop = Stop()
        asyncio.get_running_loop().call_later(1, stop.request, signal.SIGTERM)
        assert not await crawl.process(stop)
        assert await crawl.process()

    virtual_time.run(main(), DAY)
    assert [url for url, _ in web.robots] == [f"{A}robots.txt"]
    assert len(crawl.outcomes()) == 41


def test_before_the_robots_txt_has_come_no_page_is_asked_for() -> None:
    web = Web({A: page(*names(5))})
    run(Crawl.of(web, A, f"{A}x", f"{A}y", robots="obey", fetch={"perHost": 8}))
    assert len(web.robots) == 1
    assert web.times()[0] >= web.robots[0][1] + LATENCY - CLOCK_ERROR


def test_ignore_asks_for_no_robots_txt() -> None:
    web = Web({f"{A}robots.txt": text("User-agent: *\nDisallow: /\n"), A: page(*names(5))})
    run(Crawl.of(web, robots="ignore"))
    assert web.robots == []
    assert len(web.asked()) == 6


def test_a_redirect_into_a_disallowed_path_is_not_followed() -> None:
    robots = {f"{A}robots.txt": text("User-agent: *\nDisallow: /secret\n")}
    web = Web({A: page(*names(2)), **robots}, {f"{A}0": f"{A}secret", f"{A}1": f"{A}open"})
    crawl = Crawl.of(web, robots="obey")
    run(crawl)
    assert f"{A}secret" not in web.asked()
    assert f"{A}open" in web.asked()
    assert crawl.outcomes()[f"{A}0"] is Outcome.ROBOTS_DISALLOWED


@pytest.mark.parametrize("recovers", [True, False])
def test_a_hop_waits_for_the_other_origins_robots_txt_as_long_as_for_its_own(recovers: bool) -> None:
    plain = "http://a.example/"
    unavailable = fails(Outcome.HTTP_ERROR, 503)
    web = Web({f"{A}robots.txt": [unavailable, text("")] if recovers else unavailable}, {plain: A})
    crawl = Crawl.of(web, plain, robots="obey")
    run(crawl)
    asked = [url for url, _ in web.robots].count(f"{A}robots.txt")
    assert crawl.outcomes() == {plain: Outcome.OK if recovers else Outcome.ROBOTS_UNREACHABLE}
    assert asked == (2 if recovers else 1 + len(UNREACHABLE_WAITS_MS))


def test_a_hop_from_http_to_https_asks_the_other_origin() -> None:
    plain = "http://a.example/"
    web = Web({f"{A}robots.txt": text("User-agent: *\nDisallow: /no\n")}, {plain: A, f"{plain}no": f"{A}no"})
    crawl = Crawl.of(web, plain, f"{plain}no", robots="obey")
    run(crawl)
    assert {url for url, _ in web.robots} == {f"{plain}robots.txt", f"{A}robots.txt"}
    assert crawl.outcomes() == {plain: Outcome.OK, f"{plain}no": Outcome.ROBOTS_DISALLOWED}
    assert web.asked() == {plain, A, f"{plain}no"}


def test_a_page_whose_connection_took_long_is_not_sent_to_a_host_that_asks_to_be_left_alone_meanwhile() -> None:
    """It is given back, and tried when the host may be asked again."""
    slow, last = f"{A}slow", f"{A}busy"
    connecting = iter([0.0, 1.0])  # the second is the slow one's
    web = Web({A: page(slow, last), last: [busy(20), page()]}, connecting=lambda _: next(connecting, 0.0))
    crawl = Crawl.of(web, fetch={"perHost": 4}, delay="500ms")
    run(crawl)
    said = next(at for url, at in web.pages if url == last) + LATENCY
    assert said < 1.5, "the slow one was waiting"
    assert all(at > said + 19.9 for url, at in web.pages if url == slow), web.pages
    assert crawl.outcomes() == dict.fromkeys((A, slow, last), Outcome.OK)


def test_a_slow_first_page_holds_up_nobody_once_the_robots_txt_is_known() -> None:
    """The page that asks for the robots.txt may itself take long; its host's other pages need not wait for it."""

    class FirstSlow(Web):
        async def fetch(self, url: str, may_follow: MayFollow, take_turn: TakeTurn) -> Fetched:
            self.latency = LATENCY if self.pages else 8.0
            return await super().fetch(url, may_follow, take_turn)

    web = FirstSlow({})
    run(Crawl.of(web, A, f"{A}1", f"{A}2", fetch={"perHost": 4}, robots="obey"))
    first, *others = web.times()
    assert [at - first < 1 for at in others] == [True, True], web.pages
