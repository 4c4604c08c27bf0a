"""Kubernetes Events about a CrawlJob: one per reason, with a count, however often it happens."""

from __future__ import annotations

from datetime import datetime

from crawljob import API_GROUP, API_VERSION, KIND
from crawljob_operator import identity, names, times
from crawljob_operator.conditions import word
from crawljob_operator.kube import EVENTS, ConflictError, Kube, NotFoundError
from crawljob_operator.observed import Job
from crawljob_operator.policies.view import Announcement

MESSAGE_MAX = 1024
_MORE = "; ... (in full in the status)"


async def announce(kube: Kube, job: Job, announcement: Announcement, now: datetime) -> None:
    """Record an Event, or count it where the same was recorded before."""
    reason, message = word(announcement.note.reason), _shortened(announcement.note.message)
    name = identity.child_name(job.name, job.uid, reason)
    time = times.text(now)
    existing = [e async for e in kube.items(EVENTS, job.namespace, fields=f"metadata.name={name}", limit=1)]
    if existing:
        count = existing[0].get("count") or 1
        patch = {"count": count + 1, "lastTimestamp": time, "message": message}
        try:
            await kube.patch(EVENTS, job.namespace, name, patch)
        except NotFoundError:
            pass  # it expired just now; the next one is made anew
        else:
            return
    try:
        await kube.create(
            EVENTS,
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": job.namespace},
                "involvedObject": {
                    "apiVersion": f"{API_GROUP}/{API_VERSION}",
                    "kind": KIND,
                    "namespace": job.namespace,
                    "name": job.name,
                    "uid": job.uid,
                },
                "reason": reason,
                "message": message,
                "type": "Warning" if announcement.warning else "Normal",
                "count": 1,
                "firstTimestamp": time,
                "lastTimestamp": time,
                "source": {"component": names.FIELD_MANAGER},
            },
        )
    except ConflictError:
        return  # somebody has just recorded it


def _shortened(message: str) -> str:
    """The API server takes no longer one; the CrawlJob's status has it all."""
    if len(message) <= MESSAGE_MAX:
        return message
    kept = message[: MESSAGE_MAX - len(_MORE)]
    return (kept.rpartition("; ")[0] or kept) + _MORE
