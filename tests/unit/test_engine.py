"""What the engine promises: bounds, fencing, retries that hold nothing, graceful ends, honest failures."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.crawler import rows

from crawljob.manifest import parse
from durable_crawler import engine as engine_module
from durable_crawler import work as work_module
from durable_crawler.board import Wait
from durable_crawler.clock import SystemClock
from durable_crawler.engine import Engine
from durable_crawler.frontier import FrontierBrokenError, FrontierError, SqliteFrontier
from durable_crawler.frontier.opening import Admission
from durable_crawler.frontier.reader import FrontierReader
from durable_crawler.heartbeat import Heartbeat
from durable_crawler.outcomes import Fetched, Outcome, PageRecord
from durable_crawler.scope import LeftOut, Scope
from durable_crawler.stop import Stop
from durable_crawler.urls import authority
from durable_crawler.work import BIG_BODY_BYTES, MANY_COMPARISONS, MayFollow, TakeTurn

A = "http://a.example/"
B = "http://b.example/"
Answer = Callable[[str], Fetched]


def html(*links: str, filling: int = 0) -> Answer:
    body = "".join(f'<a href="{link}">x</a>' for link in links).encode() + b"x" * filling
    return lambda url: Fetched(url, url, Outcome.OK, 200, "text/html", body, len(body))


def busy(retry_after: float | None = None) -> Answer:
    return lambda url: Fetched(
        url, url, Outcome.HTTP_ERROR, 503, retryable=True, retry_after=retry_after, host_incident=True
    )


def flaky(url: str) -> Fetched:
    return Fetched(url, url, Outcome.HTTP_ERROR, 500, retryable=True)


@dataclass
class Network:
    """A scripted network: answers by URL, held back until their gate is opened."""

    answers: dict[str, list[Answer]]
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    in_flight: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def fetch(self, url: str, may_follow: MayFollow, take_turn: TakeTurn) -> Fetched:
        self.asked[url] += 1
        for key in ("all", authority(url)):
            self.in_flight[key] += 1
            self.most[key] = max(self.most[key], self.in_flight[key])
        self.arrived.set()
        try:
            await asyncio.sleep(0)
            if url in self.gates:
                await self.gates[url].wait()
            left = self.answers.get(url, [html()])
            return (left.pop(0) if len(left) > 1 else left[0])(url)
        finally:
            for key in ("all", authority(url)):
                self.in_flight[key] -= 1


@dataclass
class Seen:
    """What the engine told telemetry."""

    records: list[PageRecord] = field(default_factory=list)
    lost: int = 0
    expired: int = 0

    def page_settled(self, record: PageRecord) -> None:
        self.records.append(record)

    def leases(self, *, expired: int = 0, lost: int = 0, recovered: int = 0) -> None:
        self.expired += expired
        self.lost += lost

    def working(self, pages: int) -> None:
        assert pages >= 0

    def waiting(self, hosts: Mapping[int, tuple[Wait, float] | None]) -> None:
        assert all(gate is None or isinstance(gate[0], Wait) for gate in hosts.values())

    def settled(self) -> Counter[str]:
        return Counter(record.settled for record in self.records)


@dataclass
class Bench:
    """An engine on a real frontier and a scripted network."""

    frontier: SqliteFrontier
    network: Network
    seen: Seen
    engine: Engine
    stop: Stop

    async def run(self) -> bool:
        async with asyncio.timeout(20):
            return await self.engine.run(self.stop)


Make = Callable[..., Any]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    frontiers: list[SqliteFrontier] = []

    async def make_(
        answers: dict[str, list[Answer]], *seeds: str, fetch: dict[str, Any] | None = None, **scope: Any
    ) -> Bench:
        spec = parse({"seeds": list(seeds or [A]), "fetch": fetch or {}, "scope": scope})
        clock = SystemClock()
        admission = Admission(tuple((url, authority(url)) for url in spec.seeds), spec.scope.max_depth)
        path = tmp_path / "frontier.db"
        frontier = await SqliteFrontier.open(path, admission, max_pages=spec.scope.max_pages, clock=clock)
        frontiers.append(frontier)
        network, seen = Network(answers), Seen()
        engine = Engine(spec, frontier, fetcher=network, robots=None, observer=seen, clock=clock, random=lambda: 0.0)
        return Bench(frontier, network, seen, engine, Stop())

    yield make_
    for frontier in frontiers:
        await frontier.close()
    assert FrontierReader(tmp_path / "frontier.db").broken_invariants() == []


async def test_it_crawls_what_is_reachable_and_nothing_else(make: Make) -> None:
    bench = await make({A: [html("/1", "/2", B, "mailto:x", "http://a.example:81/")], A + "1": [html("/2", "/3#x")]})
    assert await bench.run()
    assert bench.network.asked == {A: 1, A + "1": 1, A + "2": 1, A + "3": 1}
    assert bench.seen.settled() == {"done": 4}


async def test_depth_is_a_bound(make: Make) -> None:
    bench = await make({A: [html("/1")], A + "1": [html("/2")], A + "2": [html("/3")]}, maxDepth=2)
    assert await bench.run()
    assert bench.network.asked.keys() == {A, A + "1", A + "2"}


@pytest.mark.parametrize(
    ("links", "filling", "aside"), [(3, 0, False), (3, 2 * BIG_BODY_BYTES, True), (MANY_COMPARISONS // 100, 0, True)]
)
async def test_links_are_judged_beside_the_loop_where_that_takes_long(
    make: Make, monkeypatch: pytest.MonkeyPatch, links: int, filling: int, aside: bool
) -> None:
    """Other pages' deadlines and the heartbeat must not wait for it."""
    where: set[str] = set()
    objection = Scope.objection

    def noted(scope: Scope, url: str, depth: int, authority: str | None = None) -> LeftOut | None:
        where.add(threading.current_thread().name)
        return objection(scope, url, depth, authority)

    page = html(*(f"/{n}" for n in range(links)), "/private", filling=filling)
    bench = await make({A: [page]}, exclude=[f"/private{n or ''}" for n in range(100)])
    monkeypatch.setattr(Scope, "objection", noted)
    work = asyncio.create_task(bench.run())
    while bench.frontier.snapshot.done == 0:
        await asyncio.sleep(0)
    assert where == {"parser" if aside else "MainThread"}
    assert bench.frontier.snapshot.excluded == 1
    assert await work
    assert bench.frontier.snapshot.done == links + 1


