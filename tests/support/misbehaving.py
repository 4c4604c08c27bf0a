"""Servers of raw sockets on loopback, which can do what no HTTP library would, and log what they were asked."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

HTML_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]
Answer = bytes | Script


class Site:
    """Answers each request with what ``answers`` has for its target, byte for byte, on kept connections."""

    def __init__(self, answers: dict[str, Answer]) -> None:
        self.answers = answers
        self.heads: list[str] = []
        self.connections = 0
        self.sent = 0
        """Bytes that were handed to the operating system, or wait for it."""
        self.port = 0
        self.open: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    def url(self, target: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{target}"

    @property
    def targets(self) -> list[str]:
        return [head.split(" ", 2)[1] for head in self.heads]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._count(writer)
        self.open[writer] = asyncio.current_task()
        with suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            await self.talk(reader, writer)
        writer.transport.abort() if writer.is_closing() else writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()
        del self.open[writer]

    def _count(self, writer: asyncio.StreamWriter) -> None:
        write = writer.write

        def counted(data: bytes) -> None:
            self.sent += len(data)
            write(data)

        writer.write = counted  # type: ignore[method-assign, assignment]

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.heads.append(head)
            answer = self.answers[head.split(" ", 2)[1]]
            if callable(answer):
                await answer(reader, writer)
            else:
                writer.write(answer)
                await writer.drain()


class Raw(Site):
    """Does with a connection what ``script`` does."""

    def __init__(self, script: Script) -> None:
        super().__init__({})
        self._script = script

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._script(reader, writer)


@asynccontextmanager
async def site(answers: dict[str, Answer] | Script | None = None, **options: Any) -> AsyncIterator[Site]:
    here = Raw(answers) if callable(answers) else Site(answers or {})
    server = await asyncio.start_server(here.serve, "127.0.0.1", 0, **options)
    here.port = server.sockets[0].getsockname()[1]
    try:
        yield here
    finally:
        server.close()
        tasks = [task for task in here.open.values() if task is not None]
        for writer in here.open:
            writer.transport.abort()
        await asyncio.gather(*tasks)


def page(body: bytes = b"<p>", *fields: str, status: str = "200 OK", length: int | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}", *fields]
    if not any(line.lower().startswith("content-type") for line in fields):
        lines.append("Content-Type: text/html; charset=utf-8")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def to(location: str, status: int = 302) -> bytes:
    return page(b"moved", f"Location: {location}", status=f"{status} Moved")


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


def then(*steps: bytes | str) -> Script:
    """Sends bytes, then ``close``, ``reset`` or ``hang``."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for step in steps:
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            elif step == "hang":
                await reader.read()
            elif step == "reset":
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()
            else:
                writer.close()

    return answer


def endless(start: bytes, more: bytes) -> Script:
    """Sends ``start``, then ``more`` for as long as somebody takes it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while not writer.is_closing():
            writer.write(more)
            await writer.drain()
            await asyncio.sleep(0)  # a transport that has room lets nobody else run

    return answer


def dripping(start: bytes, seconds: float = 0.01) -> Script:
    """Sends ``start``, then a byte now and then."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while not writer.is_closing():
            writer.write(b"x")
            await asyncio.sleep(seconds)

    return answer


class Names:
    """A resolver for the client: ``answers`` holds, by host, what is said the first time, the second time and so on."""

    def __init__(self, answers: Mapping[str, Sequence[Sequence[str]]]) -> None:
        self._answers = {host: list(said) for host, said in answers.items()}

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[dict[str, Any]]:
        said = self._answers.get(host)
        if said is None:
            raise OSError(f"{host}: no such name")
        addresses = said.pop(0) if len(said) > 1 else said[0]
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "family": socket.AF_INET6 if ":" in address else socket.AF_INET,
                "proto": socket.IPPROTO_TCP,
                "flags": socket.AI_NUMERICHOST,
            }
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing is held."""


class Authority:
    """Certificates made by openssl in ``folder``, by an authority of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._openssl("req", "-x509", *_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test", "-days", "9")

    def trusting(self) -> ssl.SSLContext:
        """A client's context that trusts this authority and nobody else."""
        return ssl.create_default_context(cafile=self._folder / "ca.pem")

    def server(self, name: str = "IP:127.0.0.1", *, days: int = 9, signed: bool = True) -> ssl.SSLContext:
        """A server's context with a new certificate. One of -1 days has expired."""
        self._openssl("req", "-new", *_KEY, "-keyout", "s.key", "-out", "s.csr", "-subj", "/CN=server")
        (self._folder / "s.ext").write_text(f"subjectAltName={name}")
        by = ("-CA", "ca.pem", "-CAkey", "ca.key") if signed else ("-signkey", "s.key")
        self._openssl("x509", "-req", "-in", "s.csr", "-out", "s.pem", "-extfile", "s.ext", "-days", str(days), *by)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._folder / "s.pem", self._folder / "s.key")
        return context

    def client(self, folder: Path) -> None:
        """A client's certificate and its key, as a Secret of the type kubernetes.io/tls has them."""
        folder.mkdir(parents=True, exist_ok=True)
        certificate, key = str(folder / "tls.crt"), str(folder / "tls.key")
        self._openssl("req", "-new", *_KEY, "-keyout", key, "-out", "c.csr", "-subj", "/CN=client")
        self._openssl("x509", "-req", "-in", "c.csr", "-out", certificate, "-CA", "ca.pem", "-CAkey", "ca.key")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self._folder, check=True, capture_output=True, timeout=60)


_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
