"""A living Pod: on its way out, on its way in, or at work."""

from __future__ import annotations

from crawljob.status import ConditionType, Phase
from crawljob_operator.conditions import Wanted
from crawljob_operator.ledger import healthy_at, requested_stop
from crawljob_operator.observed import Note
from crawljob_operator.podstate import PATIENCE, explain, leaving
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
    if state.stalled:
        return stalled(state.note)
    if state.starting:
        # Its Events are not watched.
        first = (pod.created_at or view.now) + PATIENCE
        look = first if first > view.now else view.now + SOON
        recheck = min(recheck or look, look)
    # Not Ready even while it crawls: what kstatus waits for is the end of the crawl.
    crawls = state.ready or pod.running_since is not None
    phase: Phase = "Running" if crawls else "Restarting" if view.ledger.restarts else "Pending"
    return Plan(phase, Wanted("False", state.note), recheck_at=recheck)
