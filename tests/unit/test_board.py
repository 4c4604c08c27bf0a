"""Which hosts get slots, and when."""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import Any

import pytest
from tests.support.clock import ManualClock

from crawljob.manifest import parse
from durable_crawler.board import PROVEN_ANSWERS, Board, Wait
from durable_crawler.frontier.model import Host
from durable_crawler.politeness import FAILURES_TO_OPEN, FIRST_GAP, OPEN_FIRST, OPENINGS_TO_GIVE_UP, Pace
from durable_crawler.settle import Effect

ONE, TWO = 1, 2


def board(clock: ManualClock, *hosts: Host, robots: bool = False, per_host: int = 2, **politeness: Any) -> Board:
    spec = parse({"seeds": ["https://a.example/"], "fetch": {"perHost": per_host}, "politeness": politeness})
    return Board(spec, hosts or (Host(ONE, "a.example", 0), Host(TWO, "b.example", 0)), clock, robots=robots)


def wants(own: Board, stocked: Collection[int], free: int, now: float) -> dict[int, int]:
    """Where exactly these hosts have pages."""
    for host in (ONE, TWO):
        own.stock(host, has_pages=host in stocked)
    return own.wants(free, now)


def test_free_workers_are_shared_by_turns() -> None:
    clock = ManualClock()
    now, own = clock.monotonic(), board(clock)
    assert wants(own, [ONE, TWO], 3, now) == {ONE: 2, TWO: 1}
    own.took(ONE, now)
    assert wants(own, [ONE, TWO], 3, now) == {TWO: 2, ONE: 1}
    assert wants(own, [ONE, TWO], 9, now) == {TWO: 2, ONE: 1}
    own.took(ONE, now)
    assert wants(own, [ONE, TWO], 9, now) == {TWO: 2}
    own.gave_back(ONE)
    assert wants(own, [ONE], 9, now) == {ONE: 1}
    assert wants(own, [ONE, TWO], 0, now) == {}


def test_one_page_asks_for_the_robots_txt_of_all() -> None:
    clock = ManualClock()
    now, own = clock.monotonic(), board(clock, robots=True, per_host=8)
    assert wants(own, [ONE], 9, now) == {ONE: 1}
    own.took(ONE, now)
    assert wants(own, [ONE], 9, now) == {}
    own.asked(ONE, now, None)
    assert wants(own, [ONE], 9, now) == {ONE: 7}


def test_a_crawl_delay_counts_from_the_page_that_learned_it() -> None:
    clock = ManualClock()
    own = board(clock, robots=True, per_host=8)
    own.took(ONE, clock.monotonic())
    clock.advance(3)
    now = clock.monotonic()
    own.asked(ONE, now, 0.5)
    assert wants(own, [ONE], 9, now) == {}
    assert own.next_opening() == now + 0.5
    own.asked(ONE, now + 0.4, 0.5)
    assert own.next_opening() == now + 0.5, "it is known already"
    assert wants(own, [ONE], 9, now + 0.5) == {ONE: 1}
    assert own.next_opening() is None


def test_a_longer_crawl_delay_than_the_spec_allows_is_cut() -> None:
    clock = ManualClock()
    own = board(clock, maxCrawlDelay="2s")
    own.asked(ONE, clock.monotonic(), 86_400)
    assert own.gap(ONE) == 2


def test_a_delay_is_a_gate_after_each_start() -> None:
    clock = ManualClock()
    now, own = clock.monotonic(), board(clock, delay="5s")
    assert wants(own, [ONE], 9, now) == {ONE: 1}
    assert own.gates([ONE, TWO], clock) == dict.fromkeys((ONE, TWO), clock.wall_ms() + 5000)
    own.took(ONE, now)
    own.gave_back(ONE)
    assert wants(own, [ONE], 9, now + 4.9) == {}
    assert own.waiting() == {ONE: (Wait.DELAY, now + 5)}
    assert own.waiting() == {}, "that is known"
    assert wants(own, [ONE], 9, now + 5) == {ONE: 1}


def test_without_a_gap_nothing_is_kept() -> None:
    clock = ManualClock()
    own = board(clock)
    assert own.gates([ONE, TWO], clock) == {}
    assert own.behaved(ONE, Effect.ANSWERED, clock.monotonic(), None) is False


