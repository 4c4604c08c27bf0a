"""What follows from an attempt, and the two forms of Retry-After."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_crawler.outcomes import Fetched, Outcome
from durable_crawler.settle import (
    MAX_RETRY_AFTER,
    RETRYABLE_STATUSES,
    Done,
    Effect,
    RetryLater,
    classify,
    effect_on_host,
    parse_http_date,
    parse_retry_after,
    settle,
)

NOW = datetime(2026, 3, 10, 15, 49, 10, tzinfo=UTC)


def attempt(outcome: Outcome, status: int | None = None, retry_after: float | None = None) -> Fetched:
    retryable, host_incident = classify(outcome, status, retry_after)
    return Fetched(
        url="https://x/",
        final_url="https://x/",
        outcome=outcome,
        status=status,
        retryable=retryable,
        host_incident=host_incident,
        retry_after=retry_after,
    )


def low() -> float:
    return 0.0


def high() -> float:
    return 1.0


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.NOT_HTML, Outcome.REDIRECT_OUT_OF_SCOPE, Outcome.TOO_LARGE])
def test_a_final_outcome_is_done(outcome: Outcome) -> None:
    assert settle(attempt(outcome, 200), 0, 3, low) == Done(outcome)


@pytest.mark.parametrize(("n", "seconds"), [(0, 0.5), (1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 8.0), (19, 8.0)])
def test_backoff_doubles_four_times_with_up_to_half_of_jitter(n: int, seconds: float) -> None:
    fetched = attempt(Outcome.HTTP_ERROR, 500)
    assert settle(fetched, n, 20, low) == RetryLater(seconds)
    assert settle(fetched, n, 20, high) == RetryLater(seconds * 1.5)


@pytest.mark.parametrize(
    ("retry_after", "delay"),
    [(None, 0.5), (0.0, 0.5), (-1.0, 0.5), (0.1, 0.5), (7.0, 7.0), (30.0, 30.0), (120.0, MAX_RETRY_AFTER), (1e9, 30.0)],
)
def test_retry_after_lengthens_the_wait_up_to_its_cap(retry_after: float | None, delay: float) -> None:
    assert settle(attempt(Outcome.HTTP_ERROR, 503, retry_after), 0, 3, low) == RetryLater(delay, delay)


@pytest.mark.parametrize(
    ("outcome", "status", "retry_after", "retryable", "incident"),
    [
        (Outcome.HTTP_ERROR, 429, None, True, True),
        (Outcome.HTTP_ERROR, 503, None, True, True),
        (Outcome.HTTP_ERROR, 500, None, True, False),
        (Outcome.HTTP_ERROR, 500, 5.0, True, True),
        (Outcome.HTTP_ERROR, 500, 0.0, True, False),
        (Outcome.HTTP_ERROR, 404, 5.0, False, False),
        (Outcome.HTTP_ERROR, 403, None, False, False),
        (Outcome.OK, 200, 5.0, False, False),
        (Outcome.DNS_ERROR, None, None, True, True),
        (Outcome.CONNECT_ERROR, None, None, True, True),
        (Outcome.CONNECT_TIMEOUT, None, None, True, True),
        (Outcome.TLS_TIMEOUT, None, None, True, True),
        (Outcome.HEADER_TIMEOUT, None, None, True, True),
        (Outcome.TOTAL_TIMEOUT, 200, None, True, True),
        (Outcome.TRUNCATED, 200, None, True, False),
        (Outcome.TRUNCATED, None, None, True, True),
        (Outcome.TLS_ERROR, None, None, False, False),
        (Outcome.PROTOCOL_ERROR, None, None, False, False),
        (Outcome.REDIRECT_INVALID, 302, None, False, False),
    ],
)
def test_classification(
    outcome: Outcome, status: int | None, retry_after: float | None, retryable: bool, incident: bool
) -> None:
    assert classify(outcome, status, retry_after) == (retryable, incident)


def test_only_the_listed_statuses_are_tried_again() -> None:
    retried = {status for status in range(400, 1000) if classify(Outcome.HTTP_ERROR, status, None)[0]}
    assert retried == RETRYABLE_STATUSES == {408, 425, 429, 500, 502, 503, 504}


def test_the_last_failure_still_closes_the_gate() -> None:
    assert settle(attempt(Outcome.HTTP_ERROR, 429, 3.0), 3, 3, low) == Done(Outcome.HTTP_ERROR, 4.0)
    assert settle(attempt(Outcome.HTTP_ERROR, 500), 3, 3, low) == Done(Outcome.HTTP_ERROR)
    assert settle(attempt(Outcome.CONNECT_ERROR), 0, 0, low) == Done(Outcome.CONNECT_ERROR, 0.5)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 120\t", 120.0),
        ("9" * 400, 1e9),
        ("Tue, 10 Mar 2026 15:50:40 GMT", 90.0),
        ("Tuesday, 10-Mar-26 15:50:40 GMT", 90.0),
        ("Tue Mar 10 15:50:40 2026", 90.0),
        ("Tue, 10 Mar 2026 15:47:40 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:60 GMT", None),
        ("", None),
        ("-1", None),
        ("+1", None),
        ("1.5", None),
        ("1e3", None),
        ("1_000", None),
        ("NaN", None),
        ("²", None),
        ("١٢٠", None),
        ("120 s", None),
        ("Tue, 10 Mar 2026 15:50:40 PST", None),
        ("Tue, 10 Mar 2026 15:50:40 -0000", None),
    ],
)
def test_retry_after(value: str, seconds: float | None) -> None:
    assert parse_retry_after(value, NOW) == seconds


@pytest.mark.parametrize(
    ("value", "now", "year"),
    [
        ("Friday, 29-Feb-24 00:00:00 GMT", datetime(2024, 2, 29, tzinfo=UTC), 2024),
        ("Friday, 10-Mar-76 15:49:10 GMT", NOW, 2076),
        ("Friday, 10-Mar-76 15:49:11 GMT", NOW, 1976),
        ("Friday, 01-Jan-00 00:00:00 GMT", NOW, 2000),
        ("Friday, 01-Jan-00 00:00:00 GMT", datetime(2099, 1, 1, tzinfo=UTC), 2100),
    ],
)
def test_a_year_of_two_digits_is_at_most_fifty_years_ahead(value: str, now: datetime, year: int) -> None:
    date = parse_http_date(value, now)
    assert date is not None
    assert date.year == year


@given(st.text(max_size=40), st.datetimes(timezones=st.just(UTC)))
def test_no_header_breaks_the_parser(value: str, now: datetime) -> None:
    seconds = parse_retry_after(value, now)
    assert seconds is None or 0 <= seconds <= 1e9


@pytest.mark.parametrize(
    ("fetched", "effect"),
    [
        (attempt(Outcome.OK, 200), Effect.ANSWERED),
        (attempt(Outcome.HTTP_ERROR, 500), Effect.ANSWERED),
        (attempt(Outcome.HTTP_ERROR, 503), Effect.OVERLOADED),
        (attempt(Outcome.HEADER_TIMEOUT), Effect.FALTERED),
        (attempt(Outcome.TOTAL_TIMEOUT, 200), Effect.FALTERED),
        (attempt(Outcome.TRUNCATED), Effect.FALTERED),
        (attempt(Outcome.TRUNCATED, 200), Effect.ANSWERED),
        (attempt(Outcome.CONNECT_TIMEOUT), Effect.UNCONNECTED),
        (attempt(Outcome.CONNECT_ERROR), Effect.UNCONNECTED),
        (attempt(Outcome.PROXY_REFUSED), None),
        (attempt(Outcome.PROXY_UNREACHABLE), None),
    ],
)
def test_what_an_attempt_says_of_its_host(fetched: Fetched, effect: Effect | None) -> None:
    assert effect_on_host(fetched, 0) is effect
    assert effect_on_host(fetched, 1) is (Effect.STUCK if effect is Effect.FALTERED else effect)


@pytest.mark.parametrize("outcome", [Outcome.HEADER_TIMEOUT, Outcome.TRUNCATED])
def test_a_page_that_hangs_again_and_again_closes_its_host_for_the_first_backoff_only(outcome: Outcome) -> None:
    assert settle(attempt(outcome), 2, 3, low) == RetryLater(2.0, 0.5)
    assert settle(attempt(outcome), 3, 3, low) == Done(outcome, 0.5)
