"""What every format says of the report itself, and how it says things of the crawl."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from durable_crawler.results.classify import Confidence


@dataclass(frozen=True, slots=True)
class About:
    """The report: of which frontier, made when (milliseconds since the epoch), by which version."""

    frontier: str
    made_ms: int
    version: str


HEADINGS: Mapping[Confidence, str] = {
    Confidence.BROKEN: "Broken",
    Confidence.FRAGMENT: "Missing places in pages",
    Confidence.UNREACHABLE: "Unreachable",
    Confidence.BLOCKED: "Blocked",
    Confidence.INSECURE: "From encrypted to unencrypted",
    Confidence.REDIRECTED: "Moved for good",
}

MEANINGS: Mapping[Confidence, str] = {
    Confidence.BROKEN: "It answers that there is nothing, or fails by itself.",
    Confidence.FRAGMENT: "The page is there; the place in it that the link names is not.",
    Confidence.UNREACHABLE: "No usable answer came. It may be the network's doing, or over by now.",
    Confidence.BLOCKED: "It does not answer a crawler; visitors may well see it.",
    Confidence.INSECURE: "An https page leads, directly or by a redirect, to an http one.",
    Confidence.REDIRECTED: "The link still goes the old way; write the new address.",
}


def time(ms: int | None) -> str:
    """RFC 3339 with seconds, UTC; ``-`` without a time."""
    if not ms:
        return "-"
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def printable(text: str) -> str:
    """Text of a site without characters that a terminal, or XML 1.0, could not take."""
    return "".join(char if _is_printable(char) else "\N{REPLACEMENT CHARACTER}" for char in text)


def _is_printable(char: str) -> bool:
    # Controls, and those that turn the direction of what follows: what stands behind them must be read as it is.
    code = ord(char)
    return not (
        code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000 or 0x202A <= code <= 0x202E
        or 0x2066 <= code <= 0x2069 or code in {0xFFFE, 0xFFFF}
    )  # fmt: skip


_ESCAPED = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def json_text(value: object, **how: Any) -> str:
    """``value`` as JSON, readable, with ``how`` for ``json.dumps``; what a terminal would obey is escaped in it."""
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False, **how))


def listed(classes: Mapping[Confidence, int], order: Iterable[Confidence]) -> list[tuple[str, int]]:
    """Names of classes with their counts."""
    return [(str(confidence), classes[confidence]) for confidence in order]
