"""The lifecycle of a CrawlJob: deadlines, time to live, restart requests, failure rules, volume, the Pod's template."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from tests.support.builders import NOW, UID, around, ended, job, pod, running, summary
from tests.support.podsecurity import violations

from crawljob import manifest
from crawljob.problems import InvalidInputError
from crawljob.status import CrawlJobStatus
from crawljob_operator import names, render
from crawljob_operator.actions import ChangeVolume, CreateConfig, CreatePod, CreateVolume, DeleteJob, DeletePod
from crawljob_operator.apply import apply
from crawljob_operator.conditions import find
from crawljob_operator.decide import Decision, decide
from crawljob_operator.kube import ApiError, ConflictError, Kube, NotFoundError
from crawljob_operator.netsettings import NetworkSettings
from crawljob_operator.observed import Job, Note, Pod, Refusal, Seen, Volume

GIBIBYTE = Decimal(1024**3)


def condition(decision: Decision, kind: str) -> tuple[str, str]:
    """Status and reason of a condition; empty strings where it is not reported."""
    found = find(decision.status.conditions, kind)  # type: ignore[arg-type]
    return (found.status, found.reason) if found else ("", "")


def words(decision: Decision, kind: str) -> str:
    """A condition's message."""
    found = find(decision.status.conditions, kind)  # type: ignore[arg-type]
    return found.message if found else ""


def after(owner: Job, decision: Decision, **spec: Any) -> Job:
    """The CrawlJob with the decided status written, and perhaps edited."""
    edited = job(**spec).spec if spec else owner.spec
    return replace(owner, status=decision.status, spec=edited)


def with_running(**spec: Any) -> Job:
    """A CrawlJob whose running Pod is recorded."""
    owner = job(**spec)
    return after(owner, decide(owner, around(owner, running(owner)), NOW))


def complete(**spec: Any) -> Job:
    """A finished CrawlJob."""
    owner = with_running(**spec)
    return after(owner, decide(owner, around(owner, ended(owner, 0, message=summary())), NOW))


def claim(owner: Job, **fields: Any) -> Volume:
    """The bound claim of a CrawlJob, of one gibibyte."""
    own: dict[str, Any] = {"owner_uid": owner.uid, "label_uid": owner.uid, "phase": "Bound"}
    size = {"requested": GIBIBYTE, "capacity": GIBIBYTE}
    return Volume(render.claim_name(owner, owner.spec), "volume-1", **{**own, **size, **fields})


# activeDeadlineSeconds


def test_the_deadline_counts_the_running_time_of_all_pods() -> None:
    """60 s of an earlier Pod, 30 s of this one: 90 s are not yet more than 100, but soon."""
    owner = with_running(activeDeadlineSeconds=100)
    owner = after(owner, decide(owner, around(owner, ended(owner, 1, ran=60)), NOW))
    assert owner.status.active_seconds == 60
    second = running(owner, "pod-2", since=30)
    decision = decide(owner, around(owner, second), NOW)
    assert (decision.status.phase, decision.actions) == ("Running", ())
    assert decision.recheck_at == NOW + timedelta(seconds=10)
    late = decide(after(owner, decision), around(owner, second), NOW + timedelta(seconds=10))
    assert condition(late, "Failed") == condition(late, "Stalled") == ("True", "DeadlineExceeded")
    assert late.actions == (DeletePod(second.name, "pod-2"),)
    assert late.status.completion_time is not None


def test_neither_waits_nor_suspension_count() -> None:
    """A backoff and a pause of hours use nothing up."""
    owner = with_running(activeDeadlineSeconds=100)
    owner = after(owner, decide(owner, around(owner, ended(owner, 1, ran=99)), NOW))
    hours = NOW + timedelta(hours=9)
    assert decide(owner, around(owner), hours).actions == (CreatePod(2, 1 + 900),)
    paused = after(owner, decide(owner, around(owner), hours), activeDeadlineSeconds=100, suspend=True)
    assert decide(paused, around(paused), hours).status.phase == "Suspended"
    assert decide(paused, around(paused), hours).status.active_seconds == 99


@pytest.mark.parametrize(("start", "limit"), [(900, 3600 + 900), (5, 3600 + 5), (0, 3600 + 86_400)])
def test_the_kubelet_ends_the_pod_when_the_operator_does_not(start: int, limit: int) -> None:
    """What is left, plus the time that a start may take."""
    owner = job(activeDeadlineSeconds=3600, startDeadlineSeconds=start)
    decision = decide(owner, Seen(config_name="c"), NOW)
    assert decision.actions == (CreateVolume(), CreateConfig(), CreatePod(1, limit))
    assert owner.spec is not None
    assert render.pod(owner, owner.spec, 1, "image", limit)["spec"]["activeDeadlineSeconds"] == limit
    assert "activeDeadlineSeconds" not in render.pod(owner, owner.spec, 1, "image")["spec"]


