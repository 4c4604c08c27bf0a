"""``suspend``: the Pod is stopped gracefully and its volume kept; the counters stay as they are."""

from __future__ import annotations

from crawljob_operator.conditions import Wanted
from crawljob_operator.observed import Note
from crawljob_operator.policies.view import SOON, Plan, View, stopped


def suspend(view: View) -> Plan | None:
    """Suspended once the Pod is gone; until then on its way there."""
    if not view.spec.suspend:
        return None
    if view.pod is None:
        done = Wanted("True", Note("Suspended", "The crawl is suspended; its volume is kept."))
        return Plan("Suspended", done, {"Suspended": done})
    going = Wanted("False", Note("Suspending", f"Pod {view.pod.name} is being stopped."))
    return Plan("Suspended", going, {"Suspended": going}, stopped(view.pod), view.now + SOON)
