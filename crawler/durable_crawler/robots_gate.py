"""Whether a URL may be requested, by the robots.txt of its origin: fetched once, kept for a day, never guessed.

Asked by the engine before each page and by the fetcher before each hop of a redirect (RFC 9309). A file that says no is
an answer; a file that cannot be reached means no as well (section 2.3.1.4), for a bounded time: the host is asked again
a few times with growing waits, and then its pages are closed with an outcome that says so. What was learned is in the
frontier, so that a restart neither asks again nor forgets that it must wait.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from durable_crawler.clock import Clock
from durable_crawler.outcomes import Fetched, Outcome
from durable_crawler.robots import KnownRobots, Robots
from durable_crawler.urls import origin

CACHED_MS = 24 * 60 * 60 * 1000
"""How long an answer is used (section 2.4)."""

UNREACHABLE_WAITS_MS = (300_000, 600_000, 1_200_000)
"""Waits after each failure to reach a robots.txt; after the last one the origin is given up: what is claimed of it is
closed. It is still asked again when as long has passed once more, and a success makes all good."""

PROXY_WAIT_MS = 30_000
"""Wait for a proxy that cannot be reached. It has the fault: it is waited for as long as the run lasts, and what is
known of an origin stays as it was, so that none is given up for it."""

T = TypeVar("T")

KNOWN_BYTES, _KNOWN_EACH = 8 * 1024 * 1024, 512
"""Of files that are kept in memory, and what each counts besides its length; others are read back from the frontier."""

_PARSED_BYTES, _PARSED_EACH = (
    2 * 1024 * 1024,
    4096,
)  # the same of files whose rules are; these take several times as much


class Store(Protocol):
    """Where answers survive a crash: the frontier."""

    async def robots_of(self, origin: str) -> KnownRobots | None:
        """What is known of an origin."""
        ...

    async def keep_robots(self, known: KnownRobots) -> None:
        """Remember; committed when it returns."""
        ...


@dataclass(frozen=True, slots=True)
class Allowed:
    """The URL may be requested; ``crawl_delay`` in seconds where the file names one."""

    crawl_delay: float | None = None


@dataclass(frozen=True, slots=True)
class Disallowed:
    """The file says no, by this line."""

    line: str
    crawl_delay: float | None = None


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The file could not be fetched: not yet, until ``retry_ms``; or never, where that is ``None``."""

    retry_ms: int | None
    cause: str = field(default="", compare=False)
    """Why, where this run has asked for it."""
    outcome: Outcome = Outcome.ROBOTS_UNREACHABLE
    """What that is to a page: ``PROXY_UNREACHABLE`` where it is not the origin's doing."""


Verdict = Allowed | Disallowed | Unreachable