def test_scenario_09_failures_in_parallel_are_one_incident() -> None:
    clock = ManualClock()
    now, own = clock.monotonic(), board(clock, per_host=8)
    for _ in range(8):
        own.took(ONE, now)
    changed = [own.behaved(ONE, Effect.OVERLOADED, now, 0.5) for _ in range(8)]
    assert changed == [True] + [False] * 7
    assert own.gap(ONE) == 0
    assert own.closed_until(ONE) == now + 0.5
    assert own.is_open(TWO, now)
    for _ in range(8):
        own.behaved(ONE, Effect.OVERLOADED, now + 1, 0.5)
    assert own.gap(ONE) == FIRST_GAP


def test_a_gate_is_only_ever_moved_further_away() -> None:
    clock = ManualClock()
    now, own = clock.monotonic(), board(clock)
    own.stock(ONE, has_pages=True)
    own.close(ONE, now + 9, Wait.ROBOTS)
    own.close(ONE, now + 1, Wait.PROXY)
    assert own.waiting() == {ONE: (Wait.ROBOTS, now + 9)}
    assert own.closed_until(ONE) == now + 9
    own.stock(ONE, has_pages=False)
    assert own.waiting() == {ONE: None}, "nobody waits for it any more"


def test_an_open_circuit_lets_one_page_find_out() -> None:
    clock = ManualClock()
    now, own = clock.monotonic(), board(clock, per_host=8)
    for _ in range(FAILURES_TO_OPEN):
        own.behaved(ONE, Effect.UNCONNECTED, now, None)
    assert not own.is_open(ONE, now + OPEN_FIRST - 0.1)
    assert wants(own, [ONE], 9, now + OPEN_FIRST) == {ONE: 1}
    own.behaved(ONE, Effect.ANSWERED, now + OPEN_FIRST, None)
    assert wants(own, [ONE], 9, now + OPEN_FIRST) == {ONE: 8}


def test_what_the_frontier_remembers_holds_after_a_restart() -> None:
    clock = ManualClock()
    now = clock.monotonic()
    own = board(clock, Host(ONE, "a.example", clock.wall_ms() + 4000, Pace(gap=3, failures=2)))
    assert own.closed_until(ONE) == now + 4
    assert own.gap(ONE) == 3


def test_a_host_that_was_given_up_is_probed_once_more_by_the_next_run() -> None:
    clock = ManualClock()
    own = board(clock, Host(ONE, "a.example", 0, Pace(failures=8, openings=OPENINGS_TO_GIVE_UP)))
    assert not own.pace(ONE).dead
    own.behaved(ONE, Effect.UNCONNECTED, clock.monotonic(), None)
    assert own.pace(ONE).dead


def test_failures_in_parallel_are_one_however_many_there_are() -> None:
    """A short outage under many connections at once must not look like hours of silence."""
    clock = ManualClock()
    now, own = clock.monotonic(), board(clock, per_host=64)
    for _ in range(64):
        own.behaved(ONE, Effect.UNCONNECTED, now, 0.5)
    assert (own.pace(ONE).failures, own.pace(ONE).openings) == (1, 0)
    for later in (1, 2):
        for _ in range(64):
            own.behaved(ONE, Effect.OVERLOADED, now + later, 0.5)
    assert own.pace(ONE).gap == FIRST_GAP


def test_a_gap_hides_no_incident() -> None:
    clock = ManualClock()
    now, own = clock.monotonic(), board(clock, delay="10s")
    own.took(ONE, now)
    own.behaved(ONE, Effect.UNCONNECTED, now + 3, 0.5)
    assert own.pace(ONE).failures == 1


def test_what_was_asked_before_an_incident_belongs_to_it_however_late_the_answer() -> None:
    clock = ManualClock()
    now, own = clock.monotonic(), board(clock, per_host=8)
    own.behaved(ONE, Effect.OVERLOADED, now + 1, 0.5, started=now)
    for late in (3, 9):
        assert not own.behaved(ONE, Effect.OVERLOADED, now + late, 4.0, started=now)
    assert (own.gap(ONE), own.closed_until(ONE)) == (0, now + 1.5)
    own.behaved(ONE, Effect.OVERLOADED, now + 10, 20.0, started=now, retry_after=7.0)
    assert (own.gap(ONE), own.closed_until(ONE)) == (0, now + 17), "what it asks for itself is honoured"
    own.behaved(ONE, Effect.OVERLOADED, now + 20, 0.5, started=now + 18)
    assert own.gap(ONE) == FIRST_GAP


