"""How hard a host may be asked: the gap between requests, what an incident does to it, and when a host counts as dead.

Pure: ``Pace`` is one host's state, the functions say what an event makes of it. The board applies it, the frontier
keeps it, so that a restart is as polite as the run before it (laws L7 and L9).

The rate that a host can bear is found as TCP finds that of a link. One incident by itself costs the backoff for which
the gate is closed, and no more: a lone 503 says little. Another one before it is forgiven makes a gap, which doubles
with each and shrinks with every good answer, down to the last one that the host put up with. There it stays until the
incident is forgiven; then shorter ones are tried, step by step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

FIRST_GAP = 0.5
"""Seconds between requests after a host's second incident, at least; each further one doubles it."""

GAP_MAX = 60.0
"""Seconds; no host is asked more rarely than that because of incidents."""

RECOVERY = 0.8
"""With each good answer the gap shrinks to this share of itself: it is gone after five times its length."""

FORGIVEN_AFTER, FORGIVEN_ANSWERS = 60.0, 50
"""An incident is forgiven so many seconds and so many good answers later."""

TRIED_FOR = 10
"""Good answers after which the next shorter gap is tried, once the incident is forgiven."""

FORGOTTEN_GAP = 0.02
"""Seconds; a gap that has shrunk below this is none."""

FALTERS_TO_OBJECT = 3
"""Pages in a row that hang or break off: so many are as good as a host's own word that it is overloaded."""

FAILURES_TO_OPEN = 5
"""Connection failures in a row that open a host's circuit."""

OPEN_FIRST, OPEN_MAX = 60.0, 3600.0
"""Seconds for which an open circuit lets nothing through; doubles each time the probe fails."""

OPENINGS_TO_GIVE_UP = 4
"""After so many openings without one answer in between the host is dead, and its pages are closed."""


@dataclass(frozen=True, slots=True)
class Pace:
    """One host. ``gap`` in seconds is what incidents have made of it, besides what the spec and robots.txt ask for."""

    gap: float = 0.0
    answers: int = 0
    """Good answers since the last incident."""
    failures: int = 0
    """Connection failures in a row."""
    openings: int = 0
    """Times that the circuit opened since the last answer."""
    floor: float = 0.0
    """Seconds; the gap does not become shorter until the last incident is forgiven."""
    incident: float | None = None
    """When the last one was (monotonic seconds), until it is forgiven."""
    faltered: int = 0
    """Pages in a row that hung or broke off, without a good answer in between."""

    @property
    def kept(self) -> Pace:
        """What of it outlives the process."""
        return Pace(_bearable(self.gap, self.floor), failures=self.failures, openings=self.openings)

    @property
    def probing(self) -> bool:
        """Whether one request at a time is enough to find out if the host is back."""
        return self.openings > 0

    @property
    def dead(self) -> bool:
        """Whether the host is given up."""
        return self.openings >= OPENINGS_TO_GIVE_UP


def resumed(pace: Pace, now: float) -> Pace:
    """As an earlier process left it: why there is a gap is not known any more, so it stays for a while."""
    return replace(pace, floor=pace.gap, incident=now) if pace.gap else pace


def _bearable(gap: float, floor: float) -> float:
    """Of a gap that grew in an outage: how long that was does not say what the host can bear when it is back."""
    return min(gap, max(2 * floor, FIRST_GAP))


def answered(pace: Pace, now: float) -> Pace:
    """The host gave an answer, whatever it says about the page."""
    answers, floor, incident = pace.answers + 1, pace.floor, pace.incident
    if incident is not None and answers >= FORGIVEN_ANSWERS and now - incident >= FORGIVEN_AFTER:
        incident = None
    if incident is None and answers % TRIED_FOR == 0:
        floor *= RECOVERY
    gap = max(_bearable(pace.gap, floor) * RECOVERY, floor)
    if gap < FORGOTTEN_GAP:
        gap = 0.0
    return Pace(gap, answers, floor=floor, incident=incident) if gap or incident is not None else Pace()


def overloaded(pace: Pace, now: float) -> Pace:
    """The host asked to be left alone (429, 503, Retry-After): once per incident, not per response."""
    if pace.incident is None and not pace.gap:
        return Pace(incident=now)
    # One that follows another without an answer in between is an outage, and says nothing about the gap.
    floor = max(pace.gap / RECOVERY, FORGOTTEN_GAP) if pace.answers else pace.floor
    gap = max(pace.gap * 2, FIRST_GAP)
    return Pace(min(gap, GAP_MAX), floor=min(floor, GAP_MAX), incident=now)


def faltered(pace: Pace, now: float) -> Pace:
    """A page hung or broke off. One of many says more about itself than about the host; some in a row do not."""
    count = pace.faltered + 1
    if count < FALTERS_TO_OBJECT:
        return replace(pace, failures=0, openings=0, faltered=count)
    return replace(overloaded(pace, now), faltered=count)


def unconnected(pace: Pace) -> tuple[Pace, float | None]:
    """No connection came about; with the seconds for which the circuit is open now, where it is."""
    failures = pace.failures + 1
    if failures < FAILURES_TO_OPEN and not pace.probing:
        return replace(pace, answers=0, failures=failures), None
    wait = min(OPEN_FIRST * 2**pace.openings, OPEN_MAX)
    return replace(pace, answers=0, failures=failures, openings=pace.openings + 1), wait


def gap(pace: Pace, delay: float, crawl_delay: float | None, max_crawl_delay: float) -> float:
    """Seconds between the starts of two requests to the host; 0 where only ``perHost`` bounds it."""
    return max(pace.gap, delay, min(crawl_delay or 0.0, max_crawl_delay))
