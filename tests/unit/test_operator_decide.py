"""The operator's decision, branch by branch: what is seen, what shall be said and done."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.builders import NOW, around, ended, job, pod, running, summary

from crawljob import manifest
from crawljob.problems import InvalidInputError, Problem
from crawljob.status import CrawlJobStatus
from crawljob.summary import Progress, RunSummary
from crawljob_operator import render
from crawljob_operator.actions import CreateConfig, CreatePod, CreateVolume, DeleteConfig, DeletePod
from crawljob_operator.conditions import find
from crawljob_operator.decide import Decision, decide
from crawljob_operator.observed import Config, Job, Note, Pod, Refusal, Seen, Volume
from crawljob_operator.policies.finished import TOO_LATE


def condition(decision: Decision, kind: str) -> tuple[str, str]:
    """Status and reason of a condition; empty strings where it is not reported."""
    found = find(decision.status.conditions, kind)  # type: ignore[arg-type]
    return (found.status, found.reason) if found else ("", "")


def after(owner: Job, decision: Decision, **fields: object) -> Job:
    """The CrawlJob with the decided status written."""
    return replace(owner, status=decision.status, **fields)  # type: ignore[arg-type]


def with_running(owner: Job) -> Job:
    """A CrawlJob whose running Pod is recorded."""
    return after(owner, decide(owner, around(owner, running(owner)), NOW))


@pytest.mark.parametrize(("seeds", "left"), [(40, 0), (1000, 798)])
def test_an_invalid_spec_is_told_in_whole_problems(seeds: int, left: int) -> None:
    """Forty bad seeds are forty problems; of more than a condition holds, it says how many there are besides."""
    bad = [f"ftp://{number:03}.example/{'x' * 80}" for number in range(seeds)]
    with pytest.raises(InvalidInputError) as refused:
        manifest.parse({"seeds": bad})
    owner = replace(job(), spec=None, problems=refused.value.problems)
    found = find(decide(owner, Seen(), NOW).status.conditions, "Stalled")
    assert found is not None
    assert len(found.message) <= 32_768
    said = found.message.split("; ")
    assert said[: seeds - left] == [str(problem) for problem in refused.value.problems[: seeds - left]]
    assert said[seeds - left :] == ([f"and {left} more"] if left else [])


def test_a_new_job_gets_everything_pod_last() -> None:
    """Volume and configuration are there before the Pod asks for them."""
    owner = job()
    decision = decide(owner, Seen(config_name="config"), NOW)
    assert decision.actions == (CreateVolume(), CreateConfig(), CreatePod(1))
    assert decision.status.phase == "Pending"
    assert condition(decision, "Ready") == ("False", "Starting")


def test_a_job_that_is_being_deleted_is_left_alone() -> None:
    """The garbage collector does the rest."""
    owner = replace(job(), deleting=True)
    for seen in (Seen(), around(owner, running(owner)), around(owner, ended(owner, 1))):
        assert decide(owner, seen, NOW) == Decision(owner.status)


def test_an_invalid_spec_names_every_problem_and_makes_nothing() -> None:
    """A person is needed; kstatus is told."""
    problems = (Problem("spec.seeds[0]", "must be a URL"), Problem("spec.fetch.workers", "must be at least 1"))
    owner = replace(job(), spec=None, problems=problems)
    decision = decide(owner, Seen(), NOW)
    assert decision.actions == ()
    assert condition(decision, "Stalled") == ("True", "InvalidSpec")
    stalled = find(decision.status.conditions, "Stalled")
    assert stalled is not None
    assert stalled.message == "spec.seeds[0]: must be a URL; spec.fetch.workers: must be at least 1"
    assert decision.status.phase == "Stalled"


def test_an_invalid_edit_does_not_stop_what_runs() -> None:
    """The running Pod has the last good spec."""
    good = with_running(job())
    decision = decide(replace(good, spec=None, problems=(Problem("spec", "bad"),)), around(good, running(good)), NOW)
    assert decision.actions == ()
    assert condition(decision, "Stalled") == ("True", "InvalidSpec")


def test_a_running_pod_is_reported() -> None:
    """Its Pod recorded, its start known; not Ready, for what is waited for is its end."""
    owner = job()
    decision = decide(owner, around(owner, running(owner)), NOW)
    status = decision.status
    assert (status.phase, condition(decision, "Ready")) == ("Running", ("False", "Running"))
    assert status.current_pod is not None
    assert (status.current_pod.uid, status.attempt, status.restarts) == ("pod-1", 1, 0)
    assert status.start_time == "2031-05-06T07:07:09Z"
    assert len(status.trace_id) == 32
    assert decision.actions == ()


def test_the_same_state_again_changes_nothing() -> None:
    """A second look an hour later, with nothing new, gives the identical status."""
    owner = job()
    seen = around(owner, running(owner))
    first = decide(owner, seen, NOW)
    assert decide(after(owner, first), seen, NOW + timedelta(hours=1)).status == first.status


def test_a_counted_failure_waits_with_its_pod() -> None:
    """The end is entered first; the dead Pod stays for its logs until the restart is due."""
    owner = with_running(job())
    seen = around(owner, ended(owner, 1, message="disk on fire"))
    decision = decide(owner, seen, NOW)
    status = decision.status
    assert decision.actions == ()
    assert (status.restarts, status.consecutive_failures, status.phase) == (1, 1, "Restarting")
    assert status.last_termination is not None
    assert status.last_termination.counted
    assert condition(decision, "Ready") == ("False", "Error")
    assert condition(decision, "Restarting") == ("True", "BackoffWaiting")
    assert decision.recheck_at is not None
    assert timedelta(seconds=9) <= decision.recheck_at - NOW <= timedelta(seconds=12)
    # Counted once, however often it is looked at.
    owner = after(owner, decision)
    assert decide(owner, seen, NOW + timedelta(seconds=1)).status == status
    # Due: first the dead Pod goes, by its UID …
    due = decide(owner, seen, decision.recheck_at)
    assert due.actions == (DeletePod(render.pod_name(owner), "pod-1"),)
    # … and only when it is gone its successor comes.
    owner = after(owner, due)
    gone = decide(owner, around(owner), decision.recheck_at)
    assert gone.actions == (CreatePod(2),)
    assert (gone.status.restarts, gone.status.next_restart_time) == (1, None)


def test_a_dead_pod_on_its_way_out_is_waited_for() -> None:
    """No second deletion, no Pod beside it."""
    owner = with_running(job())
    owner = after(owner, decide(owner, around(owner, ended(owner, 1)), NOW))
    decision = decide(owner, around(owner, ended(owner, 1, deleting=True)), NOW + timedelta(hours=1))
    assert decision.actions == ()
    assert decision.recheck_at is not None


@pytest.mark.parametrize(("limit", "failures"), [(0, 1), (1, 2), (6, 7)])
def test_the_failure_after_the_limit_is_the_last(limit: int, failures: int) -> None:
    """As in batch/v1: backoffLimit restarts, then Failed, and kstatus sees Stalled."""
    owner = job(restartPolicy={"backoffLimit": limit})
    for number in range(1, failures + 1):
        decision = decide(owner, around(owner, ended(owner, 1, f"pod-{number}")), NOW)
        owner = after(owner, decision)
        assert (decision.status.phase == "Failed") == (number == failures)
    assert condition(decision, "Failed") == ("True", "BackoffLimitExceeded")
    assert condition(decision, "Stalled") == ("True", "BackoffLimitExceeded")
    assert condition(decision, "Ready") == ("False", "BackoffLimitExceeded")
    assert decision.status.completion_time is not None
    assert decision.status.next_restart_time is None
    assert decision.recheck_at is None


def test_a_healthy_run_forgets_failures() -> None:
    """While it runs, and also when it ends before anybody looked."""
    owner = job(CrawlJobStatus(restarts=5, consecutive_failures=5))
    young = decide(owner, around(owner, running(owner, since=599)), NOW)
    assert young.status.consecutive_failures == 5
    assert young.recheck_at == NOW + timedelta(seconds=1)
    assert decide(owner, around(owner, running(owner, since=600)), NOW).status.consecutive_failures == 0
    assert decide(owner, around(owner, ended(owner, 1, ran=600)), NOW).status.consecutive_failures == 1


@pytest.mark.parametrize(
    ("code", "reason"), [(2, "InvalidConfiguration"), (15, "UnusableFrontier")], ids=["configuration", "frontier"]
)
def test_what_no_restart_helps_fails_at_once(code: int, reason: str) -> None:
    """Whatever the limit."""
    owner = job()
    decision = decide(owner, around(owner, ended(owner, code)), NOW)
    assert (decision.status.phase, condition(decision, "Failed")) == ("Failed", ("True", reason))


def test_complete_keeps_the_pod_and_takes_the_counts() -> None:
    """The summary's reason and numbers; Ready stays True."""
    owner = with_running(job())
    decision = decide(owner, around(owner, ended(owner, 0, message=summary(reason="PageLimitReached", done=9))), NOW)
    assert (decision.status.phase, decision.actions) == ("Complete", ())
    assert condition(decision, "Complete") == condition(decision, "Ready") == ("True", "PageLimitReached")
    assert decision.status.restarts == 0
    assert decision.status.progress is not None
    assert decision.status.progress.done == 9


