"""What events make of a host's pace."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from durable_crawler.politeness import (
    FAILURES_TO_OPEN,
    FALTERS_TO_OBJECT,
    FIRST_GAP,
    FORGIVEN_AFTER,
    FORGIVEN_ANSWERS,
    FORGOTTEN_GAP,
    GAP_MAX,
    OPEN_FIRST,
    OPEN_MAX,
    OPENINGS_TO_GIVE_UP,
    RECOVERY,
    TRIED_FOR,
    Pace,
    answered,
    faltered,
    gap,
    overloaded,
    resumed,
    unconnected,
)

LONG_AFTER = 1000 + FORGIVEN_AFTER


def after_answers(pace: Pace, count: int, now: float = 1000.0) -> Pace:
    for _ in range(count):
        pace = answered(pace, now)
    return pace


def objecting_at(gap: float) -> Pace:
    """A host that had answered at a gap, and then not."""
    return overloaded(Pace(gap, answers=1, incident=0.0), 1000.0)


def test_one_incident_makes_no_gap_and_is_forgiven() -> None:
    pace = overloaded(Pace(), 1000.0)
    assert pace == Pace(incident=1000.0)
    assert after_answers(pace, 2 * FORGIVEN_ANSWERS) != Pace(), "too soon"
    assert after_answers(pace, FORGIVEN_ANSWERS - 1, LONG_AFTER) != Pace(), "too few"
    assert after_answers(pace, FORGIVEN_ANSWERS, LONG_AFTER) == Pace()


def test_each_further_incident_doubles_the_gap_up_to_a_bound() -> None:
    pace, gaps = overloaded(Pace(), 1000.0), []
    for _ in range(10):
        pace = overloaded(pace, 1000.0)
        gaps.append(pace.gap)
    assert gaps[:4] == [FIRST_GAP, 2 * FIRST_GAP, 4 * FIRST_GAP, 8 * FIRST_GAP]
    assert gaps[-1] == GAP_MAX


def test_two_incidents_are_made_up_for_by_a_dozen_answers() -> None:
    pace = overloaded(after_answers(overloaded(Pace(), 1000.0), 99), 1000.0)
    waits = []
    while pace.gap > FORGOTTEN_GAP:
        waits.append(pace.gap)
        pace = answered(pace, 1000.0)
    assert waits[0] == FIRST_GAP
    assert len(waits) <= 15
    assert sum(waits) <= 5 * FIRST_GAP


@pytest.mark.parametrize("objected_at", [0.03, 0.2, 1.0, 20.0])
def test_it_goes_back_to_the_last_gap_that_was_long_enough_and_stays_there(objected_at: float) -> None:
    pace = objecting_at(objected_at)
    assert pace.gap == max(2 * objected_at, FIRST_GAP)
    for _ in range(100):
        pace = answered(pace, 1000.0)
        assert pace.gap >= objected_at / RECOVERY
    assert pace.gap == objected_at / RECOVERY
    assert overloaded(pace, 1000.0).floor == pytest.approx(objected_at / RECOVERY**2), "not long enough after all"


def test_once_it_is_forgiven_shorter_gaps_are_tried_one_after_the_other() -> None:
    pace = after_answers(objecting_at(0.2), FORGIVEN_ANSWERS)
    pace = answered(pace, LONG_AFTER)
    assert pace.incident is None
    gaps = []
    while pace.gap:
        gaps.append(pace.gap)
        pace = answered(pace, LONG_AFTER)
    assert gaps[0] == 0.2 / RECOVERY
    assert sorted(gaps, reverse=True) == gaps
    assert all(later >= before * RECOVERY for before, later in zip(gaps, gaps[TRIED_FOR - 1 :], strict=False))
    assert len(gaps) <= 15 * TRIED_FOR
    assert pace == Pace()


def test_what_an_outage_made_of_the_gap_is_gone_with_the_first_answer() -> None:
    pace = objecting_at(0.2)
    for _ in range(10):
        pace = overloaded(pace, 1000.0)
    assert pace.gap == GAP_MAX
    assert answered(pace, 1000.0).gap == FIRST_GAP * RECOVERY
    assert pace.kept == Pace(FIRST_GAP), "nor is it there after a restart"


def test_a_gap_of_an_earlier_process_is_kept_until_it_is_forgiven() -> None:
    pace = resumed(Pace(0.3, failures=1, openings=2), 1000.0)
    assert (pace.gap, pace.failures, pace.openings) == (0.3, 1, 2)
    assert after_answers(pace, 99).gap == 0.3
    assert after_answers(pace, 999, LONG_AFTER) == Pace()
    assert resumed(Pace(), 1000.0) == Pace()


def test_only_pages_that_hang_in_a_row_are_an_incident() -> None:
    pace = Pace(failures=2)
    for _ in range(FALTERS_TO_OBJECT - 1):
        pace = faltered(pace, 1000.0)
    assert (pace.gap, pace.incident, pace.failures) == (0, None, 0)
    assert answered(pace, 1000.0) == Pace()
    pace = faltered(pace, 1000.0)
    assert pace.incident == 1000.0
    assert faltered(pace, 1000.0).gap == FIRST_GAP


def test_a_host_without_a_gap_is_left_as_it_is() -> None:
    assert answered(Pace(), 1000.0) == Pace()


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
def test_any_answer_closes_the_circuit(event: Callable[[Pace, float], Pace]) -> None:
    pace = event(Pace(failures=7, openings=3), 1000.0)
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
