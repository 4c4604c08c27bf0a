"""Which hosts may be asked for pages now: slots in use, gates, gaps between starts, and whose turn it is.

Pure bookkeeping in the process, used by ``engine`` and ``work``; what must survive a crash is in the frontier as well.
A host that must wait is left out of the next claim: it holds no worker and delays nobody (law L7). Nothing here looks
at all hosts: whatever changes for one of them moves that one to its place in ``turns``. Times are monotonic seconds
unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import StrEnum

from crawljob.spec import CrawlJobSpec
from crawljob.units import seconds
from durable_crawler import politeness
from durable_crawler.clock import Clock
from durable_crawler.frontier.model import Host
from durable_crawler.politeness import OPENINGS_TO_GIVE_UP, Pace
from durable_crawler.settle import Effect
from durable_crawler.turns import Turns

PROVEN_ANSWERS = 2
"""Good answers in a run after which a host counts as one that answers."""


class Wait(StrEnum):
    """Why a gate is closed. The names are metric attributes: they may be added to, never renamed."""

    DELAY = "delay"
    """The spec's distance between two pages."""
    CRAWL_DELAY = "crawl_delay"
    """The distance that its robots.txt asks for."""
    BACKOFF = "backoff"
    """An incident, its Retry-After, or the distance that incidents have led to."""
    CIRCUIT = "circuit"
    """No connection came about, several times in a row."""
    ROBOTS = "robots"
    """Its robots.txt could not be fetched, and so nobody knows what it says."""
    PROXY = "proxy"
    """The proxy could not be reached."""
    EARLIER_RUN = "earlier_run"
    """An earlier process closed it."""


_SAME_TIME = 1e-6  # seconds; no clock is read so often