def test_a_crawler_that_could_not_count_takes_no_counts_away() -> None:
    """It could not open its frontier: its summary has no numbers, and those of before stand."""
    owner = job()
    owner = after(owner, decide(owner, around(owner, running(owner), progress=Progress(done=5000)), NOW))
    said = RunSummary(outcome="failed", reason="FrontierOwned", exit_code=14).to_json()
    decision = decide(owner, around(owner, ended(owner, 14, message=said)), NOW)
    assert condition(decision, "Ready") == ("False", "FrontierOwned")
    assert decision.status.progress is not None
    assert decision.status.progress.done == 5000


def test_complete_removes_a_pod_that_a_sidecar_keeps_alive() -> None:
    """At once, and also when that deletion did not come through."""
    owner = with_running(job())
    seen = around(owner, ended(owner, 0, phase="Running", others_running=True))
    decision = decide(owner, seen, NOW)
    assert decision.status.phase == "Complete"
    assert decision.actions == (DeletePod(render.pod_name(owner), "pod-1"),)
    assert decide(after(owner, decision), seen, NOW).actions == decision.actions


@pytest.mark.parametrize("code", [0, 2], ids=["complete", "failed"])
def test_the_last_pod_is_kept_for_its_logs(code: int) -> None:
    """Also where the kubelet has not yet given the Pod its last phase."""
    owner = with_running(job())
    assert decide(owner, around(owner, ended(owner, code, phase="Running")), NOW).actions == ()


