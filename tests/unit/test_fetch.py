"""The fetcher against servers of raw sockets, which can do what no HTTP library would."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from ipaddress import ip_network
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
import uvloop
from tests.support.codings import brotlied, zstded
from tests.support.misbehaving import HTML_HEAD, Answer, Names, hang, page, site, then, to

from crawljob.spec import Fetch
from durable_crawler import fetch_connector
from durable_crawler.access import Access
from durable_crawler.clock import SystemClock
from durable_crawler.fetch import ROBOTS_BYTES, Fetcher
from durable_crawler.fetch_failure import Failure
from durable_crawler.outcomes import Hop, Outcome
from durable_crawler.redirects import MAX_HOPS
from durable_crawler.settle import Effect, effect_on_host

LOOPBACK = (ip_network("127.0.0.0/8"),)


@asynccontextmanager
async def fetcher(tls: ssl.SSLContext | None = None, **fields: Any) -> AsyncIterator[Fetcher]:
    async with Fetcher(Fetch(**fields), SystemClock(), allowed=LOOPBACK, access=Access(tls=tls)) as made:
        yield made


async def one(answer: Answer, **fields: Any) -> Any:
    async with site({"/": answer}) as here, fetcher(**fields) as client:
        return await client.fetch(here.url())


# Pages


async def test_a_page() -> None:
    async with site({"/a": page(b"<h1>Hi")}) as here, fetcher(user_agent="test-bot/1") as client:
        fetched = await client.fetch(here.url("/a"))
        assert (fetched.outcome, fetched.status, fetched.body, fetched.body_bytes) == (Outcome.OK, 200, b"<h1>Hi", 6)
        assert fetched.content_type == "text/html; charset=utf-8"
        assert fetched.final_url == fetched.url == here.url("/a")
        assert (fetched.retryable, fetched.host_incident, fetched.error, fetched.hops) == (False, False, "", ())
        (exchange,) = fetched.exchanges
        assert (exchange.url, exchange.status, exchange.error) == (here.url("/a"), 200, "")
        assert exchange.started_ns <= exchange.ended_ns
        assert (exchange.version, exchange.peer) == ("1.1", ("127.0.0.1", here.port))
        assert sorted(line for line in here.heads[0].split("\r\n") if line) == [
            "Accept-Encoding: gzip, deflate, br, zstd",
            "Accept: text/html,application/xhtml+xml",
            "GET /a HTTP/1.1",
            f"Host: 127.0.0.1:{here.port}",
            "User-Agent: test-bot/1",
        ]


async def test_a_request_knows_whom_it_reached_and_how_long_it_waited_for_its_turn() -> None:
    """Also on a connection that is used again, and where the answer comes as HTTP/1.0."""
    old = b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\nold"

    async def wait() -> None:
        await asyncio.sleep(0.05)

    async with site({"/": to("/a"), "/a": then(old)}) as here, fetcher() as client:
        fetched = await client.fetch(here.url(), take_turn=wait)
    assert [exchange.version for exchange in fetched.exchanges] == ["1.1", "1.0"]
    for exchange in fetched.exchanges:
        assert exchange.peer == ("127.0.0.1", here.port)
        assert 50_000_000 <= exchange.waited_ns <= exchange.ended_ns - exchange.started_ns


@pytest.mark.parametrize(
    "target",
    [
        "/?",
        "/a?",
        "/?a=",
        "/%2F%40%7E%41",
        "/%e9?%E9",
        "/?q=%2F+%20&x=%27'",
        "/a//b/",
        "/;p?a?b",
        "/?a=b?",
        "/@:|",
        "/??",
    ],
)
async def test_the_request_target_is_the_url_byte_for_byte(target: str) -> None:
    async with site({target: page()}) as here, fetcher() as client:
        assert (await client.fetch(here.url(target))).outcome is Outcome.OK
        assert here.targets == [target]


async def test_connections_are_kept_and_cookies_are_not() -> None:
    async with site({"/": page(b"", "Set-Cookie: id=1; Path=/")}) as here, fetcher() as client:
        for _ in range(3):
            assert (await client.fetch(here.url())).outcome is Outcome.OK
        assert here.connections == 1
        assert not any("cookie" in head.lower() for head in here.heads)


async def test_idle_connections_of_many_hosts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a descriptor; a crawl of a thousand hosts would run out of them."""
    monkeypatch.setattr(fetch_connector, "IDLE_MAX", 3)
    async with AsyncExitStack() as stack:
        hosts = [await stack.enter_async_context(site({"/": page(b"")})) for _ in range(6)]
        client = await stack.enter_async_context(fetcher())
        for here in [*hosts, *reversed(hosts)]:
            assert (await client.fetch(here.url())).outcome is Outcome.OK
        assert [here.connections for here in hosts] == [2, 2, 2, 1, 1, 1], "the latest three are kept"
        async with asyncio.timeout(5):
            while sum(len(here.open) for here in hosts) > 3:
                await asyncio.sleep(0)


