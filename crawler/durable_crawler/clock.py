"""Time as a parameter: everything that decides takes a ``Clock``, so that tests own it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks of different use: ``monotonic`` for arithmetic in the process, ``wall_ms`` for what is stored."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch (UTC); may jump."""
        ...

    def wall_ns(self) -> int:
        """Nanoseconds since the epoch, for spans."""
        ...


class SystemClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)
    wall_ns = staticmethod(time.time_ns)

    @staticmethod
    def wall_ms() -> int:
        return time.time_ns() // 1_000_000
