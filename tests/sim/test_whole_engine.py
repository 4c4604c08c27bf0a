"""The whole engine on virtual time against webs with faults: it finds what there is, bounded and polite, however ended.

A web, its faults, the latencies of the frontier and the moments of interruption all come from one seed.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from tests.support import virtual_time
from tests.support.memory_frontier import Memory, MemoryFrontier
from tests.support.scripted_site import DEAD, FLAKY, SLOW, STEADY, Answer, Script, Site, make_script
from tests.support.virtual_time import VirtualClock, VirtualTimeLoop

from crawljob.manifest import parse
from crawljob.spec import CrawlJobSpec
from durable_crawler.board import Wait
from durable_crawler.engine import DRAIN_SECONDS, Engine
from durable_crawler.frontier.opening import Admission
from durable_crawler.frontier.sqlite import LEASE_MS
from durable_crawler.outcomes import Outcome, PageRecord
from durable_crawler.politeness import FAILURES_TO_OPEN, OPENINGS_TO_GIVE_UP
from durable_crawler.stop import Stop
from durable_crawler.urls import authority

LIMIT_SECONDS = 6 * 3600
"""Of virtual time. What is not over by then hangs."""


@dataclass
class Seen:
    """What the engine told telemetry."""

    settled: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    expired: int = 0
    most_working: int = 0

    def page_settled(self, record: PageRecord) -> None:
        self.settled[record.settled] += 1

    def leases(self, *, expired: int = 0, lost: int = 0, recovered: int = 0) -> None:
        self.expired += expired
        self.lost += lost

    def working(self, pages: int) -> None:
        self.most_working = max(self.most_working, pages)

    def waiting(self, hosts: Mapping[int, tuple[Wait, float] | None]) -> None:
        assert all(gate is None or isinstance(gate[0], Wait) for gate in hosts.values())


@dataclass
class Simulation:
    """One web, one frontier, any number of runs over it."""

    seed: int
    chance: Random
    spec: CrawlJobSpec
    site: Site
    memory: Memory = field(default_factory=Memory)
    seen: Seen = field(default_factory=Seen)

    def __post_init__(self) -> None:
        self.latency: Callable[[], float] = self._latency
        self.jitter: Callable[[], float] = self.chance.random
        self.clock: Callable[[asyncio.AbstractEventLoop], VirtualClock] = VirtualClock

    def _latency(self) -> float:
        return 0.5 if self.chance.random() < 0.01 else self.chance.uniform(0, 0.02)

    @classmethod
    def make(
        cls,
        seed: int,
        script: Script | None = None,
        *,
        scope: Mapping[str, int] | None = None,
        fetch: Mapping[str, int] | None = None,
    ) -> Simulation:
        """Bounds and a web from the seed, unless they are given."""
        chance = Random(seed)
        bounds = {"workers": chance.randint(1, 20), "perHost": chance.randint(1, 4), "retries": chance.randint(0, 4)}
        bounds |= fetch or {}
        script = script or make_script(chance, retries=bounds["retries"])
        # By which way a page is found first is a matter of time, hence no depth is a bound unless a test wants it.
        limits = {"maxDepth": 1000, **(scope or {})}
        spec = parse({"seeds": list(script.seeds), "fetch": bounds, "scope": limits})
        return cls(seed, chance, spec, Site(script))

    async def run(self, stop: Stop) -> bool:
        """One process: opens the frontier, crawls until the end or the stop, closes it."""
        clock = self.clock(asyncio.get_running_loop())
        admission = Admission(tuple((url, authority(url)) for url in self.spec.seeds), self.spec.scope.max_depth)
        frontier = await MemoryFrontier.open(self.memory, admission, max_pages=self.spec.scope.max_pages, clock=clock)
        frontier.latency = self.latency
        engine = Engine(
            self.spec,
            frontier,
            fetcher=self.site,
            robots=None,
            observer=self.seen,
            clock=clock,
            random=self.jitter,
        )
        finished = await engine.run(stop)
        assert self.site.in_flight.total() == 0
        assert frontier.snapshot.leased == 0
        await frontier.close()
        return finished

    async def until_finished(self) -> None:
        """One process that nobody disturbs."""
        assert await self.run(Stop())

    def outcomes(self) -> dict[str, Outcome]:
        """What the frontier holds at the end; every page once."""
        assert self.memory.broken_invariants() == []
        assert self.memory.in_state("pending", "leased", "deferred", "quarantined") == []
        return {page.url: result.outcome for page in self.memory.in_state("done") for result in page.results}

    def expected(self) -> dict[str, Outcome]:
        """What the web has to give. Whether a host was rightly taken for dead, the site's own log says."""
        closed = self.closed_with_their_host()
        for url in closed:
            assert self.site.unconnected_at_last(url) >= FAILURES_TO_OPEN + OPENINGS_TO_GIVE_UP - 1
        return self.site.script.outcomes(closed)

    def closed_with_their_host(self) -> set[str]:
        """Pages that were given up, asked for or not."""
        done = self.memory.in_state("done")
        return {page.url for page in done for result in page.results if result.outcome is Outcome.HOST_DEAD}

    def assert_bounded_and_polite(self) -> None:
        """What holds at any time, whatever happened."""
        assert list(self.site.impolite()) == []
        most = dict(self.site.most)
        assert most.pop("all") <= self.spec.fetch.workers
        assert max(most.values()) <= self.spec.fetch.per_host
        assert self.seen.most_working <= self.spec.fetch.workers

    def simulate(self, main: Coroutine[Any, Any, None]) -> None:
        """Run to its end on virtual time."""
        virtual_time.run(main, LIMIT_SECONDS)