@pytest.mark.parametrize("content_type", ["Content-Type: image/png", "Content-Type:"])
async def test_another_type_is_not_read(content_type: str) -> None:
    answer = page(b"\x89PNG", content_type, length=10_000_000)
    fetched = await one(then(answer, "hang"))
    assert (fetched.outcome, fetched.body, fetched.body_bytes) == (Outcome.NOT_HTML, None, 0)


async def test_a_missing_type_is_not_guessed_at() -> None:
    fetched = await one(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n<p>")
    assert (fetched.outcome, fetched.content_type) == (Outcome.NOT_HTML, "")


async def test_early_hints_are_skipped() -> None:
    fetched = await one(b"HTTP/1.1 103 Early Hints\r\nLink: </s>\r\n\r\n" + page(b"x"))
    assert (fetched.outcome, fetched.status, fetched.body) == (Outcome.OK, 200, b"x")


async def test_a_body_may_end_with_the_connection() -> None:
    fetched = await one(then(b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\nab", b"c", "close"))
    assert (fetched.outcome, fetched.body) == (Outcome.OK, b"abc")


async def test_bytes_behind_a_body_are_nobodys_next_response() -> None:
    async with site({"/": page(b"abcdef", length=3), "/b": page(b"b")}) as here, fetcher() as client:
        # Whether the page itself survives depends on whether they come in the same segment.
        assert (await client.fetch(here.url())).body in (b"abc", None)
        assert (await client.fetch(here.url("/b"))).body == b"b"
        assert here.connections == 2


# Encodings


def deflated(data: bytes, wbits: int) -> bytes:
    stream = zlib.compressobj(wbits=wbits)
    return stream.compress(data) + stream.flush()


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(b"hello")),
        ("X-GZIP", gzip.compress(b"hello")),
        ("gzip", gzip.compress(b"hel") + gzip.compress(b"lo")),
        ("gzip", gzip.compress(b"hello") + b"garbage"),
        ("gzip", gzip.compress(b"hello") + bytes(10)),
        ("deflate", deflated(b"hello", 15)),
        ("deflate", deflated(b"hello", -15)),
        ("br", brotlied(b"hello")),
        ("zstd", zstded(b"hello")),
        ("ZSTD", zstded(b"hel") + zstded(b"lo")),
        ("identity", b"hello"),
        ("utf-8", b"hello"),
        ("", b"hello"),
        ("identity, gzip", gzip.compress(b"hello")),
    ],
)
async def test_encodings(encoding: str, body: bytes) -> None:
    fetched = await one(page(body, f"Content-Encoding: {encoding}"))
    assert (fetched.outcome, fetched.body, fetched.body_bytes) == (Outcome.OK, b"hello", 5)


async def test_a_compressed_body_may_come_byte_by_byte() -> None:
    body = gzip.compress(b"hel") + gzip.compress(b"lo")
    head = page(b"", "Content-Encoding: gzip", length=len(body))
    fetched = await one(then(head, *(body[n : n + 1] for n in range(len(body)))))
    assert (fetched.outcome, fetched.body) == (Outcome.OK, b"hello")


@pytest.mark.parametrize(
    ("encoding", "body", "outcome"),
    [
        ("gzip", gzip.compress(b"hello" * 100)[:-12], Outcome.TRUNCATED),
        ("deflate", deflated(b"hello" * 100, 15)[:-6], Outcome.TRUNCATED),
        ("gzip", b"<p>plain", Outcome.PROTOCOL_ERROR),
        ("gzip", gzip.compress(b"") * 100, Outcome.PROTOCOL_ERROR),
        ("br", brotlied(b"hello" * 100)[:-6], Outcome.TRUNCATED),
        ("br", b"<p>plain", Outcome.PROTOCOL_ERROR),
        ("zstd", zstded(b"hello" * 100)[:-6], Outcome.TRUNCATED),
        ("zstd", b"<p>plain", Outcome.PROTOCOL_ERROR),
        ("compress", b"\x1f\x9d\x90", Outcome.PROTOCOL_ERROR),
        ("gzip, gzip", gzip.compress(gzip.compress(b"a")), Outcome.PROTOCOL_ERROR),
    ],
)
async def test_bodies_that_are_not_what_they_say(encoding: str, body: bytes, outcome: Outcome) -> None:
    fetched = await one(page(body, f"Content-Encoding: {encoding}"))
    assert (fetched.outcome, fetched.body) == (outcome, None)
    assert fetched.error


