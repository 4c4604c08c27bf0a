"""A living Pod: on its way out, on its way in, or at work."""

from __future__ import annotations

from crawljob.status import ConditionType, Phase
from crawljob_operator.conditions import Wanted
from crawljob_operator.ledger import healthy_at, requested_stop
from crawljob_operator.observed import Note
from crawljob_operator.podstate import explain, leaving
from crawljob_operator.policies.deadlines import active_until, start_until
from crawljob_operator.policies.view import SOON, Plan, View, stalled


def terminating(view: View) -> Plan | None:
    """If we asked for its end, the status keeps saying so until that end is entered."""
    if view.living is None or not view.living.deleting:
        return None
    note, requested = leaving(view.living, view.now), requested_stop(view.job.status)
    more: dict[ConditionType, Wanted] = {"Restarting": Wanted("True", note)}
    if requested in ("SpecChanged", "RestartRequested"):
        more["Restarting"] = Wanted("True", Note(requested, note.message))
    elif requested == "Suspended":
        more["Suspended"] = Wanted("False", Note("Suspending", note.message))
    return Plan("Restarting", Wanted("False", more["Restarting"].note), more, recheck_at=view.now + SOON)


def at_work(view: View) -> Plan | None:
    """Crawling, or not yet: in the scheduler's and the kubelet's own words."""
    pod = view.living
    if pod is None:
        return None
    state = explain(pod)
    # When the counter is set back, when the time is used up, when it must have started: no event tells.
    healthy = healthy_at(pod, view.spec.restart_policy) if view.ledger.consecutive_failures else None
    recheck = min((time for time in (healthy, active_until(view), start_until(view)) if time), default=None)
    if state.ready:
        return Plan("Running", Wanted("True", state.note), recheck_at=recheck)
    if state.stalled:
        return stalled(state.note)
    phase: Phase = "Running" if pod.running_since else "Restarting" if view.ledger.restarts else "Pending"
    return Plan(phase, Wanted("False", state.note), recheck_at=recheck)
