"""The Pod's NetworkPolicy: policies of one Pod add up, so exactly the wanted one is there when a Pod is created."""

from __future__ import annotations

from crawljob_operator.actions import Action, CreatePolicy, DeletePolicy
from crawljob_operator.observed import Policy
from crawljob_operator.policies.view import View


def before_pod(view: View) -> tuple[Action, ...]:
    """Make the wanted policy the only one, as long as no Pod is there."""
    others = [policy for policy in _own(view) if policy.name != view.seen.policy_name]
    return (*(DeletePolicy(policy.name, policy.uid) for policy in others), *_missing(view))


def restored(view: View) -> tuple[Action, ...]:
    """A living Pod's policy, where somebody has removed it. Another one than it has waits for the next Pod."""
    refusal = view.seen.refusal
    if view.living is None or view.living.deleting or _own(view) or (refusal and refusal.retry_at > view.now):
        return ()
    return _missing(view)


def _own(view: View) -> list[Policy]:
    return [policy for policy in view.seen.policies if policy.owner_uid == view.job.uid]


def _missing(view: View) -> tuple[Action, ...]:
    wanted = view.seen.policy_name
    taken = any(policy.name == wanted for policy in view.seen.policies)
    return () if taken or not wanted else (CreatePolicy(),)
