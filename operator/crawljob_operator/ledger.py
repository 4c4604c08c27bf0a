"""The book of a CrawlJob's Pods: each end is entered once, by the Pod's UID, before anything is done about it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from crawljob.lifecycle import RestartPolicy
from crawljob.status import HISTORY_MAX, CrawlJobStatus, PodRef, ReportedProgress, Termination
from crawljob.summary import Progress
from crawljob_operator import backoff, times
from crawljob_operator.classify import NO_RULES, Ending, Outcome, classify, vanished
from crawljob_operator.conditions import find
from crawljob_operator.identity import request_mark
from crawljob_operator.observed import Job, Note, Pod

DEADLINES = ("DeadlineExceeded", "StartDeadlineExceeded")
"""Reasons of a Failed job whose Pod we stop ourselves."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The counting part of the status; ``complete`` or ``failed`` is set when this end was the last."""

    attempt: int
    restarts: int
    consecutive_failures: int
    unhealthy_ends: int
    current_pod: PodRef | None
    last: Termination | None
    history: tuple[Termination, ...]
    next_restart: datetime | None
    start_time: str | None
    progress: ReportedProgress | None
    active_seconds: int = 0
    complete: Note | None = None
    failed: Note | None = None
    entered: tuple[Termination, ...] = ()
    """Ends that this reconcile enters."""

    @classmethod
    def of(cls, status: CrawlJobStatus) -> Ledger:
        """Open the book as the status has it."""
        return cls(
            attempt=status.attempt,
            restarts=status.restarts,
            consecutive_failures=status.consecutive_failures,
            unhealthy_ends=status.unhealthy_ends,
            current_pod=status.current_pod,
            last=status.last_termination,
            history=status.history,
            next_restart=times.parse(status.next_restart_time),
            start_time=status.start_time,
            progress=status.progress,
            active_seconds=status.active_seconds,
        )

    def knows(self, uid: str) -> bool:
        """Whether the end of this Pod is entered."""
        return any(end.pod_uid == uid for end in (*self.history, *((self.last,) if self.last else ())))


def settle(job: Job, pod: Pod | None, now: datetime, foreign: str = "") -> Ledger:
    """Enter what has ended since the status was written.

    ``pod`` is our own or ``None``, ``foreign`` the UID of the one that has its name and is somebody else's.
    """
    status, uid = job.status, job.uid
    policy = job.spec.restart_policy if job.spec else RestartPolicy()
    ledger = Ledger.of(status)
    if ledger.next_restart is not None:
        # A clock that was ahead when this was written must not cost its whole error.
        ledger = replace(
            ledger, next_restart=min(ledger.next_restart, times.ceil(now + backoff.longest(policy.backoff)))
        )
    requested = requested_stop(status)
    recorded = status.current_pod
    if recorded is not None and (pod is None or pod.uid != recorded.uid):
        if not ledger.knows(recorded.uid):
            ending = vanished(recorded, requested, now, disowned=recorded.uid == foreign)
            ledger = _enter(ledger, ending, uid, policy, now)
        ledger = replace(ledger, current_pod=None)
    if pod is None:
        return ledger
    ledger = replace(
        ledger,
        current_pod=_recorded(pod, recorded),
        attempt=pod.attempt or ledger.attempt,
        start_time=ledger.start_time or times.text(pod.created_at or now),
    )
    if pod.ended:
        if not ledger.knows(pod.uid):
            rules = job.spec.pod_failure_policy if job.spec else NO_RULES
            ending = classify(pod, requested, now, rules)
            if not follows(job, pod):  # whatever came of it, it is to be done again
                ending = replace(ending, outcome=Outcome.RESTART)
            ledger = _enter(ledger, ending, uid, policy, now)
        return ledger
    since = healthy_at(pod, policy)
    if since is not None and since <= now:
        ledger = replace(ledger, consecutive_failures=0, unhealthy_ends=0)
    return replace(ledger, next_restart=None)


def _recorded(pod: Pod, before: PodRef | None) -> PodRef:
    since = None if pod.running_since is None else times.text(pod.running_since)
    if since is None and before is not None and before.uid == pod.uid:
        since = before.started_at
    return PodRef(name=pod.name, uid=pod.uid, started_at=since)


