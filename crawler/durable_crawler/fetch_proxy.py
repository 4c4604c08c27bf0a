"""The way through an http proxy: the connection to it, and the tunnel for https (RFC 9110 section 9.3.6).

Used by ``fetch_connector``. Whose failure it is must be told apart: a proxy that cannot be reached, or hangs up instead
of answering a CONNECT, says nothing of any host; a proxy that says no is not a site that does; and a proxy that could
not get through speaks for the host. Where that cannot be told, it is charged to the host, which is left alone for a
while then: a proxy that is silent may be waiting for it, and without a tunnel so may one that hangs up.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from socket import socket
from typing import TYPE_CHECKING

from durable_crawler.fetch_failure import Failure
from durable_crawler.logs import Limited
from durable_crawler.outcomes import Outcome

if TYPE_CHECKING:
    from yarl import URL

_HEAD_MAX = 16_384
_HEAD_END = re.compile(rb"\n\r?\n")
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[ \r\n]")
_NOT_THROUGH = frozenset({502, 503, 504})
"""What proxies answer where the host could not be reached, or its name not be resolved."""

_warnings = Limited(logging.getLogger(__name__), interval=60.0)


async def connected(connect: Callable[[str, int], Awaitable[socket]], proxy: URL) -> socket:
    """A connection to the proxy by ``connect``. Raises ``Failure`` that names the proxy, and logs it: it is ours."""
    try:
        return await connect(proxy.raw_host or "", proxy.port or 80)
    except Failure as failure:
        detail = f"{_name(proxy)}: {failure.detail}"
        if failure.outcome is not Outcome.ADDRESS_REFUSED:
            raise _away(detail) from None
        _warnings.warning("proxy", "%s", detail)
        raise Failure(Outcome.PROXY_REFUSED, detail) from None


async def tunnel(sock: socket, proxy: URL, host: str, port: int, within: float) -> None:
    """Make the proxy join ``sock`` to a host, ``within`` seconds; closes it and raises ``Failure`` where it does not.

    Only the host and port are sent: a header is for its origin, and not for the proxy.
    """
    name = _name(proxy)
    try:
        async with asyncio.timeout(within):
            head = await _asked(sock, f"[{host}]:{port}" if ":" in host else f"{host}:{port}", name)
        _judge(head, proxy)
    except TimeoutError:
        sock.close()
        raise Failure(Outcome.CONNECT_TIMEOUT, f"{name} opened no tunnel within {within:g} s") from None
    except BaseException:  # cancellation too: the socket is still ours
        sock.close()
        raise


def _away(detail: str) -> Failure:
    _warnings.warning("proxy", "%s; the crawl waits for it", detail)
    return Failure(Outcome.PROXY_UNREACHABLE, detail)


def refusal(proxy: URL, status: int) -> Failure:
    """What a proxy's own status means."""
    detail = f"{_name(proxy)} does not let the crawl through (status {status})"
    _warnings.warning(f"proxy {status}", "%s", detail)
    return Failure(Outcome.PROXY_REFUSED, detail)


async def _asked(sock: socket, authority: str, name: str) -> bytes:
    """The head of the answer to a CONNECT, with what came behind it."""
    loop = asyncio.get_running_loop()
    head = b""
    try:
        await loop.sock_sendall(sock, f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
        while _HEAD_END.search(head) is None:
            data = await loop.sock_recv(sock, 4096)
            if not data:
                raise ConnectionError("it closed the connection")
            head += data
            if len(head) > _HEAD_MAX:
                raise Failure(Outcome.PROTOCOL_ERROR, f"{name} does not answer as a proxy")
    except OSError as error:
        detail = f"{name} opened no tunnel: {error}"
        raise Failure(Outcome.CONNECT_ERROR, detail) if b"\n" in head else _away(detail) from None
    return head


def _judge(head: bytes, proxy: URL) -> None:
    line = _STATUS_LINE.match(head)
    if line is None:
        raise Failure(Outcome.PROTOCOL_ERROR, f"{_name(proxy)} does not answer as a proxy")
    status = int(line[1])
    if status in _NOT_THROUGH:
        raise Failure(Outcome.CONNECT_ERROR, f"{_name(proxy)} could not connect to the host (status {status})")
    if not 200 <= status < 300:
        raise refusal(proxy, status)
    end = _HEAD_END.search(head)
    if end is None or end.end() < len(head):
        raise Failure(Outcome.PROTOCOL_ERROR, f"{_name(proxy)} speaks before the host is asked")


def _name(proxy: URL) -> str:
    return f"the proxy {proxy}"
