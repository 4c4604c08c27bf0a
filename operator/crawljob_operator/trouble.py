"""Says in a CrawlJob's status that it cannot be reconciled, where otherwise only the operator's log would know.

For defects of the operator and for what the API server refuses it; a moment's trouble of network or API server is not
told. The next reconcile that works takes the word back.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from crawljob.status import MESSAGE_MAX
from crawljob_operator import times
from crawljob_operator.kube import CRAWLJOBS, NETWORK_ERRORS, ApiError, Kube
from crawljob_operator.workqueue import Key

log = logging.getLogger(__name__)

REASON = "ReconcileError"

_WANTED = {"Ready": "False", "Stalled": "True"}


class Reporting:
    """Reconciles with another handler; raises what that raises, once it is in the status."""

    def __init__(self, kube: Kube, handler: Callable[[Key], Awaitable[float | None]]) -> None:
        self._kube = kube
        self._handler = handler

    async def __call__(self, key: Key) -> float | None:
        """Reconcile one CrawlJob."""
        try:
            return await self._handler(key)
        except NETWORK_ERRORS:
            raise
        except Exception as error:
            if not (isinstance(error, ApiError) and _passes_by(error.status)):
                await self._report(key, f"{type(error).__name__}: {error}")
            raise

    async def _report(self, key: Key, message: str) -> None:
        try:
            raw = await self._kube.get(CRAWLJOBS, key.namespace, key.name)
            patch = _patch(raw, message[:MESSAGE_MAX]) if raw else None
            if patch:
                await self._kube.patch(CRAWLJOBS, key.namespace, key.name, patch, part="status")
        except (ApiError, *NETWORK_ERRORS) as error:
            log.warning("the trouble could not be reported: %s", error, extra={"crawljob": "/".join(key)})


def _passes_by(status: int) -> bool:
    return status in (404, 409, 429) or status >= 500


def _patch(raw: dict[str, Any], message: str) -> dict[str, Any] | None:
    """The status' patch; ``None`` where it says so already, or where the job is finished or on its way out."""
    metadata, status = raw["metadata"], raw.get("status") or {}
    old = {condition["type"]: condition for condition in status.get("conditions") or []}
    finished = any(old.get(kind, {}).get("status") == "True" for kind in ("Complete", "Failed"))
    if finished or metadata.get("deletionTimestamp"):
        return None
    new = {}
    for kind, truth in _WANTED.items():
        before = old.get(kind, {})
        since = before["lastTransitionTime"] if before.get("status") == truth else times.text(datetime.now(UTC))
        new[kind] = {
            "type": kind,
            "status": truth,
            "reason": REASON,
            "message": message,
            "lastTransitionTime": since,
            "observedGeneration": metadata.get("generation") or 0,
        }
    conditions = [*{**old, **new}.values()]
    if conditions == [*old.values()]:
        return None
    guard = {"resourceVersion": metadata["resourceVersion"]}
    return {"metadata": guard, "status": {"phase": "Stalled", "conditions": conditions}}
