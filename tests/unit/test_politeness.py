"""What events make of a host's pace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from durable_crawler.politeness import (
    FAILURES_TO_OPEN,
    FIRST_GAP,
    FORGOTTEN_GAP,
    GAP_MAX,
    OPEN_FIRST,
    OPEN_MAX,
    OPENINGS_TO_GIVE_UP,
    RECOVERY,
    RECOVERY_AFTER,
    Pace,
    answered,
    gap,
    overloaded,
    unconnected,
)


def test_each_incident_doubles_the_gap_up_to_a_bound() -> None:
    pace, gaps = Pace(), []
    for _ in range(10):
        pace = overloaded(pace)
        gaps.append(pace.gap)
    assert gaps[:4] == [FIRST_GAP, 2 * FIRST_GAP, 4 * FIRST_GAP, 8 * FIRST_GAP]
    assert gaps[-1] == GAP_MAX


def test_good_answers_shrink_it_again_until_it_is_forgotten() -> None:
    pace = overloaded(Pace())
    for _ in range(RECOVERY_AFTER - 1):
        pace = answered(pace)
    assert pace.gap == FIRST_GAP
    pace = answered(pace)
    assert (pace.gap, pace.answers) == (FIRST_GAP * RECOVERY, 0)
    steps = 0
    while pace.gap:
        assert pace.gap >= FORGOTTEN_GAP
        pace, steps = answered(pace), steps + 1
    assert pace == Pace()
    assert steps < 30 * RECOVERY_AFTER


def test_an_incident_begins_the_count_of_good_answers_anew() -> None:
    pace = replace(overloaded(Pace()), answers=RECOVERY_AFTER - 1)
    assert overloaded(pace).answers == 0


def test_a_host_without_a_gap_is_left_as_it_is() -> None:
    assert answered(Pace()) == Pace()


def test_the_circuit_opens_after_failures_in_a_row_and_doubles_until_the_host_is_dead() -> None:
    pace, waits = Pace(), []
    for _ in range(FAILURES_TO_OPEN - 1):
        pace, wait = unconnected(pace)
        assert wait is None
        assert not pace.probing
    while not pace.dead:
        pace, wait = unconnected(pace)
        assert pace.probing
        waits.append(wait)
    assert waits == [OPEN_FIRST * 2**number for number in range(OPENINGS_TO_GIVE_UP)]


def test_no_circuit_is_open_for_longer_than_its_bound() -> None:
    _, wait = unconnected(Pace(failures=99, openings=50))
    assert wait == OPEN_MAX


@pytest.mark.parametrize("event", [answered, overloaded])
def test_any_answer_closes_the_circuit(event: object) -> None:
    assert callable(event)
    pace = event(Pace(failures=7, openings=3))
    assert (pace.failures, pace.openings) == (0, 0)


@pytest.mark.parametrize(
    ("own", "delay", "crawl_delay", "longest", "expected"),
    [
        (0, 0, None, 60, 0),
        (0, 0, 0.5, 60, 0.5),
        (0, 2, 0.5, 60, 2),
        (4, 2, 0.5, 60, 4),
        (0, 0, 86_400, 60, 60),
        (0, 0, 10, 0, 0),
        (0, 90, 86_400, 60, 90),
    ],
)
def test_the_longest_gap_counts(
    own: float, delay: float, crawl_delay: float | None, longest: float, expected: float
) -> None:
    assert gap(Pace(own), delay, crawl_delay, longest) == expected