@pytest.mark.parametrize("code", [0, 2], ids=["complete", "failed"])
def test_what_is_finished_never_runs_again(code: int) -> None:
    """Not without its Pod, not after an edit, not after a suspension."""
    owner = job()
    owner = after(owner, decide(owner, around(owner, ended(owner, code)), NOW))
    edited = job(owner.status, scope={"maxPages": 7})
    suspended = job(owner.status, suspend=True)
    for now_owner in (owner, edited, suspended, replace(owner, spec=None)):
        decision = decide(replace(now_owner, generation=2), Seen(), NOW + timedelta(days=1))
        assert decision.actions == ()
        assert decision.status.phase == owner.status.phase
        assert decision.status.observed_generation == 2


def test_an_edit_that_came_too_late_is_told_once_and_taken_back() -> None:
    owner = with_running(job())
    owner = after(owner, decide(owner, around(owner, ended(owner, 0)), NOW))
    said = ready_message(owner.status)
    edited = job(owner.status, scope={"maxPages": 7})
    told = decide(edited, Seen(), NOW).status
    assert ready_message(told) == said + TOO_LATE
    again = decide(replace(edited, status=told), Seen(), NOW).status
    assert again == told, "nothing is written while nothing happens"
    assert ready_message(decide(replace(owner, status=told), Seen(), NOW).status) == said


