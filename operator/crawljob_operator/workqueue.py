"""One reconcile at a time per CrawlJob, however many events arrive; errors wait longer each time, others go on.

Keys wait in order; a key that is woken while it is worked on is worked on once more afterwards.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from crawljob_operator.observer import Observer

log = logging.getLogger(__name__)

ERROR_FIRST_SECONDS = 1.0
ERROR_MAX_SECONDS = 300.0
WOKEN_SECONDS = 15.0
"""A key that fails is tried no later than this when it is woken, and no sooner than its wait says: an event may be the
echo of our own write."""


class Key(NamedTuple):
    """A CrawlJob's namespace and name."""

    namespace: str
    name: str


Handler = Callable[[Key], Awaitable[float | None]]
"""Reconciles one CrawlJob; returns in how many seconds to do so again although nothing may have happened."""


class WorkQueue:
    """Wakes a handler for keys. Its methods are for the event loop's own thread."""

    def __init__(
        self,
        handler: Handler,
        workers: int = 8,
        observer: Observer | None = None,
        ordinary: tuple[type[Exception], ...] = (),
    ) -> None:
        """``ordinary`` errors say all by themselves: only others, which are defects, are logged with a traceback."""
        self._handler = handler
        self._observer = observer or Observer()
        self._workers = workers
        self._ordinary = ordinary
        self._ready: asyncio.Queue[Key] = asyncio.Queue()
        self._waiting: dict[Key, float] = {}
        """Since when."""
        self._active: set[Key] = set()
        self._again: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}

    def wake(self, key: Key) -> None:
        """Have the key worked on soon."""
        if key in self._active:
            self._again.add(key)
        elif key in self._failures and key in self._timers:
            self._hurry(key)
        elif key not in self._waiting:
            self._waiting[key] = time.monotonic()
            self._ready.put_nowait(key)

    def depth(self) -> int:
        """How many keys wait. For any thread."""
        return len(self._waiting)

    async def run(self) -> None:
        """Work until cancelled. A handler's exception never ends it."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(), name=f"reconcile worker {number}")

    async def _work(self) -> None:
        while True:
            key = await self._ready.get()
            self._observer.taken(time.monotonic() - self._waiting.pop(key))
            self._active.add(key)
            timer = self._timers.pop(key, None)
            if timer is not None:
                timer.cancel()
            try:
                delay = await self._handle(key)
            finally:
                self._active.discard(key)
            if delay is not None:
                self._timers[key] = asyncio.get_running_loop().call_later(delay, self._due, key)
            if key in self._again:
                self._again.discard(key)
                self.wake(key)

    async def _handle(self, key: Key) -> float | None:
        started = time.monotonic()
        try:
            delay: float | None = await self._handler(key)
        except Exception as error:
            self._observer.reconciled("error", time.monotonic() - started)
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            wait: float = min(ERROR_FIRST_SECONDS * 2 ** min(failures - 1, 20), ERROR_MAX_SECONDS)
            wait *= random.uniform(0.8, 1)  # noqa: S311 - spreads retries, guards nothing
            log.warning(
                "reconcile failed: %s",
                error or type(error).__name__,
                extra={"crawljob": "/".join(key), "failures": failures, "retry_in": round(wait, 1)},
                exc_info=failures == 1 and not isinstance(error, self._ordinary),
            )
            return wait
        self._failures.pop(key, None)
        self._observer.reconciled("success", time.monotonic() - started)
        log.debug("reconciled", extra={"crawljob": "/".join(key), "seconds": round(time.monotonic() - started, 3)})
        return delay

    def _hurry(self, key: Key) -> None:
        loop, timer = asyncio.get_running_loop(), self._timers[key]
        if timer.when() - loop.time() > WOKEN_SECONDS:
            timer.cancel()
            self._timers[key] = loop.call_later(WOKEN_SECONDS, self._due, key)

    def _due(self, key: Key) -> None:
        self._timers.pop(key, None)
        self.wake(key)