def test_scenario_47_a_deadline_that_passed_while_the_operator_was_down() -> None:
    """The kubelet has stopped the Pod; the job is Failed because its time is used up, not because a Pod ended."""
    owner = with_running(activeDeadlineSeconds=3600)
    overran = ended(owner, 143, ran=3700, own=Note("DeadlineExceeded", "Pod was active on the node longer"))
    decision = decide(owner, around(owner, overran), NOW)
    assert condition(decision, "Failed") == ("True", "DeadlineExceeded")
    # A kubelet that reports no container leaves the Pod's creation to count from.
    unseen = ended(owner, None, own=Note("DeadlineExceeded"), created_at=NOW - timedelta(hours=2), phase="Failed")
    assert condition(decide(owner, around(owner, unseen), NOW), "Failed") == ("True", "DeadlineExceeded")


def test_a_deadline_that_was_extended_lets_the_crawl_go_on() -> None:
    """The kubelet had the old one."""
    owner = with_running(activeDeadlineSeconds=3600)
    owner = after(owner, decide(owner, around(owner, running(owner)), NOW), activeDeadlineSeconds=99_999)
    overran = ended(owner, 143, ran=3700, own=Note("DeadlineExceeded"))
    decision = decide(owner, around(owner, overran), NOW)
    assert (decision.status.phase, decision.status.consecutive_failures) == ("Restarting", 0)


def test_a_crawl_that_finished_in_its_last_second_is_complete() -> None:
    """The deadline does not take back what is done."""
    owner = with_running(activeDeadlineSeconds=40)
    decision = decide(owner, around(owner, ended(owner, 0, ran=41, message=summary())), NOW)
    assert condition(decision, "Complete") == ("True", "CrawlFinished")


def test_a_pod_that_vanished_has_run_until_then() -> None:
    """Its start was written down: its time counts, its health too, and its span has a length."""
    owner = with_running(activeDeadlineSeconds=10_000)
    assert owner.status.current_pod is not None
    assert owner.status.current_pod.started_at is not None
    gone = decide(owner, around(owner), NOW + timedelta(seconds=9000))
    assert gone.status.active_seconds == 9030
    assert gone.status.last_termination is not None
    assert gone.status.last_termination.started_at == owner.status.current_pod.started_at


def test_the_last_pod_of_a_job_that_ran_out_of_time_is_entered() -> None:
    """With why it was stopped; a restart that is requested later finds no end that nobody had seen."""
    owner = job(activeDeadlineSeconds=20)
    overdue = running(owner)
    owner = after(owner, decide(owner, around(owner, overdue), NOW))
    assert (owner.status.phase, owner.status.history) == ("Failed", ())
    dead = replace(ended(owner, 143, ran=40), deleting=True)
    owner = after(owner, decide(owner, around(owner, dead), NOW + timedelta(seconds=9)))
    (end,) = owner.status.history
    assert (end.reason, end.counted, owner.status.active_seconds) == ("DeadlineExceeded", False, 40)
    assert (owner.status.phase, owner.status.restarts) == ("Failed", 0)
    week = NOW + timedelta(days=7)
    assert decide(owner, around(owner), week).status == owner.status, "quiet"
    asked = after(owner, decide(owner, around(owner), week), activeDeadlineSeconds=20, restartRequestedAt="x")
    decision = decide(asked, around(asked), week)
    assert (decision.actions, decision.status.history) == ((CreatePod(2, 920),), (end,))
    assert [said.note.reason for said in decision.announcements] == []


# startDeadlineSeconds


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"waiting": Note("ImagePullBackOff", "Back-off pulling image a:1")}, "ImagePullBackOff: Back-off pulling"),
        ({"unscheduled": Note("Unschedulable", "0/3 nodes are available")}, "Unschedulable: 0/3 nodes"),
        ({"waiting": Note("CreateContainerConfigError", 'secret "x" not found')}, 'secret "x" not found'),
        ({}, "Starting"),
    ],
)
def test_scenario_23_a_pod_that_never_starts_fails_the_job(fields: dict[str, Any], why: str) -> None:
    """At its deadline, with the reason it waited for; not a second earlier."""
    owner = job()
    waiting = pod(owner, created_at=NOW - timedelta(seconds=899), **fields)
    early = decide(owner, around(owner, waiting), NOW)
    assert early.status.phase == "Pending"
    assert early.recheck_at == NOW + timedelta(seconds=1)
    late = decide(after(owner, early), around(owner, waiting), NOW + timedelta(seconds=1))
    assert condition(late, "Failed") == ("True", "StartDeadlineExceeded")
    assert why in words(late, "Failed")
    assert late.actions == (DeletePod(waiting.name, waiting.uid),)


