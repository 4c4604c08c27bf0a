"""Connections and heads with a deadline for each step, which the HTTP client does not have (L10).

Used by ``fetch`` only. aiohttp times neither DNS, nor TLS by itself, nor the wait for a response's head. What goes
wrong here leaves as ``Failure``, an exception that the client passes on untouched: for some errors of its own it sends
the request again, unseen by those who count.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import aiohappyeyeballs
import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError, PayloadEncodingError

from durable_crawler import fetch_proxy as proxied
from durable_crawler.addresses import Network, refusal
from durable_crawler.fetch_failure import Failure
from durable_crawler.outcomes import Outcome
from durable_crawler.resolver import Resolver

if TYPE_CHECKING:
    from aiohappyeyeballs import AddrInfoType
    from aiohttp.abc import ResolveResult
    from aiohttp.client import ClientTimeout
    from aiohttp.client_reqrep import ClientRequest, ConnectionKey
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace


def at_once() -> None:
    """A turn that is always there."""


BEFORE_SENDING: ContextVar[Callable[[], Awaitable[None] | None]] = ContextVar("before sending", default=at_once)
"""Called by the connector before each request of the context, and awaited if there is something to wait for. The client
has no place to hand it through."""

IDLE_MAX = 256
"""Idle connections that are kept, of all hosts together: each takes a descriptor, of which a process may have no more
than 1024, and some 20 KB."""

_END_OF_HEAD = re.compile(rb"\n\r?\n")


class Protocol(ResponseHandler):
    """One connection's protocol: no body ends silently, no response is another's, none is longer than ``limit`` bytes.

    ``limit`` is of all that is sent for one request, framing included.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        super().__init__(loop)
        self.heads = 0
        """How many were read."""
        self.peer: tuple[str, int] | None = None
        """Address and port of the other end."""
        self._limit = limit
        self._received = 0
        self._before = b""
        self._in_head = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        name = transport.get_extra_info("peername")
        self.peer = None if name is None else (name[0], name[1])

    def set_response_params(self, **parameters: Any) -> None:
        # A request is about to be sent.
        self._received = 0
        self._before = b""
        self._in_head = True
        super().set_response_params(**parameters)

    def is_connected(self) -> bool:
        # Asked of an idle connection before it is used again. What came on it was sent by itself, and would be taken
        # for the response to the next request.
        return super().is_connected() and not self.should_close

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self._received > self._limit:
            if self.transport is not None:
                self.transport.close()
            self.set_exception(PayloadEncodingError(f"more than {self._limit} bytes with its framing"))
            return
        # Where a body goes wrong, the parser drops a head that it was given together with it: so it is given by itself.
        end = self._head_ends(data) if self._in_head else 0
        if 0 < end < len(data):
            super().data_received(data[:end])
            data = data[end:]
        super().data_received(data)

    def _head_ends(self, data: bytes) -> int:
        """Where in ``data`` the head ends that is being received; 0 where it does not."""
        seen = self._before + data
        match = _END_OF_HEAD.search(seen)
        if match is None:
            self._before = seen[-2:]
            return 0
        self._in_head = False
        return match.end() - len(self._before)

    def connection_lost(self, exc: BaseException | None) -> None:
        # A body without a length ends with the connection, but not when the connection was reset.
        payload = self._payload
        if exc is not None and payload is not None and not payload.is_eof() and payload.exception() is None:
            payload.set_exception(aiohttp.ClientPayloadError(f"connection lost: {exc}"))
        super().connection_lost(exc)

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        # Bytes that break a body's framing are reported to the next reader of a head; ours waits for the body.
        payload = self._payload
        if isinstance(exc, HttpProcessingError) and payload is not None and not payload.is_eof():
            payload.set_exception(exc)
        super().set_exception(exc, *cause)


