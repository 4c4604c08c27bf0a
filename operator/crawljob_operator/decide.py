"""The decision: from what is declared and what is seen to what shall be written and done. Pure and total.

Called by ``reconcile`` after its live reads; ``apply`` writes the status first and then executes the actions in order.
At most one Pod: a Pod is created only when none was seen, deleted only by its UID, and only if it is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from crawljob.spec import RestartPolicy
from crawljob.status import MESSAGE_MAX, Condition, ConditionType, CrawlJobStatus, Phase
from crawljob_operator import times
from crawljob_operator.conditions import Wanted, find, holds, merged
from crawljob_operator.identity import spec_hash, trace_id
from crawljob_operator.ledger import Ledger, described, healthy_at, requested_stop, settle, with_progress
from crawljob_operator.observed import Job, Note, Pod, Refusal, Seen, Volume
from crawljob_operator.podstate import explain

SOON = timedelta(seconds=30)
"""When to look again at what no watch reports: Events about a volume, a foreign object in the way."""


TOO_LATE = " (The spec was edited since; a finished crawl does not run again.)"


@dataclass(frozen=True, slots=True)
class CreateVolume:
    """Create the PersistentVolumeClaim."""


@dataclass(frozen=True, slots=True)
class CreateConfig:
    """Create the ConfigMap with the crawler's file."""


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create the Pod of this attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete this Pod and no other, gracefully."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class DeleteConfig:
    """Delete a ConfigMap that no Pod uses any more."""

    name: str
    uid: str


Action = CreateVolume | CreateConfig | CreatePod | DeletePod | DeleteConfig


@dataclass(frozen=True, slots=True)
class Announcement:
    """An Event to be recorded after the status is written."""

    note: Note
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What shall be so. ``recheck_at`` is when to look again although nothing may have happened."""

    status: CrawlJobStatus
    actions: tuple[Action, ...] = ()
    announcements: tuple[Announcement, ...] = ()
    recheck_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    """One branch's answer, before it is made a status."""

    phase: Phase
    ready: Wanted
    more: dict[ConditionType, Wanted] = field(default_factory=dict)
    actions: tuple[Action, ...] = ()
    recheck_at: datetime | None = None
    announcements: tuple[Announcement, ...] = ()
    clear_restart: bool = False


def decide(job: Job, seen: Seen, now: datetime) -> Decision:
    """Decide for one CrawlJob."""
    if job.deleting:
        return Decision(job.status)
    foreign = seen.pod is not None and seen.pod.owner_uid != job.uid
    pod = None if foreign else seen.pod
    if holds(job.status.conditions, "Complete") or holds(job.status.conditions, "Failed"):
        return _finished_before(job, pod)

    policy = job.spec.restart_policy if job.spec else RestartPolicy()
    ledger = with_progress(settle(job.status, pod, job.uid, policy, now), seen.progress, now)
    if ledger.complete or ledger.failed:
        plan = _finish(ledger, pod)
    elif foreign:
        plan = _conflict("PodConflict", f"The Pod {seen.pod.name if seen.pod else ''} belongs to somebody else.", now)
    elif job.spec is None:
        plan = _invalid(job)
    elif pod is None:
        plan = _without_pod(job, seen, ledger, now)
    elif pod.ended:
        plan = _with_ended_pod(job.spec.suspend, pod, ledger, now)
    else:
        plan = _with_living_pod(job, pod, ledger, now)
    return _decision(job, seen, pod, ledger, plan, now)


def _finished_before(job: Job, pod: Pod | None) -> Decision:
    """A finished job stays as it is; a Pod that an injected sidecar keeps alive has no reason to live."""
    ran = job.status.spec_hash
    edited = job.spec is not None and ran not in ("", spec_hash(job.spec))
    conditions = tuple(_of_finished(condition, job.generation, edited=edited) for condition in job.status.conditions)
    status = job.status.model_copy(update={"observed_generation": job.generation, "conditions": conditions})
    return Decision(status, _stopped(pod) if pod and not pod.at_rest else ())


def _of_finished(condition: Condition, generation: int, *, edited: bool) -> Condition:
    """The condition as it is; ``Ready`` says, where that is so, that an edit came too late."""
    message = condition.message.removesuffix(TOO_LATE)
    if edited and condition.type == "Ready":
        message = message[: MESSAGE_MAX - len(TOO_LATE)] + TOO_LATE
    return condition.model_copy(update={"observed_generation": generation, "message": message})


def _finish(ledger: Ledger, pod: Pod | None) -> _Plan:
    actions = _stopped(pod) if pod and not pod.at_rest else ()
    if ledger.complete:
        done = Wanted("True", ledger.complete)
        return _Plan("Complete", done, {"Complete": done}, actions)
    assert ledger.failed is not None, "finish is for finished jobs"
    failed = Wanted("True", ledger.failed)
    return _Plan("Failed", Wanted("False", ledger.failed), {"Failed": failed, "Stalled": failed}, actions)


def _conflict(reason: str, message: str, now: datetime) -> _Plan:
    return _stalled(Note(reason, f"{message} It is left alone; the crawl goes on when it is gone."), now + SOON)