def test_who_may_wait_for_ever_does() -> None:
    """0 is no deadline; an image's name that only an edit can mend waits for that edit; who once ran has started."""
    old = NOW - timedelta(days=30)
    patient = job(startDeadlineSeconds=0)
    assert decide(patient, around(patient, pod(patient, created_at=old)), NOW).status.phase == "Pending"
    owner = job()
    misnamed = pod(owner, created_at=old, waiting=Note("InvalidImageName", "couldn't parse"))
    assert condition(decide(owner, around(owner, misnamed), NOW), "Stalled") == ("True", "InvalidImageName")
    ran = running(owner, created_at=old, ready=False)
    assert decide(owner, around(owner, ran), NOW).status.phase == "Running"


# ttlSecondsAfterFinished


def test_scenario_40_a_finished_job_is_deleted_when_its_time_is_over() -> None:
    """Once, by its UID; a clock that was set back only waits longer."""
    owner = complete(ttlSecondsAfterFinished=60)
    early = decide(owner, around(owner), NOW + timedelta(seconds=59))
    assert (early.actions, early.recheck_at) == ((), NOW + timedelta(seconds=60))
    assert decide(owner, around(owner), NOW - timedelta(hours=1)).actions == ()
    due = decide(owner, around(owner), NOW + timedelta(seconds=60))
    assert due.actions == (DeleteJob(owner.uid),)
    assert decide(complete(), around(owner), NOW + timedelta(days=999)).actions == ()


def test_a_completion_time_that_was_edited_away_begins_anew() -> None:
    """Nothing is deleted before its time because a field is missing."""
    owner = complete(ttlSecondsAfterFinished=60)
    owner = replace(owner, status=owner.status.model_copy(update={"completion_time": None}))
    decision = decide(owner, around(owner), NOW)
    assert decision.actions == ()
    assert decision.status.completion_time is not None


def test_a_failed_job_has_the_same_time_to_live() -> None:
    """And at 0 goes at once."""
    owner = with_running(ttlSecondsAfterFinished=0)
    owner = after(owner, decide(owner, around(owner, ended(owner, 2)), NOW))
    assert decide(owner, around(owner, ended(owner, 2)), NOW).actions == (DeleteJob(owner.uid),)


# restartRequestedAt


def test_a_request_restarts_a_running_crawl_once() -> None:
    """Gracefully, uncounted, without a wait."""
    owner = with_running()
    old = running(owner)
    owner = after(owner, decide(owner, around(owner, old), NOW), restartRequestedAt="today")
    decision = decide(owner, around(owner, old), NOW)
    assert decision.actions == (DeletePod(old.name, old.uid),)
    assert condition(decision, "Restarting") == ("True", "RestartRequested")
    assert decision.status.observed_restart_request is None
    owner = after(owner, decision)
    stopped = replace(ended(owner, 143), deleting=True, request_mark="")
    owner = after(owner, decide(owner, around(owner, stopped), NOW))
    assert owner.status.last_termination is not None
    assert (owner.status.last_termination.reason, owner.status.consecutive_failures) == ("RestartRequested", 0)
    decision = decide(owner, around(owner), NOW)
    assert decision.actions == (CreatePod(2),)
    owner = after(owner, decision)
    assert owner.status.observed_restart_request == "today"
    again = decide(owner, around(owner, running(owner, "pod-2")), NOW)
    assert (again.status.phase, again.actions) == ("Running", ())
    # Taking the request away asks for nothing.
    owner = after(owner, again, suspend=False)
    assert decide(owner, around(owner, running(owner, "pod-2")), NOW).status == again.status


@pytest.mark.parametrize("code", [0, 2])
def test_scenario_46_only_a_request_runs_a_finished_job_again(code: int) -> None:
    """Not an edit, not an operator upgrade; its budgets begin anew, its counters go on."""
    owner = with_running(activeDeadlineSeconds=50)
    dead = ended(owner, code, message=summary() if code == 0 else "", ran=40)
    owner = after(owner, decide(owner, around(owner, dead), NOW))
    over = owner.status.phase
    edited = after(owner, decide(owner, around(owner, dead), NOW), fetch={"workers": 2})
    assert decide(edited, around(edited, dead), NOW).actions == ()
    assert decide(edited, around(edited, dead), NOW).status.phase == over

    asked = after(owner, decide(owner, around(owner, dead), NOW), activeDeadlineSeconds=50, restartRequestedAt="x")
    decision = decide(asked, around(asked, dead), NOW)
    assert decision.actions == (DeletePod(dead.name, dead.uid),)
    assert condition(decision, over) == ("False", f"Not{over}")
    assert (decision.status.active_seconds, decision.status.completion_time) == (0, None)
    asked = after(asked, decision)
    decision = decide(asked, around(asked), NOW)
    assert decision.actions == (CreatePod(2, 50 + 900),)
    asked = after(asked, decision)
    assert asked.status.observed_restart_request == "x"
    # It finishes again, and is finished again.
    second = ended(asked, 0, "pod-2", message=summary())
    asked = after(asked, decide(asked, around(asked, second), NOW))
    assert asked.status.phase == "Complete"
    assert decide(asked, around(asked, second), NOW).actions == ()