def ready_message(status: CrawlJobStatus) -> str:
    return next(condition.message for condition in status.conditions if condition.type == "Ready")


def test_suspend_before_the_start_makes_nothing() -> None:
    """As batch/v1 does."""
    owner = job(suspend=True)
    decision = decide(owner, Seen(), NOW)
    assert (decision.actions, decision.status.phase) == ((), "Suspended")
    assert condition(decision, "Suspended") == condition(decision, "Ready") == ("True", "Suspended")


def test_suspend_and_resume() -> None:
    """Stop by UID, wait until it is gone, say so; nothing is counted and the resume does not wait."""
    owner = with_running(job())
    stop = job(owner.status, suspend=True)
    decision = decide(stop, around(stop, running(stop)), NOW)
    assert decision.actions == (DeletePod(render.pod_name(stop), "pod-1"),)
    assert condition(decision, "Suspended") == ("False", "Suspending")
    stop = after(stop, decision)
    going = decide(stop, around(stop, running(stop, deleting=True)), NOW)
    assert going.actions == ()
    stop = after(stop, going)
    gone = decide(stop, around(stop), NOW)
    assert condition(gone, "Suspended") == ("True", "Suspended")
    assert gone.status.last_termination is not None
    assert (gone.status.last_termination.reason, gone.status.consecutive_failures) == ("Suspended", 0)
    resumed = job(gone.status)
    decision = decide(resumed, around(resumed), NOW)
    assert decision.actions == (CreatePod(2),)
    assert condition(decision, "Suspended") == ("False", "Resumed")


def test_suspend_during_backoff_keeps_the_counters_and_the_time() -> None:
    """A pause is no way around a backoff."""
    owner = with_running(job())
    owner = after(owner, decide(owner, around(owner, ended(owner, 1)), NOW))
    stop = job(owner.status, suspend=True)
    decision = decide(stop, around(stop, ended(stop, 1)), NOW)
    assert decision.actions == (DeletePod(render.pod_name(stop), "pod-1"),)
    paused = after(stop, decide(after(stop, decision), around(stop), NOW))
    resumed = decide(job(paused.status), around(owner), NOW)
    assert resumed.status.consecutive_failures == 1
    assert resumed.actions == ()
    assert resumed.recheck_at is not None


def test_an_edit_of_what_shapes_the_pod_restarts_it_uncounted() -> None:
    """Gracefully, without a wait, and the next Pod has the new spec."""
    owner = with_running(job())
    old = running(owner)
    edited = job(owner.status, fetch={"workers": 3})
    decision = decide(edited, around(edited, old), NOW)
    assert decision.actions == (DeletePod(old.name, old.uid),)
    assert condition(decision, "Restarting") == ("True", "SpecChanged")
    edited = after(edited, decision)
    edited = after(edited, decide(edited, around(edited, replace(old, deleting=True)), NOW))
    gone = decide(edited, around(edited), NOW)
    assert gone.actions == (CreatePod(2),)
    assert gone.status.last_termination is not None
    assert (gone.status.last_termination.reason, gone.status.consecutive_failures) == ("SpecChanged", 0)


@pytest.mark.parametrize(
    "edit", [{"restartPolicy": {"backoffLimit": 1}}, {"storage": {"size": "3Gi"}}, {"scope": {"maxPages": 10_000}}]
)
def test_other_edits_restart_nothing(edit: dict[str, Any]) -> None:
    """Nor does writing down a default."""
    owner = with_running(job())
    edited = job(owner.status, **edit)
    assert decide(edited, around(edited, running(owner)), NOW).actions == ()