def test_pages_that_hang_in_parallel_count_once() -> None:
    clock = ManualClock()
    now, own = clock.monotonic(), board(clock, per_host=8)
    for number in range(8):
        own.behaved(ONE, Effect.FALTERED, now + 30 + number, 0.5, started=now + number)
    assert own.pace(ONE) == Pace(faltered=1)
    own.behaved(ONE, Effect.STUCK, now + 70, 0.5, started=now + 40)
    assert own.pace(ONE) == Pace(faltered=1), "the same page again is no news"
    assert own.closed_until(ONE) == now + 70.5


def test_hosts_in_trouble_hold_half_of_the_workers_where_there_are_several() -> None:
    clock = ManualClock()
    now, own = clock.monotonic(), board(clock, per_host=12)  # of 16 workers
    assert wants(own, [ONE], 16, now) == {ONE: 12}, "nobody else wants them"
    for _ in range(PROVEN_ANSWERS):
        own.behaved(TWO, Effect.ANSWERED, now, None)
    assert wants(own, [ONE, TWO], 16, now) == {ONE: 8, TWO: 8}
    for _ in range(7):
        own.took(ONE, now)
    own.took(TWO, now)
    assert wants(own, [ONE], 8, now) == {ONE: 1}, "the one that answers is soon back for more"
    own.gave_back(TWO)
    for _ in range(PROVEN_ANSWERS):
        own.behaved(ONE, Effect.ANSWERED, now, None)
    own.took(TWO, now)
    assert wants(own, [ONE], 8, now) == {ONE: 5}
    own.behaved(ONE, Effect.FALTERED, now, None)
    assert wants(own, [ONE], 8, now) == {ONE: 1}


def looked_through(own: Board, stocked: Collection[int], free: int, now: float) -> dict[int, int]:
    """What ``wants`` has to give, found by a look at all hosts."""
    wanted: dict[int, int] = {}
    several = len(set(stocked) | own._in_flight.keys()) > 1
    left = max(0, own._for_troubled - own._held_in_trouble()) if several else free
    for host in sorted(stocked, key=lambda host: (own._turn.get(host, 0), host)):
        troubled = own._in_trouble(host)
        slots = min(free, left if troubled else free, own._slots(host))
        if slots > 0 and own.is_open(host, now):
            wanted[host] = slots
            free -= slots
            left -= slots if troubled else 0
    return wanted


@pytest.mark.parametrize("seed", range(30))
def test_whose_turn_it_is_is_what_a_look_at_all_hosts_would_find(seed: int) -> None:
    chance, clock = Random(seed), ManualClock()
    hosts = [Host(number, f"h{number}.example", 0) for number in range(1, 13)]
    delay = chance.choice(["0s", "0s", "2s"])
    own = board(clock, *hosts, robots=chance.random() < 0.5, per_host=chance.choice([1, 3]), delay=delay)
    stocked: set[int] = set()
    shut: dict[int, float] = {}
    for _ in range(400):
        now, host = clock.monotonic(), chance.choice(hosts).id
        match chance.randrange(7):
            case 0:
                has_pages = chance.random() < 0.7
                own.stock(host, has_pages=has_pages)
                stocked = stocked | {host} if has_pages else stocked - {host}
            case 1:
                for wanted in own.wants(chance.randrange(9), now):
                    own.took(wanted, now)
            case 2 if own._in_flight:
                own.gave_back(chance.choice(sorted(own._in_flight)))
            case 3:
                own.asked(host, now, chance.choice([None, None, 0.5, 3.0]))
            case 4:
                effect = chance.choice([Effect.ANSWERED] * 4 + list(Effect))
                own.behaved(host, effect, now, None if effect is Effect.ANSWERED else 0.5)
            case 5:
                own.close(host, now + chance.uniform(0, 4), chance.choice([Wait.ROBOTS, Wait.PROXY]))
            case _:
                clock.advance(chance.choice([0, 0.1, 1, 5]))
        now, free = clock.monotonic(), chance.randrange(17)
        assert list(own.wants(free, now).items()) == list(looked_through(own, stocked, free, now).items())
        for changed, gate in own.waiting().items():
            shut.pop(changed, None)
            shut |= {changed: gate[1]} if gate is not None else {}
        waits = {host: own.closed_until(host) for host in stocked if not own.is_open(host, now)}
        assert {host: until for host, until in shut.items() if until > now} == waits
        assert own.next_opening() == min(waits.values(), default=None)
