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
        """Ports by ``host:port`` as asked for; a CONNECT to what is not there is hung up on."""
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
        elif method == "CONNECT" and target not in self.to:
            return
        elif method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await relay(reader, writer, self.to[target])
        else:
            await self._forward(reader, writer, head)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        """Requests for one host, and what comes back."""
        host = head.split(b"/", 3)[2].decode()
        async with _joined(writer, self.to[host if ":" in host else f"{host}:80"]) as (far_writer, _):
            while True:
                far_writer.write(head.replace(f"http://{host}".encode(), b"", 1))
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head.decode("latin-1"))


@asynccontextmanager
async def proxy(refusal: bytes = b"") -> AsyncIterator[Proxy]:
    made = Proxy(refusal)
    async with _listening(made.talk) as made.port:
        yield made


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, first: bytes = b"") -> None:
    """Join a connection to a port of loopback, which gets ``first`` first, until either side ends."""
    async with _joined(writer, port) as (far_writer, back):
        far_writer.write(first)
        there = asyncio.create_task(_pipe(reader, far_writer))
        await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
        there.cancel()
        await asyncio.gather(there, return_exceptions=True)


@asynccontextmanager
async def _joined(
    writer: asyncio.StreamWriter, port: int
) -> AsyncIterator[tuple[asyncio.StreamWriter, asyncio.Task[None]]]:
    """A connection to a port of loopback, and the task that hands on what comes back from it."""
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
    back = asyncio.create_task(_pipe(far_reader, writer))
    try:
        yield far_writer, back
    finally:
        back.cancel()
        await asyncio.gather(back, return_exceptions=True)
        await _close(far_writer)


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


@asynccontextmanager
async def _listening(talk: Talk) -> AsyncIterator[int]:
    opened: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened[writer] = asyncio.current_task()
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await talk(reader, writer)
        await _close(writer)
        del opened[writer]

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        tasks = [task for task in opened.values() if task is not None]
        for writer in opened:
            writer.transport.abort()
        await asyncio.gather(*tasks)
