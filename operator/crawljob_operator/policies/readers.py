"""A Job that reads results from the volume: it makes room when the crawl starts again, whoever made it.

A volume has one user at a time. ``kubectl crawl report`` makes such a Job where no Pod of the crawl runs, and removes
it afterwards; its maker may be gone, and a crawl does not wait for a reader.
"""

from __future__ import annotations

from datetime import timedelta

from crawljob.status import Phase
from crawljob_operator.actions import Action, DeleteReader
from crawljob_operator.conditions import Wanted
from crawljob_operator.observed import Job, Note, Pod, Reader
from crawljob_operator.policies import finished
from crawljob_operator.policies.view import Plan, View

REASON = "ResultsBeingRead"
SOON = timedelta(seconds=2)
"""Jobs are not watched, and a reader has gone a second or two after it was told to."""


def matters(job: Job, pod: Pod | None) -> bool:
    """Whether a reader would be in the way: the crawl is to run, and its Pod is not there or has not started."""
    if job.spec is None or job.spec.suspend or (finished.finished(job) and finished.reopened(job) is None):
        return False
    return pod is None or (pod.owner_uid == job.uid and not pod.ended and pod.running_since is None)


def make_room(view: View) -> Plan | None:
    """No Pod is created as long as a reader, or the Pod of one, is there."""
    reader = _ours(view)
    if reader is None:
        return None
    message = f"Job {reader.name} reads results from the volume; it is being removed, and the crawl starts after that."
    phase: Phase = "Restarting" if view.ledger.restarts else "Pending"
    ready = Wanted("False", Note(REASON, message))
    return Plan(phase, ready, actions=_deletion(reader), recheck_at=view.now + SOON, clear_restart=True)


def removed(view: View) -> tuple[Action, ...]:
    """One that came while the crawl's Pod was on its way: that Pod would wait for the volume."""
    pod, reader = view.living, _ours(view)
    if pod is None or pod.deleting or pod.running_since is not None or reader is None:
        return ()
    return _deletion(reader)


def _ours(view: View) -> Reader | None:
    """Somebody else's Job of that name has not got our volume either (law O6)."""
    reader = view.seen.reader
    return reader if reader is not None and reader.owner_uid == view.job.uid else None


def _deletion(reader: Reader) -> tuple[Action, ...]:
    return () if reader.deleting else (DeleteReader(reader.name, reader.uid),)