async def test_workers_and_slots_per_host_are_bounds(make: Make) -> None:
    pages = [f"/{n}" for n in range(40)]
    answers = {seed: [html(*pages)] for seed in (A, B)}
    bench = await make(answers, A, B, fetch={"workers": 5, "perHost": 3})
    full = asyncio.Event()
    held = [f"{seed}{number}" for seed in (A, B) for number in range(3, 40)]  # once both hosts have proved to answer
    bench.network.gates = dict.fromkeys(held, full)

    async def open_when_full() -> None:
        while bench.network.most["all"] < 5:
            bench.network.arrived.clear()
            await bench.network.arrived.wait()
        full.set()

    opening = asyncio.create_task(open_when_full())
    assert await bench.run()
    await opening
    assert bench.network.most["all"] == 5
    assert sorted([bench.network.most["a.example"], bench.network.most["b.example"]])[1] == 3, "and no more"
    assert set(bench.network.asked.values()) == {1}


async def test_a_retry_waits_in_the_frontier_and_the_worker_goes_on(make: Make) -> None:
    bench = await make({A: [html("/1", "/2")], A + "1": [flaky, html()]}, fetch={"workers": 1, "perHost": 1})
    assert await bench.run()
    assert bench.network.asked == {A: 1, A + "1": 2, A + "2": 1}
    assert [record.url for record in bench.seen.records] == [A, A + "1", A + "2", A + "1"]
    assert [record.attempt for record in bench.seen.records if record.url == A + "1"] == [1, 2]


