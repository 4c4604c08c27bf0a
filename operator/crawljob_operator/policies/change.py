"""Pods that must make room: one that has ended, and one that is not what is wanted any more (law O8)."""

from __future__ import annotations

from crawljob_operator.observed import Note
from crawljob_operator.policies.view import SOON, Plan, View, restarting, stopped


def remove_ended(view: View) -> Plan | None:
    """Its end is entered and its successor due."""
    if view.pod is None or not view.pod.ended:
        return None
    note = Note("PodTerminating", f"Pod {view.pod.name} has ended and is being removed.")
    return restarting(note, stopped(view.pod), view.now + SOON)


def replace_outdated(view: View) -> Plan | None:
    """Stop it gracefully, uncounted; the next one gets the new spec."""
    pod, reason = view.living, view.outdated
    if pod is None or pod.deleting or not reason:
        return None
    what = "the new spec" if reason == "SpecChanged" else "what was asked for by restartRequestedAt"
    note = Note(reason, f"Pod {pod.name} is being stopped; the next one gets {what}.")
    return restarting(note, stopped(pod), view.now + SOON)