async def test_an_empty_body_needs_no_gzip_header() -> None:
    fetched = await one(page(b"", "Content-Encoding: gzip"))
    assert (fetched.outcome, fetched.body) == (Outcome.OK, b"")


# Bounds


async def test_a_body_of_exactly_the_limit_is_kept() -> None:
    assert (await one(page(b"x" * 1024), max_body_bytes=1024)).outcome is Outcome.OK
    assert (
        await one(page(gzip.compress(b"x" * 1024), "Content-Encoding: gzip"), max_body_bytes=1024)
    ).body_bytes == 1024


@pytest.mark.parametrize(
    "answer",
    [
        page(b"", length=1025),  # not a byte of it was sent: the length is enough
        page(b"", length=5_000_000_000_000),
        page(gzip.compress(b"x" * 1025), "Content-Encoding: gzip"),
        page(gzip.compress(bytes(50_000_000)), "Content-Encoding: gzip"),
        page(brotlied(b"x" * 1025), "Content-Encoding: br"),
        page(zstded(b"x" * 1025), "Content-Encoding: zstd"),
        HTML_HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"200\r\n%b\r\n" % bytes(512) * 9,
        HTML_HEAD + b"\r\n" + bytes(2000),
    ],
    ids=["announced", "huge", "gzip", "bomb", "br", "zstd", "chunked", "endless"],
)
async def test_a_byte_more_is_too_large(answer: bytes) -> None:
    fetched = await one(then(answer, "hang"), max_body_bytes=1024)
    assert (fetched.outcome, fetched.body, fetched.retryable) == (Outcome.TOO_LARGE, None, False)
    assert fetched.body_bytes <= 8192


@pytest.mark.parametrize(
    "answer",
    [
        then(page(b"half", length=8), "close"),
        then(page(b"half", length=8), "reset"),
        then(HTML_HEAD + b"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", "close"),
        then(HTML_HEAD + b"\r\nhalf", "reset"),
    ],
    ids=["length", "length-reset", "chunked", "until-close-reset"],
)
async def test_a_connection_that_ends_early(answer: Answer) -> None:
    fetched = await one(answer)
    assert (fetched.outcome, fetched.status, fetched.body) == (Outcome.TRUNCATED, 200, None)
    assert (fetched.retryable, fetched.host_incident) == (True, False)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.0\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
        HTML_HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhalf\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ],
    ids=["ssh", "status", "long-field", "chunk-size", "upgrade"],
)
async def test_garbage(answer: bytes) -> None:
    fetched = await one(then(answer, "hang"))
    assert (fetched.outcome, fetched.body, fetched.retryable) == (Outcome.PROTOCOL_ERROR, None, False)
    assert fetched.error
    assert fetched.error.isprintable()
    assert len(fetched.error) <= 200
    assert "SSH" not in fetched.error
    assert fetched.exchanges[-1].error == "protocol_error"


# Deadlines


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nX: y"])
async def test_a_header_that_does_not_come(start: bytes) -> None:
    fetched = await one(then(start, "hang"), header_timeout="50ms")
    assert (fetched.outcome, fetched.status) == (Outcome.HEADER_TIMEOUT, None)
    assert (fetched.retryable, fetched.host_incident) == (True, True)


async def test_a_body_that_drips() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(page(b"", length=1000))
        while not writer.is_closing():
            writer.write(b"x")
            await asyncio.sleep(0.01)

    fetched = await one(drip, total_timeout="100ms")
    assert (fetched.outcome, fetched.status, fetched.body) == (Outcome.TOTAL_TIMEOUT, 200, None)
    assert [exchange.error for exchange in fetched.exchanges] == ["total_timeout"]
    assert (fetched.retryable, fetched.host_incident) == (True, True)


