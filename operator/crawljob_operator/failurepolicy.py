"""Which ends of a Pod are failures: the user's rules first, then ours (the shape is batch/v1's podFailurePolicy)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from crawljob.lifecycle import PodFailurePolicy, PodFailurePolicyRule
from crawljob_operator.observed import Pod


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule of the user says; ``rule`` counts from 0, as in the spec's path."""

    action: Literal["FailJob", "Ignore", "Count"]
    rule: int
    why: str


def judge(policy: PodFailurePolicy, pod: Pod, exit_code: int | None) -> Verdict | None:
    """The first rule that matches, if any does."""
    for number, rule in enumerate(policy.rules):
        why = _match(rule, pod, exit_code)
        if why:
            return Verdict(rule.action, number, why)
    return None


def _match(rule: PodFailurePolicyRule, pod: Pod, exit_code: int | None) -> str:
    if rule.on_exit_codes is not None:
        if exit_code in (None, 0):
            return ""
        inside = exit_code in rule.on_exit_codes.values
        return f"exit code {exit_code}" if inside == (rule.on_exit_codes.operator == "In") else ""
    for pattern in rule.on_pod_conditions or ():
        if (pattern.type, pattern.status) in pod.conditions:
            return f"condition {pattern.type}={pattern.status}"
    return ""
