"""A clock that tests move by hand."""

from __future__ import annotations


class ManualClock:
    """Implements ``durable_crawler.clock.Clock``; begins at an arbitrary but fixed time."""

    def __init__(self, wall_ms: int = 1_800_000_000_000) -> None:
        self._monotonic_ns = 1_000_000_000_000
        self._wall_ns = wall_ms * 1_000_000

    def monotonic(self) -> float:
        return self._monotonic_ns / 1e9

    def wall_ms(self) -> int:
        return self._wall_ns // 1_000_000

    def wall_ns(self) -> int:
        return self._wall_ns

    def advance(self, seconds: float) -> None:
        """Time passes."""
        self._monotonic_ns += round(seconds * 1e9)
        self._wall_ns += round(seconds * 1e9)

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self._wall_ns += round(seconds * 1e9)