async def test_the_total_deadline_spans_redirects() -> None:
    async with site({"/": to("/b"), "/b": hang}) as here, fetcher(total_timeout="100ms") as client:
        fetched = await client.fetch(here.url())
        assert (fetched.outcome, fetched.status) == (Outcome.TOTAL_TIMEOUT, None)
        assert [hop.url for hop in fetched.hops] == [here.url()]
        assert [(exchange.url, exchange.error) for exchange in fetched.exchanges] == [
            (here.url(), ""),
            (here.url("/b"), "total_timeout"),
        ]


async def test_a_deadline_between_two_requests_is_no_request() -> None:
    """While the robots.txt of the next host is asked for, which are requests of their own."""

    async def ask(_: str) -> None:
        await asyncio.Event().wait()

    async with site({"/": to("/b")}) as here, fetcher(total_timeout="100ms") as client:
        fetched = await client.fetch(here.url(), may_follow=ask)
    assert fetched.outcome is Outcome.TOTAL_TIMEOUT
    assert [(exchange.status, exchange.error) for exchange in fetched.exchanges] == [(302, "")]


async def test_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fetcher() as client:
        resolver = Resolver(OSError("Name or service not known"))
        monkeypatch.setattr(client._session.connector, "_resolver", resolver)
        fetched = await client.fetch("http://nowhere.example/")
        assert (fetched.outcome, fetched.status, fetched.retryable) == (Outcome.DNS_ERROR, None, True)
        assert "nowhere.example" in fetched.error


async def test_a_host_that_no_resolver_takes() -> None:
    async with fetcher() as client:
        for host in ("a..b", "a" * 64):
            assert (await client.fetch(f"http://{host}/")).outcome is Outcome.DNS_ERROR


async def test_a_resolver_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fetcher(connect_timeout="50ms") as client:
        monkeypatch.setattr(client._session.connector, "_resolver", Resolver(None))
        fetched = await client.fetch("http://slow.example/")
        assert (fetched.outcome, fetched.retryable, fetched.host_incident) == (Outcome.CONNECT_TIMEOUT, True, True)