def test_a_vanished_pod_is_entered_once_and_waited_for() -> None:
    """Uncounted, but with backoff: somebody who deletes Pods in a loop makes no hot loop."""
    owner = with_running(job())
    decision = decide(owner, around(owner), NOW)
    assert decision.actions == ()
    end = decision.status.last_termination
    assert end is not None
    assert (end.reason, end.counted, end.pod_uid) == ("PodDeleted", False, "pod-1")
    assert (decision.status.restarts, decision.status.consecutive_failures) == (1, 0)
    assert decision.recheck_at is not None
    assert decision.recheck_at > NOW
    again = decide(after(owner, decision), around(owner), NOW + timedelta(seconds=1))
    assert again.status == decision.status


def test_fifty_disruptions_never_fail_and_always_wait() -> None:
    """Only backoffLimit ignores them."""
    owner = job()
    waits = []
    for number in range(50):
        gone = ended(owner, 137, f"pod-{number}", disruption=Note("PreemptionByScheduler"))
        decision = decide(owner, around(owner, gone), NOW)
        assert decision.recheck_at is not None
        waits.append((decision.recheck_at - NOW).total_seconds())
        owner = after(owner, decision)
    assert (owner.status.restarts, owner.status.consecutive_failures) == (50, 0)
    assert owner.status.phase == "Restarting"
    assert min(waits) >= 9
    assert waits[-1] >= 270
    assert len(owner.status.history) == 10


def test_foreign_objects_stop_us_and_are_never_touched() -> None:
    """The conflict is named, and looked at again."""
    owner = job()
    mine = around(owner)
    assert mine.volume is not None
    cases: list[tuple[Seen, str]] = [
        (replace(mine, pod=pod(owner, owner_uid="other")), "PodConflict"),
        (replace(mine, pod=pod(owner, owner_uid="")), "PodConflict"),
        (replace(mine, volume=replace(mine.volume, owner_uid="other")), "PVCConflict"),
        (replace(mine, configs=(Config(mine.config_name, "c", "other"),)), "ConfigConflict"),
    ]
    for seen, reason in cases:
        decision = decide(owner, seen, NOW)
        assert decision.actions == ()
        assert condition(decision, "Stalled") == ("True", reason)
        assert decision.recheck_at is not None


def test_a_pod_that_was_taken_from_us_is_not_said_to_be_deleted() -> None:
    """Somebody has changed its ownerReferences: it counts as one of ours that ended, once, and is left alone."""
    owner = job()
    owner = after(owner, decide(owner, around(owner, running(owner)), NOW))
    taken = around(owner, running(owner, owner_uid=""))
    decision = decide(owner, taken, NOW)
    assert decision.actions == ()
    assert condition(decision, "Stalled") == ("True", "PodConflict")
    last = decision.status.last_termination
    assert last is not None
    assert (last.reason, "ownerReferences" in last.message, last.counted) == ("PodConflict", True, False)
    again = decide(after(owner, decision), taken, NOW)
    assert (again.status.restarts, again.announcements) == (1, ())


def test_a_volume_that_is_being_deleted_is_waited_for() -> None:
    """No new Pod is bound to it."""
    owner = job()
    going = Volume("v", "u", owner.uid, "Bound", deleting=True)
    decision = decide(owner, around(owner, volume=going), NOW)
    assert decision.actions == ()
    assert condition(decision, "StorageReady") == ("False", "PVCTerminating")


