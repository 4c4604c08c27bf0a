"""One attempt at one URL: requests, redirects, the decision by content type, the body. The crawl's only HTTP client.

Called by the engine for each claimed page. Nothing that the network or a server does raises: it is an outcome.
``totalTimeout`` bounds the whole attempt, redirects included, and so the time for which a slot is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, Self

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from crawljob import spec
from crawljob.units import seconds
from durable_crawler import redirects
from durable_crawler.access import Access
from durable_crawler.addresses import Network
from durable_crawler.clock import Clock
from durable_crawler.fetch_body import Body
from durable_crawler.fetch_codings import ACCEPT_ENCODING
from durable_crawler.fetch_connector import BEFORE_SENDING, Connector, at_once, parser_reason, peer_of, response_class
from durable_crawler.fetch_failure import Failure
from durable_crawler.fetch_proxy import refusal
from durable_crawler.outcomes import Exchange, Fetched, Hop, Outcome
from durable_crawler.parse import is_html
from durable_crawler.redirects import one_line
from durable_crawler.robots import whole_lines
from durable_crawler.settle import classify, parse_retry_after
from durable_crawler.urls import authority

KEEP_ALIVE: Final = 60.0
"""Seconds after which an idle connection is closed."""

SLOWEST: Final = 1024
"""Bytes per second, of a body as it is sent, on the average: who sends less after ``PATIENCE`` keeps a worker busy."""
PATIENCE: Final = 10.0
"""Seconds of a body in which it may come as slowly as it likes."""

_DRAIN_BYTES = 65_536  # of an unwanted body: cheaper to read than a new connection
_DRAIN_SECONDS = 1.0
_MAX_STATUS_LINE = 8_190
_MAX_FIELD = 16_384
_FRAMING = 8  # times its body: chunks of one byte are six on the wire
_FRAMING_FREE = 1024 * 1024
_CONTENT_TYPE_MAX = 256
_ROBOTS_TAGS = 16
_ROBOTS_TAG_MAX = 512
_ERROR_MAX = 200


MayFollow = Callable[[str], Awaitable[Outcome | None]]
"""Asked about the target of a redirect before it is requested: ``None``, or the outcome that ends the attempt."""

TakeTurn = Callable[[], Awaitable[None] | None]
"""Called before each request is sent, redirects and requests sent again included; awaited if there is a wait."""

ROBOTS_BYTES = 500 * 1024
"""Of a robots.txt that are read; what is behind is not (RFC 9309 section 2.5)."""
ROBOTS_HOPS = 5
"""Redirects of a robots.txt that are followed (RFC 9309 section 2.3.1.2)."""


async def _anywhere(_: str) -> Outcome | None:
    return None


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is asked for, and what of it is taken."""

    accept: str
    html: bool
    max_bytes: int
    cut: bool
    """Whether the beginning of a body is taken that has more than ``max_bytes``."""
    max_hops: int
    other_authorities: bool
    """Whether redirects may lead there."""
    may_follow: MayFollow
    take_turn: TakeTurn = at_once
    method: str = "GET"
    body: bool = True


@dataclass(frozen=True, slots=True)
class _End:
    """What the last exchange of an attempt led to."""

    outcome: Outcome
    error: str = ""
    body: bytes | None = None


@dataclass(slots=True)
class _Attempt:
    """What has happened so far; whatever ends the attempt, this much is known."""

    url: str
    current: str
    """What is being asked for: ``url``, then the targets of redirects."""
    method: str = "GET"
    started_ns: int = 0
    open: bool = False
    """Whether a request is under way."""
    waited_ns: int = 0
    status: int | None = None
    version: str = ""
    peer: tuple[str, int] | None = None
    content_type: str = ""
    robots_tags: tuple[str, ...] = ()
    retry_after: float | None = None
    body_bytes: int = 0
    hops: list[Hop] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    place_given: bool = False

    def begin(self, now_ns: int) -> None:
        """A request for ``current`` starts."""
        self.started_ns = now_ns
        self.open = True
        self.waited_ns = 0
        self.status = None
        self.version = ""
        self.peer = None
        self.content_type = ""
        self.robots_tags = ()
        self.retry_after = None

    def end(self, now_ns: int, error: str = "") -> None:
        """The request is over. ``error`` is an outcome's name, where there is no usable response."""
        self.open = False
        self.exchanges.append(
            Exchange(
                self.current,
                self.started_ns,
                now_ns,
                self.status,
                error,
                self.version,
                self.peer,
                self.waited_ns,
                self.method,
            )
        )

    def fetched(self, end: _End) -> Fetched:
        retryable, host_incident = classify(end.outcome, self.status, self.retry_after)
        return Fetched(
            url=self.url,
            final_url=self.current,
            outcome=end.outcome,
            status=self.status,
            content_type=self.content_type,
            robots_tags=self.robots_tags,
            body=end.body,
            body_bytes=self.body_bytes,
            hops=tuple(self.hops),
            exchanges=tuple(self.exchanges),
            retryable=retryable,
            retry_after=self.retry_after,
            host_incident=host_incident,
            error=one_line(end.error, _ERROR_MAX),
            place_given=self.place_given,
        )


