"""A finished CrawlJob: it stays as it is, until its time to live is over or a restart is requested."""

from __future__ import annotations

from datetime import datetime

from crawljob.status import CONDITION_MESSAGE_MAX, Condition, CrawlJobStatus
from crawljob_operator import times
from crawljob_operator.actions import Action, DeleteJob
from crawljob_operator.conditions import holds
from crawljob_operator.identity import spec_hash
from crawljob_operator.ledger import settle
from crawljob_operator.observed import Job, Pod
from crawljob_operator.policies.view import stopped

TOO_LATE = " (The spec was edited since; a finished crawl runs again only when restartRequestedAt asks for it.)"


def finished(job: Job) -> bool:
    """Whether the job is over."""
    return holds(job.status.conditions, "Complete") or holds(job.status.conditions, "Failed")


def reopened(job: Job) -> CrawlJobStatus | None:
    """The status to go on from when another restart is requested; ``None`` when none is. Its budgets begin anew."""
    if job.spec is None or job.restart_request == job.status.observed_restart_request:
        return None
    return job.status.model_copy(
        update={
            "completion_time": None,
            "active_seconds": 0,
            "consecutive_failures": 0,
            "unhealthy_ends": 0,
            "next_restart_time": None,
        }
    )


def rest(job: Job, pod: Pod | None, now: datetime) -> tuple[CrawlJobStatus, tuple[Action, ...], datetime | None]:
    """Status, actions and time of the next look. A Pod that an injected sidecar keeps alive has no reason to live."""
    ran = job.status.spec_hash
    edited = job.spec is not None and ran not in ("", spec_hash(job.spec))
    conditions = tuple(_told(condition, job.generation, edited=edited) for condition in job.status.conditions)
    completed = times.parse(job.status.completion_time) or now
    ledger = settle(job, pod, now)  # the last Pod's end, where the job was over before it; it concludes nothing
    status = job.status.model_copy(
        update={
            "last_termination": ledger.last,
            "history": ledger.history,
            "active_seconds": ledger.active_seconds,
            "progress": ledger.progress,
            "observed_generation": job.generation,
            "conditions": conditions,
            "completion_time": times.text(completed),
        }
    )
    actions = stopped(pod) if pod is not None and not pod.at_rest else ()
    ttl = job.spec.ttl_seconds_after_finished if job.spec is not None else None
    if ttl is None:
        return status, actions, None
    due = times.later(completed, ttl)
    return (status, (*actions, DeleteJob(job.uid)), None) if due <= now else (status, actions, due)


def _told(condition: Condition, generation: int, *, edited: bool) -> Condition:
    """The condition as it is; ``Ready`` says, where that is so, that an edit came too late."""
    message = condition.message.removesuffix(TOO_LATE)
    if edited and condition.type == "Ready":
        message = message[: CONDITION_MESSAGE_MAX - len(TOO_LATE)] + TOO_LATE
    return condition.model_copy(update={"observed_generation": generation, "message": message})