def test_a_lost_frontier_is_announced() -> None:
    """When the job had begun; a first volume is no news."""
    fresh, begun = job(), job(CrawlJobStatus(start_time="2031-05-06T00:00:00Z"))
    assert decide(fresh, around(fresh, volume=None), NOW).announcements == ()
    reasons = [item.note.reason for item in decide(begun, around(begun, volume=None), NOW).announcements]
    assert reasons == ["FrontierLost"]


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        (Volume("v", "u", job().uid, "Bound"), ("True", "Bound")),
        (Volume("v", "u", job().uid, "Pending"), ("False", "PVCPending")),
        (Volume("v", "u", job().uid, "Lost"), ("False", "PVCLost")),
        (
            Volume("v", "u", job().uid, "Pending", note=Note("WaitForFirstConsumer")),
            ("Unknown", "WaitForFirstConsumer"),
        ),
        (Volume("v", "u", "other", "Bound"), ("False", "PVCConflict")),
    ],
)
def test_the_volume_is_reported(volume: Volume, expected: tuple[str, str]) -> None:
    """Waiting for its first consumer is no failure, and no deadlock."""
    owner = job()
    decision = decide(owner, around(owner, pod(owner), volume=volume), NOW)
    assert condition(decision, "StorageReady") == expected


def test_a_refusal_is_said_and_waited_for() -> None:
    """In the API server's words; then it is asked again."""
    owner = job()
    refusal = Refusal(Note("QuotaExceeded", "exceeded quota: pods=1"), NOW + timedelta(seconds=10))
    decision = decide(owner, around(owner, refusal=refusal), NOW)
    assert (decision.actions, decision.recheck_at) == ((), refusal.retry_at)
    assert condition(decision, "Ready") == ("False", "QuotaExceeded")
    assert condition(decision, "Stalled") == ("", "")
    stalled = decide(owner, around(owner, refusal=replace(refusal, stalled=True)), NOW)
    assert condition(stalled, "Stalled") == ("True", "QuotaExceeded")
    assert decide(owner, around(owner, refusal=refusal), refusal.retry_at).actions == (CreatePod(1),)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"unscheduled": Note("Unschedulable", "0/3 nodes")}, ("Pending", "Unschedulable")),
        ({"waiting": Note("ImagePullBackOff", "back-off")}, ("Pending", "ImagePullBackOff")),
        ({"waiting": Note("CreateContainerConfigError", "no Secret")}, ("Pending", "CreateContainerConfigError")),
        ({"waiting": Note("InvalidImageName", "bad")}, ("Stalled", "InvalidImageName")),
        ({"waiting": Note("ContainerCreating")}, ("Pending", "Starting")),
        ({"warning": Note("FailedMount", 'secret "token" not found')}, ("Pending", "FailedMount")),
        ({"phase": "Unknown", "node": "n"}, ("Pending", "NodeLost")),
        ({"own": Note("NodeLost", "gone")}, ("Pending", "NodeLost")),
        ({"deleting": True}, ("Restarting", "PodTerminating")),
        ({"phase": "Running", "running_since": NOW}, ("Running", "NotReady")),
    ],
)
def test_a_pod_that_does_not_crawl_yet_says_why(fields: dict[str, Any], expected: tuple[str, str]) -> None:
    """Never a restart, never a deletion: kubelets get over most of it."""
    owner = job()
    decision = decide(owner, around(owner, pod(owner, **fields)), NOW)
    assert decision.actions == ()
    assert (decision.status.phase, condition(decision, "Ready")[1]) == expected


def on_a_node(owner: Job, conditions: list[dict[str, str]], gone_by: str | None = None) -> Pod:
    """A Pod as a cluster has it, read from what the API server returns."""
    metadata = {"name": "docs", "uid": "pod-1", "deletionTimestamp": gone_by}
    state = {"running": {"startedAt": "2031-05-06T07:00:00Z"}}
    status = {
        "phase": "Running",
        "conditions": conditions,
        "containerStatuses": [{"name": "crawler", "ready": True, "state": state}],
    }
    raw = {"metadata": metadata, "spec": {"nodeName": "node-1"}, "status": status}
    made = pod(owner)
    return replace(
        Pod.from_raw(raw), owner_uid=owner.uid, spec_hash=made.spec_hash, request_mark=made.request_mark, attempt=1
    )


