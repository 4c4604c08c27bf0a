"""Objects with our names that belong to somebody else: never adopted, never deleted (law O6)."""

from __future__ import annotations

from datetime import datetime

from crawljob_operator.observed import Note
from crawljob_operator.policies.view import SOON, Plan, View, stalled


def foreign_pod(view: View) -> Plan | None:
    """The Pod's name is taken."""
    pod = view.seen.pod
    if pod is None or pod.owner_uid == view.job.uid:
        return None
    return _conflict("PodConflict", f"The Pod {pod.name} belongs to somebody else.", view.now)


def foreign_objects(view: View) -> Plan | None:
    """The volume's, the ConfigMap's or the NetworkPolicy's name is taken."""
    uid, volume = view.job.uid, view.seen.volume
    if volume is not None and view.spec.storage.existing_claim is None and not volume.belongs_to(uid):
        message = f"A PersistentVolumeClaim named {volume.name} belongs to somebody else."
        return _conflict("PVCConflict", message, view.now)
    for config in view.seen.configs:
        if config.name == view.seen.config_name and config.owner_uid != uid:
            return _conflict("ConfigConflict", f"A ConfigMap named {config.name} belongs to somebody else.", view.now)
    for policy in view.seen.policies:
        if policy.name == view.seen.policy_name and policy.owner_uid != uid:
            message = f"A NetworkPolicy named {policy.name} belongs to somebody else."
            return _conflict("PolicyConflict", message, view.now)
    return None


def _conflict(reason: str, message: str, now: datetime) -> Plan:
    return stalled(Note(reason, f"{message} It is left alone; the crawl goes on when it is gone."), now + SOON)
