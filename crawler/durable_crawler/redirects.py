"""Where a redirect leads, and whether it is followed (law L8). Pure; called by ``fetch`` with each Location.

A redirect is followed on the authority of the request before it only. http and https of one host are one authority, so
that the most common redirect of all is followed; the way back from https to http is by the same rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from durable_crawler.traps import trap
from durable_crawler.urls import MAX_LENGTH, Refusal, authority, canonical, origin

STATUSES = frozenset({301, 302, 303, 307, 308})
MAX_HOPS = 10
FAULTS = frozenset({"no Location", "loop", "Location refused: invalid", "Location refused: empty_host"})
"""Reasons of ``Invalid`` that stop every visitor; all others are bounds and rules of ours."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Ask for ``target`` next."""

    target: str


@dataclass(frozen=True, slots=True)
class OutOfScope:
    """``target`` is on another authority: never contacted."""

    target: str


@dataclass(frozen=True, slots=True)
class Invalid:
    """The chain ends here."""

    reason: str
    location: str
    """Canonical where it can be, else as sent, but without credentials; empty where there is none."""


def judge(
    location: str | None, asked: Sequence[str], *, max_hops: int = MAX_HOPS, anywhere: bool = False
) -> Follow | OutOfScope | Invalid:
    """What to do about a Location header. ``asked`` are the URLs of this chain; its last one was answered with it.

    ``anywhere`` follows to other authorities too, for a robots.txt (RFC 9309 section 2.3.1.2), but only to their own
    robots.txt: who writes a Location must not choose what else we ask others for, against their rules and our scope.
    """
    if location is None:
        return Invalid("no Location", "")
    location = header_text(location)
    target = canonical(location, asked[-1])
    if isinstance(target, Refusal):
        # It has no structure to trust, so that credentials are anything before an @.
        return Invalid(f"Location refused: {target}", one_line(location.rpartition("@")[2], MAX_LENGTH))
    if authority(target) != authority(asked[-1]):
        if not anywhere:
            return OutOfScope(target)
        if target != f"{origin(target)}/robots.txt":
            return Invalid("to another host, and not to its robots.txt", target)
    reason = _objection(target, asked, max_hops)
    return Follow(target) if reason is None else Invalid(reason, target)


def _objection(target: str, asked: Sequence[str], max_hops: int) -> str | None:
    if target in asked:
        return "loop"
    if len(asked) > max_hops:
        return f"more than {max_hops} redirects"
    kind = trap(target)
    return None if kind is None else f"Location refused: {kind}"


def header_text(value: str) -> str:
    """A header's value as browsers read it: UTF-8, or each byte as one character where it is not."""
    try:
        value.encode()
    except UnicodeEncodeError:  # bytes that the client kept as surrogates
        return value.encode("utf-8", "surrogateescape").decode("latin-1")
    return value


def one_line(text: str, length: int) -> str:
    """``text`` as one printable line of at most ``length`` characters."""
    words = " ".join(header_text(text).split())
    return "".join(filter(str.isprintable, words))[:length]
