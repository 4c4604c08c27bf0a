"""Which pages belong to the crawl: authority, depth, ``scope.include`` and ``scope.exclude``. Pure.

Asked for each link and each redirect, and again for every page that waits when an edited spec is taken over. Seeds
belong to the crawl whatever ``include`` says: they are its entry, often a front page that leads to what is wanted. A
seed that ``exclude`` names is a mistake, and the spec is refused (``crawljob.spec``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Self

from crawljob.patterns import Ruling, UrlPatterns
from crawljob.spec import CrawlJobSpec
from durable_crawler.urls import Refusal, authority, canonical


class LeftOut(StrEnum):
    """Why a page does not belong to the crawl. The names are stored: they may be added to, never renamed."""

    AUTHORITY = "authority"
    """No seed approves it."""
    DEPTH = "depth"
    """More links away from a seed than ``scope.maxDepth``."""
    EXCLUDED = "excluded"
    """A pattern of ``scope.exclude`` matches."""
    NOT_INCLUDED = "not_included"
    """There are patterns in ``scope.include``, and none matches."""


BY_PATTERN = (LeftOut.EXCLUDED, LeftOut.NOT_INCLUDED)
"""What ``Scope.ruling`` says."""


class Scope:
    """What a spec admits. ``seeds`` are canonical URLs; they are admitted, and approve their authorities."""

    def __init__(
        self, seeds: Iterable[str], max_depth: int, include: Sequence[str] = (), exclude: Sequence[str] = ()
    ) -> None:
        self._seeds = frozenset(seeds)
        self._authorities = frozenset(map(authority, self._seeds))
        self._max_depth = max_depth
        self._patterns = UrlPatterns(include, exclude)

    @classmethod
    def of(cls, spec: CrawlJobSpec) -> Self:
        """That of a spec, which has no seed without a canonical form."""
        seeds = [url for url in map(canonical, spec.seeds) if not isinstance(url, Refusal)]
        return cls(seeds, spec.scope.max_depth, spec.scope.include, spec.scope.exclude)

    def objection(self, url: str, depth: int, where: str | None = None) -> LeftOut | None:
        """Why a canonical URL that was found at ``depth`` does not belong to the crawl; ``None`` where it does.

        ``where`` is its authority, if that is known already.
        """
        if (where or authority(url)) not in self._authorities:
            return LeftOut.AUTHORITY
        if depth > self._max_depth:
            return LeftOut.DEPTH
        if not self._patterns:
            return None
        ruling = self.ruling(url)
        if ruling.admitted:
            return None
        return LeftOut.NOT_INCLUDED if ruling.pattern is None else LeftOut.EXCLUDED

    def ruling(self, url: str) -> Ruling:
        """What the patterns say of a canonical URL, and the one that decided."""
        if not self._patterns or url in self._seeds:
            return _UNASKED
        return self._patterns.ruling(url)


_UNASKED = Ruling(True)
