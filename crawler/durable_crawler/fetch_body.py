"""Bodies within bounds: decoded bytes are counted while they arrive, and never more are made than allowed (L10).

Used by ``fetch`` only. The client library's own decompression is switched off: it takes a gzip stream that stops half
way for a whole page. br and zstd are not offered: whoever has them has gzip too, and neither comes with Python, so that
each would be a decoder of a stranger's bytes more, to be kept within bounds.
"""

from __future__ import annotations

import zlib

from durable_crawler.fetch_failure import Failure
from durable_crawler.outcomes import Outcome

ACCEPT_ENCODING = "gzip, deflate"

_GZIP = frozenset({"gzip", "x-gzip"})
_UNREADABLE = frozenset({"br", "zstd", "compress", "x-compress", "dcb", "dcz", "exi", "aes128gcm"})
_MAX_RATIO = 100  # a page that repeats itself reaches 50; a bomb 1,000
_FREE_OF_RATIO = 1024 * 1024  # decoded bytes that no ratio makes suspicious
_STEP = 8192  # bytes off the wire that are decoded at once: at most 8 MiB
_WIRE_SLACK = 65_536  # what framing and incompressible data may add to a body that is within the limit
_MAX_MEMBERS = 64  # of a gzip stream; each costs a copy of what follows it


class Body:
    """Collects one response's body of at most ``limit`` decoded bytes. ``content_encoding`` is the header's value.

    ``cut`` keeps what comes first of a body that is larger, instead of refusing it. Raises ``Failure`` with
    ``PROTOCOL_ERROR`` for an encoding that was not asked for.
    """

    def __init__(self, content_encoding: str, limit: int, *, cut: bool = False) -> None:
        self._limit = limit
        self._cut = cut
        self.full = False
        """Whether nothing more is needed, since the body is cut here."""
        self._chunks: list[bytes] = []
        self._inflater: _Inflater | None = None
        self.on_wire = 0
        """Bytes taken so far, as they were sent."""
        self.received = 0
        """Decoded bytes so far."""
        # Values that are no content codings at all (``utf-8``, ``none``) are a misunderstanding, not an encoding.
        codings = [name for part in content_encoding.split(",") if (name := part.strip(" \t").lower())]
        coded = [name for name in codings if name in _GZIP or name == "deflate" or name in _UNREADABLE]
        if len(coded) > 1 or (coded and coded[0] in _UNREADABLE):
            raise Failure(Outcome.PROTOCOL_ERROR, f"unsupported Content-Encoding: {', '.join(coded)}")
        if coded:
            self._inflater = _Inflater(coded[0])

    def announced(self, length: int | None) -> None:
        """Refuses a body that is too large by its own Content-Length, before anything of it is read."""
        allowed = self._limit if self._inflater is None else self._limit + _WIRE_SLACK
        if length is not None and length > allowed and not self._cut:
            raise Failure(Outcome.TOO_LARGE, f"Content-Length is {length}")

    def feed(self, data: bytes) -> None:
        """Takes bytes off the wire. Raises ``Failure``: ``TOO_LARGE``, or ``PROTOCOL_ERROR`` for undecodable ones."""
        if self._inflater is None:
            self._take(data, len(data))
            return
        for start in range(0, len(data), _STEP):
            if self.full:
                return
            piece = data[start : start + _STEP]
            self._take(self._inflater.feed(piece, self._limit - self.received + 1), len(piece))

    def _take(self, data: bytes, on_wire: int) -> None:
        """Keeps decoded bytes, which were ``on_wire`` on the wire."""
        self._chunks.append(data)
        self.on_wire += on_wire
        self.received += len(data)
        bomb = self.received > _FREE_OF_RATIO and self.received > _MAX_RATIO * self.on_wire
        if not bomb and self.received <= self._limit and self.on_wire <= self._limit + _WIRE_SLACK:
            return
        if self._cut:
            self.full = True
            return
        self._chunks.clear()
        cause = f"decompresses to more than {_MAX_RATIO} times its size" if bomb else f"more than {self._limit} bytes"
        raise Failure(Outcome.TOO_LARGE, cause)

    def finish(self) -> bytes:
        """The body. Raises ``Failure`` with ``TRUNCATED`` where a compressed stream has no end."""
        if self.full:
            return b"".join(self._chunks)[: self._limit]
        if self._inflater is not None and not self._inflater.complete:
            raise Failure(Outcome.TRUNCATED, "compressed body ends early")
        return b"".join(self._chunks)


class _Inflater:
    """gzip of one or more members, or deflate, with or without zlib's header (RFC 9110 section 8.4.1)."""

    def __init__(self, coding: str) -> None:
        self._gzip = coding in _GZIP
        self._stream = zlib.decompressobj(wbits=31) if self._gzip else None
        self._members = 1
        self._started = False
        self._ignoring = False

    @property
    def complete(self) -> bool:
        """Whether the stream may end here. One without any byte is an empty body."""
        return not self._started or (self._stream is not None and self._stream.eof)

    def feed(self, data: bytes, room: int) -> bytes:
        """Decodes ``data``; stops after ``room`` bytes, at least 1."""
        out = bytearray()
        self._started = self._started or bool(data)
        while data and not self._ignoring:
            if self._stream is None:  # raw deflate is against the RFC, and common
                self._stream = zlib.decompressobj(wbits=15 if data[0] & 0x0F == 8 else -15)
            if self._stream.eof and not self._next_member(data):
                break
            try:
                out += self._stream.decompress(data, room - len(out))
            except zlib.error as error:
                raise Failure(Outcome.PROTOCOL_ERROR, f"undecodable body: {error}") from None
            if len(out) >= room:
                break
            data = self._stream.unused_data if self._stream.eof else b""
        return bytes(out)

    def _next_member(self, data: bytes) -> bool:
        """Starts the gzip member that ``data`` begins with; anything else after the stream's end is ignored."""
        if not self._gzip or data[0] != 0x1F:
            self._ignoring = True
            return False
        self._members += 1
        if self._members > _MAX_MEMBERS:
            raise Failure(Outcome.PROTOCOL_ERROR, "too many gzip members")
        self._stream = zlib.decompressobj(wbits=31)
        return True