async def test_a_dead_proxy_is_waited_for_and_no_host_is_given_up(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not an attempt of any page, however often; the pages are there when it is back."""
    monkeypatch.setattr(work_module, "PROXY_WAIT_MS", 5)

    def away(url: str) -> Fetched:
        return Fetched(url, url, Outcome.PROXY_UNREACHABLE, error="the proxy http://p.example:3128: no connection")

    bench = await make({A: [*[away] * 40, html("/1")], A + "1": [away, html()]}, fetch={"retries": 0})
    assert await bench.run()
    assert bench.network.asked == {A: 41, A + "1": 2}
    assert bench.seen.settled() == {"released": 41, "done": 2}
    assert bench.frontier.snapshot.failed == 0


async def test_a_proxy_that_says_no_is_no_answer_of_the_host(make: Make, tmp_path: Path) -> None:
    def cut_off(url: str) -> Fetched:
        return Fetched(url, url, Outcome.CONNECT_ERROR, retryable=True, host_incident=True)

    def forbidden(url: str) -> Fetched:
        return Fetched(url, url, Outcome.PROXY_REFUSED)

    answers = {A: [html("/1", "/2")], A + "1": [cut_off], A + "2": [forbidden]}
    bench = await make(answers, fetch={"retries": 0, "perHost": 1})
    assert await bench.run()
    assert [record.url for record in bench.seen.records] == [A, A + "1", A + "2"]
    assert rows(tmp_path / "frontier.db", "SELECT failures FROM hosts") == [(1,)]


async def test_retries_are_counted_out(make: Make) -> None:
    bench = await make({A: [flaky]}, fetch={"retries": 1})
    assert await bench.run()
    assert bench.network.asked == {A: 2}
    assert bench.seen.settled() == {"deferred": 1, "done": 1}
    assert bench.frontier.snapshot.failed == 1


async def test_a_busy_host_waits_as_a_whole_and_others_go_on(make: Make) -> None:
    answers = {A: [html("/1", "/2")], A + "1": [busy(1.0), html()], B: [html(*(f"/{n}" for n in range(30)))]}
    bench = await make(answers, A, B, fetch={"workers": 4, "perHost": 1})
    assert await bench.run()
    order = [record.url for record in bench.seen.records]
    first, last = order.index(A + "1"), len(order) - 1 - order[::-1].index(A + "1")
    assert not any(url.startswith(A) for url in order[first + 1 : last] if url != A + "2")
    assert all(url in order[first:last] for url in (B + "5", B + "29")), "the other host is finished meanwhile"
    assert order.index(A + "2") > first


async def test_a_graceful_stop_lets_pages_in_flight_settle(make: Make) -> None:
    bench = await make({A: [html(*(f"/{n}" for n in range(50)))]}, fetch={"workers": 2, "perHost": 2})
    bench.network.gates = {A + "7": asyncio.Event()}
    running = asyncio.create_task(bench.run())
    while A + "7" not in bench.network.asked:
        bench.network.arrived.clear()
        await bench.network.arrived.wait()
    bench.stop.request(signal.SIGTERM)
    bench.network.gates[A + "7"].set()
    assert await running is False
    assert "released" not in bench.seen.settled()
    assert bench.frontier.snapshot.leased == 0
    assert bench.frontier.snapshot.pending > 0


async def test_what_does_not_settle_in_time_is_released_uncharged(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "DRAIN_SECONDS", 0.05)
    bench = await make({A: [html("/slow", "/fast")]}, fetch={"workers": 2, "perHost": 2})
    bench.network.gates = {A + "slow": asyncio.Event()}
    running = asyncio.create_task(bench.run())
    while bench.frontier.snapshot.done < 2:
        bench.network.arrived.clear()
        await asyncio.sleep(0)
    bench.stop.request(signal.SIGTERM)
    assert await running is False
    assert bench.seen.settled() == {"done": 2, "released": 1}
    (lease,) = (await bench.frontier.claim(dict.fromkeys(bench.frontier.hosts, 5), 5)).leases
    assert (lease.url, lease.attempt, lease.retries) == (A + "slow", 1, 0)
    await bench.frontier.release([lease])


async def test_a_second_signal_does_not_wait(make: Make) -> None:
    bench = await make({A: [html("/slow")]})
    bench.network.gates = {A + "slow": asyncio.Event()}
    running = asyncio.create_task(bench.run())
    while A + "slow" not in bench.network.asked:
        bench.network.arrived.clear()
        await bench.network.arrived.wait()
    bench.stop.request(signal.SIGINT)
    bench.stop.request(signal.SIGINT)
    started = asyncio.get_running_loop().time()
    assert await running is False
    assert asyncio.get_running_loop().time() - started < engine_module.DRAIN_SECONDS / 2


async def test_a_stop_that_finds_everything_done_is_a_finish(make: Make) -> None:
    bench = await make({A: [html()]})
    bench.network.gates = {A: asyncio.Event()}
    running = asyncio.create_task(bench.run())
    await bench.network.arrived.wait()
    bench.stop.request(signal.SIGTERM)
    bench.network.gates[A].set()
    assert await running is True


async def test_a_failing_frontier_ends_the_run_and_is_never_an_empty_queue(make: Make, tmp_path: Path) -> None:
    bench = await make({A: [html(*(f"/{n}" for n in range(50)))]})
    bench.network.gates = {A + "9": asyncio.Event()}
    running = asyncio.create_task(bench.run())
    while A + "9" not in bench.network.asked:
        bench.network.arrived.clear()
        await bench.network.arrived.wait()
    path = tmp_path / "frontier.db"
    path.rename(tmp_path / "gone")
    bench.network.gates[A + "9"].set()
    with pytest.raises(FrontierError):
        await running
    (tmp_path / "gone").rename(path)


async def test_a_bug_in_a_worker_ends_the_run(make: Make) -> None:
    def broken(url: str) -> Fetched:
        raise ZeroDivisionError

    bench = await make({A: [broken]})
    with pytest.raises(ZeroDivisionError):
        await bench.run()


async def test_a_lost_lease_cancels_its_job_and_keeps_nothing(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("durable_crawler.heartbeat.INTERVAL_SECONDS", 0.01)
    bench = await make({A: [html("/1")]})
    bench.network.gates = {A: asyncio.Event()}
    running = asyncio.create_task(bench.run())
    await bench.network.arrived.wait()
    (job,) = bench.engine._jobs.values()
    await bench.frontier.release([job.lease])  # as an expiry would: the lease is not ours any more
    while bench.seen.lost == 0:
        await asyncio.sleep(0.001)
    bench.network.gates[A].set()
    bench.network.arrived.clear()
    bench.engine._wake.set()
    assert await running
    assert bench.seen.settled() == {"lost": 1, "done": 2}
    assert bench.network.asked == {A: 2, A + "1": 1}


async def test_a_heartbeat_stopped_during_a_renewal_takes_nobody_along() -> None:
    class SlowFrontier:
        def __init__(self) -> None:
            self.asked, self.answer = asyncio.Event(), asyncio.Event()

        async def renew(self, leases: Any) -> frozenset[int]:
            self.asked.set()
            await self.answer.wait()
            return frozenset()

    frontier: Any = SlowFrontier()
    lost: list[Any] = []
    active = [type("L", (), {"page_id": 1})()]
    heartbeat = Heartbeat(frontier, lambda: active, lost.append, interval=0.001)
    beating = asyncio.create_task(heartbeat.run())
    await frontier.asked.wait()
    active.clear()  # the page finished while its renewal was under way
    heartbeat.stop()
    frontier.answer.set()
    await beating
    assert lost == []


async def test_a_failed_renewal_is_a_failure_of_the_run() -> None:
    class Broken:
        async def renew(self, leases: Any) -> frozenset[int]:
            raise FrontierBrokenError("disk I/O error")

    frontier: Any = Broken()
    lease: Any = type("L", (), {"page_id": 1})()
    with pytest.raises(FrontierBrokenError):
        await Heartbeat(frontier, lambda: [lease], lambda _: None, interval=0.001).run()
