"""A site without end to measure large crawls with, served by a process of its own: ``python -m benchmarks.large_site``.

Each host is an address of 127.0.0.0/8 at one port. Page ``n`` of a host is the parent of pages ``10 n + 1`` to
``10 n + 10``, which nothing else links to before; it repeats the host's navigation, and leads to its neighbours and to
pages of before, also on other hosts. So a crawl in the order of discovery knows ten times as many pages as it has read,
wherever it ends. A page is made when it is asked for, from its number alone: nothing is stored, and the same on every
machine.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import cast

import uvloop

CHILDREN = 10
LINKS = 30
_NAVIGATION = 10
_SIZE = 4000
_WORDS = (
    "A claim comes before the network. A lease is renewed for as long as its page is worked on. A result, its links "
    "and its end are one commit. "
)


def address(host: int) -> str:
    """The address of a host, on loopback."""
    return f"127.0.{host // 250 + 1}.{host % 250 + 1}"


def path(number: int) -> str:
    """The path of a page: a folder for each hundred, as documentation has them."""
    return f"/section-{number // 100}/page-{number}.html"


def _number(target: str) -> int | None:
    if target == "/":
        return 0
    _, _, name = target.rpartition("/page-")
    number = name.removesuffix(".html")
    return int(number) if number.isdigit() and path(int(number)) == target else None


def page(host: int, number: int, hosts: int, port: int) -> bytes:
    """The page with this number, of ``LINKS`` links."""
    links = [path(step) for step in range(1, _NAVIGATION + 1)]
    links += [path(CHILDREN * number + step) for step in range(1, CHILDREN + 1)]
    links += [path((number - 1) // CHILDREN) if number else "/", path(number + 1), path(max(number - 1, 0)), "/"]
    for step in range(LINKS - len(links)):
        # By multiplication with primes to somewhere before: far away, and always the same.
        there = number * (7919 + 104_729 * step) % max(number, 1)
        where = host if step < 3 else (host * 31 + number * 17 + step) % hosts
        links.append(path(there) if where == host else f"http://{address(where)}:{port}{path(there)}")
    items = "".join(f'<li><a href="{link}">{link.rpartition("/")[2] or "top"}</a></li>\n' for link in links)
    text = _WORDS * ((_SIZE - len(items)) // len(_WORDS))
    return (
        f"<!doctype html><html><head><meta charset=utf-8><title>Page {number} of {host}</title></head>\n"
        f"<body><ul>\n{items}</ul><p>{text}</p></body></html>\n"
    ).encode()


class Server(asyncio.Protocol):
    """HTTP/1.1 as far as a crawler needs it: GET, keep-alive."""

    def __init__(self, host: int, hosts: int, port: int) -> None:
        self._host = host
        self._hosts = hosts
        self._port = port
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one by its methods only

    def data_received(self, data: bytes) -> None:
        *requests, self._received = (self._received + data).split(b"\r\n\r\n")
        for request in requests:
            target = request.split(b" ", 2)[1].decode("ascii", "replace")
            assert self._transport is not None
            self._transport.write(self._response(target))

    def _response(self, target: str) -> bytes:
        number = _number(target)
        if number is not None:
            status, kind, body = "200 OK", "text/html", page(self._host, number, self._hosts, self._port)
        elif target == "/robots.txt":
            status, kind, body = "200 OK", "text/plain", b"User-agent: *\nDisallow: /private/\n"
        else:
            status, kind, body = "404 Not Found", "text/plain", b"no such page\n"
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body


async def _serve(hosts: int, port: int) -> None:
    loop = asyncio.get_running_loop()
    for host in range(hosts):
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address(host), port))
        listening.listen(128)
        await loop.create_server(lambda host=host: Server(host, hosts, port), sock=listening)  # type: ignore[misc]
    print("serving", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