def test_a_request_while_the_failed_jobs_pod_still_stops_is_followed_once_it_is_gone() -> None:
    """Its time used up fails the job once, not again and again; and what it still finishes is done again."""
    spec: dict[str, Any] = {"activeDeadlineSeconds": 20}
    owner = job(**spec)
    overdue = running(owner)
    owner = after(owner, decide(owner, around(owner, overdue), NOW))
    assert owner.status.phase == "Failed"
    owner = after(owner, decide(owner, around(owner, overdue), NOW), restartRequestedAt="x", **spec)
    stopping = replace(overdue, deleting=True)
    decision = decide(owner, around(owner, stopping), NOW)
    assert (decision.status.phase, decision.actions) == ("Restarting", ())
    owner = after(owner, decision)
    finished_late = replace(ended(owner, 0, message=summary()), deleting=True, request_mark=stopping.request_mark)
    decision = decide(owner, around(owner, finished_late), NOW)
    assert decision.status.phase == "Restarting"
    owner = after(owner, decision)
    decision = decide(owner, around(owner), NOW + timedelta(seconds=60))
    assert decision.actions == (CreatePod(2, 20 + 900),)
    assert (decision.status.observed_restart_request, decision.status.active_seconds) == ("x", 0)


def test_a_new_job_with_a_request_simply_begins() -> None:
    """There is nothing to restart."""
    owner = job(restartRequestedAt="first")
    decision = decide(owner, Seen(config_name="c"), NOW)
    assert decision.actions == (CreateVolume(), CreateConfig(), CreatePod(1))
    assert decision.status.observed_restart_request == "first"


def test_an_older_operators_pod_is_not_restarted() -> None:
    """It has no mark, and nothing was requested."""
    owner = with_running()
    assert owner.spec is not None
    raw = render.pod(owner, owner.spec, 1, "image")
    del raw["metadata"]["labels"][names.LABEL_RESTART]
    seen = Pod.from_raw({**raw, "status": {"phase": "Running"}})
    assert decide(owner, around(owner, replace(seen, uid="pod-1")), NOW).actions == ()


def test_the_crawler_is_told_of_the_request_that_holds() -> None:
    """Its file has it, also after it was taken out of the spec, so that the file does not change by that."""
    owner = with_running(restartRequestedAt="x")
    owner = after(owner, decide(owner, around(owner), NOW))
    without = after(owner, decide(owner, around(owner), NOW), suspend=False)
    assert owner.spec is not None
    assert without.spec is not None
    assert "restartRequestedAt: x" in render.config_text(owner, owner.spec)
    assert render.config_name(owner, owner.spec) == render.config_name(without, without.spec)


def test_scenario_37_an_edit_ends_the_backoff() -> None:
    """Who has mended the spec need not wait for what it was."""
    owner = with_running()
    dead = ended(owner, 1)
    owner = after(owner, decide(owner, around(owner, dead), NOW))
    assert decide(owner, around(owner, dead), NOW).actions == ()
    mended = after(owner, decide(owner, around(owner, dead), NOW), fetch={"workers": 2})
    decision = decide(mended, around(mended, dead), NOW)
    assert decision.actions == (DeletePod(dead.name, dead.uid),)
    assert decide(after(mended, decision), around(mended), NOW).actions == (CreatePod(2),)


# The wait before a restart


def test_what_went_well_does_not_make_the_next_wait_longer() -> None:
    """Six crawls that finished at once, each asked for, and then one failure."""
    owner = job()
    for number in range(1, 7):
        spec = {"restartRequestedAt": f"run {number}"}
        owner = after(owner, decide(owner, around(owner), NOW), **spec)
        done = ended(owner, 0, f"pod-{number}", ran=5, message=summary())
        owner = after(owner, decide(owner, around(owner, done), NOW))
        assert owner.status.phase == "Complete"
    owner = after(owner, decide(owner, around(owner), NOW), restartRequestedAt="last")
    failed = decide(owner, around(owner, ended(owner, 1, "pod-7", ran=5)), NOW)
    assert failed.recheck_at is not None
    assert failed.recheck_at - NOW <= timedelta(seconds=12)


