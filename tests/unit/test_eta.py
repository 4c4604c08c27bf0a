"""When a crawl will be done: what is concluded, from what, and when nothing is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_crawler.results.eta import ENOUGH, LATELY_S, Finished, Left, estimate, shares, span

NOW = 1_800_000_000_000


def finished(host: str, count: int, every_s: float) -> list[Finished]:
    """The last one just now."""
    return [Finished(host, NOW - round(number * every_s * 1000), 100, 0, 5) for number in range(1, count + 1)]


def test_a_crawl_that_is_even_is_done_when_its_rate_says() -> None:
    recent = [*finished("a", 50, 0.2), *finished("b", 50, 0.2)]
    found = estimate(recent, [Left("a", 3000), Left("b", 3000)], 6000, NOW)
    assert (found.rate, found.seconds, found.text) == (10, 600, "10 min: 6,000 pages left at 10.0 a second")


def test_a_host_that_takes_longer_than_all_the_rest_is_the_reason() -> None:
    recent = [*finished("fast", 500, 0.1), *finished("docs.example.org", 60, 1.0)]
    hosts = [Left("docs.example.org", 7800, crawl_delay_s=1.0), Left("fast", 200)]
    found = estimate(recent, hosts, 8000, NOW)
    assert found.text == "2 h 10 min: docs.example.org has 7,800 pages left at one per second by its Crawl-delay"


@pytest.mark.parametrize(
    ("every_s", "host", "text"),
    [
        (0.1, Left("a", 7800), "13 min: {} left at 10.0 a second"),
        (1.0, Left("a", 7800, crawl_delay_s=1.0), "2 h 10 min: {} left at one per second by its Crawl-delay"),
        (8.0, Left("a", 100, slowed_s=8.0), "13 min: {} left at one in 8.0 s, slowed down by what it answered"),
        (1.0, Left("a", 300, closed_for_s=300), "10 min: {} left at one per second, closed for 5 min"),
    ],
)
def test_the_only_host_that_has_pages_left_is_the_reason(every_s: float, host: Left, text: str) -> None:
    found = estimate(finished("a", 50, every_s), [host], host.pages, NOW)
    assert found.text == text.format(f"a has {host.pages:,} pages")


def test_a_host_that_was_slowed_down_or_is_closed_is_told() -> None:
    recent = [*finished("fast", 500, 0.1), *finished("busy", 10, 8.0)]
    slowed = estimate(recent, [Left("busy", 100, slowed_s=8.0)], 200, NOW)
    assert slowed.text == "13 min: busy has 100 pages left at one in 8.0 s, slowed down by what it answered"
    closed = estimate(finished("fast", 500, 0.1), [Left("busy", 10, closed_for_s=300)], 20, NOW)
    assert closed.text == "5 min: busy has 10 pages left at once, closed for 5 min"


def test_too_little_is_no_ground() -> None:
    for recent in ([], finished("a", ENOUGH - 1, 1.0), [Finished("a", NOW - round(LATELY_S * 2000), 1, 0, 0)] * 50):
        found = estimate(recent, [Left("a", 10)], 10, NOW)
        assert (found.rate, found.seconds) == (None, None)
        assert found.text.startswith("unknown: fewer than 5 pages")
    assert estimate([], [], 0, NOW).seconds == 0


def test_a_crawl_that_stands_still_gets_slower() -> None:
    recent = [Finished("a", NOW - 600_000 - number, 1, 0, 0) for number in range(100)]
    found = estimate(recent, [Left("a", 100)], 100, NOW)
    assert found.rate == pytest.approx(100 / 600, rel=0.01)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1 s"),
        (40, "40 s"),
        (89, "89 s"),
        (90, "2 min"),
        (5340, "89 min"),
        (7800, "2 h 10 min"),
        (360_000, "4 days"),
    ],
)
def test_a_span_in_words(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_where_time_goes() -> None:
    assert shares([Finished("a", 0, 80, 60, 20)]) == {"waiting": 0.6, "server": 0.2, "parsing": 0.2}
    assert shares([]) is None


@given(
    st.lists(
        st.builds(Finished, st.sampled_from("ab"), st.integers(NOW - 10**7, NOW + 10**4), *[st.integers(0, 10**6)] * 3)
    ),
    st.lists(st.builds(Left, st.sampled_from("abc"), st.integers(1, 10**8), *[st.floats(0, 10**5)] * 3), max_size=3),
    st.integers(0, 10**8),
)
def test_whatever_is_seen_the_answer_is_a_time_or_none(recent: list[Finished], hosts: list[Left], left: int) -> None:
    found = estimate(recent, hosts, left, NOW)
    assert found.seconds is None or found.seconds >= 0
    assert found.text
