"""Pages that would cost the parser more than they can be worth, told before they are parsed. Pure.

Lexbor needs time that grows with the square of the nesting, and of the number of attributes of one tag: a megabyte of
nested tags takes minutes. Browsers flatten such trees at 512 levels; here they are an outcome of their own.
"""

from __future__ import annotations

import re
from collections import Counter

NESTING_MAX = 4096
"""Open elements; a tenth of a second of parsing."""

ATTRIBUTES_MAX = 4096
"""Attributes of one tag; the longest real ones have some dozens."""

_WORTH_A_LOOK = NESTING_MAX  # fewer tags cannot be nested too deeply
_TAG = re.compile(rb"<(/?)([a-zA-Z][a-zA-Z0-9-]*)")
_VOID = frozenset(
    b"area base br col embed hr img input link meta param source track wbr p li dt dd option tr td th".split()
)  # never have children, or are closed by their next sibling
_LONG = 16 * 1024
_NAME = re.compile(rb"[\s/]+[^\s/>=]")


def objection(body: bytes) -> str:
    """Why a body is not parsed; empty for every page that people write."""
    if body.count(b"<") >= _WORTH_A_LOOK and _deepest(body) > NESTING_MAX:
        return f"elements are nested more than {NESTING_MAX} deep"
    if len(body) >= _LONG and _most_attributes(body) > ATTRIBUTES_MAX:
        return f"a tag has more than {ATTRIBUTES_MAX} attributes"
    return ""


def _deepest(body: bytes) -> int:
    """An end tag closes only what is open: others would hide the depth."""
    opened: Counter[bytes] = Counter()
    depth = deepest = 0
    for match in _TAG.finditer(body):
        name = match[2].lower()
        if name in _VOID:
            continue
        if not match[1]:
            opened[name] += 1
            depth += 1
            deepest = max(deepest, depth)
        elif opened[name]:
            opened[name] -= 1
            depth -= 1
    return deepest


def _most_attributes(body: bytes) -> int:
    """Of tags that are long enough to have very many; what stands in quotes counts too, which only long tags notice."""
    most, end = 0, 0
    while (start := body.find(b"<", end)) >= 0:
        end = body.find(b">", start)
        end = len(body) if end < 0 else end
        if end - start >= _LONG:
            most = max(most, len(_NAME.findall(body, start, end)))
        end = max(end, start + 1)
    return most
