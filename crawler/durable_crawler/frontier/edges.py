"""How the links of a page, and the ids of its elements, are packed into one value each. Pure.

A link is a pair: the id of its row in ``anchors`` (target, fragment, text, rel) and its position, which counts the
page's references from 0. Links follow one another in the order of their positions, and what a page links to was often
found together: differences are small, and most links take two bytes.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator

_HASH_BYTES = 4


def pack(edges: Iterable[tuple[int, int]]) -> bytes:
    """``(anchor id, position)`` pairs, positions ascending, as one value.

    Each is a number of seven bits a byte, lowest first: twice the zigzagged difference of the anchor's id, plus one
    where a second number follows, how many positions were left out.
    """
    packed = bytearray()
    last_anchor, last_position = 0, -1
    for anchor, position in edges:
        difference = anchor - last_anchor
        zigzag = difference * 2 if difference >= 0 else -difference * 2 - 1
        left_out = position - last_position - 1
        _put(packed, zigzag * 2 + (left_out > 0))
        if left_out:
            _put(packed, left_out)
        last_anchor, last_position = anchor, position
    return bytes(packed)


def unpack(packed: bytes) -> Iterator[tuple[int, int]]:
    """What ``pack`` was given. Raises ``ValueError`` for a value that it did not make."""
    numbers = _numbers(packed)
    anchor, position = 0, -1
    for number in numbers:
        zigzag, left_out = divmod(number, 2)
        anchor += zigzag // 2 if zigzag % 2 == 0 else -(zigzag + 1) // 2
        if left_out:
            skipped = next(numbers, None)
            if skipped is None:
                raise ValueError("a packed value ends too early")
            position += skipped
        position += 1
        yield anchor, position


def pack_ids(ids: Iterable[str]) -> bytes:
    """The distinct ids of a page as sorted hashes of 4 bytes; empty without any."""
    hashes = sorted({_hash(name) for name in ids})
    return struct.pack(f"<{len(hashes)}I", *hashes)


def has_id(packed: bytes, name: str) -> bool:
    """Whether a page with these ids has ``name``; of 10,000 ids that are not there, a page with 400 seems to have none
    but once in a thousand tries.
    """
    hashes = struct.unpack(f"<{len(packed) // _HASH_BYTES}I", packed)
    wanted = _hash(name)
    at = bisect_left(hashes, wanted)
    return at < len(hashes) and hashes[at] == wanted


def _hash(name: str) -> int:
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).digest()
    return int.from_bytes(digest, "little")


def _put(packed: bytearray, number: int) -> None:
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)


def _numbers(packed: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in packed:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0
    if shift:
        raise ValueError("a packed value ends too early")