def _stalled(note: Note, recheck_at: datetime | None = None) -> _Plan:
    return _Plan("Stalled", Wanted("False", note), {"Stalled": Wanted("True", note)}, recheck_at=recheck_at)


def _invalid(job: Job) -> _Plan:
    return _stalled(Note("InvalidSpec", "; ".join(map(str, job.problems)) or "The spec cannot be read."))


def _without_pod(  # noqa: PLR0911 - what there is to wait for, in order
    job: Job, seen: Seen, ledger: Ledger, now: datetime
) -> _Plan:
    """Wait for the time, the volume and the API server's consent; then create what is missing, the Pod last."""
    assert job.spec is not None, "an invalid spec is answered before"
    if job.spec.suspend:
        note = Note("Suspended", "The crawl is suspended; its volume is kept.")
        return _Plan("Suspended", Wanted("True", note), {"Suspended": Wanted("True", note)})
    if ledger.next_restart is not None and ledger.next_restart > now:
        return _backing_off(ledger, ledger.next_restart)
    conflict = _foreign(job.uid, seen)
    if conflict:
        return _conflict(*conflict, now)
    if seen.volume is not None and seen.volume.deleting:
        note = Note("PVCTerminating", f"Volume {seen.volume.name} is being deleted; the crawl waits until it is gone.")
        return _Plan("Pending", Wanted("False", note), recheck_at=now + SOON)
    if seen.refusal is not None and seen.refusal.retry_at > now:
        return _refused(seen.refusal, seen.refusal.retry_at)
    actions: list[Action] = []
    announcements: tuple[Announcement, ...] = ()
    if seen.volume is None:
        actions.append(CreateVolume())
        if ledger.start_time is not None:
            lost = Note("FrontierLost", "The volume is gone, and the crawl's state with it; it begins anew.")
            announcements = (Announcement(lost, warning=True),)
    if not any(config.name == seen.config_name for config in seen.configs):
        actions.append(CreateConfig())
    attempt = ledger.restarts + 1
    actions.append(CreatePod(attempt))
    if seen.refusal is not None:
        # The status goes on saying so until the creation has worked: two writes per attempt would be no quiet.
        refused = _refused(seen.refusal, now + SOON)
        return replace(refused, actions=tuple(actions), announcements=announcements, clear_restart=True)
    return _Plan(
        "Restarting" if ledger.restarts else "Pending",
        Wanted("False", Note("Starting", f"The Pod of attempt {attempt} is being created.")),
        actions=tuple(actions),
        announcements=announcements,
        recheck_at=now + SOON,
        clear_restart=True,
    )


def _refused(refusal: Refusal, recheck_at: datetime) -> _Plan:
    stalled: dict[ConditionType, Wanted] = {"Stalled": Wanted("True", refusal.note)} if refusal.stalled else {}
    return _Plan("Stalled" if stalled else "Pending", Wanted("False", refusal.note), stalled, recheck_at=recheck_at)


def _with_ended_pod(suspend: bool, pod: Pod, ledger: Ledger, now: datetime) -> _Plan:
    """Its end is entered: keep it until its successor is due, so that its logs can be read; then remove it."""
    if suspend:
        return _suspending(pod, now)
    if ledger.next_restart is not None and ledger.next_restart > now:
        return _backing_off(ledger, ledger.next_restart)
    note = Note("PodTerminating", f"Pod {pod.name} has ended and is being removed.")
    restarting = Wanted("True", note)
    return _Plan("Restarting", Wanted("False", note), {"Restarting": restarting}, _stopped(pod), now + SOON)


def _with_living_pod(job: Job, pod: Pod, ledger: Ledger, now: datetime) -> _Plan:
    assert job.spec is not None, "an invalid spec is answered before"
    if job.spec.suspend:
        return _suspending(pod, now)
    if not pod.deleting and pod.spec_hash != spec_hash(job.spec):
        note = Note("SpecChanged", f"Pod {pod.name} is being stopped; the next one gets the new spec.")
        restarting = Wanted("True", note)
        return _Plan("Restarting", Wanted("False", note), {"Restarting": restarting}, _stopped(pod), now + SOON)
    state = explain(pod)
    if pod.deleting:
        return _terminating(requested_stop(job.status), state.note, now)
    # The counter is set back when the Pod has been up for long enough; no event tells.
    due = healthy_at(pod, job.spec.restart_policy) if ledger.consecutive_failures else None
    if state.ready:
        return _Plan("Running", Wanted("True", state.note), recheck_at=due)
    if state.stalled:
        return _stalled(state.note)
    phase: Phase = "Running" if pod.running_since else "Restarting" if ledger.restarts else "Pending"
    return _Plan(phase, Wanted("False", state.note), recheck_at=due)


