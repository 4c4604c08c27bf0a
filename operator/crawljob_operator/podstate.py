"""Why a living Pod does not crawl yet, in the scheduler's and the kubelet's own words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from crawljob_operator import times
from crawljob_operator.observed import Note, Pod

# The kubelet never gets past these by itself; the CrawlJob must be edited.
_NEEDS_A_PERSON = frozenset({"InvalidImageName"})

PATIENCE = timedelta(seconds=10)
"""How long a Pod may be starting before its Events are read: a missing Secret stands nowhere else."""
LATE = timedelta(seconds=60)
"""A kubelet that is there has a Pod gone by then, after its grace."""

# Kubernetes' words for "on its way", which would hide from a reader that nothing is wrong.
_ON_ITS_WAY = frozenset({"ContainerCreating", "PodInitializing"})


@dataclass(frozen=True, slots=True)
class PodState:
    """``ready`` or why not; ``stalled`` when only an edit helps; ``starting`` when its status names no reason."""

    ready: bool
    note: Note
    stalled: bool = False
    starting: bool = False


def explain(pod: Pod) -> PodState:  # noqa: PLR0911 - rules in order, the first that fits answers
    """Judge a Pod of ours that has not ended."""
    if pod.own is not None and pod.own.reason == "NodeLost":
        return PodState(False, pod.own)
    if pod.phase == "Unknown":
        return PodState(False, Note("NodeLost", f"The state of node {pod.node} is unknown."))
    if pod.node_silent:
        return PodState(False, Note("NodeLost", f"Node {pod.node} does not answer; Pod {pod.name} may still crawl."))
    if pod.deleting:
        return PodState(False, Note("PodTerminating", f"Pod {pod.name} is being stopped."))
    if pod.unscheduled is not None:
        return PodState(False, pod.unscheduled)
    if pod.waiting is not None and pod.waiting.reason and pod.waiting.reason not in _ON_ITS_WAY:
        return PodState(False, pod.waiting, stalled=pod.waiting.reason in _NEEDS_A_PERSON)
    if pod.ready:
        return PodState(True, Note("Running", f"Pod {pod.name} is crawling."))
    if pod.phase == "Running" or pod.running_since is not None:
        return PodState(False, Note("NotReady", f"Pod {pod.name} runs but is not ready yet."))
    where = f" on node {pod.node}" if pod.node else ""
    note = pod.warning or Note("Starting", f"Pod {pod.name} is starting{where}.")
    return PodState(False, note, starting=True)


def leaving(pod: Pod, now: datetime) -> Note:
    """What is said of a Pod of ours that is being deleted. Only a clock tells that nobody carries it out any more."""
    note = explain(pod).note
    if pod.gone_by is None or now < pod.gone_by + LATE:
        return note
    since = times.text(pod.gone_by)
    return Note(
        "NodeLost",
        f"Pod {pod.name} should have been gone since {since}, and node {pod.node} does not confirm it; the crawl waits,"
        " as it may still run there, until the node is back or its Node object is deleted.",
    )
