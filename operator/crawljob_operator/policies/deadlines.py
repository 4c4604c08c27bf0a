"""How long a crawl may run, and how long a Pod may take to start."""

from __future__ import annotations

from datetime import datetime

from crawljob_operator import times
from crawljob_operator.ledger import follows
from crawljob_operator.observed import Note
from crawljob_operator.podstate import explain
from crawljob_operator.policies.view import Plan, View, failed

UNLIMITED_START_SECONDS = 86_400
"""What the kubelet's own limit allows for the start where ``startDeadlineSeconds`` allows any time."""


def active(view: View) -> Plan | None:
    """``activeDeadlineSeconds``: the time of all Pods together is used up."""
    limit = view.spec.active_deadline_seconds
    if limit is None or not follows(view.job, view.pod):
        return None  # a Pod from before a restart request makes room anyway
    due = active_until(view)
    if due > view.now if due is not None else view.ledger.active_seconds < limit:
        return None
    pod = None if view.pod is None or view.pod.at_rest else view.pod
    return failed(Note("DeadlineExceeded", f"The crawl has run for activeDeadlineSeconds ({limit} s)."), pod)


def active_until(view: View) -> datetime | None:
    """When the running Pod will have used up the time; ``None`` where nothing runs or nothing limits it."""
    limit, pod = view.spec.active_deadline_seconds, view.living
    if limit is None or pod is None or pod.running_since is None:
        return None
    return times.later(pod.running_since, limit - view.ledger.active_seconds)


def kubelets_limit(view: View) -> int | None:
    """``activeDeadlineSeconds`` of a new Pod, in case that we are not there: what is left, and the time to start."""
    limit = view.spec.active_deadline_seconds
    if limit is None:
        return None
    start = view.spec.start_deadline_seconds or UNLIMITED_START_SECONDS
    return min(max(1, limit - view.ledger.active_seconds) + start, 2**31 - 1)


def start(view: View) -> Plan | None:
    """``startDeadlineSeconds``: the Pod has not begun to crawl in time. One that waits for an edit may wait."""
    pod, due = view.living, start_until(view)
    if pod is None or due is None or due > view.now:
        return None
    state = explain(pod)
    if state.stalled:
        return None
    limit = view.spec.start_deadline_seconds
    why = f"{state.note.reason}: {state.note.message}" if state.note.message else state.note.reason
    return failed(Note("StartDeadlineExceeded", f"Not started within startDeadlineSeconds ({limit} s); {why}"), pod)


def start_until(view: View) -> datetime | None:
    """When the Pod must have begun to crawl."""
    pod, limit = view.living, view.spec.start_deadline_seconds
    if pod is None or pod.running_since is not None or pod.ready or pod.created_at is None or limit == 0:
        return None
    return times.later(pod.created_at, limit)
