"""How a Pod ended, row by row."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.builders import NOW, ended, job, summary

from crawljob.status import PodRef
from crawljob_operator.classify import Outcome, classify, vanished
from crawljob_operator.observed import Note, Pod

DISRUPTED = Note("DeletionByTaintManager", "node is gone")
COMPLETE, FATAL, RESTART = Outcome.FINISHED, Outcome.FATAL, Outcome.RESTART

ROWS: list[tuple[str, int | None, dict[str, Any], tuple[Outcome, str, bool]]] = [
    ("finished", 0, {"message": summary()}, (COMPLETE, "CrawlFinished", False)),
    ("bound", 0, {"message": summary(reason="PageLimitReached")}, (COMPLETE, "PageLimitReached", False)),
    ("no summary", 0, {}, (COMPLETE, "CrawlFinished", False)),
    ("log tail as summary", 0, {"message": "{not json"}, (COMPLETE, "CrawlFinished", False)),
    ("finished, then drained", 0, {"message": summary(), "disruption": DISRUPTED}, (COMPLETE, "CrawlFinished", False)),
    ("drained without summary", 0, {"disruption": DISRUPTED}, (RESTART, "DeletionByTaintManager", False)),
    ("deleted without summary", 0, {"deleting": True}, (RESTART, "PodDeleted", False)),
    ("0 but interrupted", 0, {"message": summary("interrupted", "Interrupted")}, (RESTART, "Interrupted", False)),
    ("0 but failed", 0, {"message": summary("failed", "DatabaseError")}, (RESTART, "DatabaseError", True)),
    ("infrastructure", 1, {}, (RESTART, "Error", True)),
    ("its own word", 1, {"message": summary("failed", "OutOfDisk", 1)}, (RESTART, "OutOfDisk", True)),
    ("configuration", 2, {}, (FATAL, "InvalidConfiguration", False)),
    ("configuration while drained", 2, {"disruption": DISRUPTED}, (FATAL, "InvalidConfiguration", False)),
    ("disk", 12, {}, (RESTART, "OutOfDisk", True)),
    ("owned", 14, {}, (RESTART, "FrontierOwned", False)),
    ("corrupt", 15, {}, (FATAL, "UnusableFrontier", False)),
    ("sigint", 130, {}, (RESTART, "Interrupted", False)),
    ("sigterm", 143, {}, (RESTART, "Interrupted", False)),
    ("killed", 137, {}, (RESTART, "Error", True)),
    ("out of memory", 137, {"reason": "OOMKilled", "memory_limit": "64Mi"}, (RESTART, "OOMKilled", True)),
    ("killed at the end of its grace", 137, {"deleting": True}, (RESTART, "PodDeleted", False)),
    ("unknown code", 99, {"reason": "ContainerCannotRun"}, (RESTART, "ContainerCannotRun", True)),
    ("evicted", 137, {"disruption": DISRUPTED, "own": Note("Evicted")}, (RESTART, "Evicted", False)),
    # The kubelet sets no DisruptionTarget for a Pod that overran its own limits.
    ("overran its own volume", 137, {"own": Note("Evicted", "tmp exceeds 64Mi")}, (RESTART, "Error", True)),
    (
        "evicted early",
        None,
        {"phase": "Failed", "own": Note("Evicted"), "disruption": DISRUPTED},
        (RESTART, "Evicted", False),
    ),
    ("rejected by the node", None, {"phase": "Failed", "own": Note("OutOfcpu", "no cpu")}, (RESTART, "OutOfcpu", True)),
    (
        "only a disruption",
        None,
        {"phase": "Failed", "disruption": DISRUPTED},
        (RESTART, "DeletionByTaintManager", False),
    ),
    (
        "node shutdown",
        None,
        {"phase": "Failed", "own": Note("Terminated", "node shutdown")},
        (RESTART, "NodeShutdown", False),
    ),
    ("nothing but Failed", None, {"phase": "Failed"}, (RESTART, "Error", True)),
    ("nothing but Succeeded", None, {"phase": "Succeeded"}, (COMPLETE, "CrawlFinished", False)),
]


@pytest.mark.parametrize(("code", "fields", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_every_end_is_judged(code: int | None, fields: dict[str, Any], expected: tuple[Outcome, str, bool]) -> None:
    """Outcome, reason, and whether it counts."""
    end = classify(ended(job(), code, **fields), "", NOW)
    assert (end.outcome, end.termination.reason, end.termination.counted) == expected
    assert end.termination.pod_uid == "pod-1"


@pytest.mark.parametrize("requested", ["Suspended", "SpecChanged"])
def test_a_stop_that_we_asked_for_has_its_reason(requested: str) -> None:
    """But only of a Pod that is being deleted: one that failed by itself meanwhile has failed."""
    stopped = classify(ended(job(), 143, deleting=True), requested, NOW).termination
    assert (stopped.reason, stopped.counted) == (requested, False)
    failed = classify(ended(job(), 1), requested, NOW).termination
    assert (failed.reason, failed.counted) == ("Error", True)
    assert vanished(PodRef(name="p", uid="u"), requested, NOW).termination.reason == requested


def test_a_message_says_what_helps() -> None:
    """The memory limit, the end of the log, the kubelet's text; never more than a condition can hold."""
    oom = classify(ended(job(), 137, reason="OOMKilled", memory_limit="64Mi"), "", NOW).termination
    assert oom.message == "The crawler needed more memory than its limit of 64Mi."
    tail = classify(ended(job(), 1, message="x" * 5000 + "the end"), "", NOW).termination
    assert tail.message.endswith("the end")
    assert len(tail.message) == 1024
    evicted = classify(ended(job(), 137, own=Note("Evicted", "The node was low on memory.")), "", NOW).termination
    assert evicted.message == "The node was low on memory."