def test_a_requested_restart_begins_the_waits_anew() -> None:
    """A job that failed at its limit had long waits; the next run has done nothing yet."""
    owner = with_running(restartPolicy={"backoffLimit": 5})
    for number in range(1, 7):
        owner = after(owner, decide(owner, around(owner, ended(owner, 1, f"pod-{number}", ran=5)), NOW))
    assert (owner.status.phase, owner.status.unhealthy_ends) == ("Failed", 6)
    spec: dict[str, Any] = {"restartPolicy": {"backoffLimit": 5}, "restartRequestedAt": "x"}
    owner = after(owner, decide(owner, around(owner), NOW), **spec)
    owner = after(owner, decide(owner, around(owner), NOW), **spec)
    failed = decide(owner, around(owner, ended(owner, 1, "pod-9", ran=5)), NOW)
    assert failed.status.phase == "Restarting"
    assert failed.recheck_at is not None
    assert failed.recheck_at - NOW <= timedelta(seconds=12)


def test_a_clock_that_was_ahead_costs_one_wait_at_most() -> None:
    """Written a day ahead, read under the right time; and not moved on by every look."""
    owner = with_running()
    dead = ended(owner, 1)
    owner = after(owner, decide(owner, around(owner, dead), NOW + timedelta(days=1)))
    decision = decide(owner, around(owner, dead), NOW)
    assert decision.recheck_at is not None
    assert decision.recheck_at - NOW <= timedelta(seconds=331)
    again = decide(after(owner, decision), around(owner, dead), NOW + timedelta(seconds=60))
    assert again.recheck_at == decision.recheck_at


# podFailurePolicy


@pytest.mark.parametrize(
    ("rules", "code", "conditions", "expected"),
    [
        ([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}], 1, (), "FailJob"),
        ([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [7]}}], 1, (), "Count"),
        ([{"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [7]}}], 1, (), "FailJob"),
        ([{"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [7]}}], 0, (), "Ignore"),
        ([{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [1]}}], 1, (), "Ignore"),
        ([{"action": "Count", "onExitCodes": {"operator": "In", "values": [2]}}], 2, (), "Count"),
        ([{"action": "Count", "onPodConditions": [{"type": "DisruptionTarget"}]}], 143, ("DisruptionTarget",), "Count"),
        ([{"action": "FailJob", "onPodConditions": [{"type": "Mine"}]}], 1, ("Yours", "Mine"), "FailJob"),
        ([{"action": "FailJob", "onPodConditions": [{"type": "Mine", "status": "False"}]}], 1, ("Mine",), "Count"),
        (
            [
                {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [1, 2]}},
                {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}},
            ],
            1,
            (),
            "Ignore",
        ),
        ([], 2, (), "FailJob"),
        ([], 143, (), "Ignore"),
        ([], 1, (), "Count"),
    ],
)
def test_the_first_rule_that_matches_decides(
    rules: list[dict[str, Any]], code: int, conditions: tuple[str, ...], expected: str
) -> None:
    """And where none does, ours; exit code 0 is no failure and matches none."""
    owner = with_running(podFailurePolicy={"rules": rules})
    message = summary("interrupted", "Interrupted") if code == 0 else ""
    dead = ended(owner, code, message=message, conditions=frozenset((kind, "True") for kind in conditions))
    status = decide(owner, around(owner, dead), NOW).status
    assert (status.phase == "Failed") == (expected == "FailJob")
    assert (status.consecutive_failures == 1) == (expected == "Count")


def test_a_rule_that_fails_the_job_is_named() -> None:
    """With its path in the spec and what it matched."""
    rules = [{"action": "FailJob", "onExitCodes": {"containerName": "crawler", "operator": "In", "values": [9]}}]
    owner = with_running(podFailurePolicy={"rules": rules})
    decision = decide(owner, around(owner, ended(owner, 9, message="boom")), NOW)
    assert condition(decision, "Failed") == ("True", "FailurePolicyMatched")
    assert words(decision, "Failed") == "podFailurePolicy.rules[0] (exit code 9); Error (exit code 9): boom"


def test_a_stop_that_we_asked_for_is_no_failure_by_any_rule() -> None:
    """The user's rules are for what the user did not ask for."""
    rules = [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [143]}}]
    owner = with_running(podFailurePolicy={"rules": rules})
    owner = after(
        owner, decide(owner, around(owner, running(owner)), NOW), podFailurePolicy={"rules": rules}, suspend=True
    )
    owner = after(owner, decide(owner, around(owner, running(owner)), NOW))
    decision = decide(owner, around(owner, replace(ended(owner, 143), deleting=True)), NOW)
    assert decision.status.phase == "Suspended"


# storage