def test_it_finds_what_can_be_reached_and_asks_no_more_than_it_must(seed: int) -> None:
    simulation = Simulation.make(seed)
    simulation.simulate(simulation.until_finished())
    expected, closed = simulation.expected(), simulation.closed_with_their_host()
    assert simulation.outcomes() == expected
    simulation.assert_bounded_and_polite()
    requests = simulation.site.requests()
    assert requests.keys() - closed == expected.keys() - closed
    for url, count in requests.items():
        if url in closed:
            assert count <= simulation.spec.fetch.retries
            continue
        faults, last = simulation.site.script.answers[url]
        gives_up = last.wait is not None or last.outcome is Outcome.TRUNCATED or last.status == 500
        assert count == (1 + simulation.spec.fetch.retries if gives_up else 1 + len(faults)), url
    worked = len(expected) - len(closed)
    assert simulation.seen.settled == {
        key: count for key, count in (("done", worked), ("deferred", requests.total() - worked)) if count
    }
    assert (simulation.seen.lost, simulation.seen.expired) == (0, 0)


def test_stopped_at_any_time_and_resumed_it_ends_with_the_same(seed: int) -> None:
    simulation = Simulation.make(seed)
    stops = 0

    async def main() -> None:
        nonlocal stops
        loop = asyncio.get_running_loop()
        finished = False
        while not finished:
            stop = Stop()
            after = simulation.chance.expovariate(1 / 8) * 1.3**stops  # so that it comes to an end
            asked = loop.time() + after
            loop.call_at(asked, stop.request, signal.SIGTERM)
            if urgent := simulation.chance.random() < 0.3:
                loop.call_at(asked + simulation.chance.uniform(0, 2), stop.request, signal.SIGTERM)
            finished = await simulation.run(stop)
            if stop.requested.is_set():
                stops += 1
                assert loop.time() - asked <= (2 if urgent else DRAIN_SECONDS) + 2, "law L12"
                assert all(request.started <= asked for request in simulation.site.log), "nothing begins after that"
            await asyncio.sleep(simulation.chance.choice([0, 0.1, 5]))

    simulation.simulate(main())
    expected, closed = simulation.expected(), simulation.closed_with_their_host()
    assert simulation.outcomes() == expected
    simulation.assert_bounded_and_polite()
    assert simulation.site.requests().keys() - closed == expected.keys() - closed
    cancelled = sum(request.answer is None for request in simulation.site.log)
    assert cancelled <= stops * simulation.spec.fetch.workers
    assert simulation.seen.settled["released"] <= stops * simulation.spec.fetch.workers
    assert max(simulation.site.answered.values()) <= 1 + simulation.spec.fetch.retries + stops