# As the node controller (MarkPodsNotReady), the taint manager and the kubelet write them.
SILENT = [{"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "False"}]
TAINTED = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
UNREADY = [
    {"type": kind, "status": "False", "reason": "ContainersNotReady", "message": "containers with unready status"}
    for kind in ("ContainersReady", "Ready")
]
GATED = [
    {"type": "ContainersReady", "status": "True"},
    {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"},
]


@pytest.mark.parametrize(
    ("conditions", "gone_by", "reason"),
    [
        (SILENT, None, "NodeLost"),
        ([*SILENT, TAINTED], "2031-05-06T07:08:30Z", "NodeLost"),
        ([*UNREADY, TAINTED], "2031-05-06T07:07:09Z", "NodeLost"),
        ([*UNREADY, TAINTED], "2031-05-06T07:07:10Z", "PodTerminating"),
        (UNREADY, None, "NotReady"),
        (GATED, None, "NotReady"),
    ],
    ids=["node silent", "evicted from it", "never gone", "a drain", "kubelet says no", "a readiness gate"],
)
def test_a_node_that_is_lost_is_said(conditions: list[dict[str, str]], gone_by: str | None, reason: str) -> None:
    """And nothing is done: the Pod may still run."""
    owner = with_running(job())
    decision = decide(owner, around(owner, on_a_node(owner, conditions, gone_by)), NOW)
    assert condition(decision, "Ready") == ("False", reason)
    assert decision.actions == ()
    ready = find(decision.status.conditions, "Ready")
    assert ready is not None
    assert ("ode node-1" in ready.message) == (reason == "NodeLost")


def test_configs_of_earlier_specs_go_when_nothing_uses_them() -> None:
    """But never the one that is mounted, and never somebody else's."""
    owner = job()
    seen = around(owner, running(owner))
    old, theirs = Config("old", "old-uid", owner.uid), Config("theirs", "their-uid", "other")
    decision = decide(owner, replace(seen, configs=(*seen.configs, old, theirs)), NOW)
    assert decision.actions == (DeleteConfig("old", "old-uid"),)


def test_transition_times_change_only_with_the_status_of_a_condition() -> None:
    """kubectl and GitOps tools read ages from them."""
    owner = job()
    first = decide(owner, around(owner, pod(owner)), NOW)
    later = NOW + timedelta(minutes=1)
    waiting = decide(after(owner, first), around(owner, pod(owner, waiting=Note("ErrImagePull", "x"))), later)
    ready, before = find(waiting.status.conditions, "Ready"), find(first.status.conditions, "Ready")
    assert ready is not None
    assert before is not None
    assert (ready.reason, ready.last_transition_time) == ("ErrImagePull", before.last_transition_time)
    done = decide(after(owner, waiting), around(owner, ended(owner, 0)), later)
    ready = find(done.status.conditions, "Ready")
    assert ready is not None
    assert ready.last_transition_time == "2031-05-06T07:09:09Z"


def test_an_end_by_an_old_pod_and_a_new_pod_at_once() -> None:
    """Somebody else's operator made a successor: the old one's end is entered, the new one is ours now."""
    owner = with_running(job())
    decision = decide(owner, around(owner, running(owner, "pod-2", attempt=2)), NOW)
    assert decision.status.current_pod is not None
    assert decision.status.current_pod.uid == "pod-2"
    assert (decision.status.restarts, decision.status.attempt) == (1, 2)
    assert decision.actions == ()


def test_a_pod_from_nothing_is_total() -> None:
    """An object with no status at all is an ordinary case."""
    owner = job()
    bare = replace(Pod.from_raw({"metadata": {"uid": "x"}}), owner_uid=owner.uid, spec_hash=pod(owner).spec_hash)
    assert decide(owner, Seen(pod=bare), NOW).status.phase == "Pending"