def _terminating(requested: str, note: Note, now: datetime) -> _Plan:
    """A Pod on its way out; if we asked for it, the status keeps saying so until the end is entered."""
    more: dict[ConditionType, Wanted] = {"Restarting": Wanted("True", note)}
    if requested == "SpecChanged":
        more["Restarting"] = Wanted("True", Note(requested, note.message))
    elif requested == "Suspended":
        more["Suspended"] = Wanted("False", Note("Suspending", note.message))
    return _Plan("Restarting", Wanted("False", more["Restarting"].note), more, recheck_at=now + SOON)


def _suspending(pod: Pod, now: datetime) -> _Plan:
    note = Note("Suspending", f"Pod {pod.name} is being stopped.")
    return _Plan("Suspended", Wanted("False", note), {"Suspended": Wanted("False", note)}, _stopped(pod), now + SOON)


def _backing_off(ledger: Ledger, due: datetime) -> _Plan:
    last = f" after {described(ledger.last)}" if ledger.last else ""
    note = Note("BackoffWaiting", f"Restart at {times.text(due)}{last}")
    reason = ledger.last.reason if ledger.last else note.reason
    return _Plan(
        "Restarting",
        Wanted("False", Note(reason, note.message)),
        {"Restarting": Wanted("True", note)},
        recheck_at=due,
    )


def _stopped(pod: Pod) -> tuple[Action, ...]:
    return () if pod.deleting else (DeletePod(pod.name, pod.uid),)


def _foreign(uid: str, seen: Seen) -> tuple[str, str] | None:
    if seen.volume is not None and seen.volume.owner_uid != uid:
        return "PVCConflict", f"A PersistentVolumeClaim named {seen.volume.name} belongs to somebody else."
    for config in seen.configs:
        if config.name == seen.config_name and config.owner_uid != uid:
            return "ConfigConflict", f"A ConfigMap named {config.name} belongs to somebody else."
    return None


def _decision(  # noqa: PLR0917 - what the branches have found out, each once
    job: Job, seen: Seen, pod: Pod | None, ledger: Ledger, plan: _Plan, now: datetime
) -> Decision:
    wanted: dict[ConditionType, Wanted] = {
        "Ready": plan.ready,
        "StorageReady": _storage(job.uid, seen.volume, started=ledger.start_time is not None),
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
            "current_pod": ledger.current_pod,
            "last_termination": ledger.last,
            "history": ledger.history,
            "next_restart_time": times.text(next_restart) if next_restart else None,
            "start_time": ledger.start_time,
            "completion_time": times.text(now) if ended else None,
            "spec_hash": pod.spec_hash if pod else old.spec_hash,
            "progress": ledger.progress,
            "trace_id": trace_id(job.uid),
        }
    )
    recheck = plan.recheck_at
    if seen.volume is not None and seen.volume.phase == "Pending" and not ended and plan.phase != "Suspended":
        recheck = min(recheck or now + SOON, now + SOON)
    return Decision(
        status=status,
        actions=(*plan.actions, *_unused_configs(job.uid, seen, pod)),
        announcements=(*_announced(old, ledger, plan), *plan.announcements),
        recheck_at=recheck,
    )


def _storage(uid: str, volume: Volume | None, *, started: bool) -> Wanted:
    if volume is None:
        note = Note("PVCLost", "The volume is gone.") if started else Note("NotCreated", "There is no volume yet.")
    elif volume.owner_uid != uid:
        note = Note("PVCConflict", f"{volume.name} belongs to somebody else.")
    elif volume.deleting:
        note = Note("PVCTerminating", f"{volume.name} is being deleted.")
    elif volume.phase == "Bound":
        return Wanted("True", Note("Bound", f"{volume.name} is bound."))
    elif volume.phase == "Lost":
        note = Note("PVCLost", f"{volume.name} has lost its PersistentVolume.")
    elif volume.note is not None and volume.note.reason == "WaitForFirstConsumer":
        return Wanted("Unknown", volume.note)
    else:
        note = Note("PVCPending", volume.note.message if volume.note else f"{volume.name} is not bound yet.")
    return Wanted("False", note)


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


def _announced(old: CrawlJobStatus, ledger: Ledger, plan: _Plan) -> tuple[Announcement, ...]:
    """Events for what is new in this status: each once, because the status that carries it is written once."""
    said = []
    for kind, warning in (("Complete", False), ("Failed", True), ("Stalled", True)):
        want = plan.more.get(kind)  # type: ignore[call-overload]
        if want is None or want.status != "True" or (kind == "Stalled" and ledger.failed):
            continue
        before = find(old.conditions, kind)  # type: ignore[arg-type]
        if before is None or before.status != "True" or before.reason != want.note.reason:
            said.append(Announcement(want.note, warning))
    # What an end led to is said in its place where both have the same name: one Event would count it twice.
    reasons = {announcement.note.reason for announcement in said}
    ends = [end for end in ledger.entered if end.reason not in reasons]
    return (*(Announcement(Note(e.reason, f"The Pod ended: {described(e)}"), e.counted) for e in ends), *said)


__all__ = [
    "Action",
    "Announcement",
    "CreateConfig",
    "CreatePod",
    "CreateVolume",
    "Decision",
    "DeleteConfig",
    "DeletePod",
    "decide",
]
