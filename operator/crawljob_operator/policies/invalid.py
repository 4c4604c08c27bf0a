"""A spec that passed the API server's schema and still cannot be used."""

from __future__ import annotations

from collections.abc import Sequence

from crawljob.problems import Problem
from crawljob.status import CONDITION_MESSAGE_MAX
from crawljob_operator.observed import Note
from crawljob_operator.policies.view import Plan, View, stalled


def unusable_spec(view: View) -> Plan | None:
    """Every problem at once. A Pod that runs goes on with the last good spec."""
    if view.job.spec is not None:
        return None
    return stalled(Note("InvalidSpec", _listed(view.job.problems) or "The spec cannot be read."))


def _listed(problems: Sequence[Problem]) -> str:
    """The problems that a condition has room for, each whole, and how many there are besides."""
    room = CONDITION_MESSAGE_MAX - len(f"; and {len(problems)} more")
    said, length = [], 0
    for problem in map(str, problems):
        length += len(problem) + len("; ")
        if length > room:
            break
        said.append(problem)
    left = len(problems) - len(said)
    return "; ".join([*said, f"and {left} more"] if left else said)
