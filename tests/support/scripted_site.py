"""A web of several hosts that is made from a seed, with faults in it, and that judges who asks.

It stands in for the fetcher: an attempt takes the time that the script says, on the loop's clock, and gives what the
script says. Whatever was asked is kept in a log, and what must never happen is read from there.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from durable_crawler.outcomes import Fetched, Hop, Outcome
from durable_crawler.settle import classify
from durable_crawler.urls import authority
from durable_crawler.work import MayFollow, TakeTurn

UNCONNECTED = frozenset({Outcome.CONNECT_ERROR, Outcome.CONNECT_TIMEOUT})

CLOCK_ERROR = 0.002
"""Seconds by which stored times, which are milliseconds, may differ from the loop's."""


@dataclass(frozen=True)
class Answer:
    """What an attempt gives, after ``latency`` seconds. ``wait`` is how long the whole host must be left alone at
    least; ``None`` where the answer says nothing about the host."""

    outcome: Outcome
    status: int | None
    latency: float
    links: tuple[str, ...] = ()
    target: str = ""
    retry_after: float | None = None
    wait: float | None = None


@dataclass(frozen=True)
class Script:
    """For each URL the faults that come first, and the answer that every later attempt gets."""

    seeds: tuple[str, ...]
    answers: Mapping[str, tuple[Sequence[Answer], Answer]]

    def outcomes(self, closed: Collection[str] = ()) -> dict[str, Outcome]:
        """What a crawl of everything that can be reached from the seeds has to end with.

        Pages in ``closed`` were closed with their host, and what they link to was not seen.
        """
        approved = {authority(seed) for seed in self.seeds}
        found: dict[str, Outcome] = {}
        ways = list(self.seeds)
        while ways:
            url = ways.pop()
            if url not in found and authority(url) in approved:
                _, last = self.answers[url]
                found[url] = Outcome.HOST_DEAD if url in closed else last.outcome
                ways += () if url in closed else last.links
        return found

    def only(self, *seeds: str) -> Script:
        """The same web with fewer seeds."""
        return replace(self, seeds=seeds)


HEALTHY, STEADY, SLOW, FLAKY, DEAD = "healthy", "steady", "slow", "flaky", "dead"
"""What a host is like. A steady one has faults that concern single pages only: it never asks to be left alone."""


def make_script(chance: Random, *, retries: int, moods: Sequence[str] = (), pages: int = 0) -> Script:
    """A web with one seed per host. A page has fewer faults than there are attempts, or nothing but faults."""
    moods = moods or [chance.choice([HEALTHY, HEALTHY, SLOW, FLAKY, DEAD]) for _ in range(chance.randint(1, 5))]
    seeds = tuple(f"http://{mood}-{number}.example/" for number, mood in enumerate(moods))
    mood_of = dict(zip(seeds, moods, strict=True))
    urls = list(seeds)
    links: dict[str, list[str]] = {url: [] for url in urls}
    for number in range(pages or chance.randint(20, 120)):
        seed = chance.choice(seeds)
        url = f"{seed}{number}"
        own = [known for known in urls if known.startswith(seed)]
        links[chance.choice(own if chance.random() < 0.9 else urls)].append(url)
        links[url] = []
        urls.append(url)
    for url in urls:
        links[url] += chance.sample(urls, min(len(urls), chance.randint(0, 6)))
        if chance.random() < 0.2:
            links[url].append(f"http://elsewhere.example/{chance.randint(1, 9)}")
        chance.shuffle(links[url])
    answers = {}
    for url in urls:
        mood = next(mood_of[seed] for seed in seeds if url.startswith(seed))
        answers[url] = _answers(chance, mood, tuple(links[url]), retries, is_seed=url in seeds)
    return Script(seeds, answers)


def _answers(
    chance: Random, mood: str, links: tuple[str, ...], retries: int, *, is_seed: bool
) -> tuple[Sequence[Answer], Answer]:
    slow = 30 if mood == SLOW else 1
    if mood == DEAD:
        return (), chance.choice([_unreachable(chance), _silent()])
    faults: list[Answer] = []
    if chance.random() < (0.5 if mood == FLAKY else 0.05):
        fault = _fault_of_a_page if mood == STEADY else _fault
        faults = [fault(chance, slow) for _ in range(chance.randint(1, max(1, retries)))][:retries]
    # Some downloads last longer than a lease: a heartbeat has to carry them.
    longer = chance.uniform(100, 400) if mood != STEADY and chance.random() < 0.02 else 0
    page = Answer(Outcome.OK, 200, _latency(chance) * slow + longer, links)
    if is_seed or (kind := chance.random()) < 0.85:
        return faults, page
    if kind < 0.9:
        return faults, Answer(Outcome.HTTP_ERROR, 404, _latency(chance) * slow)
    if kind < 0.93:
        return faults, Answer(Outcome.NOT_HTML, 200, _latency(chance) * slow)
    if kind < 0.97:
        target = "http://elsewhere.example/moved"
        return faults, Answer(Outcome.REDIRECT_OUT_OF_SCOPE, 302, _latency(chance) * slow, target=target)
    return (), (_fault_of_a_page if mood == STEADY else _fault)(chance, slow)  # and nothing but that


