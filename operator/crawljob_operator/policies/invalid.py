"""A spec that passed the API server's schema and still cannot be used."""

from __future__ import annotations

from crawljob_operator.observed import Note
from crawljob_operator.policies.view import Plan, View, stalled


def unusable_spec(view: View) -> Plan | None:
    """Every problem at once. A Pod that runs goes on with the last good spec."""
    if view.job.spec is not None:
        return None
    return stalled(Note("InvalidSpec", "; ".join(map(str, view.job.problems)) or "The spec cannot be read."))
