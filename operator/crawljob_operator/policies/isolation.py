"""The Pod's NetworkPolicy: policies of one Pod add up, so exactly the wanted one is there when a Pod is created."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from crawljob_operator.actions import Action, CreatePolicy, DeletePolicy
from crawljob_operator.conditions import Wanted, find
from crawljob_operator.observed import Note, Policy
from crawljob_operator.policies.view import SOON, Announcement, Plan, View


def before_pod(view: View) -> tuple[Action, ...]:
    """Make the wanted policy the only one, as long as no Pod is there."""
    others = [policy for policy in _own(view) if policy.edited or policy.name != view.seen.policy_name]
    return (*_deletions(others), *_missing(view))


def restored(view: View) -> tuple[Action, ...]:
    """A living Pod's policy, which somebody has removed or edited. Another one than it has waits for the next Pod."""
    refusal = view.seen.refusal
    edited = [policy for policy in _own(view) if _is_spoilt(policy, view)]
    if not _is_living(view) or (_own(view) and not edited) or (refusal and refusal.retry_at > view.now):
        return ()
    return (*_deletions(edited), *_missing(view))


def told(view: View, plan: Plan) -> Plan:
    """The plan, whose ``Ready`` says where a living Pod has no policy and cannot get one; an Event says it once."""
    if not _is_open(view) or not view.seen.policy_name:
        return plan
    refusal, due = view.seen.refusal, view.now + SOON
    if not _missing(view):
        why = f"one named {view.seen.policy_name} belongs to somebody else"
    elif refusal is not None:
        why, due = refusal.note.message, max(refusal.retry_at, view.now)
    else:
        return plan  # it is being made
    words = f"The Pod has no NetworkPolicy: {why}"
    before = find(view.job.status.conditions, "Ready")
    known = before is not None and words in before.message
    news = () if known else (Announcement(Note("NotIsolated", words), warning=True),)
    ready = Note(plan.ready.note.reason, f"{plan.ready.note.message} {words}".strip())
    return replace(
        plan,
        ready=Wanted(plan.ready.status, ready),
        recheck_at=min(plan.recheck_at or due, due),
        announcements=(*plan.announcements, *news),
    )


def _is_open(view: View) -> bool:
    """Whether a Pod of ours lives that no policy of ours is for."""
    return _is_living(view) and not _own(view)


def _is_living(view: View) -> bool:
    return view.living is not None and not view.living.deleting


def _own(view: View) -> list[Policy]:
    return [policy for policy in view.seen.policies if policy.owner_uid == view.job.uid]


def _is_spoilt(policy: Policy, view: View) -> bool:
    """Whether it is ours, the wanted one by its name, and not what it was made as: it is made again."""
    return policy.edited and policy.owner_uid == view.job.uid and policy.name == view.seen.policy_name


def _deletions(policies: Iterable[Policy]) -> tuple[Action, ...]:
    return tuple(DeletePolicy(policy.name, policy.uid) for policy in policies)


def _missing(view: View) -> tuple[Action, ...]:
    wanted = view.seen.policy_name
    taken = any(policy.name == wanted and not _is_spoilt(policy, view) for policy in view.seen.policies)
    return () if taken or not wanted else (CreatePolicy(),)
