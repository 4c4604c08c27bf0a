"""Bodies within bounds: decoded bytes are counted while they arrive, and never more are made than allowed (L10).

Used by ``fetch`` only. The client library's own decompression is switched off: it takes a gzip stream that stops half
way for a whole page.
"""

from __future__ import annotations

from durable_crawler.fetch_codings import DECODABLE, UNREADABLE, Inflater
from durable_crawler.fetch_failure import Failure
from durable_crawler.outcomes import Outcome

# A bomb has 1,000 in gzip and 10,000 in br and zstd; a long honest table 60 and 170, and is seldom larger than what the
# ratio does not judge, which is bounded well enough as it is.
_MAX_RATIO = 100
_FREE_OF_RATIO = 4 * 1024 * 1024  # decoded bytes
_STEP = 8192  # bytes off the wire that are decoded at once
_WIRE_SLACK = 65_536  # what framing and incompressible data may add to a body that is within the limit


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
        self._inflater: Inflater | None = None
        self.on_wire = 0
        """Bytes taken so far, as they were sent."""
        self.received = 0
        """Decoded bytes so far."""
        # Values that are no content codings at all (``utf-8``, ``none``) are a misunderstanding, not an encoding.
        codings = [name for part in content_encoding.split(",") if (name := part.strip(" \t").lower())]
        coded = [name for name in codings if name in DECODABLE or name in UNREADABLE]
        if len(coded) > 1 or (coded and coded[0] in UNREADABLE):
            raise Failure(Outcome.PROTOCOL_ERROR, f"unsupported Content-Encoding: {', '.join(coded)}")
        if coded:
            self._inflater = Inflater(coded[0])

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
            most = min(self._limit, _credible(self.on_wire + len(piece)))
            self._take(self._inflater.feed(piece, most - self.received + 1), len(piece))  # a byte more is refused

    def _take(self, data: bytes, on_wire: int) -> None:
        """Keeps decoded bytes, which were ``on_wire`` on the wire."""
        self._chunks.append(data)
        self.on_wire += on_wire
        self.received += len(data)
        bomb = self.received > _credible(self.on_wire)
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


def _credible(on_wire: int) -> int:
    """Decoded bytes above which a body that took ``on_wire`` bytes is a bomb."""
    return max(_FREE_OF_RATIO, _MAX_RATIO * on_wire)
