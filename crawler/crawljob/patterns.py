"""Which URLs ``scope.include`` and ``scope.exclude`` mean, and which of their patterns decides. Pure.

A pattern is compared with a whole canonical URL, or, where it begins with ``/``, with its path and query. ``*`` stands
for any characters, also ``/`` and none; everything else stands for itself, ``?`` too, since URLs have it. There are no
regular expressions: what a pattern costs is linear in its length and the URL's, whatever somebody writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

PATTERN_SYNTAX = r"""^(/|\*|https?\*?://[a-z0-9.:*_\[\]-]*[/*])[!"$-~]*$"""
"""What can match a canonical URL at all; for the API server, too (RE2)."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """Whether the patterns admit a URL, and the one that decided: none where ``include`` is empty or has no match."""

    admitted: bool
    pattern: str | None = None


class UrlPatterns:
    """A URL is admitted when no ``exclude`` matches, and one ``include`` does or there are none."""

    __slots__ = ("_exclude", "_include")

    def __init__(self, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        self._include = tuple(map(UrlPattern, include))
        self._exclude = tuple(map(UrlPattern, exclude))

    def __bool__(self) -> bool:
        return bool(self._include or self._exclude)

    def ruling(self, url: str) -> Ruling:
        """What becomes of a canonical URL. The first pattern that matches decides, in the order of the spec."""
        target = "/" + url.split("/", 3)[3]
        for pattern in self._exclude:
            if pattern.matches(url, target):
                return Ruling(False, pattern.text)
        for pattern in self._include:
            if pattern.matches(url, target):
                return Ruling(True, pattern.text)
        return Ruling(not self._include)


class UrlPattern:
    """One pattern, ready to be compared with many URLs."""

    __slots__ = ("_end", "_literal", "_middle", "_of_target", "_start", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._of_target = text.startswith("/")
        self._start, *middle, self._end = text.split("*") if "*" in text else (text, "")
        self._literal = "*" not in text
        self._middle = [_search(piece) for piece in middle if piece]

    def matches(self, url: str, target: str) -> bool:
        """Whether it matches; ``target`` is the URL's path and query."""
        subject = target if self._of_target else url
        if self._literal:
            return subject == self._start
        at, end = len(self._start), len(subject) - len(self._end)
        if end < at or not subject.startswith(self._start) or not subject.endswith(self._end):
            return False
        # Each piece where it comes first leaves the most for those after it, so that nothing is ever tried again.
        for search in self._middle:
            found = search(subject, at, end)
            if found is None:
                return False
            at = found.end()
        return True


def _search(piece: str) -> Callable[[str, int, int], re.Match[str] | None]:
    """Finds a literal in linear time: ``re`` does it by Knuth, Morris and Pratt; ``str.find`` takes the product of both
    lengths where they are small."""
    return re.compile(re.escape(piece)).search
