"""Never deaf: a full listing at intervals finds what the watches have missed, and a watchdog ends a deaf process.

A process that cannot hear any more must not look healthy: it ends, nonzero, and is started again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable

from crawljob_operator import names
from crawljob_operator.kube import CRAWLJOBS, NETWORK_ERRORS, PODS, VOLUMES, ApiError, Kube
from crawljob_operator.observer import Observer
from crawljob_operator.workqueue import Key

log = logging.getLogger(__name__)

RETRY_SECONDS = 15.0
FAILING_LIMIT_SECONDS = 300.0
MISSING_LIMIT_SECONDS = 60.0
LOOK_SECONDS = 5.0


class DeafError(RuntimeError):
    """Events do not reach us any more, and waiting has not helped."""


class Resync:
    """Lists all CrawlJobs and wakes them; also shows that the rights on their Pods and volumes are still there."""

    def __init__(
        self,
        kube: Kube,
        namespaces: tuple[str, ...],
        interval: float,
        wake: Callable[[Key], None],
        observer: Observer | None = None,
    ) -> None:
        self._kube = kube
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)
        self._interval = interval
        self._wake = wake
        self._observer = observer or Observer()

    async def first(self) -> None:
        """List until it works: before that, a watch on a kind that is not there yet would never begin."""
        while True:
            error = await self._attempt()
            if error is None:
                return
            log.warning("waiting for the API server and the CrawlJob kind: %s", error)
            await asyncio.sleep(min(RETRY_SECONDS, self._interval))

    async def run(self) -> None:
        """List for ever. Raises ``DeafError`` when it has not worked for five minutes."""
        failing_since: float | None = None
        while True:
            wait = self._interval if failing_since is None else min(RETRY_SECONDS, self._interval)
            await asyncio.sleep(wait * random.uniform(0.9, 1.1))  # noqa: S311 - spreads load, guards nothing
            error = await self._attempt()
            if error is None:
                failing_since = None
                continue
            failing_since = failing_since or time.monotonic()
            log.warning("resync failed: %s", error)
            if time.monotonic() - failing_since > FAILING_LIMIT_SECONDS:
                raise DeafError(f"Listing has failed for {FAILING_LIMIT_SECONDS:.0f} s, lastly: {error}")

    async def _attempt(self) -> Exception | None:
        """List all namespaces; the error that counts, if any.

        One that we may not even list CrawlJobs in, as after its deletion, which takes our Role with it, does not count
        as long as there are others: an end would help nobody, and theirs would wait for ever.
        """
        self._observer.listing()
        closed: list[tuple[str, ApiError]] = []
        try:
            for namespace in self._namespaces:
                try:
                    await self._wake_all(namespace)
                except ApiError as error:
                    if namespace is None or error.status != 403:
                        raise
                    closed.append((namespace, error))
                    continue
                for resource in (PODS, VOLUMES):
                    async for _ in self._kube.items(resource, namespace, labels=names.SELECTOR, limit=1):
                        pass
        except (ApiError, *NETWORK_ERRORS) as error:
            return error
        if len(closed) == len(self._namespaces):
            return closed[0][1]
        for namespace, refusal in closed:
            log.warning("nothing is done in the namespace %s until it and its Role are there: %s", namespace, refusal)
        self._observer.listing_ended([namespace for namespace, _ in closed])
        return None

    async def _wake_all(self, namespace: str | None) -> None:
        async for item in self._kube.items(CRAWLJOBS, namespace):
            self._observer.listed(item)
            self._wake(Key(item["metadata"]["namespace"], item["metadata"]["name"]))


def missing(expected: frozenset[str]) -> frozenset[str]:
    """Names of watchers' tasks that do not exist."""
    return expected - {task.get_name() for task in asyncio.all_tasks()}


async def watch_over(expected: frozenset[str]) -> None:
    """Raise ``DeafError`` when a watcher's task has been missing for a minute."""
    missing_since: float | None = None
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        gone = missing(expected)
        if not gone:
            missing_since = None
            continue
        missing_since = missing_since or time.monotonic()
        if time.monotonic() - missing_since > MISSING_LIMIT_SECONDS:
            raise DeafError(f"No {', '.join(sorted(gone))} for {MISSING_LIMIT_SECONDS:.0f} s")