def test_a_process_that_stood_still_for_longer_than_its_leases_loses_them_and_nothing_else(seed: int) -> None:
    simulation = Simulation.make(seed)
    stalls = 0

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)

        def stall() -> None:
            nonlocal stalls
            stalls += 1
            assert isinstance(loop, VirtualTimeLoop)
            loop.stall(LEASE_MS / 1000 * simulation.chance.uniform(0.9, 3))

        # Fewer than there are claims to a page before it is set aside.
        for _ in range(2):
            loop.call_later(simulation.chance.expovariate(1 / 5), stall)
        await simulation.until_finished()

    simulation.simulate(main())
    assert simulation.outcomes() == simulation.expected()
    simulation.assert_bounded_and_polite()


@pytest.mark.parametrize("slow", [DEAD, SLOW, FLAKY])
def test_another_host_in_trouble_slows_nobody(seed: int, slow: str) -> None:
    chance = Random(seed)
    hosts = [STEADY, *[slow] * chance.randint(1, 3)]
    script = make_script(chance, retries=3, moods=hosts, pages=100)
    # Only the links decide who is crawled, and those of the healthy host stay with it.
    answers = {
        url: (
            [_within(answer, url) for answer in faults],
            _within(last, url),
        )
        for url, (faults, last) in script.answers.items()
    }
    script = Script(script.seeds, answers)
    healthy = script.seeds[0]
    bounds = {"workers": 2 * len(hosts), "perHost": 2, "retries": 3}
    alone = Simulation.make(seed, script.only(healthy), fetch=bounds)
    together = Simulation.make(seed, script, fetch=bounds)
    for simulation in (alone, together):
        # Whatever chance decides would be decided otherwise for each of the two.
        simulation.latency, simulation.jitter = (lambda: 0.01), (lambda: 0.5)
        simulation.simulate(simulation.until_finished())
    assert together.outcomes() == together.expected()
    assert ended(together, healthy) <= 1.05 * ended(alone, healthy) + 0.5


def _within(answer: Answer, url: str) -> Answer:
    own = tuple(link for link in answer.links if authority(link) == authority(url))
    return Answer(answer.outcome, answer.status, answer.latency, own, answer.target, answer.retry_after, answer.wait)


def ended(simulation: Simulation, seed: str) -> float:
    """When the last request to a host was answered."""
    return max(request.ended or 0.0 for request in simulation.site.log if request.url.startswith(seed))


def test_the_page_limit_is_exact(seed: int) -> None:
    chance = Random(seed)
    limit = chance.randint(1, 60)
    simulation = Simulation.make(seed, scope={"maxPages": limit})

    async def main() -> None:
        loop = asyncio.get_running_loop()
        finished, patience = False, 1.0
        while not finished:
            stop = Stop()
            loop.call_later(chance.uniform(1, 60) * patience, stop.request, signal.SIGTERM)
            finished = await simulation.run(stop)
            patience *= 1.3  # the longest page needs minutes

    simulation.simulate(main())
    expected = simulation.expected()
    requests = simulation.site.requests()
    unasked = simulation.closed_with_their_host() - requests.keys()
    assert len(requests) == min(limit, len(expected.keys() - unasked))
    assert requests.keys() <= expected.keys()
    assert len(simulation.memory.in_state("done")) == len(requests) + len(unasked)
    assert simulation.memory.in_state("leased", "deferred", "quarantined") == []
    simulation.assert_bounded_and_polite()