class _Latest(Generic[T]):
    """What was used last of each origin, up to a weight of all together; a thousand hosts may have large files."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._weight = 0
        self._kept: OrderedDict[str, tuple[int, T]] = OrderedDict()

    def get(self, origin: str) -> T | None:
        kept = self._kept.get(origin)
        if kept is None:
            return None
        self._kept.move_to_end(origin)
        return kept[1]

    def put(self, origin: str, value: T, weight: int) -> None:
        before, _ = self._kept.pop(origin, (0, None))
        self._kept[origin] = weight, value
        self._weight += weight - before
        while self._weight > self._limit and len(self._kept) > 1:
            _, (forgotten, _) = self._kept.popitem(last=False)
            self._weight -= forgotten


class RobotsGate:
    """Verdicts for one run. ``fetch`` gets a robots.txt's URL and follows its redirects."""

    def __init__(self, fetch: Callable[[str], Awaitable[Fetched]], store: Store, token: str, clock: Clock) -> None:
        self._fetch = fetch
        self._store = store
        self._token = token
        self._clock = clock
        self._known: _Latest[KnownRobots] = _Latest(KNOWN_BYTES)
        self._parsed: _Latest[tuple[KnownRobots, Robots]] = _Latest(_PARSED_BYTES)
        self._causes: dict[str, str] = {}
        self._held_up: dict[str, Unreachable] = {}  # by the proxy
        self._asking: dict[str, asyncio.Lock] = {}

    async def verdict(self, url: str) -> Verdict:
        """Judge the canonical ``url``; the first question about an origin fetches its robots.txt."""
        known = await self._of(origin(url))
        if isinstance(known, Unreachable):
            return known
        if known.failures:
            given_up = known.failures > len(UNREACHABLE_WAITS_MS)
            return Unreachable(None if given_up else known.expires_ms, self._causes.get(known.origin, ""))
        robots = self._robots(known)
        if not robots.allows(url):
            return Disallowed(robots.denying_line(url), robots.crawl_delay)
        return Allowed(robots.crawl_delay)

    async def _of(self, where: str) -> KnownRobots | Unreachable:
        found = self._fresh(where)
        if found is None:
            async with self._asking.setdefault(where, asyncio.Lock()):  # one question, however many pages wait
                found = self._fresh(where) or await self._learn(where)
        return found

    def _fresh(self, where: str) -> KnownRobots | Unreachable | None:
        now = self._clock.wall_ms()
        held_up = self._held_up.get(where)
        if held_up is not None and held_up.retry_ms is not None and now < held_up.retry_ms <= now + PROXY_WAIT_MS:
            return held_up
        known = self._known.get(where)
        if known is None:
            return None
        if (judged := _by_the_clock(known, now)) is not known:
            self._keep(judged)
        return judged if now < judged.expires_ms else None

    async def _learn(self, where: str) -> KnownRobots | Unreachable:
        self._held_up.pop(where, None)
        before = self._known.get(where) or await self._store.robots_of(where)
        now = self._clock.wall_ms()
        if before is not None:
            before = _by_the_clock(before, now)
            self._keep(before)
            if before.expires_ms > now:
                return before
        fetched = await self._fetch(f"{where}/robots.txt")
        now = self._clock.wall_ms()
        if fetched.outcome is Outcome.PROXY_UNREACHABLE:
            self._held_up[where] = held_up = Unreachable(now + PROXY_WAIT_MS, fetched.error, fetched.outcome)
            return held_up
        if fetched.outcome is Outcome.ADDRESS_REFUSED and not fetched.hops:
            # Nothing of this host may be connected to, as each of its pages will say; an edit of the spec may open it,
            # and so nothing was learned. Behind a redirect it says nothing of the pages, and the file is unreachable.
            return KnownRobots(where, b"", 0, now, now)
        known = judge(where, fetched, before, now)
        if known.failures:
            self._causes[where] = fetched.error
        await self._store.keep_robots(known)
        self._keep(known)
        return known

    def _keep(self, known: KnownRobots) -> None:
        self._known.put(known.origin, known, len(known.body) + _KNOWN_EACH)

    def _robots(self, known: KnownRobots) -> Robots:
        kept = self._parsed.get(known.origin)
        if kept is None or kept[0] is not known:
            kept = (known, Robots(known.body, self._token))
            self._parsed.put(known.origin, kept, len(known.body) + _PARSED_EACH)
        return kept[1]


def judge(where: str, fetched: Fetched, before: KnownRobots | None, now_ms: int) -> KnownRobots:
    """What an answer for a robots.txt means (RFC 9309 section 2.3.1).

    2xx is the file, whatever its type. 4xx means that there is none, except 429, which is about us. Everything else, an
    endless redirect and one to what is no robots.txt elsewhere included, means that nobody knows. That a proxy was not
    reached, or that the origin's own address is refused, is no answer, and not judged here.
    """
    status = fetched.status or 0
    if fetched.outcome is Outcome.OK:
        return KnownRobots(where, fetched.body or b"", 0, now_ms + CACHED_MS, now_ms)
    absent = fetched.outcome is Outcome.HTTP_ERROR and 400 <= status < 500 and status != 429
    if absent:
        return KnownRobots(where, b"", 0, now_ms + CACHED_MS, now_ms)
    failures = 1 + (before.failures if before else 0)
    if before is not None and not before.failures and now_ms < before.answered_ms + 2 * CACHED_MS:
        # A good copy is used for another day while the file cannot be reached (section 2.4).
        return replace(before, expires_ms=now_ms + UNREACHABLE_WAITS_MS[0])
    wait = UNREACHABLE_WAITS_MS[min(failures, len(UNREACHABLE_WAITS_MS)) - 1]
    return KnownRobots(where, b"", failures, now_ms + wait)


def _by_the_clock(known: KnownRobots, now_ms: int) -> KnownRobots:
    """``known`` as it can be at most: times further ahead were kept under a clock that was ahead."""
    latest = now_ms + (UNREACHABLE_WAITS_MS[-1] if known.failures else CACHED_MS)
    if known.expires_ms <= latest and known.answered_ms <= now_ms:
        return known
    return replace(known, expires_ms=min(known.expires_ms, latest), answered_ms=min(known.answered_ms, now_ms))