class Fetcher:
    """Fetches pages over kept connections. Made and closed inside a running event loop.

    ``allowed`` are ranges that may be connected to although they are not global unicast. ``access`` is what was read
    from files; without a context in it certificates are verified by the system's authorities.
    """

    def __init__(
        self,
        spec: spec.Fetch,
        clock: Clock,
        *,
        allowed: Sequence[Network] = (),
        access: Access | None = None,
    ) -> None:
        self._clock = clock
        access = access or Access()
        self._headers = access.headers
        self._proxy = None if spec.proxy is None else URL(spec.proxy.url)
        self._total = seconds(spec.total_timeout)
        self._max_body_bytes = spec.max_body_bytes
        connector = Connector(
            connect_timeout=seconds(spec.connect_timeout),
            tls_timeout=seconds(spec.tls_timeout),
            response_limit=_FRAMING * spec.max_body_bytes + _FRAMING_FREE,
            allowed=allowed,
            limit=spec.workers,
            limit_per_host=spec.per_host,
            keepalive_timeout=KEEP_ALIVE,
            ssl=True if access.tls is None else access.tls,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),  # a session id in a cookie would make every crawl another site
            headers={
                "User-Agent": spec.user_agent,
                "Accept-Encoding": ACCEPT_ENCODING,
            },
            timeout=aiohttp.ClientTimeout(total=None),  # the deadlines are ours
            auto_decompress=False,
            proxy=self._proxy,
            trust_env=False,
            response_class=response_class(seconds(spec.header_timeout)),
            max_line_size=_MAX_STATUS_LINE,
            max_field_size=_MAX_FIELD,
        )

    async def aclose(self) -> None:
        """Closes all connections; requests in flight fail. May be called twice."""
        await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def fetch(self, url: str, may_follow: MayFollow = _anywhere, take_turn: TakeTurn = at_once) -> Fetched:
        """One attempt at the canonical ``url``. Only cancellation, and bugs, leave as exceptions.

        ``may_follow`` is asked about each redirect that would be followed otherwise, within the total deadline;
        ``take_turn`` is waited for outside of it.
        """
        accept = "text/html,application/xhtml+xml"
        wanted = _Wanted(accept, True, self._max_body_bytes, False, redirects.MAX_HOPS, False, may_follow, take_turn)
        return await self._attempt(url, wanted)

    async def check(self, url: str, may_follow: MayFollow = _anywhere, take_turn: TakeTurn = at_once) -> Fetched:
        """Whether there is something at the canonical ``url``: by HEAD, and where that is refused by GET (RFC 9110
        section 9.3.2). A 2xx response is ``OK`` or ``NOT_HTML`` by its type; its body is not read.
        """
        wanted = _Wanted("*/*", True, 0, False, redirects.MAX_HOPS, False, may_follow, take_turn, "HEAD", body=False)
        first = await self._attempt(url, wanted)
        if not _speaks_of_head(first):
            return first
        second = await self._attempt(url, replace(wanted, method="GET"))
        return replace(second, exchanges=(*first.exchanges, *second.exchanges))

    async def fetch_robots(self, url: str) -> Fetched:
        """One attempt at a robots.txt. A 2xx response is ``OK`` whatever its type; its body ends with a whole line."""
        wanted = _Wanted("text/plain,*/*;q=0.5", False, ROBOTS_BYTES, True, ROBOTS_HOPS, True, _anywhere)
        return await self._attempt(url, wanted)

    async def _attempt(self, url: str, wanted: _Wanted) -> Fetched:
        attempt = _Attempt(url, url, wanted.method)
        try:
            async with asyncio.timeout(self._total) as deadline:
                before = BEFORE_SENDING.set(partial(self._turn, deadline, attempt, wanted.take_turn))
                try:
                    end = await self._follow(attempt, wanted)
                finally:
                    BEFORE_SENDING.reset(before)  # a robots.txt is an attempt within one at a page
        except TimeoutError:
            if attempt.open:  # not where time ran out between two, while a robots.txt was asked for
                attempt.end(self._clock.wall_ns(), Outcome.TOTAL_TIMEOUT)
            end = _End(Outcome.TOTAL_TIMEOUT, f"not finished within {self._total:g} s")
        return attempt.fetched(end)

    async def _follow(self, attempt: _Attempt, wanted: _Wanted) -> _End:
        """Exchanges until one is the last. Each of them is noted, also those that are sent again."""
        while True:
            attempt.begin(self._clock.wall_ns())
            try:
                end = await self._exchange(attempt, wanted)
            except Failure as failure:
                attempt.end(self._clock.wall_ns(), failure.outcome)
                # Every turn takes a dead connection out of the pool, so this ends (RFC 9112 section 9.3.1).
                if not failure.stale:
                    return _End(failure.outcome, failure.detail)
                continue
            attempt.end(self._clock.wall_ns(), end.outcome if isinstance(end, _End) and end.error else "")
            if isinstance(end, _End):
                return end
            objection = await wanted.may_follow(end)
            if objection is not None:
                return _End(objection, f"redirect to {end}")
            attempt.current = end

    async def _exchange(self, attempt: _Attempt, wanted: _Wanted) -> _End | str:
        """One request. Returns the end, or the URL to ask for instead. Raises ``Failure``."""
        try:
            response = await self._session.request(
                wanted.method,
                _on_the_wire(attempt.current),
                allow_redirects=False,
                headers={**self._brought_along(attempt), "Accept": wanted.accept},
            )
        except aiohttp.ClientConnectionResetError as error:  # it was there until the request was to be written
            raise Failure(Outcome.TRUNCATED, str(error)) from None
        except aiohttp.ClientError as error:
            raise Failure(Outcome.CONNECT_ERROR, str(error)) from None
        try:
            headers, status = response.headers, response.status
            attempt.status = status
            attempt.version = "" if response.version is None else "{}.{}".format(*response.version)
            attempt.peer = peer_of(response)
            attempt.content_type = one_line(", ".join(headers.getall("Content-Type", ())), _CONTENT_TYPE_MAX)
            tags = headers.getall("X-Robots-Tag", ())[:_ROBOTS_TAGS]
            attempt.robots_tags = tuple(one_line(tag, _ROBOTS_TAG_MAX) for tag in tags)
            if status == 206:
                return _End(Outcome.HTTP_ERROR, "a part was sent although the whole was asked for")
            if 200 <= status < 300:
                if wanted.html and not is_html(attempt.content_type):
                    return _End(Outcome.NOT_HTML)
                return _End(Outcome.OK, body=await self._body(attempt, response, wanted) if wanted.body else None)
            if status < 200:
                return _End(Outcome.PROTOCOL_ERROR, f"status {status} was not asked for")
            if status == 407 and self._proxy is not None and attempt.current.startswith("http:"):
                # A site has no proxy to ask credentials for. What comes through a tunnel is the site's all the same.
                raise refusal(self._proxy, status)
            attempt.retry_after = self._retry_after(headers.get("Retry-After"))
            await _drain(response)
            if status in redirects.STATUSES:
                return _redirected(attempt, status, headers.get("Location"), wanted)
            return _End(Outcome.HTTP_ERROR)
        finally:
            response.close()  # a response that was read to its end has given its connection back before

    def _brought_along(self, attempt: _Attempt) -> Mapping[str, str]:
        """The user's headers, for where the attempt began: who redirects elsewhere must not borrow another's."""
        same = authority(attempt.current) == authority(attempt.url)
        return self._headers.of(attempt.current) if same else {}

    async def _body(self, attempt: _Attempt, response: aiohttp.ClientResponse, wanted: _Wanted) -> bytes:
        framing = ", ".join(response.headers.getall("Transfer-Encoding", ())).lower()
        if framing not in ("", "chunked", "identity"):
            raise Failure(Outcome.PROTOCOL_ERROR, f"unsupported Transfer-Encoding: {framing}")
        encoding = ", ".join(response.headers.getall("Content-Encoding", ()))
        body = Body(encoding, wanted.max_bytes, cut=wanted.cut)
        body.announced(response.content_length)
        content = response.content
        try:
            if content.is_eof():  # it came together with the head
                body.feed(content.read_nowait())
            else:
                await _read(content, body)
        except HttpProcessingError as error:
            raise Failure(
                Outcome.PROTOCOL_ERROR, f"broken framing of the body: {parser_reason(error.message)}"
            ) from None
        except aiohttp.ClientError:
            raise Failure(Outcome.TRUNCATED, "the connection ended before the body") from None
        finally:
            attempt.body_bytes = body.received
        whole = body.finish()
        return whole_lines(whole) if body.full else whole

    def _turn(self, deadline: asyncio.Timeout, attempt: _Attempt, take_turn: TakeTurn) -> Awaitable[None] | None:
        turn = take_turn()
        return None if turn is None else self._outside(deadline, attempt, turn)

    @staticmethod
    async def _outside(deadline: asyncio.Timeout, attempt: _Attempt, turn: Awaitable[None]) -> None:
        """Wait for a turn; how long that lasts is not charged to the deadline."""
        when, loop = deadline.when(), asyncio.get_running_loop()
        assert when is not None
        now = loop.time()
        deadline.reschedule(None)
        await turn
        waited = loop.time() - now
        attempt.waited_ns += round(waited * 1e9)
        deadline.reschedule(when + waited)

    def _retry_after(self, value: str | None) -> float | None:
        now = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
        return None if value is None else parse_retry_after(value, now)


