"""What comes of servers that misbehave, by name, over real sockets: outcome, attempts, requests and bytes.

The server's own log is the judge of requests. An attempt that may be repeated is repeated twice, as with
``fetch.retries: 2``, so that a way that must not be asked again shows one request and the others three.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any

import pytest
from tests.support.codings import bomb, brotlied, zstded
from tests.support.misbehaving import (
    HTML_HEAD,
    Answer,
    Authority,
    Site,
    dripping,
    endless,
    hang,
    page,
    site,
    then,
    to,
)

from crawljob.spec import Fetch
from durable_crawler import fetch as fetch_module
from durable_crawler.access import Access
from durable_crawler.clock import SystemClock
from durable_crawler.fetch import Fetcher
from durable_crawler.outcomes import Fetched, Outcome
from durable_crawler.parse import parse

RETRIES = 2
SHORT = "150ms"
LOOPBACK = (ip_network("127.0.0.0/8"),)
LIMIT = 64 * 1024
"""``fetch.maxBodyBytes`` unless a way says otherwise."""
BUFFERS = 16 * 1024 * 1024
"""What two sockets of loopback and a transport may hold besides what the crawler took."""

MIB = 1024 * 1024
CHUNKED = HTML_HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
GZIP = "Content-Encoding: gzip"


def head(*fields: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", "Content-Type: text/html", *fields, "", ""]).encode()


def with_field(line: bytes) -> Answer:
    """A page with one more line in its head."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 3\r\n" + line + b"\r\n\r\n<p>"


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


@dataclass(frozen=True)
class Way:
    """One way to misbehave, and what must come of it."""

    answer: Answer | Mapping[str, Answer]
    outcome: Outcome
    again: bool = False
    """Whether another attempt is worth it."""
    requests: int = 1
    """In each attempt."""
    body: bytes | None = None
    received: int = LIMIT + 65_536
    """Decoded bytes at most."""
    sent: int = 0
    """Bytes at most that the server could get rid of in an attempt; 0 where it sends no more than it has."""
    fields: Mapping[str, Any] = field(default_factory=dict)


OK, TRUNCATED, TOO_LARGE = Outcome.OK, Outcome.TRUNCATED, Outcome.TOO_LARGE
PROTOCOL, NOT_HTML = Outcome.PROTOCOL_ERROR, Outcome.NOT_HTML
HEADER, TOTAL = Outcome.HEADER_TIMEOUT, Outcome.TOTAL_TIMEOUT
INVALID, ELSEWHERE, STATUS = Outcome.REDIRECT_INVALID, Outcome.REDIRECT_OUT_OF_SCOPE, Outcome.HTTP_ERROR
IN_THE_HEAD = {"header_timeout": SHORT}
IN_ALL = {"total_timeout": SHORT}
ROOMY = {"max_body_bytes": 64 * 1024 * 1024}

