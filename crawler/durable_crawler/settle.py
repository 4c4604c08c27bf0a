"""What follows from an attempt: the page is done, or it is tried again later, and its host may have to wait (law L7).

Called by ``fetch`` (to classify and to read Retry-After) and by the engine when an attempt is over. Pure: the time and
the randomness are arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum

from durable_crawler.outcomes import Fetched, Outcome

BACKOFF = 0.5
"""Seconds before the first retry; doubles with each of the next four."""
MAX_RETRY_AFTER = 30.0
"""Seconds of a Retry-After that are honoured unless the spec says otherwise; a longer one is cut to this."""

RETRYABLE_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_BUSY_STATUSES = frozenset({429, 503})  # what a host says about itself, not about the page
_UNCONNECTED = frozenset({Outcome.DNS_ERROR, Outcome.CONNECT_ERROR, Outcome.CONNECT_TIMEOUT, Outcome.TLS_TIMEOUT})
_TIMEOUTS = frozenset({Outcome.HEADER_TIMEOUT, Outcome.TOTAL_TIMEOUT})
_FOREVER = 1e9  # seconds; more digits than this would only overflow somewhere


@dataclass(frozen=True, slots=True)
class Done:
    """The page needs no other attempt."""

    outcome: Outcome
    close_host_for: float | None = None
    """Seconds for which the host is not asked: its last retry failed as well, and other pages must not hammer it."""


@dataclass(frozen=True, slots=True)
class RetryLater:
    """The page is deferred."""

    delay: float
    """Seconds."""
    close_host_for: float | None = None
    """Seconds for which nothing of this host is asked; ``None`` leaves its other pages alone."""


def settle(
    fetched: Fetched,
    retries_done: int,
    max_retries: int,
    random: Callable[[], float],
    *,
    max_retry_after: float = MAX_RETRY_AFTER,
) -> Done | RetryLater:
    """Decides what follows from ``fetched``. ``random`` gives numbers from 0 to 1 for the jitter."""
    if not fetched.retryable:
        return Done(fetched.outcome)
    backoff = BACKOFF * (1 + random() / 2)
    delay = backoff * 2 ** min(retries_done, 4)
    if fetched.retry_after is not None and fetched.retry_after > 0:
        delay = max(min(fetched.retry_after, max_retry_after), delay)
    close_host_for = delay if fetched.host_incident else None
    if _page_or_host(fetched.outcome, fetched.status):
        close_host_for = backoff  # how often the page was tried says nothing about the host
    if retries_done >= max_retries:
        return Done(fetched.outcome, close_host_for)
    return RetryLater(delay, close_host_for)


class Effect(Enum):
    """What an attempt says about the host, whatever it says about the page."""

    ANSWERED = "answered"
    OVERLOADED = "overloaded"
    """It asked to be left alone."""
    FALTERED = "faltered"
    """A page did not come although the connection did: a time-out or a reset, of the host or of this page alone."""
    STUCK = "stuck"
    """The same as before with a page that is tried again: rather the page's doing."""
    UNCONNECTED = "unconnected"
    """It could not be reached at all."""


def effect_on_host(fetched: Fetched, retries_done: int) -> Effect | None:
    """What ``fetched`` says about its host; ``None`` where the proxy spoke, or was silent, in its place."""
    if fetched.outcome in (Outcome.PROXY_REFUSED, Outcome.PROXY_UNREACHABLE):
        return None
    if fetched.outcome in _UNCONNECTED:
        return Effect.UNCONNECTED
    if _page_or_host(fetched.outcome, fetched.status):
        return Effect.STUCK if retries_done else Effect.FALTERED
    return Effect.OVERLOADED if fetched.host_incident else Effect.ANSWERED


def _page_or_host(outcome: Outcome, status: int | None) -> bool:
    """Whether a connection came about and no response did, or none in time."""
    return outcome in _TIMEOUTS or (outcome is Outcome.TRUNCATED and status is None)


def classify(outcome: Outcome, status: int | None, retry_after: float | None) -> tuple[bool, bool]:
    """``(retryable, host_incident)`` of an attempt.

    A truncated body may be whole the next time, but says nothing about the host. A certificate that does not verify
    and bytes that are not HTTP stay as they are until somebody repairs them.
    """
    if outcome in _UNCONNECTED or _page_or_host(outcome, status):
        return True, True
    if outcome is Outcome.HTTP_ERROR and status in RETRYABLE_STATUSES:
        return True, status in _BUSY_STATUSES or (retry_after is not None and retry_after > 0)
    return outcome is Outcome.TRUNCATED, False


def parse_retry_after(value: str, now: datetime) -> float | None:
    """Seconds that a Retry-After value asks for (RFC 9110 section 10.2.3), ``None`` where it is malformed.

    A date in the past gives 0. ``now`` is an aware datetime.
    """
    value = value.strip(" \t")
    if value.isascii() and value.isdigit():  # int() and float() accept much more than the grammar does
        return min(float(value), _FOREVER)
    date = parse_http_date(value, now)
    return None if date is None else min(max((date - now).total_seconds(), 0.0), _FOREVER)


_MONTHS = dict(
    zip(("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), range(1, 13), strict=True)
)
_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_LONG_DAY = r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})"
_HTTP_DATES = (
    re.compile(rf"{_DAY}, (?P<day>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME} GMT"),
    re.compile(rf"{_LONG_DAY}, (?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME} GMT"),
    re.compile(rf"{_DAY} {_MONTH} (?P<day>[0-9 ][0-9]) {_TIME} (?P<year>[0-9]{{4}})"),
)


def parse_http_date(value: str, now: datetime) -> datetime | None:
    """An HTTP-date in any of its three forms (RFC 9110 section 5.6.7) as an aware datetime; ``None`` for all else.

    ``email.utils`` is no help: it guesses at other strings, gives naive times and fails at a leap second. The day name
    is not compared with the date. A two-digit year is at most 50 years ahead of ``now``.
    """
    match = next((match for pattern in _HTTP_DATES if (match := pattern.fullmatch(value))), None)
    if match is None:
        return None
    month, day = _MONTHS[match["month"]], int(match["day"])
    hour, minute, second = (int(match[part]) for part in ("hour", "minute", "second"))
    if second > 60:
        return None
    year = int(match["year"])
    if len(match["year"]) == 2:
        in_the_year = (month, day, hour, minute, second)
        year += now.year - now.year % 100 + 100
        while (year, *in_the_year) > (now.year + 50, *now.timetuple()[1:6]):
            year -= 100
    try:
        # A leap second is the first of the next minute to everybody who has none.
        date = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC)
        return date + timedelta(seconds=second - min(second, 59))
    except (ValueError, OverflowError):
        return None
