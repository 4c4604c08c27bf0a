"""How the links of a page, and the ids of its elements, are packed into one value each. Pure.

What links say - where they lead, their text - repeats from page to page with a site's navigation, and is as often told
once and never again. So a page holds in full what no page before it has said, its wordings, which are numbered through
the whole frontier; of the others it has the numbers. A page's value is compressed: a link costs 2 bytes where it
repeats another and 6 to 20 where it is new; as a row of its own it took 50.
"""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_HASH_BYTES = 3
_RAW_DEFLATE = -15
_SMALLEST_WINDOW = 9  # as a power of two, as zlib has them
_LEVEL = 1  # a tenth smaller with 6, which takes twice as long
_SEPARATOR = "\0"


class DamagedError(sqlite3.DatabaseError):
    """A value is not what was packed: to who reads the frontier, the same as a damaged file."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


class Wording(NamedTuple):
    """What a link says."""

    target: int
    """The id of the page to which it leads."""
    fragment: str
    """As it stands in the reference, behind the ``#``; empty without one."""
    text: str
    """White space collapsed, cut."""
    rel: str
    """Lower case, words separated by one space."""


@dataclass(frozen=True, slots=True)
class Edges:
    """The links of one page."""

    wordings: Sequence[Wording]
    """Those that this page is the first to have; their numbers count on from the first one's."""
    links: Sequence[tuple[int, int]]
    """A wording's number and the position, which counts the page's references from 0; by positions."""


def pack(first: int, edges: Edges) -> bytes:
    """The links of a page, whose first new wording has the number ``first``, as one value.

    How many wordings and links there are; the wordings' targets; the links; the strings, each with NUL behind it.
    Numbers have seven bits a byte, lowest first; ids are differences to the one before, zigzagged. A link is twice
    that, plus one where a second number follows, how many positions were left out.
    """
    numbers = [len(edges.wordings), len(edges.links)]
    last = 0
    for target, *_ in edges.wordings:
        away = target - last
        numbers.append(away * 2 if away >= 0 else -away * 2 - 1)
        last = target
    last, expected = first - 1, 0
    for number, position in edges.links:
        away = number - last
        zigzag = away * 2 if away >= 0 else -away * 2 - 1
        if position == expected:
            numbers.append(zigzag * 2)
        else:
            numbers += (zigzag * 2 + 1, position - expected)
        last, expected = number, position + 1
    packed = _encoded(numbers)
    strings = [part.replace(_SEPARATOR, "\ufffd") for _, *parts in edges.wordings for part in parts]
    packed += "".join(part + _SEPARATOR for part in strings).encode("utf-8", "replace")
    return _deflated(packed)


def unpack(first: int, packed: bytes) -> Edges:
    """What ``pack`` was given. Raises ``DamagedError`` for a value that it did not make."""
    try:
        data = zlib.decompress(packed, _RAW_DEFLATE)
    except zlib.error as error:
        raise DamagedError(f"a packed value is damaged: {error}") from error
    reader = _Numbers(data)
    count, of_links = reader.next(), reader.next()
    targets: list[int] = []
    last = 0
    for _ in range(count):
        last += _unzigzag(reader.next())
        targets.append(last)
    links: list[tuple[int, int]] = []
    last, position = first - 1, -1
    for _ in range(of_links):
        zigzag, left_out = divmod(reader.next(), 2)
        last += _unzigzag(zigzag)
        position += 1 + (reader.next() if left_out else 0)
        links.append((last, position))
    strings = data[reader.at :].decode("utf-8", "replace").split(_SEPARATOR)
    if len(strings) != 3 * count + 1:
        raise DamagedError("a packed value has other strings than it says")
    parts = iter(strings)
    return Edges([Wording(target, next(parts), next(parts), next(parts)) for target in targets], links)


def next_wording(first: int, packed: bytes) -> int:
    """The first number that is free behind the last page's links. Raises ``DamagedError`` as ``unpack`` does."""
    return first + max(1, len(unpack(first, packed).wordings))


def pack_ids(ids: Iterable[str]) -> bytes:
    """The distinct ids of a page as sorted hashes of 3 bytes; empty without any."""
    return b"".join(sorted({_hash(name) for name in ids}))


def has_id(packed: bytes, name: str) -> bool:
    """Whether a page with these ids has ``name``; of 40,000 that it lacks, a page with 400 ids seems to have one."""
    wanted = _hash(name)
    places = range(0, len(packed), _HASH_BYTES)
    at = bisect_left(places, wanted, key=lambda place: packed[place : place + _HASH_BYTES])
    return at < len(places) and packed[places[at] : places[at] + _HASH_BYTES] == wanted


def _hash(name: str) -> bytes:
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).digest()


def _unzigzag(number: int) -> int:
    return number // 2 if number % 2 == 0 else -(number + 1) // 2


def _deflated(packed: bytearray) -> bytes:
    """With a window and tables no larger than what there is: to clear those of the usual size takes eight times as long
    as all the rest."""
    window = max(_SMALLEST_WINDOW, min(-_RAW_DEFLATE, len(packed).bit_length()))
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -window, max(1, window - 7))
    return deflate.compress(packed) + deflate.flush()


def _encoded(numbers: Sequence[int]) -> bytearray:
    """Seven bits a byte, the lowest first; all but a number's last have the eighth."""
    packed = bytearray()
    put = packed.append
    for number in numbers:
        rest = number
        while rest > 0x7F:
            put(rest & 0x7F | 0x80)
            rest >>= 7
        put(rest)
    return packed


class _Numbers:
    """Reads numbers one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def next(self) -> int:
        number = shift = 0
        while self.at < len(self._data):
            byte = self._data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
        raise DamagedError("a packed value ends too early")