def _speaks_of_head(fetched: Fetched) -> bool:
    """Whether the answer may be about the method: anything but success, a busy host, or a network that fails."""
    if fetched.outcome is Outcome.HTTP_ERROR:
        return fetched.status not in (429, 503)
    return fetched.outcome in (Outcome.PROTOCOL_ERROR, Outcome.TRUNCATED)


def _on_the_wire(url: str) -> URL:
    """The URL as the client takes it, so that its request target is ``url`` byte for byte.

    Path and query are given as one: yarl would drop a trailing empty ``?``, and with it send another URL.
    """
    scheme, _, host, rest = url.split("/", 3)
    return URL.build(scheme=scheme[:-1], authority=host, path=f"/{rest}", encoded=True)


def _redirected(attempt: _Attempt, status: int, location: str | None, wanted: _Wanted) -> _End | str:
    """The URL to ask for next, or the end. Every redirect with a Location is recorded as a hop."""
    asked = [*(hop.url for hop in attempt.hops), attempt.current]
    verdict = redirects.judge(location, asked, max_hops=wanted.max_hops, anywhere=wanted.other_authorities)
    match verdict:
        case redirects.Follow(target):
            attempt.hops.append(Hop(attempt.current, status, target))
            attempt.place_given |= "#" in (location or "")
            return target
        case redirects.OutOfScope(target):
            attempt.hops.append(Hop(attempt.current, status, target))
            return _End(Outcome.REDIRECT_OUT_OF_SCOPE)
        case redirects.Invalid(reason, target):
            if target:
                attempt.hops.append(Hop(attempt.current, status, target))
            return _End(Outcome.REDIRECT_INVALID, f"redirect: {reason}")


async def _read(content: aiohttp.StreamReader, body: Body) -> None:
    """Read as much of a body as is needed. Raises ``Failure`` where it comes too slowly."""
    started = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout_at(started + PATIENCE) as patience:
            async for chunk in content.iter_any():
                body.feed(chunk)
                if body.full:
                    return
                if body.on_wire > PATIENCE * SLOWEST:
                    patience.reschedule(started + body.on_wire / SLOWEST)
    except TimeoutError:
        if not patience.expired():
            raise
        raise Failure(Outcome.TOTAL_TIMEOUT, f"the body comes more slowly than {SLOWEST} bytes per second") from None


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Reads an unwanted body where that is cheaper than a new connection; its end gives the connection back."""
    length = response.content_length
    if length is None and response.headers.get("Transfer-Encoding") is None:
        return  # it ends with the connection
    if length is not None and length > _DRAIN_BYTES:
        return
    received = 0
    with suppress(TimeoutError, aiohttp.ClientError, HttpProcessingError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for chunk in response.content.iter_any():
                received += len(chunk)
                if received > _DRAIN_BYTES:
                    return