def test_depth_is_a_bound(seed: int) -> None:
    chance = Random(seed)
    depth = chance.randint(0, 6)
    urls = ["http://tree.example/"]
    depths = {urls[0]: 0}
    links: dict[str, list[str]] = {urls[0]: []}
    for number in range(80):
        parent = chance.choice(urls)
        url = f"{urls[0]}{number}"
        urls.append(url)
        # To what is above only: whichever way is found first, the way of the tree is the shortest.
        links[url] = [urls[0], parent]
        links[parent].append(url)
        depths[url] = depths[parent] + 1
    retry = [Answer(Outcome.HTTP_ERROR, 500, 0.1)]
    script = Script(
        (urls[0],),
        {
            url: (retry * (chance.random() < 0.3), Answer(Outcome.OK, 200, chance.uniform(0, 3), tuple(links[url])))
            for url in urls
        },
    )
    simulation = Simulation.make(seed, script, scope={"maxDepth": depth}, fetch={"retries": 1})
    simulation.simulate(simulation.until_finished())
    assert simulation.outcomes().keys() == {url for url in urls if depths[url] <= depth}
    assert {page.url: page.depth for page in simulation.memory.in_state("done", "excluded")} == {
        url: at for url, at in depths.items() if at <= depth + 1
    }


def test_the_same_seed_is_the_same_run(seed: int) -> None:
    first, second = Simulation.make(seed), Simulation.make(seed)
    first.simulate(first.until_finished())
    second.simulate(second.until_finished())
    assert first.site.log == second.site.log


def test_a_page_may_be_claimed_again_before_its_lost_job_has_ended() -> None:
    top = "http://one.example/"
    page = Answer(Outcome.OK, 200, 0.1)
    busy = Answer(Outcome.HTTP_ERROR, 503, 0.1, retry_after=5, wait=5)
    script = Script(
        (top,),
        {
            top: ((), replace(page, links=tuple(f"{top}{name}" for name in ("long", "busy", "x", "y", "z")))),
            f"{top}long": ((), replace(page, latency=300)),
            f"{top}busy": ((busy,), page),
            **{f"{top}{name}": ((), page) for name in "xyz"},
        },
    )
    simulation = Simulation.make(0, script, fetch={"workers": 3, "perHost": 2, "retries": 1})
    simulation.latency = lambda: 0.01

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        # Then the gate opens and the heartbeat beats in one moment, and both are too late for the long page.
        loop.call_later(1, loop.stall, LEASE_MS / 1000 + 60)
        await simulation.until_finished()

    simulation.simulate(main())
    assert simulation.outcomes() == script.outcomes()
    simulation.assert_bounded_and_polite()
    assert simulation.seen.settled == {"done": 6, "deferred": 1, "lost": 1}
    assert (simulation.seen.lost, simulation.seen.expired) == (1, 1)
    assert simulation.site.requests()[f"{top}long"] == 2


class _Dawdling(VirtualClock):
    """Time passes between any two looks at it, as on a busy machine."""

    def __init__(self, loop: asyncio.AbstractEventLoop, chance: Random) -> None:
        super().__init__(loop)
        self._virtual = loop
        self._chance = chance

    def monotonic(self) -> float:
        if self._chance.random() < 0.2:
            assert isinstance(self._virtual, VirtualTimeLoop)
            self._virtual.stall(self._chance.expovariate(5))
        return super().monotonic()


def test_a_gate_that_opens_between_two_looks_is_not_waited_for_in_vain(seed: int) -> None:
    """The loop fails when all that is left is to wait for nothing."""
    simulation = Simulation.make(seed)
    simulation.clock = lambda loop: _Dawdling(loop, Random(seed))
    simulation.simulate(simulation.until_finished())
    assert simulation.memory.in_state("pending", "leased", "deferred") == []