def test_scenario_51_a_larger_size_is_asked_for_without_a_restart() -> None:
    """The claim is patched; until the driver has done it, StorageReady says so in its words."""
    owner = with_running(storage={"size": "3Gi"})
    grow = decide(owner, around(owner, running(owner), volume=claim(owner)), NOW)
    assert grow.actions == (ChangeVolume(render.claim_name(owner, owner.spec), "volume-1", "3Gi"),)
    assert condition(grow, "StorageReady") == ("False", "ResizePending")
    assert condition(grow, "Ready") == ("False", "Running")
    asked = claim(owner, requested=3 * GIBIBYTE, resizing="Waiting for user to (re-)start a pod")
    wait = decide(owner, around(owner, running(owner), volume=asked), NOW)
    assert (wait.actions, condition(wait, "StorageReady")) == ((), ("False", "ResizePending"))
    assert "Waiting for user" in words(wait, "StorageReady")
    done = decide(owner, around(owner, running(owner), volume=replace(asked, capacity=3 * GIBIBYTE)), NOW)
    assert condition(done, "StorageReady") == ("True", "Bound")


def test_a_class_that_cannot_grow_is_told_and_asked_again_later() -> None:
    """With the API server's own words, which stay while it is asked again."""
    owner = with_running(storage={"size": "3Gi"})
    refusal = Refusal(
        Note("ResizePending", "only dynamically provisioned pvc can be resized"), NOW + timedelta(seconds=10)
    )
    seen = around(owner, running(owner), volume=claim(owner), resize_refusal=refusal)
    refused = decide(owner, seen, NOW)
    assert refused.actions == ()
    assert "only dynamically provisioned" in words(refused, "StorageReady")
    assert condition(refused, "Ready") == ("False", "Running")
    later = decide(after(owner, refused), seen, NOW + timedelta(seconds=10))
    assert later.status == refused.status
    assert len(later.actions) == 1


@pytest.mark.parametrize("fields", [{"phase": "Pending"}, {"deleting": True}, {"owner_uid": "other"}])
def test_only_a_bound_volume_of_ours_is_enlarged(fields: dict[str, Any]) -> None:
    """The API server would refuse the one, and the others are not ours to change."""
    owner = with_running(storage={"size": "3Gi"})
    assert decide(owner, around(owner, running(owner), volume=claim(owner, **fields)), NOW).actions == ()


def test_an_existing_claim_is_used_and_never_touched() -> None:
    """It is waited for; nothing is created, enlarged or owned."""
    owner = job(storage={"existingClaim": "kept"})
    assert owner.spec is not None
    missing = decide(owner, Seen(config_name="c"), NOW)
    assert (missing.actions, condition(missing, "Ready")) == ((), ("False", "PVCNotFound"))
    assert missing.recheck_at is not None
    theirs = Volume("kept", "v", "somebody", "Bound", requested=GIBIBYTE, capacity=GIBIBYTE)
    found = decide(owner, Seen(volume=theirs, config_name="c"), NOW)
    assert found.actions == (CreateConfig(), CreatePod(1))
    assert condition(found, "StorageReady") == ("True", "Bound")
    volumes = render.pod(owner, owner.spec, 1, "image")["spec"]["volumes"]
    assert {"claimName": "kept"} in [volume.get("persistentVolumeClaim") for volume in volumes]


def test_a_retained_volume_has_no_owner_and_is_still_ours() -> None:
    """The garbage collector leaves it; an edit in either direction is followed, also on a finished job."""
    owner = job(storage={"whenDeleted": "Retain"})
    assert owner.spec is not None
    assert "ownerReferences" not in render.volume(owner, owner.spec)["metadata"]
    assert render.volume(owner, owner.spec)["metadata"]["labels"][names.LABEL_UID] == owner.uid
    kept = claim(owner, owner_uid="")
    assert decide(owner, around(owner, running(owner), volume=kept), NOW).actions == ()
    let_go = decide(owner, around(owner, running(owner), volume=claim(owner)), NOW)
    assert let_go.actions == (ChangeVolume(kept.name, kept.uid, None, owned=False),)
    finished = complete()
    take = decide(finished, around(finished, volume=claim(finished, owner_uid="")), NOW)
    assert take.actions == (ChangeVolume(render.claim_name(finished, finished.spec), kept.uid, None, owned=True),)
    foreign = decide(owner, around(owner, volume=claim(owner, owner_uid="", label_uid="other")), NOW)
    assert condition(foreign, "Stalled") == ("True", "PVCConflict")


@pytest.mark.parametrize("other", [{"size": "1Gi"}, {"storageClassName": "fast"}, {"accessModes": ["ReadWriteOnce"]}])
def test_an_existing_claim_excludes_what_describes_a_new_one(other: dict[str, Any]) -> None:
    """Whatever would be ignored is refused."""
    with pytest.raises(InvalidInputError, match=r"storage: existingClaim excludes size"):
        manifest.parse({"seeds": ["https://a.example/"], "storage": {"existingClaim": "kept", **other}})