class Resolver:
    """Raises, or never answers."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    async def resolve(self, *_: object, **__: object) -> list[Any]:
        if self._error is not None:
            raise self._error
        return await asyncio.Event().wait()  # type: ignore[return-value]

    async def close(self) -> None: ...


async def test_a_refused_connection() -> None:
    async with site() as here:
        pass
    async with fetcher() as client:
        fetched = await client.fetch(here.url())
        assert (fetched.outcome, fetched.status) == (Outcome.CONNECT_ERROR, None)
        assert (fetched.retryable, fetched.host_incident) == (True, True)


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_a_connection_that_is_closed_before_the_header(end: str) -> None:
    async with site({"/": then(end)}) as here, fetcher() as client:
        fetched = await client.fetch(here.url())
        assert (fetched.outcome, fetched.retryable, fetched.host_incident) == (Outcome.TRUNCATED, True, True)
        assert effect_on_host(fetched, 0) is Effect.FALTERED, "it was connected to"
        assert len(here.heads) == 1  # aiohttp would have sent it again by itself


async def test_a_kept_connection_that_was_closed_costs_no_attempt() -> None:
    async with site({"/a": page(), "/b": then("close")}) as here, fetcher() as client:
        assert (await client.fetch(here.url("/a"))).outcome is Outcome.OK

        async def closes_the_kept_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            here.answers["/b"] = page(b"second")
            writer.close()

        here.answers["/b"] = closes_the_kept_one
        fetched = await client.fetch(here.url("/b"))
        assert (fetched.outcome, fetched.body) == (Outcome.OK, b"second")
        assert [exchange.error for exchange in fetched.exchanges] == ["truncated", ""]
        assert here.connections == 2


# TLS


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(CERTIFICATE + KEY)
        file.flush()
        context.load_cert_chain(file.name)
    return context


async def test_https_with_a_trusted_certificate() -> None:
    trusting = ssl.create_default_context(cadata=CERTIFICATE)
    async with site({"/": page(b"x")}, ssl=server_context()) as here, fetcher(tls=trusting) as client:
        fetched = await client.fetch(f"https://127.0.0.1:{here.port}/")
        assert (fetched.outcome, fetched.body) == (Outcome.OK, b"x")


async def test_a_certificate_that_does_not_verify() -> None:
    async with site({"/": page(b"x")}, ssl=server_context()) as here, fetcher() as client:
        fetched = await client.fetch(f"https://127.0.0.1:{here.port}/")
        assert (fetched.outcome, fetched.status, fetched.retryable) == (Outcome.TLS_ERROR, None, False)
        assert "self-signed" in fetched.error
        assert here.heads == []


async def test_a_handshake_that_is_never_answered() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello.set_result(await reader.readexactly(1))
        await reader.read()
        closed.set()

    hello: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    closed = asyncio.Event()
    async with site(silent) as here, fetcher(tls_timeout="50ms") as client:
        fetched = await client.fetch(f"https://127.0.0.1:{here.port}/")
        assert (fetched.outcome, fetched.retryable, fetched.host_incident) == (Outcome.TLS_TIMEOUT, True, True)
        assert await hello == b"\x16"
        await closed.wait()  # the connection is not left open


async def test_plain_http_on_a_tls_port() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()

    async with site(plain) as here, fetcher() as client:
        fetched = await client.fetch(f"https://127.0.0.1:{here.port}/")
        assert (fetched.outcome, fetched.retryable) == (Outcome.TLS_ERROR, False)


# Redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_followed_on_their_authority(status: int) -> None:
    async with site({"/a/b": to("../c?", status), "/c?": page(b"x")}) as here, fetcher() as client:
        fetched = await client.fetch(here.url("/a/b"))
        assert (fetched.outcome, fetched.status, fetched.body) == (Outcome.OK, 200, b"x")
        assert (fetched.url, fetched.final_url) == (here.url("/a/b"), here.url("/c?"))
        assert fetched.hops == (Hop(here.url("/a/b"), status, here.url("/c?")),)
        assert [exchange.status for exchange in fetched.exchanges] == [status, 200]
        assert here.connections == 1
        assert all(head.startswith("GET ") for head in here.heads)


async def test_a_redirect_to_another_authority_is_recorded_and_never_contacted() -> None:
    async with site() as other, site({"/": to(other.url("/x"))}) as here, fetcher() as client:
        fetched = await client.fetch(here.url())
        assert (fetched.outcome, fetched.status) == (Outcome.REDIRECT_OUT_OF_SCOPE, 302)
        assert fetched.hops == (Hop(here.url(), 302, other.url("/x")),)
        assert fetched.final_url == here.url()
        assert other.connections == 0


@pytest.mark.parametrize(
    ("answers", "requests"),
    [
        ({"/": to("/")}, 1),
        ({"/": to("#fragment")}, 1),
        ({"/": to("/b"), "/b": to("/c"), "/c": to("/b")}, 3),
        ({"/": page(b"", status="302 Found")}, 1),
        ({"/": to("http://[")}, 1),
        ({"/": to("ftp://x/")}, 1),
        ({"/": to("/" + "a" * 3000)}, 1),
    ],
    ids=["itself", "fragment", "cycle", "no-location", "invalid", "scheme", "long"],
)
async def test_redirects_that_lead_nowhere(answers: dict[str, Answer], requests: int) -> None:
    async with site(answers) as here, fetcher() as client:
        fetched = await client.fetch(here.url())
        assert (fetched.outcome, fetched.status, fetched.retryable) == (Outcome.REDIRECT_INVALID, 302, False)
        assert fetched.error
        assert len(here.heads) == requests


async def test_ten_redirects_are_followed_and_no_more() -> None:
    answers: dict[str, Answer] = {f"/{n}": to(f"/{n + 1}") for n in range(20)}
    async with site(answers) as here, fetcher() as client:
        fetched = await client.fetch(here.url("/0"))
        assert (fetched.outcome, len(here.heads)) == (Outcome.REDIRECT_INVALID, MAX_HOPS + 1)
        here.answers["/10"] = page(b"x")
        assert (await client.fetch(here.url("/0"))).body == b"x"


async def test_credentials_in_a_location_are_neither_sent_nor_kept() -> None:
    async with site({"/": to("http://me:secret@127.0.0.1/")}) as here, fetcher() as client:
        fetched = await client.fetch(here.url())
        assert fetched.outcome is Outcome.REDIRECT_INVALID
        assert "secret" not in repr(fetched)
        assert "secret" not in repr(fetched.exchanges)


async def test_a_location_in_latin_1() -> None:
    async with site({"/": to("/x").replace(b": /x", b": /\xf8"), "/%C3%B8": page(b"x")}) as here, fetcher() as client:
        assert (await client.fetch(here.url())).body == b"x"


async def test_a_turn_is_taken_before_each_request_and_charged_to_no_deadline() -> None:
    turns: list[int] = []

    async with (
        site({"/": to("/b"), "/b": page(b"x"), "/robots.txt": page()}) as here,
        fetcher(total_timeout="300ms") as client,
    ):

        async def take_turn() -> None:
            turns.append(len(here.targets))
            await asyncio.sleep(0.25)

        async def may_follow(url: str) -> Outcome | None:
            await client.fetch_robots(here.url("/robots.txt"))
            return None

        assert (await client.fetch(here.url(), may_follow, take_turn)).outcome is Outcome.OK
        assert turns == [0, 2], "with the connection there, and nothing sent"
        assert here.connections == 1


async def test_a_turn_that_is_refused_ends_the_attempt_and_sends_nothing() -> None:
    class RefusedError(Exception):
        pass

    def refuse() -> None:
        raise RefusedError

    async def refuse_later() -> None:
        await asyncio.sleep(0.01)
        raise RefusedError

    async with site({"/": page(b"x")}) as here, fetcher() as client:
        for turn in (refuse, refuse_later):
            with pytest.raises(RefusedError):
                await client.fetch(here.url(), take_turn=turn)
        assert here.targets == []
        assert (await client.fetch(here.url())).outcome is Outcome.OK


async def test_a_redirect_with_an_endless_body() -> None:
    answer = then(page(b"x", "Location: /b", status="302 Found", length=10**10), "hang")
    async with site({"/": answer, "/b": page(b"x")}) as here, fetcher() as client:
        assert (await client.fetch(here.url())).outcome is Outcome.OK
        assert here.connections == 2


async def test_a_redirect_that_may_not_be_followed_ends_before_it_is_asked_for() -> None:
    asked: list[str] = []

    async def may_follow(url: str) -> Outcome | None:
        asked.append(url)
        return Outcome.ROBOTS_DISALLOWED if url.endswith("/c") else None

    async with site({"/": to("/b"), "/b": to("/c"), "/c": page(b"x")}) as here, fetcher() as client:
        fetched = await client.fetch(here.url(), may_follow)
        assert (fetched.outcome, fetched.status) == (Outcome.ROBOTS_DISALLOWED, 302)
        assert asked == [here.url("/b"), here.url("/c")]
        assert here.targets == ["/", "/b"]
        assert fetched.final_url == here.url("/b")
        assert fetched.hops[-1] == Hop(here.url("/b"), 302, here.url("/c"))


async def test_the_robots_tags_of_the_last_response() -> None:
    answers: dict[str, Answer] = {
        "/": page(b"moved", "Location: /b", "X-Robots-Tag: none", status="302 Found"),
        "/b": page(b"x", "X-Robots-Tag: noindex", "x-robots-tag: bot: nofollow"),
    }
    async with site(answers) as here, fetcher() as client:
        assert (await client.fetch(here.url())).robots_tags == ("noindex", "bot: nofollow")
        here.answers["/b"] = page(b"x", *["X-Robots-Tag: " + "a" * 600] * 20)
        assert (await client.fetch(here.url("/b"))).robots_tags == ("a" * 512,) * 16


# robots.txt


RULES = b"User-agent: *\r\nDisallow: /x\r\n"


@pytest.mark.parametrize("content_type", ["Content-Type: text/plain", "Content-Type: image/png", "Content-Type:"])
async def test_a_robots_txt_of_any_type(content_type: str) -> None:
    async with site({"/robots.txt": page(RULES, content_type)}) as here, fetcher() as client:
        fetched = await client.fetch_robots(here.url("/robots.txt"))
        assert (fetched.outcome, fetched.body) == (Outcome.OK, RULES)
        assert "Accept: text/plain,*/*;q=0.5\r\n" in here.heads[0]


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (RULES + b"#" * 600_000, ()),
        (RULES + b"Disallow: /private".rjust(ROBOTS_BYTES - len(RULES) - 1, b"#") + b"ly\r\n", ()),
        (gzip.compress(RULES + bytes(50_000_000)), ("Content-Encoding: gzip",)),
    ],
    ids=["long", "within a line", "bomb"],
)
async def test_a_robots_txt_is_cut_at_a_line(body: bytes, fields: tuple[str, ...]) -> None:
    async with site({"/robots.txt": page(body, *fields)}) as here, fetcher(max_body_bytes=1024) as client:
        fetched = await client.fetch_robots(here.url("/robots.txt"))
        assert (fetched.outcome, fetched.body) == (Outcome.OK, RULES)


async def test_a_robots_txt_of_500_kib_is_read_whole() -> None:
    rules = b"#" * (ROBOTS_BYTES - 1 - len(RULES)) + b"\n" + RULES
    async with site({"/robots.txt": page(rules)}) as here, fetcher(max_body_bytes=1024) as client:
        assert (await client.fetch_robots(here.url("/robots.txt"))).body == rules


async def test_redirects_of_a_robots_txt_may_lead_to_one_elsewhere() -> None:
    async with site({"/robots.txt": page(RULES), "/admin": page(b"")}) as other:
        answers: dict[str, Answer] = {f"/{n}": to(f"/{n + 1}") for n in range(5)}
        answers["/4"] = to(other.url("/robots.txt"))
        async with site(answers) as here, fetcher() as client:
            assert (await client.fetch_robots(here.url("/0"))).body == RULES
            here.answers |= {"/00": to("/0")}
            assert (await client.fetch_robots(here.url("/00"))).outcome is Outcome.REDIRECT_INVALID
            here.answers["/4"] = to("http://10.0.0.1/robots.txt")
            assert (await client.fetch_robots(here.url("/0"))).outcome is Outcome.ADDRESS_REFUSED
            for elsewhere in ("/admin", "/admin/robots.txt", "/robots.txt?all=1", "/"):
                here.answers["/4"] = to(other.url(elsewhere))
                assert (await client.fetch_robots(here.url("/0"))).outcome is Outcome.REDIRECT_INVALID
            assert other.targets == ["/robots.txt"]


# Addresses


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_loopback_is_refused_before_a_socket_is_opened(loop: str) -> None:
    async def main() -> None:
        async with site({"/": page()}) as here, Fetcher(Fetch(), SystemClock()) as client:
            for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"):
                fetched = await client.fetch(f"http://{host}:{here.port}/")
                assert (fetched.outcome, fetched.status) == (Outcome.ADDRESS_REFUSED, None)
                assert (fetched.retryable, fetched.host_incident) == (False, False)
                assert "allowCIDRs" in fetched.error
                assert "is loopback" in fetched.error or "is this network" in fetched.error
            assert here.connections == 0

    (asyncio.run if loop == "asyncio" else uvloop.run)(main())


async def test_an_allowed_address_of_several_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the others come first, and where a name server answers differently each time."""
    answers = [["10.0.0.1", "169.254.169.254", "::1", "127.0.0.1"], ["127.0.0.1"], ["10.0.0.1"]]
    async with site({"/": page(b"x", "Connection: close")}) as here, fetcher() as client:
        monkeypatch.setattr(client._session.connector, "_resolver", Names({"rebinding.example": answers}))
        monkeypatch.setattr(client._session.connector, "_use_dns_cache", False)
        for expected in (Outcome.OK, Outcome.OK, Outcome.ADDRESS_REFUSED):
            assert (await client.fetch(f"http://rebinding.example:{here.port}/")).outcome is expected
        assert here.connections == 2


