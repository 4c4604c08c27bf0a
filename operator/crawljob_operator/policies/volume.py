"""The frontier's volume: whether it can be used, how large it is, and whose it is when the CrawlJob goes."""

from __future__ import annotations

from datetime import datetime

from crawljob.units import quantity
from crawljob_operator.actions import Action, ChangeVolume
from crawljob_operator.conditions import Wanted
from crawljob_operator.observed import Job, Note, Seen, Volume
from crawljob_operator.policies.view import SOON, Plan, View


def unusable(view: View) -> Plan | None:
    """A claim that is not there, or on its way out, holds no Pod."""
    volume, existing = view.seen.volume, view.spec.storage.existing_claim
    if volume is None and existing is not None:
        note = Note("PVCNotFound", f"storage.existingClaim: there is no PersistentVolumeClaim {existing}.")
    elif volume is not None and volume.deleting:
        note = Note("PVCTerminating", f"Volume {volume.name} is being deleted; the crawl waits until it is gone.")
    else:
        return None
    return Plan("Pending", Wanted("False", note), recheck_at=view.now + SOON)


def upkeep(job: Job, seen: Seen, now: datetime) -> tuple[Action, ...]:
    """Enlarge our claim when the spec asks for more, and make it follow or outlive the CrawlJob as the spec says."""
    volume = _ours(job, seen)
    if volume is None or volume.deleting or job.spec is None:
        return ()
    owned = job.spec.storage.when_deleted == "Delete"
    refused = seen.resize_refusal is not None and seen.resize_refusal.retry_at > now
    size = job.spec.storage.wanted_size if _to_grow(job, volume) and not refused else None
    if size is None and owned == bool(volume.owner_uid):
        return ()
    return (ChangeVolume(volume.name, volume.uid, size, None if owned == bool(volume.owner_uid) else owned),)


def condition(job: Job, seen: Seen, *, started: bool) -> Wanted:
    """``StorageReady``."""
    volume = seen.volume
    if volume is None:
        note = Note("PVCLost", "The volume is gone.") if started else Note("NotCreated", "There is no volume yet.")
    elif _ours(job, seen) is None and (job.spec is None or job.spec.storage.existing_claim is None):
        note = Note("PVCConflict", f"{volume.name} belongs to somebody else.")
    elif volume.deleting:
        note = Note("PVCTerminating", f"{volume.name} is being deleted.")
    elif volume.phase == "Bound":
        pending = _resizing(job, seen, volume)
        return Wanted("False", pending) if pending else Wanted("True", Note("Bound", f"{volume.name} is bound."))
    elif volume.phase == "Lost":
        note = Note("PVCLost", f"{volume.name} has lost its PersistentVolume.")
    elif volume.note is not None and volume.note.reason == "WaitForFirstConsumer":
        return Wanted("Unknown", volume.note)
    else:
        note = Note("PVCPending", volume.note.message if volume.note else f"{volume.name} is not bound yet.")
    return Wanted("False", note)


def _ours(job: Job, seen: Seen) -> Volume | None:
    if job.spec is not None and job.spec.storage.existing_claim is not None:
        return None
    return seen.volume if seen.volume is not None and seen.volume.belongs_to(job.uid) else None


def _to_grow(job: Job, volume: Volume) -> bool:
    """Only a bound claim can be enlarged."""
    if job.spec is None or volume.phase != "Bound" or volume.requested is None:
        return False
    return quantity(job.spec.storage.wanted_size) > volume.requested


def _resizing(job: Job, seen: Seen, volume: Volume) -> Note | None:
    if _ours(job, seen) is None:
        return None
    if _to_grow(job, volume):
        why = seen.resize_refusal.note.message if seen.resize_refusal else "the larger size is being asked for"
        return Note("ResizePending", f"{volume.name} is bound; {why}")
    if volume.requested is not None and volume.capacity is not None and volume.capacity < volume.requested:
        why = volume.resizing or "the storage driver has not done it yet"
        return Note("ResizePending", f"{volume.name} is bound and being enlarged; {why}")
    return None
