"""Relays of raw sockets on loopback: a port that speaks http and https, and a proxy that logs what it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress

from tests.support.misbehaving import Site

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]

_CLIENT_HELLO = b"\x16"


@asynccontextmanager
async def both_schemes(plain: Site, encrypted: Site) -> AsyncIterator[int]:
    """A port whose http is answered by ``plain`` and whose https by ``encrypted``: one authority, two origins."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readexactly(1)
        await relay(reader, writer, encrypted.port if first == _CLIENT_HELLO else plain.port, first)

    async with _listening(talk) as port:
        yield port


class Proxy:
    """An http proxy: absolute-form and CONNECT, every name at ``to`` on loopback. ``heads`` are the requests it got."""

    def __init__(self, refusal: bytes = b"") -> None:
        self.heads: list[str] = []
        self.connections = 0
        self.refusal = refusal
        """Sent to every request instead of what it asks for."""
        self.to: dict[str, int] = {}
        """Ports by ``host:port`` as asked for."""
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head.decode("latin-1"))
        method, target, _ = self.heads[-1].split(" ", 2)
        if self.refusal:
            writer.write(self.refusal)
            await writer.drain()
        elif method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await relay(reader, writer, self.to[target])
        else:
            _, _, host, path = target.split("/", 3)
            sent = head.replace(target.encode("latin-1"), f"/{path}".encode("latin-1"), 1)
            await relay(reader, writer, self.to[host if ":" in host else f"{host}:80"], sent)


@asynccontextmanager
async def proxy(refusal: bytes = b"") -> AsyncIterator[Proxy]:
    made = Proxy(refusal)
    async with _listening(made.talk) as made.port:
        yield made


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, first: bytes = b"") -> None:
    """Join a connection to a port of loopback, which gets ``first`` first, until either side ends."""
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
    far_writer.write(first)
    ways = [asyncio.create_task(_pipe(reader, far_writer)), asyncio.create_task(_pipe(far_reader, writer))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        far_writer.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()


@asynccontextmanager
async def _listening(talk: Talk) -> AsyncIterator[int]:
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await talk(reader, writer)
        writer.close()
        tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        left = list(tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
