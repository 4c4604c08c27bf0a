"""Bodies within bounds: decoded bytes are counted while they arrive, and never more are made than allowed (L10).

Used by ``fetch`` only. The client library's own decompression is switched off: it takes a gzip stream that stops half
way for a whole page.
"""

from __future__ import annotations

import zlib

from durable_crawler.fetch_connector import Failure
from durable_crawler.outcomes import Outcome

ACCEPT_ENCODING = "gzip, deflate"

_GZIP = frozenset({"gzip", "x-gzip"})
_UNREADABLE = frozenset({"br", "zstd", "compress", "x-compress", "dcb", "dcz", "exi", "aes128gcm"})
_WIRE_SLACK = 65_536  # what framing and incompressible data may add to a body that is within the limit
_MAX_MEMBERS = 64  # of a gzip stream; each costs a copy of what follows it


class Body:
    """Collects one response's body of at most ``limit`` decoded bytes. ``content_encoding`` is the header's value.

    Raises ``Failure`` with ``PROTOCOL_ERROR`` for an encoding that was not asked for.
    """

    def __init__(self, content_encoding: str, limit: int) -> None:
        self._limit = limit
        self._on_wire = 0
        self._chunks: list[bytes] = []
        self._inflater: _Inflater | None = None
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
        if length is not None and length > allowed:
            raise Failure(Outcome.TOO_LARGE, f"Content-Length is {length}")

    def feed(self, data: bytes) -> None:
        """Takes bytes off the wire. Raises ``Failure``: ``TOO_LARGE``, or ``PROTOCOL_ERROR`` for undecodable ones."""
        self._on_wire += len(data)
        if self._inflater is not None:
            data = self._inflater.feed(data, self._limit - self.received + 1)
        self._chunks.append(data)
        self.received += len(data)
        if self.received > self._limit or self._on_wire > self._limit + _WIRE_SLACK:
            self._chunks.clear()
            raise Failure(Outcome.TOO_LARGE, f"more than {self._limit} bytes")

    def finish(self) -> bytes:
        """The whole body. Raises ``Failure`` with ``TRUNCATED`` where a compressed stream has no end."""
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
