"""Reads a running crawler's own counts from its Pod; one that does not answer costs a second and nothing else.

The second is a worker's of the queue: Pods that stay silent are asked less and less often. Else a thousand of them,
behind a policy that keeps the operator out, would take all workers for themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import aiohttp
from pydantic import ValidationError

from crawljob.summary import Progress
from crawljob_operator.observed import Pod

LIMIT_SECONDS = 1.0
MAX_BYTES = 64 * 1024
SILENT_MAX = 16
"""Intervals between two questions to a Pod that never answers."""


@dataclass(frozen=True, slots=True)
class _Asked:
    pod_uid: str
    due: float
    silent: int
    """Questions in a row without an answer."""


class ProgressReader:
    """Asks each Pod at most once per interval, and a silent one after twice as long each time."""

    def __init__(self, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.interval = interval
        self._clock = clock
        self._asked: dict[str, _Asked] = {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        # A proxy of the operator's environment is for the outside world, not for Pods.
        self._session = aiohttp.ClientSession(trust_env=False, connector=aiohttp.TCPConnector(force_close=True))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def read(self, job_uid: str, pod: Pod, port: int) -> Progress | None:
        """The crawler's counts, or ``None`` when it is not due or does not answer."""
        if pod.running_since is None or pod.ended or pod.deleting or not pod.ip or self.due_in(job_uid, pod) > 0:
            return None
        progress = await self._ask(pod.ip, port)
        before = self._asked.get(job_uid)
        silent = 0 if progress is not None else 1 + (before.silent if before and before.pod_uid == pod.uid else 0)
        wait = self.interval * min(2 ** max(0, silent - 1), SILENT_MAX)
        self._asked[job_uid] = _Asked(pod.uid, self._clock() + wait, silent)
        return progress

    async def _ask(self, ip: str, port: int) -> Progress | None:
        assert self._session is not None, "used within async with"
        host = f"[{ip}]" if ":" in ip else ip
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                async with self._session.get(f"http://{host}:{port}/progress", allow_redirects=False) as response:
                    if response.status != 200:
                        return None
                    body = await response.content.read(MAX_BYTES)
                    while chunk := await response.content.read(MAX_BYTES):
                        body += chunk
                        if len(body) > MAX_BYTES:
                            return None
            progress = Progress.model_validate_json(body)
        except (aiohttp.ClientError, TimeoutError, OSError, ValidationError):
            return None
        # A rate's last digits change for ever; they must not make a write of every reading.
        return progress.model_copy(update={"rate": round(progress.rate, 1)})

    def due_in(self, job_uid: str, pod: Pod) -> float:
        """Seconds until this Pod may be asked again."""
        asked = self._asked.get(job_uid)
        return max(0.0, asked.due - self._clock()) if asked is not None and asked.pod_uid == pod.uid else 0.0

    def forget(self, job_uid: str) -> None:
        """The CrawlJob is gone."""
        self._asked.pop(job_uid, None)
