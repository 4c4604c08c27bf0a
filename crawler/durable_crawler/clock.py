"""Time as a parameter: everything that decides takes a ``Clock``, so that tests own it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks of different use: ``monotonic`` for arithmetic in the process, ``wall_*`` for what is kept or sent."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch (UTC)."""
        ...

    def wall_ns(self) -> int:
        """Nanoseconds since the epoch (UTC), for spans."""
        ...


class SystemClock:
    """The machine's clocks, the wall's read once.

    From then on it goes on with the monotonic clock: a machine whose time is set back or forth by an hour neither
    expires leases nor opens the gates of hosts.
    """

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def monotonic(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return self.wall_ns() // 1_000_000

    def wall_ns(self) -> int:
        return time.monotonic_ns() + self._offset_ns