class Guard:
    """Makes the sockets of one connection, for addresses that may be connected to only (L11).

    It is asked for each address that is about to be dialled: there is nothing between it and ``connect`` that another
    answer of a name server, a literal or a redirect could get past.
    """

    def __init__(self, allowed: Sequence[Network]) -> None:
        self._allowed = allowed
        self._opened = False
        self._reasons: list[str] = []

    def __call__(self, info: AddrInfoType) -> socket.socket:
        """A socket for an address. Raises ``OSError`` for one that is refused; another of the host may be allowed."""
        family, kind, protocol, _, address = info
        try:
            reason = refusal(ip_address(address[0]), self._allowed)
        except ValueError:
            reason = f"{address[0]!r} is no address"
        if reason is not None:
            self._reasons.append(reason)
            raise PermissionError(reason)
        self._opened = True
        return socket.socket(family, kind, protocol)

    @property
    def refused(self) -> str:
        """Why none of the host's addresses was dialled; empty where one was."""
        return "" if self._opened else "; ".join(self._reasons)


class Connector(aiohttp.TCPConnector):
    """Connects within two deadlines: one for DNS and TCP, one for the TLS handshake; both in seconds.

    ``allowed`` are ranges that may be connected to although they are not global unicast. ``response_limit`` is of the
    bytes of one response, framing included.
    """

    def __init__(
        self,
        *,
        connect_timeout: float,
        tls_timeout: float,
        response_limit: int,
        allowed: Sequence[Network] = (),
        **options: Any,
    ) -> None:
        super().__init__(resolver=Resolver(), **options)
        self._response_limit = response_limit
        self._connect_timeout = connect_timeout
        self._tls_timeout = tls_timeout
        self._allowed = allowed
        self._idle: OrderedDict[ResponseHandler, ConnectionKey] = OrderedDict()  # the longest idle first

    def _release(self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        """Take a connection back. aiohttp limits those in use, and keeps idle ones of however many hosts."""
        super()._release(key, protocol, should_close=should_close)
        if not protocol.is_connected():
            return
        self._idle[protocol] = key
        self._idle.move_to_end(protocol)
        while len(self._idle) > IDLE_MAX:
            oldest, its_key = self._idle.popitem(last=False)
            waiting = self._conns.get(its_key)  # the one that was given back first is the first of its host's
            if not waiting or waiting[0][0] is not oldest:
                continue  # in use again, or closed meanwhile
            waiting.popleft()
            if not waiting:
                del self._conns[its_key]
            oldest.close()

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:
        """A connection whose request may be sent: however long it took to come about, the turn is taken now."""
        connection = await super().connect(req, traces, timeout)
        try:
            turn = BEFORE_SENDING.get()()
            if turn is not None:
                await turn
        except BaseException:  # cancellation too: nobody else would give the connection back
            connection.close()
            raise
        return connection

    async def _create_direct_connection(
        self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout, **_: Any
    ) -> tuple[asyncio.Transport, ResponseHandler]:
        """The step of aiohttp's connector that is replaced. Raises ``Failure`` for all that the network does."""
        host, port = req.url.raw_host or "", req.port or 0
        return await self._spoken(await self._connected(host, port), host, self._get_ssl_context(req))

    async def _create_proxy_connection(
        self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> tuple[asyncio.Transport, ResponseHandler]:
        """The same step where there is a proxy; aiohttp's own has no deadline for the tunnel."""
        host, port = req.url.raw_host or "", req.port or 0
        context = self._get_ssl_context(req)
        assert req.proxy is not None
        self._judge_literal(host)
        sock = await proxied.connected(self._connected, req.proxy)
        if context is not None:
            await proxied.tunnel(sock, req.proxy, host, port, self._connect_timeout)
        return await self._spoken(sock, host, context)

    def _judge_literal(self, host: str) -> None:
        """An address in a URL is judged here; what a name leads to only the proxy can judge."""
        try:
            address = ip_address(host)
        except ValueError:
            return
        reason = refusal(address, self._allowed)
        if reason is not None:
            raise Failure(Outcome.ADDRESS_REFUSED, _openable(reason))

    async def _spoken(
        self, sock: socket.socket, host: str, context: ssl.SSLContext | None
    ) -> tuple[asyncio.Transport, ResponseHandler]:
        """A connection that speaks HTTP, behind TLS where there is a context."""
        loop = asyncio.get_running_loop()
        if context is None:
            return await loop.create_connection(lambda: Protocol(loop, self._response_limit), sock=sock)
        try:
            async with asyncio.timeout(self._tls_timeout):
                return await loop.create_connection(
                    lambda: Protocol(loop, self._response_limit),
                    sock=sock,
                    ssl=context,
                    server_hostname=host.rstrip("."),  # certificates name hosts without the root's dot
                    ssl_handshake_timeout=self._tls_timeout + 1,  # the loop's own, which must not come first
                )
        except TimeoutError:
            raise Failure(Outcome.TLS_TIMEOUT, f"no TLS handshake within {self._tls_timeout:g} s") from None
        except ssl.SSLEOFError as error:
            raise Failure(Outcome.TRUNCATED, f"connection closed in the TLS handshake: {error}") from None
        except (ssl.SSLError, ssl.CertificateError) as error:
            raise Failure(Outcome.TLS_ERROR, str(error)) from None
        except (OSError, RuntimeError) as error:
            raise Failure(Outcome.TRUNCATED, f"connection failed in the TLS handshake: {error}") from None

    async def _connected(self, host: str, port: int) -> socket.socket:
        guard = Guard(self._allowed)
        try:
            async with asyncio.timeout(self._connect_timeout):
                addresses = self._convert_hosts_to_addr_infos(await self._addresses(host, port))
                return await aiohappyeyeballs.start_connection(
                    addresses,
                    happy_eyeballs_delay=self._happy_eyeballs_delay,
                    interleave=self._interleave,
                    socket_factory=guard,
                )
        except TimeoutError:
            raise Failure(Outcome.CONNECT_TIMEOUT, f"no connection within {self._connect_timeout:g} s") from None
        except (OSError, RuntimeError) as error:  # uvloop raises RuntimeError for some refused connections
            if guard.refused:
                raise Failure(Outcome.ADDRESS_REFUSED, _openable(guard.refused)) from None
            raise Failure(Outcome.CONNECT_ERROR, str(error)) from None

    async def _addresses(self, host: str, port: int) -> list[ResolveResult]:
        try:
            return await self._resolve_host(host, port)
        except TimeoutError:
            raise
        except (OSError, ValueError) as error:  # a host that the idna codec or the client refuses is a ValueError
            raise Failure(Outcome.DNS_ERROR, f"{host}: {error}") from None


def _openable(reason: str) -> str:
    return f"{reason}; network.allowCIDRs opens a range"


class _Response(aiohttp.ClientResponse):
    """A response that knows where it came from: a short one has given its connection back before anybody can ask."""

    peer: tuple[str, int] | None = None


def peer_of(response: aiohttp.ClientResponse) -> tuple[str, int] | None:
    """Address and port that a response came from."""
    return response.peer if isinstance(response, _Response) else None


def response_class(header_timeout: float) -> type[aiohttp.ClientResponse]:
    """A response whose head must arrive within ``header_timeout`` seconds of the request."""

    class Response(_Response):
        async def start(self, connection: Connection) -> aiohttp.ClientResponse:
            protocol = connection.protocol
            assert isinstance(protocol, Protocol)
            stale = protocol.heads > 0
            try:
                async with asyncio.timeout(header_timeout):
                    response = await super().start(connection)
            except TimeoutError:
                raise Failure(Outcome.HEADER_TIMEOUT, f"no response header within {header_timeout:g} s") from None
            except aiohttp.ClientResponseError as error:
                raise Failure(Outcome.PROTOCOL_ERROR, f"not HTTP: {parser_reason(error.message)}") from None
            except (aiohttp.ClientConnectionError, OSError) as error:
                said = error.message if isinstance(error, aiohttp.ServerDisconnectedError) else str(error)
                detail = said if isinstance(said, str) else "connection closed within the response's head"
                raise Failure(Outcome.TRUNCATED, detail, stale=stale) from None
            protocol.heads += 1
            self.peer = protocol.peer
            return response

    return Response


def parser_reason(message: str) -> str:
    """The HTTP parser's reason without the server's own bytes, which it shows behind and below it."""
    return message.strip().partition("\n")[0].partition(": b")[0].rstrip(":")
