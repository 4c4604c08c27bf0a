"""One signal's way out of the process: a daemon thread that exports, and that can always be left behind.

One is opened per signal. The thread imports and builds its exporter, waits, exports, and backs off while the
collector is away. The event loop only appends, wakes and, at the end, waits for a bounded time; the times here are the
machine's, not an injected clock's, because a thread lives in real time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import Protocol, TypeVar

from crawljob_telemetry.limited import NOISY, Limited

EXPORT_TIMEOUT_S = 1.5
"""Limit of one export; less than a close may take."""

BACKOFF_MAX_S = 30.0

Batch = TypeVar("Batch")

_logger = logging.getLogger(__name__)
_log = Limited(_logger, interval=60.0)
_building = threading.Lock()


class Signal(Protocol):
    """What a sink sends; every method is called in the sink's thread."""

    def batches(self) -> Iterator[bool]:
        """Export what is there, batch by batch; yields whether each was taken. Ends when nothing is left for now."""
        ...

    def abandon(self) -> None:
        """Count what is still there as dropped: nobody will send it."""
        ...

    def shutdown(self) -> None:
        """Close the exporter's connection."""
        ...


def took(export: Callable[[Batch], Enum], batch: Batch) -> bool:
    """Whether an exporter got rid of a batch. What it raises is a failure too, logged at most once a minute."""
    try:
        return export(batch).name == "SUCCESS"
    except Exception as error:  # noqa: BLE001 - they let through what some answers cause, a corrupt RetryInfo for one
        kind = type(error).__name__  # and not its words: gRPC's name the headers that were to be sent
        _log.warning(kind, "telemetry: an exporter ended with %s", kind)
        return False


class Sink:
    """A thread around a signal. ``start`` once, ``wake`` any time, ``close`` once."""

    def __init__(self, name: str, build: Callable[[], Signal], abandon: Callable[[], None], interval: float) -> None:
        """``build`` imports and makes the signal; ``abandon`` counts what is lost when it cannot; seconds."""
        self._name = name
        self._build = build
        self._abandon = abandon
        self._interval = interval
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._deadline = float("inf")
        self._on_closed: Callable[[], None] = _nothing
        self._thread = threading.Thread(target=self._run, name=f"telemetry-{name}", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def wake(self) -> None:
        """A full batch waits: do not sit out the interval."""
        self._wake.set()

    def close(self, seconds: float, on_closed: Callable[[], None]) -> None:
        """Ask for a last export within ``seconds`` and return at once; ``on_closed`` is called in the thread."""
        self._deadline = time.monotonic() + seconds
        self._on_closed = on_closed
        self._closing.set()
        self._wake.set()

    def _run(self) -> None:
        try:
            self._serve()
        except Exception:  # a bug or a broken installation costs telemetry and nothing else
            _logger.exception("telemetry: %s are no longer sent", self._name)
            self._closing.wait()
            self._abandon()
        finally:
            self._on_closed()

    def _serve(self) -> None:
        for name in NOISY:
            # A level, unlike a filter, holds for all loggers below that have none of their own.
            logging.getLogger(name).setLevel(logging.CRITICAL)
        with _building:  # both signals import the same modules
            signal = self._build()
        failures = 0
        while True:
            self._pause(failures)
            closing = self._closing.is_set()
            failures = 0 if self._export(signal) else failures + 1
            # A close during a failed export does not try again: the limit of one export is most of a close's time.
            if closing or (failures and self._closing.is_set()):
                break
        signal.abandon()
        signal.shutdown()

    def _pause(self, failures: int) -> None:
        if failures:
            self._closing.wait(max(self._interval, min(2.0 ** (failures - 1), BACKOFF_MAX_S)))
        else:
            self._wake.wait(self._interval)
        self._wake.clear()

    def _export(self, signal: Signal) -> bool:
        for taken in signal.batches():
            if not taken:
                _log.warning(
                    self._name, "telemetry: the collector does not take %s; nothing else is affected", self._name
                )
                return False
            if time.monotonic() >= self._deadline:
                break
        return True


async def close(sinks: Sequence[Sink], timeout: float) -> None:
    """Let all of them export once more, for at most ``timeout`` seconds together; what is left then is dropped."""
    loop = asyncio.get_running_loop()
    done = [asyncio.Event() for _ in sinks]
    for sink, event in zip(sinks, done, strict=True):
        sink.close(timeout, partial(_tell, loop, event))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            for event in done:
                await event.wait()


def _tell(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody waits any more
        loop.call_soon_threadsafe(event.set)


def _nothing() -> None:
    return
