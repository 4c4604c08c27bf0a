"""Who is asked for a robots.txt, how often, and what is believed meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.clock import ManualClock

from durable_crawler.outcomes import Fetched, Hop, Outcome
from durable_crawler.robots import KnownRobots
from durable_crawler.robots_gate import (
    CACHED_MS,
    KNOWN_BYTES,
    PROXY_WAIT_MS,
    UNREACHABLE_WAITS_MS,
    Allowed,
    Disallowed,
    RobotsGate,
    Unreachable,
    judge,
)
from durable_crawler.urls import origin

HERE = "https://a.example"
FILE = b"User-agent: *\nDisallow: /no\nCrawl-delay: 1.5\n"
GOOD = Fetched("u", "u", Outcome.OK, 200, body=FILE)
ABSENT = Fetched("u", "u", Outcome.HTTP_ERROR, 404)
BUSY = Fetched("u", "u", Outcome.HTTP_ERROR, 503)
CUT_OFF = Fetched("u", "u", Outcome.CONNECT_ERROR)

AWAY = Fetched("u", "u", Outcome.PROXY_UNREACHABLE)
FORBIDDEN = Fetched(
    "u", "u", Outcome.PROXY_REFUSED, error="the proxy http://p.example:3128 does not let the crawl through"
)


class World:
    """A network that answers for files in turn, and a store that outlives the gates."""

    def __init__(self, *answers: Fetched) -> None:
        self.clock = ManualClock()
        self.asked: list[str] = []
        self.kept: dict[str, KnownRobots] = {}
        self._answers = list(answers)

    async def fetch(self, url: str) -> Fetched:
        self.asked.append(url)
        await asyncio.sleep(0)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    async def robots_of(self, origin: str) -> KnownRobots | None:
        return self.kept.get(origin)

    async def keep_robots(self, known: KnownRobots) -> None:
        self.kept[known.origin] = known

    def gate(self) -> RobotsGate:
        return RobotsGate(self.fetch, self, "bot", self.clock)

    def pass_ms(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds / 1000)


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("https://a.example/", "https://a.example"),
        ("http://a.example/x?y=https://b.example/", "http://a.example"),
        ("http://a.example:8080/x", "http://a.example:8080"),
        ("http://[2001:db8::1]:81/", "http://[2001:db8::1]:81"),
    ],
)
def test_a_file_holds_for_scheme_host_and_port(url: str, where: str) -> None:
    assert origin(url) == where


JUDGED_APART = (Outcome.OK, Outcome.PROXY_UNREACHABLE, Outcome.HTTP_ERROR, Outcome.ADDRESS_REFUSED)


@pytest.mark.parametrize(
    ("fetched", "failures"),
    [
        (GOOD, 0),
        (ABSENT, 0),
        *((Fetched("u", "u", Outcome.HTTP_ERROR, status), 0) for status in (400, 401, 403, 410, 418, 451)),
        *((Fetched("u", "u", Outcome.HTTP_ERROR, status), 1) for status in (304, 429, 500, 503, 599)),
        *((Fetched("u", "u", outcome), 1) for outcome in Outcome if outcome not in JUDGED_APART),
        (Fetched("u", "v", Outcome.ADDRESS_REFUSED, hops=(Hop("u", 302, "v"),)), 1),
    ],
)
def test_what_an_answer_means(fetched: Fetched, failures: int) -> None:
    known = judge(HERE, fetched, None, 1000)
    assert known.failures == failures
    assert known.expires_ms == 1000 + (UNREACHABLE_WAITS_MS[0] if failures else CACHED_MS)
    assert known.body == (FILE if fetched is GOOD else b"")


async def test_a_file_is_asked_for_once_however_many_pages_wait() -> None:
    world = World(GOOD)
    gate = world.gate()
    verdicts = await asyncio.gather(*(gate.verdict(f"{HERE}/{name}") for name in ("a", "no", "b", "no/way")))
    assert verdicts == [
        Allowed(1.5),
        Disallowed("2: Disallow: /no", 1.5),
        Allowed(1.5),
        Disallowed("2: Disallow: /no", 1.5),
    ]
    assert world.asked == [f"{HERE}/robots.txt"]


async def test_each_origin_is_asked_for_its_own() -> None:
    world = World(ABSENT)
    gate = world.gate()
    for url in (f"{HERE}/", "http://a.example/", "https://a.example:8443/", f"{HERE}/x"):
        assert await gate.verdict(url) == Allowed()
    assert world.asked == [
        "https://a.example/robots.txt",
        "http://a.example/robots.txt",
        "https://a.example:8443/robots.txt",
    ]


async def test_an_answer_is_used_for_a_day_by_every_process() -> None:
    world = World(GOOD)
    gate = world.gate()
    for step in (0, CACHED_MS - 1):
        world.pass_ms(step)
        assert await gate.verdict(f"{HERE}/a") == Allowed(1.5)
        assert await world.gate().verdict(f"{HERE}/a") == Allowed(1.5)
    assert len(world.asked) == 1
    world.pass_ms(1)
    await gate.verdict(f"{HERE}/a")
    assert len(world.asked) == 2


async def test_an_unreachable_file_is_asked_for_again_with_growing_waits_and_then_given_up() -> None:
    world = World(BUSY)
    gate = world.gate()
    for number, wait in enumerate(UNREACHABLE_WAITS_MS, start=1):
        due = world.clock.wall_ms() + wait
        for _ in range(3):
            assert await gate.verdict(f"{HERE}/a") == Unreachable(due)
        world.pass_ms(wait - 1)
        assert await world.gate().verdict(f"{HERE}/a") == Unreachable(due), "nor does a restart ask earlier"
        assert len(world.asked) == number
        world.pass_ms(1)
    assert await gate.verdict(f"{HERE}/a") == Unreachable(None)
    world.pass_ms(UNREACHABLE_WAITS_MS[-1] - 1)
    assert await gate.verdict(f"{HERE}/a") == Unreachable(None)
    assert len(world.asked) == 1 + len(UNREACHABLE_WAITS_MS)


@pytest.mark.parametrize("restarted", [False, True])
async def test_who_was_given_up_is_asked_again_when_that_has_expired(restarted: bool) -> None:
    world = World(*[BUSY] * 5, GOOD, BUSY)
    gate = world.gate()
    for wait in (*UNREACHABLE_WAITS_MS, UNREACHABLE_WAITS_MS[-1]):
        await gate.verdict(f"{HERE}/a")
        world.pass_ms(wait)
        gate = world.gate() if restarted else gate
    assert await gate.verdict(f"{HERE}/a") == Unreachable(None), "still nothing"
    world.pass_ms(UNREACHABLE_WAITS_MS[-1])
    assert isinstance(await gate.verdict(f"{HERE}/no"), Disallowed)
    assert world.kept[HERE].failures == 0
    assert len(world.asked) == 6


async def test_of_an_address_that_is_refused_nothing_is_kept() -> None:
    world = World(Fetched("u", "u", Outcome.ADDRESS_REFUSED), GOOD)
    gate = world.gate()
    assert await gate.verdict(f"{HERE}/no") == Allowed(), "the page will say so itself"
    assert world.kept == {}
    assert isinstance(await gate.verdict(f"{HERE}/no"), Disallowed)


@pytest.mark.parametrize("restarting", [False, True])
@pytest.mark.parametrize(
    ("answers", "counted"),
    [
        ("AAAAAAAAAG", "0000000000"),
        ("ABBBB", "01234"),
        ("BBBAB", "12334"),
        ("BBBABAAB", "12334444"),
        ("BABAG", "11220"),
        ("BAABABAB", "11122334"),
    ],
)
async def test_a_proxy_that_is_away_counts_neither_for_an_origin_nor_against_it(
    answers: str, counted: str, restarting: bool
) -> None:
    """A: the proxy is away. B: the origin answers 503. G: it gives the file. ``counted`` are its failures in a row."""
    world = World(*[{"A": AWAY, "B": BUSY, "G": GOOD}[answer] for answer in answers])
    gate = world.gate()
    for answer, failures in zip(answers, map(int, counted), strict=True):
        before = dict(world.kept)
        verdict = await gate.verdict(f"{HERE}/a")
        known = world.kept.get(HERE)
        assert (known.failures if known else 0) == failures
        if failures == 4:
            assert verdict == Unreachable(None), "after four failures of its own, whatever comes then"
        elif answer == "A":
            assert verdict == Unreachable(world.clock.wall_ms() + PROXY_WAIT_MS, outcome=Outcome.PROXY_UNREACHABLE)
            assert world.kept == before, "nothing was learned"
            asked = len(world.asked)
            world.pass_ms(PROXY_WAIT_MS - 1)
            assert await gate.verdict(f"{HERE}/b") == verdict
            assert len(world.asked) == asked, "one question, however many pages wait"
            world.pass_ms(1)
        elif answer == "B":
            assert verdict == Unreachable(world.clock.wall_ms() + UNREACHABLE_WAITS_MS[failures - 1])
            world.pass_ms(UNREACHABLE_WAITS_MS[failures - 1])
        else:
            assert verdict == Allowed(1.5)
        if restarting:
            gate = world.gate()


async def test_a_proxy_is_not_waited_for_longer_when_the_clock_is_set_back() -> None:
    world = World(AWAY, GOOD)
    gate = world.gate()
    assert isinstance(await gate.verdict(f"{HERE}/a"), Unreachable)
    world.clock.jump(-30 * 86_400)
    assert await gate.verdict(f"{HERE}/a") == Allowed(1.5)


async def test_who_is_given_up_says_why() -> None:
    world = World(FORBIDDEN)
    gate = world.gate()
    for wait in (*UNREACHABLE_WAITS_MS, 0):
        verdict = await gate.verdict(f"{HERE}/a")
        world.pass_ms(wait)
    assert isinstance(verdict, Unreachable)
    assert (verdict.retry_ms, verdict.cause) == (None, "the proxy http://p.example:3128 does not let the crawl through")


async def test_scenario_14_a_robots_txt_recovers_at_the_second_try() -> None:
    world = World(CUT_OFF, GOOD)
    gate = world.gate()
    assert isinstance(await gate.verdict(f"{HERE}/a"), Unreachable)
    world.pass_ms(UNREACHABLE_WAITS_MS[0])
    assert await gate.verdict(f"{HERE}/a") == Allowed(1.5)
    assert world.kept[HERE].failures == 0


async def test_a_good_copy_is_used_for_another_day_while_the_file_cannot_be_reached() -> None:
    world = World(GOOD, BUSY)
    gate = world.gate()
    await gate.verdict(f"{HERE}/a")
    world.pass_ms(CACHED_MS)
    assert await gate.verdict(f"{HERE}/a") == Allowed(1.5)
    assert isinstance(await gate.verdict(f"{HERE}/no"), Disallowed)
    assert len(world.asked) == 2
    again = CACHED_MS // UNREACHABLE_WAITS_MS[0]
    for _ in range(again - 1):
        world.pass_ms(UNREACHABLE_WAITS_MS[0])
        assert await world.gate().verdict(f"{HERE}/a") == Allowed(1.5)
    world.pass_ms(UNREACHABLE_WAITS_MS[0])
    assert isinstance(await gate.verdict(f"{HERE}/a"), Unreachable), "for a day, not for ever"
    assert len(world.asked) == 2 + again


@pytest.mark.parametrize(
    ("answer", "longest_ms"), [(GOOD, CACHED_MS), (BUSY, UNREACHABLE_WAITS_MS[-1])], ids=["good", "busy"]
)
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_clock_that_is_set_back_makes_nothing_last_longer(
    answer: Fetched, longest_ms: int, restarted: bool
) -> None:
    world = World(answer)
    gate = world.gate()
    await gate.verdict(f"{HERE}/a")
    world.clock.jump(-30 * 86_400)
    if restarted:
        gate = world.gate()
    await gate.verdict(f"{HERE}/a")
    assert len(world.asked) == 1
    world.pass_ms(longest_ms)
    await gate.verdict(f"{HERE}/a")
    assert len(world.asked) == 2


async def test_what_is_learned_is_kept_before_it_is_believed() -> None:
    world = World(GOOD)

    async def broken(_: KnownRobots) -> None:
        raise OSError("disk")

    world.keep_robots = broken  # type: ignore[method-assign, assignment]
    with pytest.raises(OSError, match="disk"):
        await world.gate().verdict(f"{HERE}/a")


async def test_large_files_of_many_hosts_are_bounded_in_memory_and_asked_for_once() -> None:
    large = FILE + b"#" * (KNOWN_BYTES // 16)
    world = World(Fetched("u", "u", Outcome.OK, 200, body=large))
    gate = world.gate()
    hosts = [f"https://h{number}.example" for number in range(40)]
    for _ in range(2):
        for host in hosts:
            assert await gate.verdict(f"{host}/yes") == Allowed(1.5)
            assert isinstance(await gate.verdict(f"{host}/no"), Disallowed)
    assert world.asked == [f"{host}/robots.txt" for host in hosts]
    assert len(world.kept) == len(hosts)
    assert len(gate._known._kept) * len(large) <= KNOWN_BYTES
    assert sum(len(known.body) for _, (known, _) in gate._parsed._kept.values()) <= KNOWN_BYTES
