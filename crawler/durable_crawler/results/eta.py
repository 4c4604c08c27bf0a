"""How fast a crawl is, when it will be done, and what its time goes into. Pure: of what was finished last.

An estimate says what it is made of. Where too little is known it says so, and gives none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

ENOUGH = 5
"""Pages that must have been finished lately before anything is concluded from them, of the crawl or of one host."""
LATELY_S = 900.0
"""What is older says nothing about now."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A page that was finished lately. Times in milliseconds, ``finished_ms`` since the epoch."""

    authority: str
    finished_ms: int
    duration_ms: int
    """Of its last attempt, ``waited_ms`` included."""
    waited_ms: int
    """For its turns at the host."""
    parse_ms: int


@dataclass(frozen=True, slots=True)
class Left:
    """A host's pages that are not done, and what holds it up: seconds that it asks for or was slowed down to."""

    authority: str
    pages: int
    crawl_delay_s: float = 0.0
    slowed_s: float = 0.0
    closed_for_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """``seconds`` is ``None`` where none can be made; ``text`` says what it is made of, or why not."""

    rate: float | None
    """Pages a second, of the whole crawl."""
    seconds: float | None
    text: str


def estimate(finished: Sequence[Finished], hosts: Sequence[Left], left: int, now_ms: int) -> Estimate:
    """When ``left`` pages will be done, of which ``hosts`` are those with most; ``finished`` in any order."""
    recent = [page for page in finished if now_ms - page.finished_ms <= LATELY_S * 1000]
    if not left:
        return Estimate(None, 0.0, "nothing is left to do")
    rate = _rate([page.finished_ms for page in recent], now_ms)
    if rate is None:
        lately = f"fewer than {ENOUGH} pages were finished in the last {LATELY_S / 60:.0f} minutes"
        return Estimate(None, None, f"unknown: {lately}")
    by_host: dict[str, list[int]] = {}
    for page in recent:
        by_host.setdefault(page.authority, []).append(page.finished_ms)
    whole = left / rate
    slowest, longest, pace = None, whole, 0.0
    for host in hosts:
        own = _rate(by_host.get(host.authority, ()), now_ms)
        takes = host.closed_for_s + (host.pages / own if own else host.pages * max(host.crawl_delay_s, host.slowed_s))
        # A host that is like the others is not the reason; one that has no others is.
        if takes >= longest * (1.0 if host.pages == left else 1.1):
            slowest, longest, pace = host, takes, (1 / own if own else max(host.crawl_delay_s, host.slowed_s))
    if slowest is None:
        return Estimate(rate, whole, f"{span(whole)}: {left:,} pages left at {_at(1 / rate)}")
    why = f"{slowest.authority} has {slowest.pages:,} pages left at {_at(pace)}{_because(slowest, pace)}"
    return Estimate(rate, longest, f"{span(longest)}: {why}")


def shares(finished: Iterable[Finished]) -> Mapping[str, float] | None:
    """What the work on these pages went into, as shares of 1: ``waiting`` for turns, the ``server``, ``parsing``."""
    waiting = server = parsing = 0
    for page in finished:
        waiting += page.waited_ms
        server += max(0, page.duration_ms - page.waited_ms)
        parsing += page.parse_ms
    whole = waiting + server + parsing
    if not whole:
        return None
    return {"waiting": waiting / whole, "server": server / whole, "parsing": parsing / whole}


def span(seconds: float) -> str:
    """``2 h 10 min``, ``12 min``, ``40 s``."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} days"


def _rate(times_ms: Sequence[int], now_ms: int) -> float | None:
    """Pages a second; the time since the last one counts, or a crawl that stands still would look fast."""
    if len(times_ms) < ENOUGH:
        return None
    return len(times_ms) / max(0.001, (now_ms - min(times_ms)) / 1000)


def _at(seconds: float) -> str:
    """A pace in words."""
    if seconds < 0.9:
        return f"{1 / seconds:.1f} a second" if seconds else "once"
    return "one per second" if round(seconds, 1) == 1.0 else f"one in {seconds:.1f} s"


def _because(host: Left, pace: float) -> str:
    if host.crawl_delay_s and pace >= 0.9 * host.crawl_delay_s and host.crawl_delay_s >= host.slowed_s:
        return " by its Crawl-delay"
    if host.slowed_s and pace >= 0.9 * host.slowed_s:
        return ", slowed down by what it answered"
    return f", closed for {span(host.closed_for_s)}" if host.closed_for_s else ""