def follows(job: Job, pod: Pod | None) -> bool:
    """Whether no Pod from before the restart request that holds is left."""
    return pod is None or pod.request_mark == request_mark(job.restart_request)


def requested_stop(status: CrawlJobStatus) -> str:
    """Why we asked the current Pod to stop: it was written down before the deletion; empty when we did not ask."""
    failed = find(status.conditions, "Failed")
    if failed is not None and failed.status == "True" and failed.reason in DEADLINES:
        return failed.reason
    restarting, suspended = find(status.conditions, "Restarting"), find(status.conditions, "Suspended")
    if (
        restarting is not None
        and restarting.status == "True"
        and restarting.reason in ("SpecChanged", "RestartRequested")
    ):
        return restarting.reason
    if suspended is not None and suspended.reason in ("Suspending", "Suspended"):
        return "Suspended"
    return ""


def healthy_at(pod: Pod, policy: RestartPolicy) -> datetime | None:
    """When a running Pod will have been up for long enough that its predecessors' failures are forgotten."""
    if pod.running_since is None:
        return None
    return pod.running_since + timedelta(seconds=policy.reset_after_seconds)


def with_progress(ledger: Ledger, progress: Progress | None, now: datetime) -> Ledger:
    """Take over new counts; the time changes only with them."""
    if progress is None:
        return ledger
    counts = Progress.model_validate(progress.model_dump())
    if ledger.progress is not None and Progress.model_validate(ledger.progress.model_dump()) == counts:
        return ledger
    return replace(ledger, progress=ReportedProgress(**counts.model_dump(), updated_at=times.text(now)))


def _enter(ledger: Ledger, ending: Ending, uid: str, policy: RestartPolicy, now: datetime) -> Ledger:
    end = ending.termination.model_copy(update={"attempt": ledger.attempt})
    history = (end, *ledger.history)[:HISTORY_MAX]
    ledger = replace(
        ledger,
        last=end,
        history=history,
        entered=(*ledger.entered, end),
        next_restart=None,
        active_seconds=ledger.active_seconds + ran_seconds(end),
    )
    ledger = with_progress(ledger, ending.progress, now)
    if ending.outcome is Outcome.FINISHED:
        return replace(ledger, complete=Note(end.reason, end.message))
    # A healthy run begins both rows anew: its own end is the first of them.
    fresh = backoff.healthy(end, policy)
    failures = (0 if fresh else ledger.consecutive_failures) + int(end.counted)
    unhealthy = (0 if fresh else ledger.unhealthy_ends) + int(end.reason not in backoff.REQUESTED)
    ledger = replace(ledger, restarts=ledger.restarts + 1, consecutive_failures=failures, unhealthy_ends=unhealthy)
    if ending.outcome is Outcome.FATAL:
        verdict = ending.verdict
        if verdict is None:
            return replace(ledger, failed=Note(end.reason, end.message))
        message = f"podFailurePolicy.rules[{verdict.rule}] ({verdict.why}); {described(end)}"
        return replace(ledger, failed=Note("FailurePolicyMatched", message))
    if failures > policy.backoff_limit:
        message = f"{failures} failures in a row, {policy.backoff_limit} are allowed; the last: {described(end)}"
        return replace(ledger, failed=Note("BackoffLimitExceeded", message))
    if end.reason in backoff.REQUESTED:
        return ledger
    wait = backoff.delay(policy.backoff, max(unhealthy, failures), uid, ledger.restarts)
    return replace(ledger, next_restart=times.ceil(now + wait))


def ran_seconds(end: Termination) -> int:
    """How long a Pod has run that has ended; 0 where nobody saw it run."""
    started, finished = times.parse(end.started_at), times.parse(end.finished_at)
    return max(0, round((finished - started).total_seconds())) if started and finished else 0


def described(end: Termination) -> str:
    """One end in words."""
    code = "" if end.exit_code is None else f" (exit code {end.exit_code})"
    return f"{end.reason}{code}" + (f": {end.message}" if end.message else "")