@pytest.mark.parametrize(
    "count",
    [f'"done": {10**30}', f'"bytes": {2**63}', '"failed": -1', '"rate": Infinity', '"rate": NaN', '"rate": 1e999'],
)
def test_counts_that_no_status_can_hold_are_no_summary(count: str) -> None:
    """Else the API server would refuse the status for ever; the exit code tells how it ended."""
    message = f'{{"outcome": "finished", "reason": "PageLimitReached", "exitCode": 0, "progress": {{{count}}}}}'
    end = classify(ended(job(), 0, message=message), "", NOW)
    assert (end.outcome, end.termination.reason, end.progress) == (COMPLETE, "CrawlFinished", None)


def test_signals_are_told() -> None:
    """From the runtime's field or from the exit code."""
    assert classify(ended(job(), 137), "", NOW).termination.signal == 9
    assert classify(ended(job(), 1), "", NOW).termination.signal is None


def test_the_crawlers_file_is_found_behind_others() -> None:
    """A webhook puts its own volumes first."""
    volumes = [{"name": "ca", "configMap": {"name": "theirs"}}, {"name": "config", "configMap": {"name": "ours"}}]
    assert Pod.from_raw({"spec": {"volumes": volumes}}).config_name == "ours"
    assert Pod.from_raw({"spec": {"volumes": volumes[:1]}}).config_name == ""


def test_raw_oddities_are_read() -> None:
    """Sidecars first, null lists, Go's zero time, a missing exit code."""
    end = {"exitCode": 1, "startedAt": "0001-01-01T00:00:00Z", "finishedAt": None}
    containers = [
        {"name": "istio-proxy", "state": {"running": {"startedAt": "2031-01-01T00:00:00Z"}}},
        {"name": "crawler", "state": {"terminated": end}},
    ]
    pod = Pod.from_raw({"metadata": {"uid": "u", "labels": None}, "status": {"containerStatuses": containers}})
    assert pod.ended
    termination = classify(pod, "", NOW).termination
    assert (termination.exit_code, termination.started_at) == (1, None)
    assert termination.finished_at == "2031-05-06T07:08:09Z"
    odd = {
        "status": {
            "phase": "Failed",
            "conditions": None,
            "containerStatuses": [None, {"name": "crawler", "state": {"terminated": {}}}],
        }
    }
    assert classify(Pod.from_raw(odd), "", NOW).outcome is RESTART
