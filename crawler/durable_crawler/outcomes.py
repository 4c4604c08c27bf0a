"""What can come of a page, as values: the vocabulary that fetch, settle, frontier, telemetry and report share.

Expected outcomes are never exceptions. The names of ``Outcome`` are stored in the frontier and exported as metric
attributes: they may be added to, never renamed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Outcome(StrEnum):
    """How the work on a page ended."""

    OK = "ok"
    """A 2xx response with HTML that was parsed."""
    NOT_HTML = "not_html"
    """A 2xx response of another type; its body was not read."""
    HTTP_ERROR = "http_error"
    """A final response outside 2xx and 3xx."""
    TOO_LARGE = "too_large"
    """The decoded body exceeded ``fetch.maxBodyBytes``, or is a decompression bomb; nothing of it was kept."""
    TRUNCATED = "truncated"
    """The connection was made, and ended before the response did."""
    REDIRECT_OUT_OF_SCOPE = "redirect_out_of_scope"
    """A redirect to another authority: recorded, never contacted."""
    REDIRECT_EXCLUDED = "redirect_excluded"
    """A redirect to a page that ``scope.include`` and ``scope.exclude`` leave out: recorded, never requested."""
    REDIRECT_INVALID = "redirect_invalid"
    """A redirect without a usable Location, a loop, or more than 10 hops."""
    ADDRESS_REFUSED = "address_refused"
    """The host is at an address that the crawl may not connect to (law L11)."""
    DNS_ERROR = "dns_error"
    CONNECT_ERROR = "connect_error"
    CONNECT_TIMEOUT = "connect_timeout"
    PROXY_UNREACHABLE = "proxy_unreachable"
    """No connection to the proxy came about, which says nothing of the host: the page is given back and waits."""
    PROXY_REFUSED = "proxy_refused"
    """The proxy does not let us through (403, 407 and the like), or may not be connected to itself."""
    TLS_ERROR = "tls_error"
    TLS_TIMEOUT = "tls_timeout"
    HEADER_TIMEOUT = "header_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    ROBOTS_DISALLOWED = "robots_disallowed"
    """The host's robots.txt forbids it; the error names the line."""
    ROBOTS_UNREACHABLE = "robots_unreachable"
    """Nobody knows what the host's robots.txt says, and so it was not requested."""
    HOST_DEAD = "host_dead"
    """No connection to its host came about for a long time; closed together with all that waited for it."""
    PROTOCOL_ERROR = "protocol_error"
    """Bytes that are not HTTP, or a body that its Content-Encoding does not describe."""

    @property
    def failed(self) -> bool:
        """Whether the page gave nothing usable (what ``failed`` counts in status and metrics)."""
        return self not in _NO_FAILURES


_LEFT_ALONE = {Outcome.REDIRECT_OUT_OF_SCOPE, Outcome.REDIRECT_EXCLUDED, Outcome.ROBOTS_DISALLOWED}
_NO_FAILURES = frozenset({Outcome.OK, Outcome.NOT_HTML, *_LEFT_ALONE})


@dataclass(frozen=True, slots=True)
class Hop:
    """One redirect that was answered: the URL asked for, the status, where it pointed (canonical, or as sent)."""

    url: str
    status: int
    location: str


class Exchange(NamedTuple):
    """One HTTP request on the wire, for spans and metrics: times in nanoseconds since the epoch."""

    url: str
    started_ns: int
    ended_ns: int
    status: int | None
    error: str = ""
    """The name of an ``Outcome`` where there is no usable response."""
    version: str = ""
    """Of HTTP, as the response has it: ``1.1``, ``1.0``; empty where none was received."""
    peer: tuple[str, int] | None = None
    """Address and port that the response came from."""
    waited_ns: int = 0
    """How much of the time passed until its turn came, which is politeness and not the server's doing."""
    method: str = "GET"


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one attempt at a URL led to. Exactly this is handed to ``settle``; nothing here raises."""

    url: str
    """The URL that was claimed."""
    final_url: str
    """The URL that the last response came from: the base for its links."""
    outcome: Outcome
    status: int | None = None
    """Status of the last response; ``None`` where none was received."""
    content_type: str = ""
    """Content-Type of the last response as sent, at most 256 characters."""
    body: bytes | None = None
    """The decoded body; only with ``Outcome.OK``."""
    body_bytes: int = 0
    """Decoded bytes that were received, whatever the outcome."""
    hops: tuple[Hop, ...] = ()
    exchanges: tuple[Exchange, ...] = field(default=(), repr=False)
    retryable: bool = False
    """Whether another attempt may succeed (RFC 9110 statuses of L7, connection errors and time-outs)."""
    retry_after: float | None = None
    """Seconds that the server asked for, already read from either form of Retry-After; not capped."""
    host_incident: bool = False
    """Whether the cause lies with the host rather than the page: its gate closes for one backoff (L7)."""
    error: str = ""
    """A short cause for people and logs, at most 200 characters, without line breaks."""
    robots_tags: tuple[str, ...] = ()
    """The X-Robots-Tag values of the last response, one for each line of the header."""
    place_given: bool = False
    """Whether a redirect names a place in the page, which a browser takes instead of the link's own fragment (WHATWG
    Fetch, "HTTP-redirect fetch").
    """


class Stage(NamedTuple):
    """A stretch of time in the life of a page (``fetch``, ``parse``, ``commit``); nanoseconds since the epoch."""

    name: str
    started_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True)
class PageRecord:
    """What telemetry is told when a page has settled; one per claim."""

    url: str
    authority: str
    depth: int
    attempt: int
    """Number of this attempt at the page, from 1."""
    settled: str
    """``done``, ``deferred``, ``quarantined``, ``released`` or ``lost`` (a lease that was not ours any more)."""
    fetched: Fetched | None
    """``None`` where the claim ended without an attempt being settled."""
    stages: tuple[Stage, ...]
    links: int = 0
    """Links found on the page, after canonicalisation and the cap."""
    refused: Outcome | None = None
    """What the page was closed with where nothing was fetched: its host's robots.txt had something against it."""

    @property
    def outcome(self) -> Outcome | None:
        """What the work on the page led to; ``None`` where it was not worked on to the end."""
        return self.refused if self.fetched is None else self.fetched.outcome
