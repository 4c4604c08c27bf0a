"""What a policy looks at and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from crawljob.spec import CrawlJobSpec
from crawljob.status import ConditionType, Phase
from crawljob_operator.actions import Action, DeletePod
from crawljob_operator.conditions import Wanted
from crawljob_operator.identity import spec_hash
from crawljob_operator.ledger import Ledger, follows
from crawljob_operator.observed import Job, Note, Pod, Seen

SOON = timedelta(seconds=30)
"""When to look again at what no watch reports: Events about a volume, a foreign object in the way."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """An Event to be recorded after the status is written."""

    note: Note
    warning: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """One CrawlJob at one moment: what is declared, what is seen, and the ledger with what has ended since."""

    job: Job
    seen: Seen
    pod: Pod | None
    """Our own Pod; a foreign one of its name is in ``seen`` only."""
    ledger: Ledger
    now: datetime

    @property
    def spec(self) -> CrawlJobSpec:
        """The spec, for policies that come after the one for unusable specs."""
        assert self.job.spec is not None, "an unusable spec is answered before"
        return self.job.spec

    @property
    def living(self) -> Pod | None:
        """Our Pod, unless it has ended."""
        return self.pod if self.pod is not None and not self.pod.ended else None

    @property
    def outdated(self) -> str:
        """Why the Pod that is there, or was last, is not what is wanted now; empty when it is."""
        if not follows(self.job, self.pod):
            return "RestartRequested"
        last = self.pod.spec_hash if self.pod is not None else self.job.status.spec_hash
        return "SpecChanged" if last not in ("", spec_hash(self.spec)) else ""


@dataclass(frozen=True, slots=True)
class Plan:
    """One policy's answer, before it is made a status. ``recheck_at``: when to look again though nothing happened."""

    phase: Phase
    ready: Wanted
    more: dict[ConditionType, Wanted] = field(default_factory=dict)
    actions: tuple[Action, ...] = ()
    recheck_at: datetime | None = None
    announcements: tuple[Announcement, ...] = ()
    clear_restart: bool = False


Policy = Callable[[View], Plan | None]


def failed(note: Note, pod: Pod | None) -> Plan:
    """The job has failed for good; kstatus is told that a person is needed."""
    said = Wanted("True", note)
    return Plan("Failed", Wanted("False", note), {"Failed": said, "Stalled": said}, stopped(pod))


def stalled(note: Note, recheck_at: datetime | None = None) -> Plan:
    """Nothing goes on until a person acts."""
    return Plan("Stalled", Wanted("False", note), {"Stalled": Wanted("True", note)}, recheck_at=recheck_at)


def restarting(note: Note, actions: tuple[Action, ...], recheck_at: datetime) -> Plan:
    """Between two Pods."""
    return Plan("Restarting", Wanted("False", note), {"Restarting": Wanted("True", note)}, actions, recheck_at)


def stopped(pod: Pod | None) -> tuple[Action, ...]:
    """Stop a Pod of ours, once; one that is at rest is kept for its logs where the job is over."""
    return () if pod is None or pod.deleting else (DeletePod(pod.name, pod.uid),)