@pytest.mark.parametrize("ran_before", [False, True])
def test_scenario_48_what_is_taken_away_under_a_waiting_pod_is_made_again(ran_before: bool) -> None:
    """Nothing protects the claim of a Pod that has no node; without it the Pod would wait for ever."""
    owner = job()
    if ran_before:
        owner = after(owner, decide(owner, around(owner, ended(owner, 1)), NOW))
    waiting = pod(owner, "pod-2", unscheduled=Note("Unschedulable", "no node"))
    config = render.config_name(owner, owner.spec) if owner.spec else ""
    decision = decide(owner, Seen(pod=waiting, config_name=config), NOW)
    assert decision.actions == (CreateVolume(), CreateConfig())
    said = [announcement.note.reason for announcement in decision.announcements]
    assert ("FrontierLost" in said) is ran_before
    started = running(owner, "pod-2")
    assert decide(owner, Seen(pod=started, config_name=config), NOW).actions == ()


# Events


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"unscheduled": Note("Unschedulable", "0/3 nodes are available")}, "Unschedulable"),
        ({"waiting": Note("ImagePullBackOff", "Back-off")}, "ImagePullBackOff"),
        ({"phase": "Unknown", "node": "n"}, "NodeLost"),
        ({}, ""),
    ],
)
def test_what_holds_a_crawl_up_is_an_event_once(fields: dict[str, Any], reason: str) -> None:
    """When the reason is new, not each time that it is seen; a start that takes its time is none."""
    owner = job()
    waiting = pod(owner, **fields)
    decision = decide(owner, around(owner, waiting), NOW)
    assert [(said.note.reason, said.warning) for said in decision.announcements] == ([(reason, True)] if reason else [])
    again = decide(after(owner, decision), around(owner, waiting), NOW + timedelta(seconds=60))
    assert again.announcements == ()


def test_the_last_end_is_one_event() -> None:
    """As what it means for the job: both have the same reason, and an Event is one per reason."""
    owner = with_running()
    done = decide(owner, around(owner, ended(owner, 0, message=summary())), NOW)
    assert [(said.note.reason, said.warning) for said in done.announcements] == [("CrawlFinished", False)]
    owner = with_running(restartPolicy={"backoffLimit": 0})
    over = decide(owner, around(owner, ended(owner, 1)), NOW)
    assert [said.note.reason for said in over.announcements] == ["Error", "BackoffLimitExceeded"]


def test_a_refusal_is_an_event_once() -> None:
    """The quota's own words."""
    owner = job()
    refusal = Refusal(Note("QuotaExceeded", "Pod: exceeded quota: pods=1"), NOW + timedelta(seconds=10))
    decision = decide(owner, around(owner, refusal=refusal), NOW)
    assert [said.note.reason for said in decision.announcements] == ["QuotaExceeded"]
    assert decide(after(owner, decision), around(owner, refusal=refusal), NOW).announcements == ()


# podTemplate


class Volumes(Kube):
    """An API server that refuses what it is told to, and notes what it took."""

    def __init__(self, refused: str, error: ApiError) -> None:
        self._refused, self._error = refused, error
        self.took: list[str] = []

    async def patch(self, resource: Any, namespace: str, name: str, patch: dict[str, Any], *, part: str = "") -> Any:
        assert patch["metadata"]["uid"] == "volume-1"
        (what,) = {*patch, *patch["metadata"]} - {"metadata", "uid"}
        if what == self._refused:
            raise self._error
        self.took.append(what)

    async def delete(self, resource: Any, namespace: str, name: str, uid: str, **_: bool) -> None:
        self.took.append(f"delete {resource.plural}")


@pytest.mark.parametrize(
    ("refused", "error", "took"),
    [
        ("", ApiError(500, "", ""), ["ownerReferences", "spec", "delete crawljobs"]),
        ("spec", ApiError(403, "Forbidden", "no expansion"), ["ownerReferences"]),
        ("spec", ConflictError(409, "Conflict", "another UID"), ["ownerReferences"]),
        ("ownerReferences", ConflictError(409, "Conflict", "another UID"), []),
        ("ownerReferences", NotFoundError(404, "NotFound", "gone"), []),
    ],
    ids=["all is well", "no growth", "conflict at the size", "conflict at the owner", "gone"],
)
async def test_a_volume_that_is_to_stay_is_let_go_before_its_job_is_deleted(
    refused: str, error: ApiError, took: list[str]
) -> None:
    """Whatever becomes of its size; and while it is open whose it is, the job stays and is looked at again at once."""
    kube = Volumes(refused, error)
    actions = (ChangeVolume("docs", "volume-1", "3Gi", owned=False), DeleteJob(UID))
    applied = await apply(kube, job(), actions, "image", NetworkSettings())
    assert kube.took == took
    assert applied.changed == (took[-1:] != ["delete crawljobs"])
    assert (applied.resize_refused is not None) == (error.status == 403)


