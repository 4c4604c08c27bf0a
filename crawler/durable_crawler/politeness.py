"""How hard a host may be asked: the gap between requests, what an incident does to it, and when a host counts as dead.

Pure: ``Pace`` is one host's state, the functions say what an event makes of it. The board applies it, the frontier
keeps it, so that a restart is as polite as the run before it (laws L7 and L9).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

FIRST_GAP = 0.5
"""Seconds between requests after a host's first incident; each further one doubles it."""

GAP_MAX = 60.0
"""Seconds; no host is asked more rarely than that because of incidents."""

RECOVERY = 0.9
RECOVERY_AFTER = 20
"""After this many good answers in a row the gap shrinks to this share of itself."""

FORGOTTEN_GAP = 0.05
"""Seconds; a gap that has shrunk below this is none."""

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
    """Good answers since the gap last changed."""
    failures: int = 0
    """Connection failures in a row."""
    openings: int = 0
    """Times that the circuit opened since the last answer."""

    @property
    def probing(self) -> bool:
        """Whether one request at a time is enough to find out if the host is back."""
        return self.openings > 0

    @property
    def dead(self) -> bool:
        """Whether the host is given up."""
        return self.openings >= OPENINGS_TO_GIVE_UP


def answered(pace: Pace) -> Pace:
    """The host gave an answer, whatever it says about the page."""
    answers = pace.answers + 1
    if answers < RECOVERY_AFTER or not pace.gap:
        return replace(pace, answers=answers if pace.gap else 0, failures=0, openings=0)
    gap = pace.gap * RECOVERY
    return Pace(gap if gap >= FORGOTTEN_GAP else 0.0)


def overloaded(pace: Pace) -> Pace:
    """The host asked to be left alone (429, 503, Retry-After, a time-out): once per incident, not per response."""
    return replace(pace, gap=min(max(pace.gap * 2, FIRST_GAP), GAP_MAX), answers=0, failures=0, openings=0)


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
