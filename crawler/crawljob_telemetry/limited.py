"""Log lines that would come in thousands: who says them, and how they are thinned out."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

NOISY = ("opentelemetry", "urllib3", "requests", "grpc")
"""Loggers that say two to four lines a second while a collector is away: the exporters' counts are reported instead."""


class Limited:
    """Warnings that may come in thousands: at most one per key in ``interval`` seconds, with how many were left out.

    Safe from any thread. Keys are bounded; the one that was used least lately is forgotten.
    """

    def __init__(
        self,
        logger: logging.Logger,
        *,
        interval: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        max_keys: int = 256,
    ) -> None:
        self._logger = logger
        self._interval = interval
        self._clock = clock
        self._max_keys = max_keys
        self._keys: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._lock = threading.Lock()

    def warning(self, key: str, message: str, *args: object, exc_info: bool = False, **extra: object) -> None:
        """Log ``message`` unless ``key`` was logged within the interval; ``extra`` become fields of the line."""
        now = self._clock()
        with self._lock:
            last, suppressed = self._keys.pop(key, (None, 0))
            if last is not None and now - last < self._interval:
                self._keys[key] = (last, suppressed + 1)
                return
            self._keys[key] = (now, 0)
            while len(self._keys) > self._max_keys:
                self._keys.popitem(last=False)
        if suppressed:
            extra["suppressed"] = suppressed
        self._logger.warning(message, *args, exc_info=exc_info, extra=extra)
