"""The Pod's end was the job's end: complete, or failed for good."""

from __future__ import annotations

from crawljob_operator.conditions import Wanted
from crawljob_operator.policies.view import Plan, View, failed, stopped


def settled(view: View) -> Plan | None:
    """What the ledger has concluded. A Pod that an injected sidecar keeps alive has no reason to live."""
    pod = None if view.pod is None or view.pod.at_rest else view.pod
    if view.ledger.complete is not None:
        done = Wanted("True", view.ledger.complete)
        return Plan("Complete", done, {"Complete": done}, stopped(pod))
    if view.ledger.failed is not None:
        return failed(view.ledger.failed, pod)
    return None
