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

_LOST = Announcement(
    Note("FrontierLost", "The volume is gone, and the crawl's state with it; it begins anew."), warning=True
)


def create(view: View) -> Plan | None:
    """A Pod is created only when none was seen; its name is fixed, so that the API server refuses a second one."""
    if view.seen.pod is not None:
        return None
    actions: list[Action] = []
    announcements: tuple[Announcement, ...] = ()
    if view.seen.volume is None:
        actions.append(CreateVolume())
        if view.ledger.start_time is not None:
            announcements = (_LOST,)
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


def restored(view: View) -> tuple[Action, ...]:
    """What was taken away under a Pod that has not started: without it, it never would (nothing protects it yet)."""
    pod, refusal = view.living, view.seen.refusal
    if pod is None or pod.deleting or pod.running_since is not None or view.job.spec is None or view.spec.suspend:
        return ()
    if refusal is not None and refusal.retry_at > view.now:
        return ()
    actions: list[Action] = []
    if view.seen.volume is None and view.spec.storage.existing_claim is None:
        actions.append(CreateVolume())
    wanted = view.seen.config_name
    if pod.config_name == wanted and not any(config.name == wanted for config in view.seen.configs):
        actions.append(CreateConfig())
    return tuple(actions)


def lost(view: View) -> tuple[Announcement, ...]:
    """A volume that held a frontier is not replaced in silence."""
    return (_LOST,) if view.ledger.history and CreateVolume() in restored(view) else ()