# Errors


@pytest.mark.parametrize("status", [206, 300, 304, 305, 400, 404, 410, 451, 501, 999])
async def test_final_statuses(status: int) -> None:
    fetched = await one(page(b"", "Location: /b", "Retry-After: 5", status=f"{status} Status"))
    assert (fetched.outcome, fetched.status, fetched.body) == (Outcome.HTTP_ERROR, status, None)
    assert (fetched.retryable, fetched.host_incident) == (False, False)


async def test_a_small_error_page_does_not_cost_the_connection() -> None:
    async with site({"/": page(b"x" * 60_000, status="404 Not Found")}) as here, fetcher() as client:
        await client.fetch(here.url())
        await client.fetch(here.url())
        assert here.connections == 1


async def test_a_large_error_page_is_not_read() -> None:
    async with site({"/": then(page(b"", status="500 Oops", length=70_000), "hang")}) as here, fetcher() as client:
        fetched = await client.fetch(here.url())
        assert (fetched.outcome, fetched.retryable, fetched.host_incident) == (Outcome.HTTP_ERROR, True, False)


async def test_retry_after() -> None:
    fetched = await one(page(b"", "Retry-After: 120", status="503 Busy"))
    assert (fetched.retry_after, fetched.retryable, fetched.host_incident) == (120.0, True, True)
    fetched = await one(page(b"", "Retry-After: Thu, 01 Jan 1970 00:00:00 GMT", status="500 Busy"))
    assert (fetched.retry_after, fetched.retryable, fetched.host_incident) == (0.0, True, False)
    assert (await one(page(b"", "Retry-After: soon", status="503 Busy"))).retry_after is None