WAYS: dict[str, Way] = {
    # Before and within the head
    "closes at once": Way(then("close"), TRUNCATED, again=True),
    "resets at once": Way(then("reset"), TRUNCATED, again=True),
    "closes within the status line": Way(then(b"HTTP/1.1 20", "close"), TRUNCATED, again=True),
    "closes within the head": Way(then(b"HTTP/1.1 200 OK\r\nContent-Ty", "close"), TRUNCATED, again=True),
    "resets within the head": Way(then(b"HTTP/1.1 200 OK\r\nContent-Ty", "reset"), TRUNCATED, again=True),
    "says nothing": Way(hang, HEADER, again=True, fields=IN_THE_HEAD),
    "stops within the head": Way(then(b"HTTP/1.1 200 OK\r\nX: y", "hang"), HEADER, again=True, fields=IN_THE_HEAD),
    "drips its head": Way(dripping(b"HTTP/1.1 200 OK\r\nX: "), HEADER, again=True, fields=IN_THE_HEAD),
    "hints for ever": Way(
        endless(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </s>\r\n\r\n" * 50),
        HEADER,
        again=True,
        fields={**IN_THE_HEAD, "max_body_bytes": 256 * 1024 * 1024},
        sent=2_500_000_000,
    ),
    "hints without measure": Way(
        endless(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </s>\r\n\r\n" * 50),
        PROTOCOL,
        sent=2 * 1024 * 1024 + BUFFERS,
        fields={"header_timeout": "60s", "total_timeout": "60s"},
    ),
    "speaks SSH": Way(then(b"SSH-2.0-OpenSSH_9.0\r\n\r\n", "hang"), PROTOCOL),
    "speaks HTTP/2": Way(then(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64", "hang"), PROTOCOL),
    "speaks HTTP/0.9": Way(then(b"<html>hello", "close"), PROTOCOL),
    "speaks HTTP/3.7": Way(then(b"HTTP/3.7 200 OK\r\n\r\n", "hang"), PROTOCOL),
    "switches protocols": Way(
        then(head("Upgrade: x", "Connection: upgrade", status="101 Switching"), "hang"), PROTOCOL
    ),
    "has a status of letters": Way(then(b"HTTP/1.1 abc\r\n\r\n", "hang"), PROTOCOL),
    "has a status of four digits": Way(then(head(status="2000 OK"), "hang"), PROTOCOL),
    "has a status below 100": Way(head("Content-Length: 0", status="099 No"), PROTOCOL),
    "has a status line without end": Way(endless(b"HTTP/1.1 200 ", b"a" * 65_536), PROTOCOL, sent=BUFFERS),
    "has a line of 64 KiB": Way(with_field(b"X: " + b"a" * 65_536), PROTOCOL),
    "has a line without end": Way(endless(b"HTTP/1.1 200 OK\r\nX: ", b"a" * 65_536), PROTOCOL, sent=BUFFERS),
    "has a name without end": Way(endless(b"HTTP/1.1 200 OK\r\n", b"a" * 65_536), PROTOCOL, sent=BUFFERS),
    "has 10,000 lines": Way(with_field(b"\r\n".join([b"X: y"] * 10_000)), PROTOCOL),
    "has a head without end": Way(endless(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 1000), PROTOCOL, sent=BUFFERS),
    "has a line without colon": Way(with_field(b"nocolon"), PROTOCOL),
    "has a name with a space": Way(with_field(b"X : y"), PROTOCOL),
    "has a NUL in a value": Way(with_field(b"X: a\0b"), PROTOCOL),
    "has a CR in a value": Way(with_field(b"X: a\rb"), PROTOCOL),
    "has a control byte in a cookie": Way(with_field(b"Set-Cookie: a=b\x01"), OK, body=b"<p>"),
    "folds a line": Way(with_field(b"X: a\r\n b"), OK, body=b"<p>"),
    "begins with an empty line": Way(b"\r\n" + page(b"<p>"), OK, body=b"<p>"),
    "ends lines with LF only": Way(page(b"<p>").replace(b"\r\n", b"\n"), OK, body=b"<p>"),
    "has no reason phrase": Way(
        b"HTTP/1.1 200\r\nContent-Type: text/html\r\nContent-Length: 1\r\n\r\nx", OK, body=b"x"
    ),
    "continues unasked": Way(b"HTTP/1.1 100 Continue\r\n\r\n" + page(b"x"), OK, body=b"x"),
    # The framing of the body
    "closes within a body": Way(then(page(b"half", length=8), "close"), TRUNCATED, again=True),
    "resets within a body": Way(then(page(b"half", length=8), "reset"), TRUNCATED, again=True),
    "resets a body without length": Way(then(head() + b"half", "reset"), TRUNCATED, again=True),
    "closes within a chunk": Way(then(CHUNKED + b"8\r\nhalf", "close"), TRUNCATED, again=True),
    "closes before the last chunk": Way(then(CHUNKED + b"4\r\nhalf\r\n", "close"), TRUNCATED, again=True),
    "stops within a body": Way(then(page(b"half", length=8), "hang"), TOTAL, again=True, fields=IN_ALL),
    "never ends a body without length": Way(then(head() + b"all", "hang"), TOTAL, again=True, fields=IN_ALL),
    "drips a body": Way(dripping(page(b"", length=10_000)), TOTAL, again=True, fields=IN_ALL),
    "drips a body for an hour": Way(dripping(head()), TOTAL, again=True, fields={"total_timeout": "1h"}),
    "announces 5 TB": Way(then(page(b"", length=5 * 10**12), "hang"), TOO_LARGE, received=0),
    "announces 10^30 bytes": Way(then(page(b"", length=10**30), "hang"), PROTOCOL, received=0),
    "sends for ever": Way(endless(head(), b"a" * 65_536), TOO_LARGE, sent=LIMIT + BUFFERS, received=2 * LIMIT + 65_536),
    "sends chunks for ever": Way(
        endless(CHUNKED, b"1000\r\n" + b"a" * 4096 + b"\r\n"), TOO_LARGE, sent=LIMIT + BUFFERS, received=4 * LIMIT
    ),
    "has an extension without end": Way(endless(CHUNKED + b"3;a=", b"x" * 65_536), PROTOCOL, sent=9 * LIMIT + BUFFERS),
    "has a trailer without end": Way(endless(CHUNKED + b"0\r\n", b"X: y\r\n" * 99), PROTOCOL, sent=LIMIT + BUFFERS),
    "has a chunk size of letters": Way(then(CHUNKED + b"zz\r\nhalf\r\n", "hang"), PROTOCOL),
    "has a negative chunk size": Way(then(CHUNKED + b"-1\r\nx\r\n", "hang"), PROTOCOL),
    "has a chunk size of 68 bits": Way(then(CHUNKED + b"F" * 17 + b"\r\nx\r\n", "hang"), PROTOCOL),
    "has more in a chunk than it says": Way(then(CHUNKED + b"3\r\nabcdef\r\n0\r\n\r\n", "hang"), PROTOCOL),
    "has two lengths": Way(then(head("Content-Length: 3", "Content-Length: 4") + b"abcd", "hang"), PROTOCOL),
    "has a negative length": Way(then(head("Content-Length: -3") + b"abc", "hang"), PROTOCOL),
    "has a length of letters": Way(then(head("Content-Length: abc") + b"abc", "hang"), PROTOCOL),
    "has a length and chunks": Way(
        then(head("Content-Length: 3", "Transfer-Encoding: chunked") + b"3\r\nabc\r\n0\r\n\r\n", "hang"), PROTOCOL
    ),
    "codes the transfer": Way(head("Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n", PROTOCOL),
    "sends more than it said": Way(then(page(b"abcdef", length=3), "hang"), OK, body=b"abc"),
    "sends a second response": Way(then(page(b"abc") + page(b"def"), "hang"), OK, body=b"abc"),
    "sends a body with a 204": Way(then(page(b"abc", status="204 No Content"), "hang"), OK, body=b""),
    "ends an HTTP/1.0 body by closing": Way(
        then(b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\nab", b"c", "close"), OK, body=b"abc"
    ),
    "sends each byte as a chunk": Way(CHUNKED + b"1\r\na\r\n" * 5000 + b"0\r\n\r\n", OK, body=b"a" * 5000),
    # Types and codings
    "has no type": Way(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n<p>", NOT_HTML, received=0),
    "calls HTML an image": Way(page(b"<p>", "Content-Type: image/png"), NOT_HTML, received=0),
    "calls an image HTML": Way(page(b"\x89PNG\r\n\x1a\n" + bytes(99)), OK, body=b"\x89PNG\r\n\x1a\n" + bytes(99)),
    "sends a large download": Way(
        endless(b"HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\n\r\n", b"a" * 65_536),
        NOT_HTML,
        received=0,
        sent=BUFFERS,
    ),
    "sends a gzip bomb": Way(page(gzip.compress(bytes(50_000_000)), GZIP), TOO_LARGE),
    "sends a deflate bomb": Way(page(raw_deflate(bytes(50_000_000)), "Content-Encoding: deflate"), TOO_LARGE),
    "sends a br bomb": Way(page(bomb("br", 512 * MIB), "Content-Encoding: br"), TOO_LARGE),
    "sends a zstd bomb": Way(page(bomb("zstd", 512 * MIB), "Content-Encoding: zstd"), TOO_LARGE),
    "sends a bomb below the limit": Way(
        page(gzip.compress(bytes(50_000_000)), GZIP), TOO_LARGE, received=16 * 1024 * 1024, fields=ROOMY
    ),
    "sends gzip in gzip": Way(page(gzip.compress(gzip.compress(b"<p>")), f"{GZIP}, gzip"), PROTOCOL),
    "sends zstd in br": Way(page(brotlied(zstded(b"<p>")), "Content-Encoding: zstd, br"), PROTOCOL),
    "sends compress unasked": Way(page(b"\x1f\x9d\x90", "Content-Encoding: compress"), PROTOCOL),
    "needs a large window for zstd": Way(page(zstded(b"<p>" * 999, 24), "Content-Encoding: zstd"), PROTOCOL),
    "sends garbage behind br": Way(page(brotlied(b"<p>") + b"garbage", "Content-Encoding: br"), PROTOCOL),
    "cuts br short": Way(page(brotlied(b"hello" * 99)[:-2], "Content-Encoding: br"), TRUNCATED, again=True),
    "cuts zstd short": Way(page(zstded(b"hello" * 99)[:-2], "Content-Encoding: zstd"), TRUNCATED, again=True),
    "calls plain text gzip": Way(page(b"<p>plain", GZIP), PROTOCOL),
    "cuts gzip short": Way(page(gzip.compress(b"hello" * 99)[:-9], GZIP), TRUNCATED, again=True),
    "sends gzip of a hundred members": Way(page(gzip.compress(b"") * 100, GZIP), PROTOCOL),
    "sends garbage behind gzip": Way(page(gzip.compress(b"<p>") + b"garbage", GZIP), OK, body=b"<p>"),
    "has a coding that is none": Way(page(b"<p>", "Content-Encoding: utf-8"), OK, body=b"<p>"),
    # Redirects
    "redirects to itself": Way(to("/"), INVALID),
    "redirects in a circle": Way({"/": to("/b"), "/b": to("/c"), "/c": to("/b")}, INVALID, requests=3),
    "redirects without end": Way(
        {"/": to("/0"), **{f"/{n}": to(f"/{n + 1}") for n in range(20)}}, INVALID, requests=11
    ),
    "redirects to nowhere": Way(page(b"", status="302 Found"), INVALID),
    "redirects to a file": Way(to("file:///etc/passwd"), INVALID),
    "redirects to credentials": Way(to("http://me:secret@127.0.0.1/"), INVALID),
    "redirects to ever longer paths": Way(
        {"/" + "a/" * n: to("/" + "a/" * (n + 1)) for n in range(9)}, INVALID, requests=3
    ),
    "redirects to a metadata service": Way(to("http://169.254.169.254/latest/"), ELSEWHERE),
    "redirects with a body without end": Way(
        {"/": endless(head("Location: /b", status="302 Found"), b"a" * 65_536), "/b": page(b"x")},
        OK,
        requests=2,
        body=b"x",
        sent=LIMIT + BUFFERS,
    ),
    # Statuses
    "is busy": Way(page(b"", "Retry-After: 18446744073709551616", status="429 Too Many"), STATUS, again=True),
    "is down and says nonsense": Way(page(b"", "Retry-After: -5", status="503 Down"), STATUS, again=True),
    "errs with a body without end": Way(
        endless(head(status="500 Oops"), b"a" * 65_536), STATUS, again=True, sent=LIMIT + BUFFERS
    ),
    "has a status of its own": Way(page(b"", status="999 Denied"), STATUS),
}


async def attempts(client: Fetcher, url: str) -> list[Fetched]:
    """What the attempts lead to that a crawl would make."""
    made = [await client.fetch(url)]
    while made[-1].retryable and len(made) <= RETRIES:
        made.append(await client.fetch(url))
    return made


def judge(way: Way, made: list[Fetched], here: Site) -> None:
    assert [fetched.outcome for fetched in made] == [way.outcome] * (1 + RETRIES * way.again), made[-1].error
    assert len(here.heads) == way.requests * len(made)
    for fetched in made:
        assert fetched.body == way.body
        assert fetched.body_bytes <= way.received
        assert way.outcome in (OK, NOT_HTML, STATUS, ELSEWHERE) or fetched.error
        assert fetched.error.isprintable()
        assert "secret" not in repr(fetched)
    if way.sent:
        assert here.sent <= way.sent * len(made)
    assert all(text.startswith("GET /") for text in here.heads)


def test_there_are_more_than_sixty() -> None:
    assert len(WAYS) + len(TLS_WAYS) >= 60


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
async def test_a_server_that(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_module, "PATIENCE", 0.15)
    answers = dict(way.answer) if isinstance(way.answer, Mapping) else {"/": way.answer}
    fields = {"max_body_bytes": LIMIT, **way.fields}
    async with site(answers) as here, Fetcher(Fetch(**fields), SystemClock(), allowed=LOOPBACK) as client:
        made = await attempts(client, here.url())
        judge(way, made, here)
        if made[-1].body is not None:
            parse(made[-1].body, made[-1].content_type, here.url(), 10)
        # Whatever it was, the next page is its own.
        here.answers["/next"] = page(b"next")
        assert (await client.fetch(here.url("/next"))).body == b"next"


# TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


TLS_WAYS: dict[str, tuple[dict[str, Any], str]] = {
    "has a certificate that expired": ({"days": -1}, "expired"),
    "has a certificate of another name": ({"name": "DNS:other.example"}, "not valid for"),
    "has a certificate of another address": ({"name": "IP:127.0.0.2"}, "not valid for"),
    "signed its certificate itself": ({"signed": False}, "self-signed"),
}


@pytest.mark.parametrize(("options", "says"), TLS_WAYS.values(), ids=TLS_WAYS.keys())
async def test_a_tls_server_that(authority: Authority, options: dict[str, Any], says: str) -> None:
    async with (
        site({"/": page(b"x")}, ssl=authority.server(**options)) as here,
        Fetcher(Fetch(), SystemClock(), allowed=LOOPBACK, access=Access(tls=authority.trusting())) as client,
    ):
        (fetched,) = await attempts(client, f"https://127.0.0.1:{here.port}/")
        assert (fetched.outcome, fetched.status) == (Outcome.TLS_ERROR, None)
        assert says in fetched.error
        assert here.heads == [], "nothing was sent to it"


async def test_a_tls_server_of_an_unknown_authority(authority: Authority) -> None:
    async with (
        site({"/": page(b"x")}, ssl=authority.server()) as here,
        Fetcher(Fetch(), SystemClock(), allowed=LOOPBACK) as client,
    ):
        (fetched,) = await attempts(client, f"https://127.0.0.1:{here.port}/")
        assert fetched.outcome is Outcome.TLS_ERROR
        assert here.heads == []


async def test_a_tls_server_that_behaves(authority: Authority) -> None:
    async with (
        site({"/": page(b"x")}, ssl=authority.server()) as here,
        Fetcher(Fetch(), SystemClock(), allowed=LOOPBACK, access=Access(tls=authority.trusting())) as client,
    ):
        assert (await client.fetch(f"https://127.0.0.1:{here.port}/")).body == b"x"


@pytest.mark.parametrize(
    ("steps", "outcome"),
    [
        (("close",), Outcome.TRUNCATED),
        (("reset",), Outcome.TRUNCATED),
        ((b"\x16\x03\x03", "hang"), Outcome.TLS_TIMEOUT),
        (("hang",), Outcome.TLS_TIMEOUT),
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n", "hang"), Outcome.TLS_ERROR),
        ((b"\x15\x03\x03\x00\x02\x02\x28", "close"), Outcome.TLS_ERROR),  # a fatal alert: handshake failure
    ],
    ids=["closes", "resets", "stops", "says nothing", "speaks HTTP", "refuses"],
)
async def test_a_server_whose_handshake(steps: tuple[bytes | str, ...], outcome: Outcome) -> None:
    async def shake(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        await then(*steps)(reader, writer)

    timeouts: dict[str, Any] = {"tls_timeout": SHORT} if outcome is Outcome.TLS_TIMEOUT else {}
    async with site(shake) as here, Fetcher(Fetch(**timeouts), SystemClock(), allowed=LOOPBACK) as client:
        made = await attempts(client, f"https://127.0.0.1:{here.port}/")
        again = outcome is not Outcome.TLS_ERROR
        assert [fetched.outcome for fetched in made] == [outcome] * (1 + RETRIES * again), made[-1].error
        assert here.connections == len(made)


# Connections


async def test_a_server_that_accepts_nothing() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        port = deaf.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]  # they fill its queue
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        async with Fetcher(Fetch(connect_timeout=SHORT), SystemClock(), allowed=LOOPBACK) as client:
            made = await attempts(client, f"http://127.0.0.1:{port}/")
        for one in waiting:
            one.close()
    assert [fetched.outcome for fetched in made] == [Outcome.CONNECT_TIMEOUT] * 3


async def test_a_server_that_answers_before_it_is_asked() -> None:
    """A response that nobody asked for is not the next page's."""
    unasked = asyncio.Event()
    sent = asyncio.Event()

    async def later(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(page(b"first"))
        await unasked.wait()
        writer.write(page(b"stray"))
        await writer.drain()
        sent.set()

    async with (
        site({"/": later, "/next": page(b"next")}) as here,
        Fetcher(Fetch(), SystemClock(), allowed=LOOPBACK) as client,
    ):
        assert (await client.fetch(here.url())).body == b"first"
        unasked.set()
        await sent.wait()
        connector: Any = client._session.connector
        ((protocol, _),) = next(iter(connector._conns.values()))
        while not protocol.should_close:
            await asyncio.sleep(0)
        assert (await client.fetch(here.url("/next"))).body == b"next"
        assert here.connections == 2


async def test_a_body_that_is_slow_but_not_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes at the pace of a bad line is waited for until the total deadline."""
    monkeypatch.setattr(fetch_module, "PATIENCE", 0.05)

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(page(b"", length=10_000))
        for _ in range(10):
            writer.write(b"x" * 1000)
            await writer.drain()
            await asyncio.sleep(0.02)

    async with site({"/": slow}) as here, Fetcher(Fetch(), SystemClock(), allowed=LOOPBACK) as client:
        assert (await client.fetch(here.url())).body_bytes == 10_000
