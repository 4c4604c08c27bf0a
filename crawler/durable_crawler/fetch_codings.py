"""The content codings that are asked for: gzip, deflate, br and zstd, each decoded within bounds (L10).

Used by ``fetch_body`` only. No decoder gives out more than there is room for, whatever the stream says of itself. What
it holds besides is its window: 32 KiB of gzip, 8 MiB of zstd, and 16 MiB of br, whose library fills it before it gives
anything out.
"""

from __future__ import annotations

import sys
import zlib
from typing import Protocol

import brotli

from durable_crawler.fetch_failure import Failure
from durable_crawler.outcomes import Outcome

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ACCEPT_ENCODING = "gzip, deflate, br, zstd"

DECODABLE = frozenset({"gzip", "x-gzip", "deflate", "br", "zstd"})
"""Content codings, in lower case; ``x-gzip`` is gzip (RFC 9110 section 8.4.1.3)."""
UNREADABLE = frozenset({"compress", "x-compress", "dcb", "dcz", "exi", "aes128gcm"})
"""Those that exist besides, and are never asked for."""

_MAX_MEMBERS = 64  # of a gzip stream, or frames of a zstd stream; each costs a copy of what follows it
_ZSTD_WINDOW: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 23}  # more is never needed (RFC 9659)
_BROTLI_STEP = 65_536  # bytes to ask the library for; it makes less only of the last, and up to 96 KiB


class _Stream(Protocol):
    """One gzip member or zstd frame, or a stream of deflate or brotli: what ``zlib`` and ``zstd`` have in common.

    Less than ``max_length`` bytes are all that can be made of the data.
    """

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class Inflater:
    """Decodes one body. ``coding`` is one of ``DECODABLE``."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._stream: _Stream | None = None
        self._members = 0
        self._ignoring = False

    @property
    def complete(self) -> bool:
        """Whether the stream may end here. One without any byte is an empty body."""
        return self._stream is None or self._stream.eof

    def feed(self, data: bytes, room: int) -> bytes:
        """Decodes ``data``; stops after ``room`` bytes, at least 1, and must not be fed again then.

        Raises ``Failure`` with ``PROTOCOL_ERROR`` for what cannot be decoded.
        """
        out = bytearray()
        while data and not self._ignoring:
            if self._stream is None or self._stream.eof:
                if self._stream is not None and not self._continues(data[0]):
                    break
                self._members += 1
                if self._members > _MAX_MEMBERS:
                    raise Failure(Outcome.PROTOCOL_ERROR, f"too many {self._coding} members")
                self._stream = _stream(self._coding, data[0])
            try:
                out += self._stream.decompress(data, room - len(out))
            except (zlib.error, zstd.ZstdError, brotli.error) as error:
                raise Failure(Outcome.PROTOCOL_ERROR, f"undecodable body: {error}") from None
            if len(out) >= room:
                break
            data = self._stream.unused_data if self._stream.eof else b""
        return bytes(out)

    def _continues(self, first: int) -> bool:
        """Whether a stream that has ended goes on with another member or frame; anything else is ignored from here on.

        Not so behind a brotli stream: the library gives up on one that has more in the same step, and what becomes of a
        page must not depend on where the network cuts it.
        """
        match self._coding:
            case "br":
                raise Failure(Outcome.PROTOCOL_ERROR, "undecodable body: more behind the end of a brotli stream")
            case "zstd":
                more = first == 0x28 or first >> 4 == 5  # of a frame, of one to be skipped (RFC 8878 section 3.1)
            case "deflate":
                more = False
            case _:
                more = first == 0x1F
        self._ignoring = not more
        return more


def _stream(coding: str, first: int) -> _Stream:
    """The decoder of a stream that begins with this byte."""
    match coding:
        case "br":
            return _Brotli()
        case "zstd":
            return zstd.ZstdDecompressor(options=_ZSTD_WINDOW)
        case "deflate":  # without zlib's header it is against the RFC, and common
            return zlib.decompressobj(wbits=15 if first & 0x0F == 8 else -15)
        case _:
            return zlib.decompressobj(wbits=31)


class _Brotli:
    """A brotli stream, bounded: the library's own bound is of the buffers that it opens, not of what is in them."""

    unused_data = b""

    def __init__(self) -> None:
        self._stream = brotli.Decompressor()

    @property
    def eof(self) -> bool:
        return bool(self._stream.is_finished())

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        out = bytearray()
        while True:
            part = self._stream.process(data, output_buffer_limit=_BROTLI_STEP)
            out += part
            if len(part) < _BROTLI_STEP or len(out) >= max_length:
                del out[max_length:]  # not a slice of it, which would be one more copy of up to 4 MiB
                return bytes(out)
            data = b""  # the library has kept what it has not read, and may have more of what it has
