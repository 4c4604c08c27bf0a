"""What a Pod that starts for long is waiting for: read from its Events, and only then."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.support.builders import NOW, UID, around, job, pod, running

from crawljob_operator import times
from crawljob_operator.conditions import find
from crawljob_operator.decide import decide
from crawljob_operator.kube import CRAWLJOBS, EVENTS, PODS, Kube
from crawljob_operator.netsettings import NetworkSettings
from crawljob_operator.observed import Note
from crawljob_operator.observer import Observer
from crawljob_operator.podstate import PATIENCE
from crawljob_operator.policies.view import SOON
from crawljob_operator.progress import ProgressReader
from crawljob_operator.reconcile import Reconciler, read_job
from crawljob_operator.workqueue import Key

MISSING = 'MountVolume.SetUp failed for volume "secret-0" : secret "token" not found'
SCHEDULED = {"type": "Normal", "reason": "Scheduled", "eventTime": "2031-05-06T07:07:09.123456Z"}
UNMOUNTED = {"type": "Warning", "reason": "FailedMount", "message": MISSING, "lastTimestamp": "2031-05-06T07:08:00Z"}
PULLED = {"type": "Normal", "reason": "Pulled", "message": "is here", "lastTimestamp": "2031-05-06T07:08:05Z"}


class FakeKube(Kube):
    """Has one CrawlJob, its Pod, and Events; remembers what was asked of these and written to the status."""

    def __init__(self, made_seconds_ago: float, status: dict[str, Any], node: str, events: list[Any]) -> None:
        self._observer = Observer()
        self.asked: list[str] = []
        self.written: dict[str, Any] = {}
        self._events = events
        self._job = {
            "metadata": {"namespace": "crawls", "name": "docs", "uid": UID, "generation": 1, "resourceVersion": "1"},
            "spec": {"seeds": ["https://docs.example.com/"]},
        }
        self._pod = {
            "metadata": {
                "uid": "pod-1",
                "creationTimestamp": times.text(NOW - timedelta(seconds=made_seconds_ago)),
                "ownerReferences": [{"controller": True, "uid": UID}],
                "labels": {"durable-crawler.io/spec-hash": pod(read_job(self._job)).spec_hash},
            },
            "spec": {"nodeName": node},
            "status": status,
        }

    async def get(self, resource: Any, namespace: str, name: str) -> Any:
        return {CRAWLJOBS: self._job, PODS: self._pod}.get(resource)

    async def items(self, resource: Any, namespace: str | None, **selection: Any) -> Any:
        fields = selection.get("fields", "")
        if resource is EVENTS and "involvedObject" in fields:
            self.asked.append(fields)
            for event in self._events:
                yield event

    async def create(self, *_: Any) -> Any:
        return {}

    async def patch(self, resource: Any, namespace: str, name: str, patch: Any, **_: Any) -> Any:
        if resource is CRAWLJOBS:
            self.written = patch["status"]
        return {}


def waiting(reason: str) -> dict[str, Any]:
    return {"phase": "Pending", "containerStatuses": [{"name": "crawler", "state": {"waiting": {"reason": reason}}}]}


CREATING = waiting("ContainerCreating")


@pytest.mark.parametrize(
    ("made_seconds_ago", "status", "node", "events", "asks", "reason"),
    [
        (60, CREATING, "node-1", [SCHEDULED, UNMOUNTED], True, "FailedMount"),
        (60, CREATING, "node-1", [UNMOUNTED, SCHEDULED], True, "FailedMount"),
        (60, CREATING, "node-1", [UNMOUNTED, PULLED], True, "Starting"),
        (60, CREATING, "node-1", [], True, "Starting"),
        (9, CREATING, "node-1", [UNMOUNTED], False, "Starting"),
        (60, CREATING, "", [UNMOUNTED], False, "Starting"),
        (60, waiting("ImagePullBackOff"), "node-1", [UNMOUNTED], False, "ImagePullBackOff"),
        (60, {"phase": "Running"}, "node-1", [UNMOUNTED], False, "NotReady"),
    ],
)
async def test_the_latest_warning_is_told(
    made_seconds_ago: float, status: dict[str, Any], node: str, events: list[Any], asks: bool, reason: str
) -> None:
    """Of a Pod that a node has, whose status says nothing."""
    kube = FakeKube(made_seconds_ago, status, node, events)
    async with ProgressReader(30) as progress:
        reconciler = Reconciler(kube, progress, "crawler:1", NetworkSettings(enabled=False), clock=lambda: NOW)
        again_in = await reconciler.reconcile(Key("crawls", "docs"))
    assert kube.asked == (["involvedObject.uid=pod-1,involvedObject.kind=Pod"] if asks else [])
    (ready,) = (condition for condition in kube.written["conditions"] if condition["type"] == "Ready")
    assert ready["reason"] == reason
    if reason == "FailedMount":
        assert ready["message"] == MISSING
    assert again_in is not None


def test_no_watch_tells_of_events_so_a_starting_pod_is_looked_at_again() -> None:
    """First when its status has had time to say it, then every half a minute; not once it crawls."""
    owner = job(startDeadlineSeconds=0)
    young = decide(owner, around(owner, pod(owner, created_at=NOW - timedelta(seconds=4))), NOW)
    assert young.recheck_at == NOW - timedelta(seconds=4) + PATIENCE
    assert decide(owner, around(owner, pod(owner)), NOW).recheck_at == NOW + SOON
    assert decide(owner, around(owner, running(owner)), NOW).recheck_at is None


def test_a_start_that_took_too_long_names_what_it_waited_for() -> None:
    owner = job(startDeadlineSeconds=30)
    failed = decide(owner, around(owner, pod(owner, warning=Note("FailedMount", MISSING))), NOW)
    said = find(failed.status.conditions, "Failed")
    assert said is not None
    assert (said.reason, MISSING in said.message) == ("StartDeadlineExceeded", True)