# The caller


async def test_cancellation_passes_and_leaves_no_connection() -> None:
    closed = asyncio.Event()

    async def watch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        closed.set()

    asked = asyncio.Event()
    async with site({"/": watch}) as here, fetcher() as client:
        task = asyncio.create_task(client.fetch(here.url()))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await closed.wait()


async def test_closing_while_a_request_is_in_flight_is_an_outcome() -> None:
    asked = asyncio.Event()

    async def watch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()

    async with site({"/": watch}) as here, fetcher() as client:
        task = asyncio.create_task(client.fetch(here.url()))
        await asked.wait()
        await client.aclose()
        assert (await task).outcome is Outcome.TRUNCATED
        await client.aclose()


def test_a_failure_is_no_error_of_the_client() -> None:
    """aiohttp sends a request again for its own errors, and turns an OSError into one of them."""
    assert Failure.__bases__ == (Exception,)


# The product runs on uvloop, whose transports, cancellation and exceptions are its own.


@pytest.mark.parametrize(
    "test",
    [
        test_a_page,
        test_connections_are_kept_and_cookies_are_not,
        test_bytes_behind_a_body_are_nobodys_next_response,
        test_a_body_that_drips,
        test_a_host_that_no_resolver_takes,
        test_a_refused_connection,
        partial(test_a_connection_that_is_closed_before_the_header, "close"),
        partial(test_a_connection_that_is_closed_before_the_header, "reset"),
        partial(test_a_connection_that_ends_early, then(page(b"half", length=8), "reset")),
        partial(test_a_connection_that_ends_early, then(HTML_HEAD + b"\r\nhalf", "reset")),
        partial(test_a_header_that_does_not_come, b""),
        test_a_kept_connection_that_was_closed_costs_no_attempt,
        test_https_with_a_trusted_certificate,
        test_a_certificate_that_does_not_verify,
        test_a_handshake_that_is_never_answered,
        test_plain_http_on_a_tls_port,
        test_cancellation_passes_and_leaves_no_connection,
        test_closing_while_a_request_is_in_flight_is_an_outcome,
    ],
    ids=lambda test: getattr(test, "func", test).__name__,
)
def test_the_same_on_uvloop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop.run(test())