class Board:
    """Slots, gates and paces of the approved hosts."""

    def __init__(self, spec: CrawlJobSpec, hosts: Iterable[Host], clock: Clock, *, robots: bool) -> None:
        self._per_host = spec.fetch.per_host
        self._for_troubled = max(1, spec.fetch.workers // 2)
        self._delay = seconds(spec.politeness.delay)
        self._max_crawl_delay = seconds(spec.politeness.max_crawl_delay)
        now, now_ms = clock.monotonic(), clock.wall_ms()
        self._now = now  # of the last look at the gates
        self._turns = Turns()
        self._stocked: set[int] = set()
        self._news: dict[int, tuple[Wait, float] | None] = {}
        self._closed_until: dict[int, float] = {}
        self._closed_for: dict[int, Wait] = {}
        self._paces: dict[int, Pace] = {}
        for host in hosts:
            if host.closed_until_ms > now_ms:
                self.close(host.id, now + (host.closed_until_ms - now_ms) / 1000, Wait.EARLIER_RUN)
            # A host that an earlier run gave up is probed once more.
            probed = replace(host.pace, openings=min(host.pace.openings, OPENINGS_TO_GIVE_UP - 1))
            self._paces[host.id] = politeness.resumed(probed, now)
        self._unasked = set(self._paces) if robots else set()
        self._left_alone_until: dict[int, float] = {}  # because of incidents; a gap closes the gate as well
        self._incidents: dict[int, float] = {}  # when the latest began
        self._crawl_delays: dict[int, float] = {}
        self.dead: set[int] = set()
        """Hosts that were given up."""
        self.unburied: set[int] = set()
        """Of them those of which pages may still wait; whoever reads it closes these pages and takes the host out."""
        self._answers: dict[int, int] = {}  # good ones in this run
        self._in_flight: dict[int, int] = {}
        self._started: dict[int, float] = {}
        self._sent: dict[int, float] = {}
        self._turn: dict[int, int] = {}
        self._turns_taken = 0
        self.opened: Callable[[], None] = lambda: None
        """Called when a host's robots.txt has become known: more of its pages may be asked for, and none has ended."""

    def stock(self, host: int, *, has_pages: bool) -> None:
        """Whether ``host`` has pages that may be asked for."""
        if has_pages:
            self._stocked.add(host)
            if host in self.dead:
                self.unburied.add(host)
        else:
            self._stocked.discard(host)
        self._place(host)

    def took(self, host: int, now: float) -> None:
        """A page of ``host`` is being worked on."""
        self._in_flight[host] = self._in_flight.get(host, 0) + 1
        self._turns_taken += 1
        self._turn[host] = self._turns_taken
        self._started[host] = now
        self._keep_gap(host)
        self._place(host)

    def turn(self, host: int, now: float) -> float:
        """Take the turn of a request to ``host``, a redirect's too: 0 where it is sent now, else the seconds to wait.

        The claim has kept its distance already; from there to the request it may have been another time for each.
        """
        wait = self._sent.get(host, float("-inf")) + self.gap(host) - now
        if wait > _SAME_TIME:
            return wait
        self._sent[host] = self._started[host] = now
        self._keep_gap(host)
        return 0.0

    def left_alone(self, host: int, now: float) -> bool:
        """Whether ``host`` asked to be left alone, or failed so that it is."""
        return self._left_alone_until.get(host, 0.0) > now

    def gave_back(self, host: int) -> None:
        """The work on a page of ``host`` has ended."""
        left = self._in_flight[host] - 1
        if left:
            self._in_flight[host] = left
        else:
            del self._in_flight[host]
        self._place(host)

    def asked(self, host: int, now: float, crawl_delay: float | None) -> None:
        """The robots.txt of ``host`` is known; its first page goes on, the others keep their distance."""
        news = host in self._unasked
        self._unasked.discard(host)
        if crawl_delay is not None and self._crawl_delays.get(host) != crawl_delay:
            self._crawl_delays[host] = crawl_delay
            self._started[host] = now
            self._keep_gap(host)
        self._place(host)
        if news:
            self.opened()

    def behaved(
        self,
        host: int,
        effect: Effect,
        now: float,
        close_for: float | None,
        *,
        started: float | None = None,
        retry_after: float = 0.0,
    ) -> bool:
        """How ``host`` behaved; whether anything changed that must be remembered.

        Of failures in parallel only the first is an incident. What was asked before it (``started``; now if not given)
        belongs to it, however late the answer, and closes the gate only for the ``retry_after`` seconds that it names.
        """
        before = self._paces[host]
        started = now if started is None else started
        why = Wait.BACKOFF
        known = started < self._incidents.get(host, started) or now < self._left_alone_until.get(host, 0.0)
        if known and close_for:
            close_for = retry_after
        match effect:
            case Effect.ANSWERED if known:  # to what was asked before the incident
                pace = replace(before, failures=0, openings=0)
            case Effect.ANSWERED:
                pace = politeness.answered(before, now)
            case Effect.OVERLOADED:
                pace = before if known else politeness.overloaded(before, now)
            case Effect.FALTERED:
                pace = before if known else politeness.faltered(before, now)
            case Effect.STUCK:
                pace = replace(before, failures=0, openings=0)
            case Effect.UNCONNECTED:
                pace, opened_for = (before, None) if known else politeness.unconnected(before)
                close_for = max(close_for or 0.0, opened_for or 0.0)
                why = Wait.CIRCUIT if opened_for else why
        if effect is Effect.ANSWERED:
            self._answers[host] = self._answers.get(host, 0) + 1
        elif not known:
            self._incidents[host] = now
        self._paces[host] = pace
        self._count_as_dead(host, dead=pace.dead)
        if close_for:
            self.close(host, now + close_for, why)
            self._left_alone_until[host] = max(now + close_for, self._left_alone_until.get(host, 0.0))
        self._place(host)
        return bool(close_for) or pace.kept != before.kept

    def close(self, host: int, until: float, why: Wait) -> None:
        """No page of ``host`` before ``until``; a gate is only ever moved further away."""
        if until > self._closed_until.get(host, 0.0):
            self._closed_until[host], self._closed_for[host] = until, why
            self._place(host)

    def closed_until(self, host: int) -> float:
        """When the gate of ``host`` opens, or has opened."""
        return self._closed_until.get(host, 0.0)

    def is_open(self, host: int, now: float) -> bool:
        """Whether a page of ``host`` may be asked for."""
        return self.closed_until(host) <= now

    def pace(self, host: int) -> Pace:
        """What is known of how ``host`` behaves."""
        return self._paces[host]

    def gap(self, host: int) -> float:
        """Seconds between the starts of two pages of ``host``."""
        return politeness.gap(self._paces[host], self._delay, self._crawl_delays.get(host), self._max_crawl_delay)

    def gates(self, hosts: Iterable[int], clock: Clock) -> dict[int, int]:
        """Until when hosts are closed by a page that starts now (ms since the epoch), for those that keep a gap."""
        now_ms = clock.wall_ms()
        return {host: now_ms + round(gap * 1000) for host in hosts if (gap := self.gap(host))}

    def wants(self, free: int, now: float) -> dict[int, int]:
        """Slots to ask for by host, ``free`` at most in all, those first whose last page is longest ago.

        Where there are several, those in trouble hold half of the workers at most: the others are for who answers.
        """
        self._now = max(self._now, now)
        for opened in self._turns.opened(self._now):
            self._place(opened)
        wants: dict[int, int] = {}
        left = max(0, self._for_troubled - self._held_in_trouble()) if self._several() else free
        while free > 0 and (host := self._turns.take(troubled=left > 0)) is not None:
            troubled = self._in_trouble(host)
            slots = min(free, left if troubled else free, self._slots(host))
            wants[host] = slots
            free -= slots
            left -= slots if troubled else 0
        for host in wants:
            self._place(host)  # where it was: this was only a question
        return wants

    def waiting(self) -> dict[int, tuple[Wait, float] | None]:
        """What is new since the last time: gates of hosts with pages that were closed, why and until when; ``None`` for
        a host of which no page waits any more. That a gate has opened in time is no news.
        """
        news, self._news = self._news, {}
        return news

    def next_opening(self) -> float | None:
        """When the next gate opens that ``wants`` found closed, of a host with pages; ``None`` if there is none."""
        return self._turns.next_opening()

    def _place(self, host: int) -> None:
        """Put ``host`` where it belongs now. To be called whenever anything changes that is asked here."""
        until = self.closed_until(host)
        if host not in self._stocked:
            if self._turns.leave(host):
                self._news[host] = None
        elif until > self._now:
            if self._turns.shut(host, until):
                self._news[host] = self._closed_for[host], until
        elif self._slots(host) > 0:
            self._turns.ready(host, self._turn.get(host, 0), troubled=self._in_trouble(host))
        else:
            self._turns.leave(host)

    def _several(self) -> bool:
        """Whether more than one host has pages, in flight or waiting."""
        return len(self._stocked) + sum(host not in self._stocked for host in self._in_flight) > 1

    def _count_as_dead(self, host: int, *, dead: bool) -> None:
        if dead and host not in self.dead:
            self.dead.add(host)
            self.unburied.add(host)
        elif not dead and host in self.dead:
            self.dead.discard(host)
            self.unburied.discard(host)

    def _held_in_trouble(self) -> int:
        """How many workers hosts in trouble hold."""
        return sum(pages for host, pages in self._in_flight.items() if self._in_trouble(host))

    def _in_trouble(self, host: int) -> bool:
        """Whether pages of ``host`` may well hold their workers until a time-out."""
        pace = self._paces[host]
        unproven = self._answers.get(host, 0) < PROVEN_ANSWERS
        return unproven or pace.incident is not None or pace.faltered > 0 or pace.failures > 0

    def _slots(self, host: int) -> int:
        """How many more pages of ``host`` may be worked on, its gate apart."""
        in_flight = self._in_flight.get(host, 0)
        if host in self._unasked or self._paces[host].probing:
            return 1 - in_flight  # one page finds out, for all of them
        if self.gap(host):
            return min(1, self._per_host - in_flight)
        return self._per_host - in_flight

    def _keep_gap(self, host: int) -> None:
        gap = self.gap(host)
        if gap:
            self.close(host, self._started[host] + gap, self._why_a_gap(host, gap))

    def _why_a_gap(self, host: int, gap: float) -> Wait:
        if gap == self._paces[host].gap:
            return Wait.BACKOFF
        return Wait.DELAY if gap == self._delay else Wait.CRAWL_DELAY
