"""What can be said of a link's target, and how sure one is of it. Pure.

A report that cries wolf is not read. Only what an honest visitor would find broken as well is called so: that a site
refuses a crawler says nothing about its readers, and that a host could not be reached may be over tomorrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile

from durable_crawler import redirects
from durable_crawler.outcomes import Hop, Outcome
from durable_crawler.results.reading import Page


class Confidence(StrEnum):
    """Classes of targets, the worst first. The names are in reports, and on the command line: they stay."""

    BROKEN = "broken"
    """It answers that there is nothing, or fails by itself."""
    FRAGMENT = "fragment"
    """The page is there, and the place in it that the link names is not."""
    UNREACHABLE = "unreachable"
    """No usable answer came, which may be the network's doing, or over soon."""
    BLOCKED = "blocked"
    """It wants to know who asks, or not so much: 401, 403, 429, 999 and the like."""
    INSECURE = "insecure"
    """An encrypted page leads, directly or by a redirect, to an unencrypted one."""
    REDIRECTED = "redirected"
    """It has moved for good, and the link still goes the old way."""
    UNCHECKED = "unchecked"
    """It was not asked for, and so nobody knows."""
    OK = "ok"


PROBLEMS = (
    Confidence.BROKEN,
    Confidence.FRAGMENT,
    Confidence.UNREACHABLE,
    Confidence.BLOCKED,
    Confidence.INSECURE,
    Confidence.REDIRECTED,
)
"""What a report lists link by link."""

# 402 and 451 depend on who asks and from where, 406 on what the crawler accepts, 407 is a proxy's; 999 is what some
# large sites answer to everything that is no browser.
BLOCKED_STATUSES = frozenset({401, 402, 403, 406, 407, 429, 451, 999})
# All of them tried again until the retries were used up. 520 to 530: a cache in front of the site has no answer of it.
PASSING_STATUSES = frozenset({408, 425, 502, 503, 504, *range(520, 531)})
PERMANENT = frozenset({301, 308})
"""RFC 9110 sections 15.4.2 and 15.4.9."""

# A redirect that only we do not follow: a visitor's browser goes on to more than 10, or to another scheme.
_NOT_ASKED = frozenset(
    {Outcome.ROBOTS_DISALLOWED, Outcome.ADDRESS_REFUSED, Outcome.PROXY_REFUSED, Outcome.REDIRECT_INVALID}
)
_LED_AWAY = frozenset({Outcome.REDIRECT_OUT_OF_SCOPE, Outcome.REDIRECT_EXCLUDED})
_THERE = frozenset({Outcome.OK, Outcome.NOT_HTML, Outcome.TOO_LARGE})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of a page as the target of links."""

    confidence: Confidence
    why: str
    """For people: a status, an outcome with its cause, where it was redirected to."""


def judge(page: Page) -> Verdict:
    """The class of a page, whoever links to it. ``FRAGMENT`` it cannot be: that is a link's."""
    if page.outcome is None:
        return Verdict(Confidence.UNCHECKED, _unfinished(page))
    outcome = Outcome(page.outcome)
    why = f"{outcome}: {page.error}" if page.error else str(outcome)
    if outcome is Outcome.HTTP_ERROR:
        confidence = _of_status(page.status or 0)
        return Verdict(confidence, f"status {page.status}")
    if outcome is Outcome.REDIRECT_INVALID and page.error.removeprefix("redirect: ") in redirects.FAULTS:
        return Verdict(Confidence.BROKEN, why)
    if outcome in _NOT_ASKED:
        return Verdict(Confidence.UNCHECKED, why)
    if outcome not in _THERE and outcome not in _LED_AWAY:
        return Verdict(Confidence.UNREACHABLE, why)
    return _on_its_way(page, outcome)


def insecure(source: str, target: str) -> bool:
    """Whether an encrypted page links to an unencrypted one."""
    return source.startswith("https:") and target.startswith("http:")


def _of_status(status: int) -> Confidence:
    if status in BLOCKED_STATUSES:
        return Confidence.BLOCKED
    # Of what is no redirect below 400, a browser shows something (300), and we can tell nothing (304, unasked for).
    return Confidence.UNREACHABLE if status in PASSING_STATUSES or status < 400 else Confidence.BROKEN


def _on_its_way(page: Page, outcome: Outcome) -> Verdict:
    """The class of a page that is there, or leads to where the crawl does not go, by the redirects before."""
    if any(insecure(hop.url, hop.location) for hop in page.hops):
        return Verdict(Confidence.INSECURE, f"redirected to {page.hops[-1].location}")
    moved = _moved(page.hops)
    if moved is not None:
        return Verdict(Confidence.REDIRECTED, f"{moved.status} to {moved.location}")
    if outcome in _LED_AWAY:
        return Verdict(Confidence.UNCHECKED, f"redirected to {page.hops[-1].location}" if page.hops else str(outcome))
    return Verdict(Confidence.OK, f"status {page.status}")


def _moved(hops: Sequence[Hop]) -> Hop | None:
    """The redirect whose target the link should name: the last of those that come first and are permanent. What
    follows one that is not (302, 303, 307) is none of the link's business: it was right to go there.
    """
    permanent = list(takewhile(lambda hop: hop.status in PERMANENT, hops))
    return permanent[-1] if permanent else None


_LEFT_OUT = {
    "authority": "on another host than the seeds",
    "depth": "deeper than scope.maxDepth",
    "excluded": "matched by scope.exclude",
    "not_included": "not matched by scope.include",
}


def _unfinished(page: Page) -> str:
    if page.state == "quarantined":
        return "quarantined: the crawler did not survive it, or was killed at it, three times"
    return _LEFT_OUT.get(page.left_out or "", f"not finished: {page.state}")
