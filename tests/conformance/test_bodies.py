"""Rows in words about bodies and connections: a server for each, over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

from tests.conformance.cases import AS_EXPECTED, Row, Scripts, rows
from tests.support.codings import bomb
from tests.support.misbehaving import HTML_HEAD, Answer, dripping, endless, page, site, then

from crawljob.spec import Fetch
from durable_crawler.clock import SystemClock
from durable_crawler.fetch import Fetcher
from durable_crawler.outcomes import Fetched, Outcome

if TYPE_CHECKING:
    from tests.conformance.conftest import Judge

LIMIT = 65_536
GZIP = "Content-Encoding: gzip"

script = Scripts()


@rows("http/bodies.jsonl")
async def test_body(row: Row, judge: Judge) -> None:
    judge(row, await script.play(row, row["server"]), AS_EXPECTED)


@asynccontextmanager
async def fetcher(**fields: Any) -> AsyncIterator[Fetcher]:
    allowed = (ip_network("127.0.0.0/8"),)
    async with Fetcher(Fetch(**{"max_body_bytes": LIMIT, **fields}), SystemClock(), allowed=allowed) as client:
        yield client


async def one(answer: Answer, **fields: Any) -> Fetched:
    async with site({"/": answer}) as here, fetcher(**fields) as client:
        return await client.fetch(here.url())


@script("body-002")
async def more_than_announced() -> None:
    answers: dict[str, Answer] = {"/": page(b"a" * 100, length=60), "/b": page(b"second")}
    async with site(answers) as here, fetcher() as client:
        assert (await client.fetch(here.url())).body == b"a" * 60
        assert (await client.fetch(here.url("/b"))).body == b"second"
        assert here.connections == 2


@script("body-005")
async def until_it_closes() -> None:
    fetched = await one(then(b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n", b"<p>", "close"))
    assert (fetched.outcome, fetched.body) == (Outcome.OK, b"<p>")


@script("body-006")
async def ten_gigabytes_of_zeros() -> None:
    stream = zlib.compressobj(9, wbits=31)
    start = stream.compress(bytes(1 << 20)) + stream.flush(zlib.Z_FULL_FLUSH)
    again = stream.compress(bytes(1 << 20)) + stream.flush(zlib.Z_FULL_FLUSH)
    fetched = await one(endless(page(start, GZIP, length=10_000_000), again), max_body_bytes=4 << 20)
    assert (fetched.outcome, fetched.body) == (Outcome.TOO_LARGE, None)
    assert fetched.body_bytes <= (4 << 20) + 1


@script("body-007", "body-008")
async def half_a_gigabyte_of_zeros() -> None:
    for coding in ("br", "zstd"):
        packed = page(bomb(coding, 512 << 20), f"Content-Encoding: {coding}")
        async with site({"/": packed}) as here, fetcher() as client:
            fetched = await client.fetch(here.url())
            assert (fetched.outcome, fetched.body, fetched.body_bytes) == (Outcome.TOO_LARGE, None, LIMIT + 1)
            assert "Accept-Encoding: gzip, deflate, br, zstd\r\n" in here.heads[0]


@script("body-012")
async def codings_that_are_none() -> None:
    for coding in ("identity", "none", "utf-8", ""):
        assert (await one(page(b"<p>", f"Content-Encoding: {coding}"))).body == b"<p>"


@script("body-014")
async def garbage_behind_gzip() -> None:
    assert (await one(page(gzip.compress(b"<p>") + b"garbage" * 99, GZIP))).body == b"<p>"


@script("body-015")
async def two_members() -> None:
    assert (await one(page(gzip.compress(b"<p>") + gzip.compress(b"<b>"), GZIP))).body == b"<p><b>"


@script("body-016")
async def half_of_a_gzip() -> None:
    whole = gzip.compress(b"hello" * 999)
    fetched = await one(page(whole[: len(whole) // 2], GZIP))
    assert (fetched.outcome, fetched.retryable) == (Outcome.TRUNCATED, True)


@script("body-017")
async def a_slow_body() -> None:
    fetched = await one(dripping(page(b"", length=1000), 0.05), total_timeout="200ms")
    assert (fetched.outcome, fetched.retryable) == (Outcome.TOTAL_TIMEOUT, True)


@script("body-018")
async def a_slow_head() -> None:
    fetched = await one(dripping(b"HTTP/1.1 200 OK\r\nX: ", 0.05), header_timeout="200ms")
    assert (fetched.outcome, fetched.retryable) == (Outcome.HEADER_TIMEOUT, True)


@script("body-019")
async def a_long_line() -> None:
    fetched = await one(page(b"<p>", "X: " + "a" * 65_536))
    assert (fetched.outcome, fetched.retryable) == (Outcome.PROTOCOL_ERROR, False)


@script("body-021")
async def five_terabytes() -> None:
    fetched = await one(then(page(b"", length=5 * 10**12), "hang"))
    assert (fetched.outcome, fetched.body_bytes) == (Outcome.TOO_LARGE, 0)


@script("body-022")
async def exactly_the_limit() -> None:
    for answer in (page(b"a" * LIMIT), page(gzip.compress(b"a" * LIMIT), GZIP), in_one_chunk(LIMIT)):
        assert (await one(answer)).body == b"a" * LIMIT


@script("body-023")
async def a_byte_more() -> None:
    assert str(LIMIT + 1) in (await one(page(b"a" * (LIMIT + 1)))).error
    for answer in (page(gzip.compress(b"a" * (LIMIT + 1)), GZIP), in_one_chunk(LIMIT + 1)):
        fetched = await one(answer)
        assert (fetched.outcome, fetched.body_bytes, fetched.body) == (Outcome.TOO_LARGE, LIMIT + 1, None)


def in_one_chunk(size: int) -> bytes:
    return HTML_HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (size, b"a" * size)


@script("body-025")
async def no_body_and_no_length() -> None:
    fetched = await one(then(HTML_HEAD + b"Connection: keep-alive\r\n\r\n", "hang"), total_timeout="200ms")
    assert (fetched.outcome, fetched.retryable) == (Outcome.TOTAL_TIMEOUT, True)


@script("body-026")
async def early_hints() -> None:
    fetched = await one(b"HTTP/1.1 103 Early Hints\r\nLink: </s>\r\n\r\n" + page(b"<p>"))
    assert (fetched.status, fetched.body) == (200, b"<p>")


@script("body-027")
async def bare_line_ends() -> None:
    fetched = await one(b"HTTP/1.1 200\nContent-Type: text/html\nContent-Length: 3\n\n<p>")
    assert (fetched.outcome, fetched.body) == (Outcome.OK, b"<p>")


@script("body-028")
async def a_control_byte_in_a_cookie() -> None:
    assert (await one(page(b"<p>", "Set-Cookie: a=b\x01"))).body == b"<p>"


@script("body-029")
async def a_reset_behind_the_head() -> None:
    fetched = await one(then(page(b"", length=9), "reset"))
    assert (fetched.status, fetched.retryable) == (200, True)


@script("body-030")
async def a_kept_connection_that_is_closed() -> None:
    async def close_it(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        here.answers["/b"] = page(b"second")
        writer.close()

    async with site({"/": page(), "/b": close_it}) as here, fetcher() as client:
        await client.fetch(here.url())
        assert (await client.fetch(here.url("/b"))).body == b"second"


@script("body-031")
async def a_half_closed_connection() -> None:
    body = b"a" * (8 << 20)

    async def half_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(page(body))
        writer.write_eof()
        await reader.read()

    assert (await one(half_close, max_body_bytes=16 << 20)).body == body


@script("body-033")
async def a_tar_stream_that_is_called_html() -> None:
    fetched = await one(endless(page(b"a.txt".ljust(512, b"\0"), length=LIMIT), b"\0" * 65_536))
    assert fetched.body_bytes <= LIMIT
    fetched = await one(endless(HTML_HEAD + b"\r\n", b"\0" * 65_536))
    assert (fetched.outcome, fetched.body) == (Outcome.TOO_LARGE, None)
