"""What a crawl's time goes into, added up over all of its processes. Pure; ``sqlite`` stores it with its flushes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

DATABASE, PARSING = "database", "parsing"
"""Causes that the frontier knows by itself: its own transactions, and the pages whose results it is given."""


class Spent:
    """Seconds of this process by cause, and how much of them is stored."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._stored_ms: dict[str, int] = {}

    def add(self, cause: str, seconds: float) -> None:
        """So much more."""
        self._seconds[cause] = self._seconds.get(cause, 0.0) + seconds

    def told(self, totals: Mapping[str, float]) -> None:
        """What others have added up since the process began."""
        self._seconds.update(totals)

    def due(self) -> Sequence[tuple[str, int]]:
        """Milliseconds by cause that are not stored yet."""
        whole = {cause: int(seconds * 1000) for cause, seconds in self._seconds.items()}
        missing = ((cause, ms - self._stored_ms.get(cause, 0)) for cause, ms in whole.items())
        return [(cause, ms) for cause, ms in missing if ms > 0]

    def stored(self, rows: Sequence[tuple[str, int]]) -> None:
        """What ``due`` gave was committed."""
        for cause, ms in rows:
            self._stored_ms[cause] = self._stored_ms.get(cause, 0) + ms