def _latency(chance: Random) -> float:
    return min(chance.expovariate(10), 0.4)


def _unreachable(chance: Random) -> Answer:
    return Answer(Outcome.CONNECT_ERROR, None, chance.uniform(0, 0.1), wait=0.5)


def _silent() -> Answer:
    return Answer(Outcome.CONNECT_TIMEOUT, None, 3.0, wait=0.5)


def _fault_of_a_page(chance: Random, slow: float) -> Answer:
    latency = _latency(chance) * slow
    return chance.choice([Answer(Outcome.HTTP_ERROR, 500, latency), Answer(Outcome.TRUNCATED, 200, latency)])


def _fault(chance: Random, slow: float) -> Answer:
    busy = chance.choice([None, 0, 1, 2, 5, 40])
    latency = _latency(chance) * slow
    return chance.choice(
        [
            Answer(Outcome.HTTP_ERROR, 500, latency),
            Answer(Outcome.HTTP_ERROR, 500, latency, retry_after=3, wait=3),
            Answer(Outcome.TRUNCATED, 200, latency),
            Answer(Outcome.HTTP_ERROR, 503, latency, retry_after=busy, wait=min(max(busy or 0, 0.5), 30)),
            Answer(Outcome.HTTP_ERROR, 429, latency, wait=0.5),
            Answer(Outcome.HEADER_TIMEOUT, None, 8.0, wait=0.5),
            _unreachable(chance),
            _silent(),
        ]
    )


@dataclass
class Request:
    """One attempt, in seconds of the loop. ``ended`` and ``answer`` are missing where it was cancelled."""

    url: str
    started: float
    ended: float | None = None
    answer: Answer | None = None


@dataclass
class Site:
    """Plays a script. Implements what the engine needs of a fetcher."""

    script: Script
    log: list[Request] = field(default_factory=list)
    answered: Counter[str] = field(default_factory=Counter)
    in_flight: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)

    async def fetch(self, url: str, may_follow: MayFollow, take_turn: TakeTurn) -> Fetched:
        loop = asyncio.get_running_loop()
        request = Request(url, loop.time())
        self.log.append(request)
        where = ("all", authority(url))
        for key in where:
            self.in_flight[key] += 1
            self.most[key] = max(self.most[key], self.in_flight[key])
        try:
            faults, last = self.script.answers[url]
            answer = faults[self.answered[url]] if self.answered[url] < len(faults) else last
            await asyncio.sleep(answer.latency)
            # Counted when it is given: an attempt that was cancelled has used up no fault.
            self.answered[url] += 1
            request.ended, request.answer = loop.time(), answer
            return _fetched(url, answer)
        finally:
            for key in where:
                self.in_flight[key] -= 1

    def requests(self) -> Counter[str]:
        """How often each URL was asked for."""
        return Counter(request.url for request in self.log)

    def unconnected_at_last(self, url: str) -> int:
        """How many attempts at a URL's host, one after the other and to the last, led to no connection."""
        host = authority(url)
        count = 0
        answers = [(request.ended, request.answer) for request in self.log if authority(request.url) == host]
        for _, answer in sorted(((at, answer) for at, answer in answers if at is not None and answer), key=_when):
            count = count + 1 if answer.outcome in UNCONNECTED else 0
        return count

    def impolite(self) -> Iterator[str]:
        """Requests to a host that had asked to be left alone."""
        hosts: dict[str, list[Request]] = {}
        for request in self.log:
            hosts.setdefault(authority(request.url), []).append(request)
        for requests in hosts.values():
            incidents = list(_incidents(requests))
            for request in requests:
                for url, closed, opens in incidents:
                    if closed < request.started < opens - CLOCK_ERROR:
                        yield f"{request.url} at {request.started}, closed by {url} from {closed} to {opens}"


def _incidents(requests: Sequence[Request]) -> Iterator[tuple[str, float, float]]:
    """URL, beginning and end of each time for which a host asked to be left alone.

    What was asked before an incident belongs to it: its answer counts for no more than it says itself.
    """
    latest = float("-inf")
    answers = [(request.ended, request, request.answer) for request in requests if request.ended is not None]
    for ended, request, answer in sorted(answers, key=lambda item: item[0]):
        if answer is None or answer.wait is None:
            continue
        wait = answer.wait
        if request.started < latest:
            wait = min(answer.retry_after or 0.0, wait)
        else:
            latest = ended
        yield request.url, ended, ended + wait


def _when(item: tuple[float, Answer]) -> float:
    return item[0]


def _fetched(url: str, answer: Answer) -> Fetched:
    retryable, host_incident = classify(answer.outcome, answer.status, answer.retry_after)
    body = "".join(f'<a href="{link}">x</a>' for link in answer.links).encode()
    is_page = answer.outcome is Outcome.OK
    return Fetched(
        url,
        answer.target or url,
        answer.outcome,
        answer.status,
        "text/html" if is_page else "",
        body if is_page else None,
        len(body),
        (Hop(url, answer.status, answer.target),) if answer.target and answer.status else (),
        retryable=retryable,
        retry_after=answer.retry_after,
        host_incident=host_incident,
    )