# Of these tests only; valid until 2126.
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBkDCCATagAwIBAgIUMk8D42/3Z0HvjeyK+qhVGqxeJdAwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJMTI3LjAuMC4xMCAXDTI2MTEzMDE3NTQ1MVoYDzIxMjYxMTA2
MTc1NDUxWjAUMRIwEAYDVQQDDAkxMjcuMC4wLjEwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAQUK4yRMMSw13MMqXOCA72dgb8pdgbscf4jOuvZMCMFwQdavi/lpUzG
5E84+GkcrnTleQwb6msr64G63eJXc8vDo2QwYjAdBgNVHQ4EFgQUDkZMfYrPotWb
15xcFJn0DY7/yNswHwYDVR0jBBgwFoAUDkZMfYrPotWb15xcFJn0DY7/yNswDwYD
VR0TAQH/BAUwAwEB/zAPBgNVHREECDAGhwR/AAABMAoGCCqGSM49BAMCA0gAMEUC
IA9yIHsZwJYZBpeXyV+HI8b/wOXnsO81NbeGokapkT0qAiEAyZ5NKh14q4mIhvlg
9CphrgkRcU+V2iRhtL0H1zAZLmk=
-----END CERTIFICATE-----
"""
KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgMm3cewHaaRoh7PC4
q7sUimFxrkJ2c1DJP0jH+lZl4zKhRANCAAQUK4yRMMSw13MMqXOCA72dgb8pdgbs
cf4jOuvZMCMFwQdavi/lpUzG5E84+GkcrnTleQwb6msr64G63eJXc8vD
-----END PRIVATE KEY-----
"""
