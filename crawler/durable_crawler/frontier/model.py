"""The port: what the engine may ask of a frontier, and the values that go through it.

Lease rules (laws L2 to L6). A claim gives a page to one worker, with a fresh random token, and is committed before the
worker learns of it. Whoever renews, finishes, defers or releases names page, token and epoch; the answer is ``KEPT`` or
``LOST``, and of a lost lease nothing is kept. Any other failure is a ``FrontierError``, which ends the run: a database
error is never an empty queue.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, Protocol

from crawljob.exitcodes import ExitCode
from crawljob.summary import Progress
from durable_crawler.outcomes import Hop, Outcome
from durable_crawler.parse import Digest, Reference
from durable_crawler.politeness import Pace
from durable_crawler.robots import KnownRobots
from durable_crawler.scope import LeftOut

QUARANTINE_AFTER = 3
"""Claims without an outcome after which a page is set aside (law L2)."""


class FrontierError(Exception):
    """The frontier cannot go on; ``exit_code`` says what that means for the run."""

    exit_code: ExitCode = ExitCode.INFRASTRUCTURE


class FrontierBrokenError(FrontierError):
    """The database failed, timed out, or its file was taken away."""


class FrontierFullError(FrontierError):
    """The volume is full, or so nearly that claiming more would fill it."""

    exit_code = ExitCode.OUT_OF_DISK


class FrontierOwnedError(FrontierError):
    """Another process owns this frontier, or has taken it over."""

    exit_code = ExitCode.OWNED


class FrontierUnusableError(FrontierError):
    """The file is not a frontier, is damaged, or was made by another version."""

    exit_code = ExitCode.UNUSABLE_FRONTIER


class Verdict(Enum):
    """What became of a fenced operation."""

    KEPT = "kept"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Host:
    """An approved authority as the frontier knows it."""

    id: int
    authority: str
    closed_until_ms: int
    pace: Pace = field(default_factory=Pace)


@dataclass(frozen=True, slots=True)
class Lease:
    """A claimed page. ``attempt`` counts claims since the last outcome, ``retries`` the outcomes before this one."""

    page_id: int
    token: str
    url: str
    host_id: int
    depth: int
    attempt: int
    retries: int


class Link(NamedTuple):
    """A page to be added if it is not known yet; ``host_id`` is ``None`` where the spec does not cover it, and
    ``left_out`` says why."""

    url: str
    authority: str
    host_id: int | None
    depth: int
    left_out: LeftOut | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What is stored of a finished page."""

    outcome: Outcome
    status: int | None = None
    final_url: str | None = None
    content_type: str = ""
    bytes: int = 0
    title: str = ""
    links: int = 0
    dropped_links: int = 0
    hops: tuple[Hop, ...] = ()
    error: str = ""
    duration_ms: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    """References that were no URLs of a crawl, looked like a trap or are left out by a pattern, by reason."""
    nofollow: int = 0
    """Links that the site does not want to be followed."""
    noindex: bool = False
    waited_ms: int = 0
    """Of ``duration_ms``, for the page's turns at its host."""
    parse_ms: int = 0
    content_hash: Digest = b""
    """16 bytes, where a body was read."""
    canonical: str = ""
    """Where the page names another URL as its canonical one."""
    references: tuple[Reference, ...] = ()
    """To be stored as the page's links; each URL is among those that are finished with it."""
    ids: tuple[str, ...] | None = None
    """Where fragments of links to the page can lead, if they are to be stored."""


@dataclass(frozen=True, slots=True)
class HostState:
    """What an attempt made of its host: how it is paced, and until when it is left alone (ms since the epoch)."""

    pace: Pace
    closed_until_ms: int = 0


@dataclass(frozen=True, slots=True)
class Attempt:
    """What is remembered of an attempt that did not settle its page."""

    outcome: Outcome
    status: int | None = None
    error: str = ""
    duration_ms: int = 0


@dataclass(frozen=True, slots=True)
class Deferral:
    """When a page may be tried again (milliseconds since the epoch), and what became of its host."""

    due_ms: int
    host: HostState | None = None
    attempt: Attempt | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counts of one transaction.

    ``excluded`` pages are known but outside of the spec, ``counted`` ones were claimed at least once (which is what the
    page limit limits), ``reclaimable`` ones are counted and pending again.
    """

    pending: int
    leased: int
    deferred: int
    done: int
    quarantined: int
    excluded: int
    counted: int
    reclaimable: int
    failed: int
    bytes: int
    next_due_ms: int | None

    def finished(self, max_pages: int) -> bool:
        """Whether nothing is left to do (law L6), or only what the page limit excludes."""
        if self.leased or self.deferred:
            return False
        return self.pending == 0 or (self.counted >= max_pages and self.reclaimable == 0)

    def progress(self) -> Progress:
        """What ``/progress``, the gauges and the summary say."""
        return Progress(
            done=self.done,
            pending=self.pending,
            leased=self.leased,
            deferred=self.deferred,
            failed=self.failed,
            quarantined=self.quarantined,
            bytes=self.bytes,
        )


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer to a claim: leases that are committed, and the counts right after."""

    leases: tuple[Lease, ...]
    expired: int
    snapshot: Snapshot


class Frontier(Protocol):
    """What the engine needs. Every method raises ``FrontierError`` when the frontier cannot go on."""

    @property
    def snapshot(self) -> Snapshot:
        """The counts of the latest commit."""
        ...

    @property
    def lease_ms(self) -> int:
        """How long a lease lasts without a renewal (law L5)."""
        ...

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do (law L6), or only what the page limit excludes."""
        ...

    @property
    def stocked(self) -> Collection[int]:
        """Ids of approved hosts that may have pending pages."""
        ...

    def restocked(self) -> Collection[int]:
        """Ids of hosts that were added to ``stocked`` or taken out since this was asked last: there may be thousands of
        hosts, and a look at all of them for each page would be dear."""
        ...

    @property
    def hosts(self) -> Mapping[int, Host]:
        """The approved hosts by id."""
        ...

    async def claim(
        self, wants: Mapping[int, int], limit: int, gates: Mapping[int, int] = MappingProxyType({})
    ) -> Claimed:
        """Lease up to ``wants[host]`` pages of each host, ``limit`` in all; due retries become pending first.

        Hosts that gave a page and have a time in ``gates`` are remembered as closed until then (ms since the epoch).
        """
        ...

    async def finish(
        self, lease: Lease, result: Result, links: Sequence[Link], host: HostState | None = None
    ) -> Verdict:
        """Store result, new pages, the host's state and ``done`` in one commit (law L4)."""
        ...

    async def defer(self, lease: Lease, deferral: Deferral) -> Verdict:
        """Settle an attempt that is worth another one later."""
        ...

    async def release(self, leases: Sequence[Lease]) -> int:
        """Give pages back unworked, without charging an attempt; returns how many were still ours."""
        ...

    async def renew(self, leases: Sequence[Lease]) -> frozenset[int]:
        """Extend leases; returns the page ids that were still ours."""
        ...

    async def close_host(self, host_id: int, outcome: Outcome, error: str) -> int:
        """Finish all waiting pages of a host with one outcome; returns how many."""
        ...

    async def robots_of(self, origin: str) -> KnownRobots | None:
        """What is known of an origin's robots.txt."""
        ...

    async def keep_robots(self, known: KnownRobots) -> None:
        """Remember what is known of an origin's robots.txt."""
        ...

    async def close(self) -> None:
        """Checkpoint and let go of the file. Safe to call twice."""
        ...
