"""Waits: the backoff before a restart, and the time until a refused creation is asked for again."""

from __future__ import annotations

from datetime import datetime

from crawljob_operator import times
from crawljob_operator.conditions import Wanted
from crawljob_operator.ledger import described
from crawljob_operator.observed import Note, Refusal
from crawljob_operator.policies.view import Plan, View, stalled


def backoff(view: View) -> Plan | None:
    """The dead Pod stays meanwhile, so that its logs can be read. What was edited to help need not wait."""
    due, last = view.ledger.next_restart, view.ledger.last
    if view.living is not None or due is None or due <= view.now or view.outdated:
        return None
    note = Note("BackoffWaiting", f"Restart at {times.text(due)}" + (f" after {described(last)}" if last else ""))
    reason = last.reason if last else note.reason
    ready = Wanted("False", Note(reason, note.message))
    return Plan("Restarting", ready, {"Restarting": Wanted("True", note)}, recheck_at=due)


def refused(view: View) -> Plan | None:
    """The API server will not have an object as it is; it is asked again later, more slowly each time."""
    refusal = view.seen.refusal
    if view.pod is not None or refusal is None or refusal.retry_at <= view.now:
        return None
    return said(refusal, refusal.retry_at)


def said(refusal: Refusal, recheck_at: datetime) -> Plan:
    """What the status says of a refusal, also while it is asked again: each attempt writes nothing by itself."""
    note = refusal.note
    if refusal.stalled:
        return stalled(note, recheck_at)
    return Plan("Pending", Wanted("False", note), recheck_at=recheck_at)
