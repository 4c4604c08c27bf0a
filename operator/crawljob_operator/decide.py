"""The decision: from what is declared and what is seen to what shall be written and done. Pure and total.

Called by ``reconcile`` after its live reads; ``apply`` writes the status first and then executes the actions in order.
At most one Pod: a Pod is created only when none was seen, deleted only by its UID, and only if it is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from crawljob.status import ConditionType, CrawlJobStatus
from crawljob_operator import times
from crawljob_operator.actions import Action, DeleteConfig
from crawljob_operator.conditions import Wanted, find, merged, word
from crawljob_operator.identity import trace_id
from crawljob_operator.ledger import described, follows, settle, with_progress
from crawljob_operator.observed import Job, Note, Pod, Seen
from crawljob_operator.policies import (
    change,
    conflicts,
    creation,
    deadlines,
    ending,
    finished,
    invalid,
    isolation,
    readers,
    running,
    suspension,
    volume,
    waiting,
)
from crawljob_operator.policies.view import SOON, Announcement, Plan, Policy, View

POLICIES: tuple[Policy, ...] = (
    ending.settled,
    conflicts.foreign_pod,
    invalid.unusable_spec,
    suspension.suspend,
    deadlines.active,
    waiting.backoff,
    change.remove_ended,
    change.replace_outdated,
    running.terminating,
    deadlines.start,
    running.at_work,
    # From here on there is no Pod.
    conflicts.foreign_objects,
    volume.unusable,
    waiting.refused,
    readers.make_room,
    creation.create,
)
"""Asked in this order; the first that has a plan decides. The last one always has."""


_NOTHING_WRONG = frozenset({"Starting", "NotReady", "Running", "PodTerminating", readers.REASON})
"""Reasons of a crawl that is not over, which need no Event."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What shall be so. ``recheck_at`` is when to look again although nothing may have happened."""

    status: CrawlJobStatus
    actions: tuple[Action, ...] = ()
    announcements: tuple[Announcement, ...] = ()
    recheck_at: datetime | None = None


def decide(job: Job, seen: Seen, now: datetime) -> Decision:
    """Decide for one CrawlJob."""
    if job.deleting:
        return Decision(job.status)
    foreign = seen.pod.uid if seen.pod is not None and seen.pod.owner_uid != job.uid else ""
    pod = None if foreign else seen.pod
    if finished.finished(job):
        status = finished.reopened(job)
        if status is None:
            status, actions, due = finished.rest(job, pod, now)
            return Decision(status, (*volume.upkeep(job, seen, now), *actions), recheck_at=due)
        job = replace(job, status=status)
    ledger = with_progress(settle(job, pod, now, foreign), seen.progress, now)
    if job.restart_request != job.status.observed_restart_request and follows(job, pod):
        ledger = replace(ledger, active_seconds=0)  # what is asked for anew has all its time
    view = View(job, seen, pod, ledger, now)
    plan = next(plan for policy in POLICIES if (plan := policy(view)) is not None)
    return _decision(view, isolation.told(view, plan))


def _decision(view: View, plan: Plan) -> Decision:
    job, seen, ledger, now = view.job, view.seen, view.ledger, view.now
    wanted: dict[ConditionType, Wanted] = {
        "Ready": plan.ready,
        "StorageReady": volume.condition(job, seen, started=ledger.start_time is not None),
        **plan.more,
    }
    old = job.status
    ended = plan.phase in ("Complete", "Failed")
    next_restart = None if plan.clear_restart or ended else ledger.next_restart
    status = old.model_copy(
        update={
            "observed_generation": job.generation,
            "phase": plan.phase,
            "conditions": merged(old.conditions, wanted, job.generation, now),
            "attempt": ledger.attempt,
            "restarts": ledger.restarts,
            "consecutive_failures": ledger.consecutive_failures,
            "unhealthy_ends": ledger.unhealthy_ends,
            "current_pod": ledger.current_pod,
            "last_termination": ledger.last,
            "history": ledger.history,
            "next_restart_time": times.text(next_restart) if next_restart else None,
            "start_time": ledger.start_time,
            "completion_time": times.text(now) if ended else None,
            "active_seconds": ledger.active_seconds,
            "observed_restart_request": job.restart_request if follows(job, view.pod) else old.observed_restart_request,
            "spec_hash": view.pod.spec_hash if view.pod else old.spec_hash,
            "image": (view.pod.image if view.pod else "") or old.image,
            "progress": ledger.progress,
            "trace_id": trace_id(job.uid),
        }
    )
    recheck = plan.recheck_at
    waits = seen.volume is not None and wanted["StorageReady"].status != "True"
    if waits and not ended and plan.phase not in ("Suspended", "Stalled"):
        recheck = min(recheck or now + SOON, now + SOON)
    return Decision(
        status=status,
        actions=(
            *plan.actions,
            *_unused_configs(job.uid, seen, view.pod),
            *creation.restored(view),
            *isolation.restored(view),
            *readers.removed(view),
            *volume.upkeep(job, seen, now),
        ),
        announcements=(*_announced(view, plan), *plan.announcements, *creation.lost(view)),
        recheck_at=recheck,
    )


def _unused_configs(uid: str, seen: Seen, pod: Pod | None) -> tuple[Action, ...]:
    """ConfigMaps of earlier specs, once a Pod tells which one is in use."""
    if pod is None or pod.ended or not pod.config_name:
        return ()
    keep = {pod.config_name, seen.config_name}
    return tuple(
        DeleteConfig(config.name, config.uid)
        for config in seen.configs
        if config.owner_uid == uid and config.name not in keep
    )


def _announced(view: View, plan: Plan) -> tuple[Announcement, ...]:
    """Events for what is new in this status: each once, because the status that carries it is written once."""
    said: list[Announcement] = []
    kinds: tuple[tuple[ConditionType, bool], ...] = (("Complete", False), ("Failed", True), ("Stalled", True))
    for kind, warning in kinds:
        want = plan.more.get(kind)
        if want is None or want.status != "True" or (kind == "Stalled" and plan.phase == "Failed"):
            continue
        before = find(view.job.status.conditions, kind)
        if before is None or before.status != "True" or before.reason != want.note.reason:
            # The end that was the last is told once, as what it means for the job.
            said = [item for item in said if item.note.reason != want.note.reason]
            said.append(Announcement(want.note, warning))
    if (
        plan.phase in ("Pending", "Restarting", "Running")
        and "Restarting" not in plan.more
        and plan.ready.status != "True"
    ):
        ready = find(view.job.status.conditions, "Ready")
        reason = word(plan.ready.note.reason)
        if reason not in _NOTHING_WRONG and (ready is None or ready.reason != reason):
            said.append(Announcement(plan.ready.note, warning=True))
    # What an end led to is said in its place where both have one name: the Event would count it twice.
    reasons = {announcement.note.reason for announcement in said}
    ends = [end for end in view.ledger.entered if end.reason not in reasons]
    return (*(Announcement(Note(e.reason, f"The Pod ended: {described(e)}"), e.counted) for e in ends), *said)
