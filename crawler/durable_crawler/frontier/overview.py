"""What a frontier says about its crawl as a whole, as values: what ``FrontierReader.overview`` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from durable_crawler.frontier.model import Snapshot

HOSTS = 20
"""Hosts of an overview: those with the most pages that wait."""

QUARANTINED = 20
"""Quarantined pages of an overview: those that were found first."""


class Phase(StrEnum):
    """What can be told from the file alone, without asking whether its owner lives."""

    RUNNING = "running"
    """Pages are leased, and the leases are being renewed; up to two minutes after a kill, too."""
    FINISHED = "finished"
    """Nothing is left to do."""
    STOPPED = "stopped"
    """Closed in order, with pages left: it was interrupted, or has reached ``scope.maxPages``."""
    UNCLOSED = "unclosed"
    """Open, and no page in hand: it runs and waits for its hosts, or was killed."""


@dataclass(frozen=True, slots=True)
class RobotsState:
    """What is known of one origin's robots.txt. Times are milliseconds since the epoch."""

    origin: str
    size: int
    """Bytes; 0 where there is none and all is allowed."""
    failures: int
    """To reach it, in a row."""
    expires_ms: int
    """When it is asked for again."""
    answered_ms: int
    """When it was last answered; 0 if it never was."""


@dataclass(frozen=True, slots=True)
class WaitingHost:
    """A host with pages that are not done. Times are milliseconds since the epoch."""

    authority: str
    robots: Sequence[RobotsState]
    """Of http and of https, as far as they were asked."""
    pending: int
    deferred: int
    leased: int
    next_due_ms: int | None
    """When the first of the deferred pages is tried again."""
    closed_until_ms: int
    """No request before."""
    gap_ms: int
    """Between requests, because of incidents; what the spec and robots.txt ask for comes on top."""
    failures: int
    """Connections that failed in a row."""
    openings: int
    """Of its circuit, in a row."""


@dataclass(frozen=True, slots=True)
class QuarantinedPage:
    """A page that was set aside after ``claims`` claims without an outcome."""

    url: str
    claims: int


@dataclass(frozen=True, slots=True)
class Overview:
    """All of it from one snapshot of the database."""

    phase: Phase
    counts: Snapshot
    outcomes: Mapping[str, int]
    """Pages that are done."""
    left_out: Mapping[str, int]
    """Pages that the spec does not cover, by reason."""
    refused: Mapping[str, int]
    """Links that were not followed, by reason; each is counted on every page that has it."""
    asks: Mapping[str, int]
    """Pages that ask for something, such as ``noindex``."""
    spent_ms: Mapping[str, int]
    """What time went into, of all processes: of hosts that waited by ``board.Wait``, of the program by ``spent``."""
    hosts: Sequence[WaitingHost]
    waiting_hosts: int
    """Of which ``hosts`` are the first."""
    quarantined: Sequence[QuarantinedPage]
