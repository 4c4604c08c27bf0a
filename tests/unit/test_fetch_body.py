"""Bodies in every coding, cut anywhere, broken and hostile; without a socket, which ``test_fetch`` has."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.codings import COMPRESS, bomb, brotlied, zstded

from durable_crawler.fetch_body import Body
from durable_crawler.fetch_codings import ACCEPT_ENCODING, DECODABLE
from durable_crawler.fetch_failure import Failure
from durable_crawler.outcomes import Outcome

MIB = 1 << 20
TEXT = b"".join(b"<p><a href=/%d>%d</a>" % (n, n * n) for n in range(20_000))
CODINGS = sorted(COMPRESS)
SKIPPED = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
"""A zstd frame without content (RFC 8878 section 3.1.2)."""


def read(body: Body, pieces: list[bytes]) -> bytes:
    for piece in pieces:
        body.feed(piece)
    return body.finish()


def decoded(coding: str, pieces: list[bytes], limit: int = 4 * MIB) -> bytes:
    body = Body(coding, limit)
    whole = read(body, pieces)
    assert body.received == len(whole)
    return whole


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def refused(coding: str, pieces: list[bytes], limit: int = 4 * MIB) -> tuple[Outcome, Body]:
    body = Body(coding, limit)
    with pytest.raises(Failure) as failure:
        read(body, pieces)
    return failure.value.outcome, body


def test_what_is_asked_for_can_be_decoded() -> None:
    assert set(ACCEPT_ENCODING.split(", ")) == set(CODINGS) == DECODABLE - {"x-gzip"}


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("size", [1, 7, 1000, 8192, 1 << 30])
def test_it_does_not_matter_where_the_network_cuts(coding: str, size: int) -> None:
    assert decoded(coding, cut(COMPRESS[coding](TEXT), size)) == TEXT


@given(st.data())
def test_what_a_server_compresses_comes_out_as_it_was(data: st.DataObject) -> None:
    coding = data.draw(st.sampled_from(CODINGS))
    text = data.draw(st.lists(st.binary(max_size=200) | st.integers(1, 5000).map(bytes)).map(b"".join))
    size = data.draw(st.integers(1, 300))
    assert decoded(coding, cut(COMPRESS[coding](text), size)) == text


@pytest.mark.parametrize("coding", CODINGS)
def test_a_stream_that_stops_anywhere_is_truncated(coding: str) -> None:
    whole = COMPRESS[coding](TEXT[:2000])
    for length in range(1, len(whole)):
        outcome, _ = refused(coding, [whole[:length]])
        assert outcome is Outcome.TRUNCATED, length


@pytest.mark.parametrize("coding", CODINGS)
def test_no_byte_at_all_is_an_empty_body(coding: str) -> None:
    assert decoded(coding, [b""]) == b""


@given(st.data())
def test_whatever_it_is_it_is_decoded_or_refused(data: st.DataObject) -> None:
    coding = data.draw(st.sampled_from(CODINGS))
    stream = bytearray(COMPRESS[coding](TEXT[:3000]))
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, len(stream) - 1), st.integers(0, 255)), max_size=9)):
        stream[at] = byte
    body = Body(coding, 10_000)
    with suppress(Failure):
        read(body, [bytes(stream)])
    assert body.received <= 10_001


# Bounds


@pytest.mark.parametrize("coding", CODINGS)
def test_a_body_of_exactly_the_limit_is_kept_and_a_byte_more_is_not(coding: str) -> None:
    stream = COMPRESS[coding](TEXT)
    assert decoded(coding, [stream], len(TEXT)) == TEXT
    outcome, body = refused(coding, [stream], len(TEXT) - 1)
    assert (outcome, body.received) == (Outcome.TOO_LARGE, len(TEXT))


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("limit", [4 * MIB, 1024 * MIB])
def test_a_bomb_is_refused_when_it_has_made_a_hundred_times_its_size(coding: str, limit: int) -> None:
    outcome, body = refused(coding, cut(bomb(coding, 64 * MIB), 65_536), limit)
    assert (outcome, body.received) == (Outcome.TOO_LARGE, max(4 * MIB, 100 * body.on_wire) + 1)
    assert body.received <= 5 * MIB


TABLE = b"<!doctype html><title>Prices</title><table>%b</table>" % b"".join(
    b'<tr class="row"><td class="name"><a class="link" href="/products/%d">Product</a></td><td class="stock">in stock'
    b'</td><td class="action"><button class="button">Add to cart</button></td></tr>\n' % number
    for number in range(9000)
)


@pytest.mark.parametrize(
    ("coding", "packed"),
    [("zstd", zstded(TABLE, level=19)), ("br", brotlied(TABLE, quality=11))],
    ids=["zstd at level 19", "br at level 11"],
)
def test_a_long_table_that_compresses_well_is_no_bomb(coding: str, packed: bytes) -> None:
    assert len(TABLE) > 150 * len(packed)
    assert decoded(coding, cut(packed, 1400)) == TABLE


@pytest.mark.parametrize("coding", CODINGS)
def test_of_a_bomb_its_beginning_is_taken_where_that_is_what_is_wanted(coding: str) -> None:
    body = Body(coding, 500_000, cut=True)
    body.feed(bomb(coding, 64 * MIB))
    assert body.full
    assert (body.finish(), body.received) == (bytes(500_000), 500_001)


# zstd and brotli


def test_zstd_of_several_frames_some_of_them_to_be_skipped() -> None:
    assert decoded("zstd", [SKIPPED + zstded(b"hel") + SKIPPED + zstded(b"lo")]) == b"hello"
    assert decoded("zstd", cut(zstded(b"hel") + SKIPPED + zstded(b"lo"), 1)) == b"hello"


def test_zstd_without_end_of_frames_is_refused() -> None:
    assert refused("zstd", [SKIPPED * 100_000])[0] is Outcome.PROTOCOL_ERROR


def test_zstd_with_a_window_of_eight_mib_and_no_more() -> None:
    assert decoded("zstd", [zstded(TEXT, 23)]) == TEXT
    assert refused("zstd", [zstded(TEXT, 24)])[0] is Outcome.PROTOCOL_ERROR


def test_what_follows_a_zstd_frame_and_is_none_is_ignored() -> None:
    assert decoded("zstd", [zstded(b"hello") + b"garbage" * 9999]) == b"hello"


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_what_follows_a_brotli_stream_is_refused_wherever_the_network_cuts(size: int) -> None:
    assert refused("br", cut(brotlied(b"hello") + b"garbage", size))[0] is Outcome.PROTOCOL_ERROR


@pytest.mark.parametrize("codings", ["br, gzip", "zstd, br", "gzip, zstd", "zstd, zstd", "dcz", "dcb"])
def test_codings_within_each_other_and_those_of_dictionaries_are_refused(codings: str) -> None:
    with pytest.raises(Failure, match="unsupported Content-Encoding") as failure:
        Body(codings, MIB)
    assert failure.value.outcome is Outcome.PROTOCOL_ERROR