def test_the_pods_template_is_followed_and_stays_restricted() -> None:
    """Everything that may be said, at once."""
    template: dict[str, Any] = {
        "labels": {"team": "docs"},
        "annotations": {"sidecar.istio.io/inject": "false", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
        "resources": {"limits": {"memory": "1Gi"}},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "crawl", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "priorityClassName": "low",
        "imagePullSecrets": [{"name": "registry"}],
        "env": [
            {"name": "TZ", "value": "UTC"},
            {"name": "OTEL_EXPORTER_OTLP_HEADERS", "valueFrom": {"secretKeyRef": {"name": "otlp", "key": "headers"}}},
        ],
        "terminationGracePeriodSeconds": 60,
    }
    owner = job(podTemplate=template, imagePullPolicy="Always")
    assert owner.spec is not None
    body = render.pod(owner, owner.spec, 1, "image")
    spec, (container,) = body["spec"], body["spec"]["containers"]
    assert body["metadata"]["labels"]["team"] == "docs"
    assert body["metadata"]["labels"][names.LABEL_UID] == owner.uid
    assert body["metadata"]["annotations"] == template["annotations"]
    for key in ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "priorityClassName"):
        assert spec[key] == template[key], key
    assert spec["imagePullSecrets"] == template["imagePullSecrets"]
    assert spec["terminationGracePeriodSeconds"] == 60
    assert [variable for variable in container["env"] if variable in template["env"]] == template["env"]
    assert container["imagePullPolicy"] == "Always"
    assert violations(body) == []


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ({"serviceAccountName": "admin"}, "podTemplate.serviceAccountName"),
        ({"volumes": [{"hostPath": {"path": "/"}}]}, "podTemplate.volumes"),
        ({"securityContext": {"privileged": True}}, "podTemplate.securityContext"),
        ({"labels": {names.LABEL_UID: "mine"}}, "podTemplate.labels"),
        ({"labels": {names.LABEL_MANAGED_BY: "me"}}, "podTemplate.labels"),
        ({"labels": {"bad key": "x"}}, "podTemplate.labels"),
        *(
            ({"annotations": {key: value}}, "podTemplate.annotations")
            for key, value in (
                ("container.apparmor.security.beta.kubernetes.io/crawler", "unconfined"),
                ("seccomp.security.alpha.kubernetes.io/pod", "unconfined"),
                ("k8s.v1.cni.cncf.io/networks", "storage"),
                ("k8s.ovn.org/pod-networks", "{}"),
                ("io.kubernetes.cri-o.Devices", "/dev/fuse"),
                ("sidecar.istio.io/userVolume", "[]"),
            )
        ),
        ({"env": [{"name": "TRACEPARENT", "value": "x"}]}, "podTemplate.env[0].name"),
        ({"env": [{"name": "A", "value": "x", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}, "env[0]"),
        ({"env": [{"name": "A"}, {"name": "A"}]}, "podTemplate.env"),
        ({"terminationGracePeriodSeconds": 1}, "podTemplate.terminationGracePeriodSeconds"),
    ],
)
def test_what_would_be_more_than_a_restricted_pod_is_refused(template: dict[str, Any], path: str) -> None:
    """By its path; and what the operator itself relies on cannot be set."""
    with pytest.raises(InvalidInputError) as refused:
        manifest.parse({"seeds": ["https://a.example/"], "podTemplate": template})
    assert any(path in problem.path for problem in refused.value.problems)


def test_limits_that_only_the_operator_obeys_restart_nothing() -> None:
    """Scenario 35: a deadline, a time to live or a rule is edited while the crawl runs."""
    owner = with_running()
    edits: tuple[dict[str, Any], ...] = (
        {"ttlSecondsAfterFinished": 5},
        {"activeDeadlineSeconds": 9999},
        {"startDeadlineSeconds": 1},
        {"restartPolicy": {"backoffLimit": 0}},
        {"podFailurePolicy": {"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [1]}}]}},
        {"storage": {"whenDeleted": "Delete"}},
    )
    for edit in edits:
        edited = after(owner, decide(owner, around(owner, running(owner)), NOW), **edit)
        assert decide(edited, around(edited, running(owner)), NOW).actions == (), edit


def test_a_status_from_an_older_operator_is_read() -> None:
    """It has none of the newer fields."""
    assert CrawlJobStatus.model_validate({"phase": "Running", "attempt": 2}).active_seconds == 0
