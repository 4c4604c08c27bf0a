"""What becomes spans: ends of Pods, and of crawls, as the status has them.

Only the status is read, never the Pod: whoever reads the same status later makes the same spans, with the same ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from crawljob.status import CrawlJobStatus, Termination
from crawljob_operator import times
from crawljob_operator.conditions import holds


class Owner(NamedTuple):
    """The CrawlJob."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """One Pod has ended."""

    owner: Owner
    end: Termination
    spans: int = 1

    @property
    def key(self) -> tuple[str, str]:
        """What it is told apart by."""
        return self.owner.uid, self.end.pod_uid

    @property
    def at(self) -> datetime | None:
        """When."""
        return times.parse(self.end.finished_at)


@dataclass(frozen=True, slots=True)
class CrawlEnd:
    """The crawl is complete, or has failed; ``status`` says which."""

    owner: Owner
    status: CrawlJobStatus
    spans: int = 1

    @property
    def key(self) -> tuple[str, str]:
        """What it is told apart by."""
        return self.owner.uid, f"ended {self.status.completion_time}"

    @property
    def at(self) -> datetime | None:
        """When."""
        return times.parse(self.status.completion_time)


End = AttemptEnd | CrawlEnd


def ends(owner: Owner, status: CrawlJobStatus) -> Iterator[End]:
    """All that the status still knows, oldest first. An end without its attempt's number has no id."""
    yield from (AttemptEnd(owner, end) for end in reversed(status.history) if end.attempt)
    if status.phase in ("Complete", "Failed") and status.completion_time:
        yield CrawlEnd(owner, status)


def entered(before: CrawlJobStatus, after: CrawlJobStatus) -> tuple[Termination, ...]:
    """Ends that one status has and its predecessor had not, newest first."""
    known = {end.pod_uid for end in (*before.history, *filter(None, [before.last_termination]))}
    return tuple(end for end in after.history if end.pod_uid not in known)


def restarts(before: CrawlJobStatus, after: CrawlJobStatus) -> tuple[Termination, ...]:
    """Those of them that did not finish the crawl."""
    new = entered(before, after)
    finished = holds(after.conditions, "Complete") and not holds(before.conditions, "Complete")
    return new[1:] if finished else new
