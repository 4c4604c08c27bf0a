"""Nothing is in the way: create what is missing, the Pod last."""

from __future__ import annotations

from dataclasses import replace

from crawljob.status import Phase
from crawljob_operator.actions import Action, CreateConfig, CreatePod, CreateVolume
from crawljob_operator.conditions import Wanted
from crawljob_operator.observed import Note
from crawljob_operator.policies import isolation
from crawljob_operator.policies.deadlines import kubelets_limit
from crawljob_operator.policies.view import SOON, Announcement, Plan, View
from crawljob_operator.policies.waiting import said


def create(view: View) -> Plan | None:
    """A Pod is created only when none was seen; its name is fixed, so that the API server refuses a second one."""
    if view.seen.pod is not None:
        return None
    actions: list[Action] = []
    announcements: tuple[Announcement, ...] = ()
    if view.seen.volume is None:
        actions.append(CreateVolume())
        if view.ledger.start_time is not None:
            lost = Note("FrontierLost", "The volume is gone, and the crawl's state with it; it begins anew.")
            announcements = (Announcement(lost, warning=True),)
    if not any(config.name == view.seen.config_name for config in view.seen.configs):
        actions.append(CreateConfig())
    actions.extend(isolation.before_pod(view))
    attempt = view.ledger.attempt + 1
    actions.append(CreatePod(attempt, kubelets_limit(view)))
    soon = view.now + SOON
    if view.seen.refusal is not None:
        plan = said(view.seen.refusal, soon)
    else:
        note = Note("Starting", f"The Pod of attempt {attempt} is being created.")
        phase: Phase = "Restarting" if view.ledger.restarts else "Pending"
        plan = Plan(phase, Wanted("False", note), recheck_at=soon)
    return replace(plan, actions=tuple(actions), announcements=announcements, clear_restart=True)
