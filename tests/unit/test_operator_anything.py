"""The decision over states that nobody has thought of: any Pod, any objects, any status, any spec, in any combination.

``test_operator_world`` plays what can happen; here nothing has to be possible. The decision is total, and safe.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any, get_args

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.builders import NOW, UID, job, summary

from crawljob.problems import Problem
from crawljob.status import Condition, ConditionType, CrawlJobStatus, Phase, PodRef, Termination
from crawljob_operator import times
from crawljob_operator.actions import (
    ChangeVolume,
    CreateConfig,
    CreatePod,
    CreatePolicy,
    CreateVolume,
    DeleteConfig,
    DeletePod,
    DeletePolicy,
    DeleteReader,
)
from crawljob_operator.decide import Decision, decide
from crawljob_operator.observed import Config, Job, Note, Pod, Policy, Reader, Refusal, Seen, Terminated, Volume
from crawljob_operator.policies.finished import finished

OWNERS = st.sampled_from([UID, UID, "somebody", ""])
MOMENTS = st.none() | st.sampled_from([-(10**9), -4000, -700, -30, 0, 5, 4000, 10**9]).map(
    lambda seconds: NOW + timedelta(seconds=seconds)
)
TEXTS = MOMENTS.map(lambda moment: None if moment is None else times.text(moment)) | st.just("0001-01-01T00:00:00Z")
REASONS = st.sampled_from(
    ["", "Evicted", "NodeLost", "DeadlineExceeded", "Suspending", "SpecChanged", "RestartRequested", "InvalidImageName"]
)
NOTES = st.none() | st.builds(Note, REASONS, st.sampled_from(["", "words"]))
UIDS = st.sampled_from(["pod-1", "pod-2"])
MARKS = st.sampled_from(["", "mark"])

SPECS: tuple[dict[str, Any], ...] = (
    {},
    {"suspend": True},
    {"activeDeadlineSeconds": 60, "startDeadlineSeconds": 0},
    {"ttlSecondsAfterFinished": 0, "restartRequestedAt": "now"},
    {"storage": {"existingClaim": "kept"}, "restartPolicy": {"backoffLimit": 0}},
    {"storage": {"size": "5Gi", "whenDeleted": "Retain"}, "restartRequestedAt": "then"},
    {"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [1]}}]}},
)


@cache
def spec_of(number: int) -> Any:
    """Making one anew for every example would be most of the work."""
    return job(**SPECS[number]).spec


terminated = st.builds(
    Terminated,
    exit_code=st.none() | st.sampled_from([0, 1, 2, 12, 14, 15, 130, 137, 143, -1, 4096]),
    signal=st.none() | st.integers(1, 15),
    reason=st.sampled_from(["", "OOMKilled", "Error"]),
    message=st.sampled_from(["", "{", summary(), summary("interrupted", "Interrupted", 143)]),
    started_at=MOMENTS,
    finished_at=MOMENTS,
)
pods = st.builds(
    Pod,
    name=st.just("docs"),
    uid=UIDS,
    owner_uid=OWNERS,
    phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown", "Odd"]),
    deleting=st.booleans(),
    spec_hash=MARKS,
    request_mark=MARKS,
    attempt=st.integers(0, 3),
    config_name=st.sampled_from(["", "config", "older"]),
    created_at=MOMENTS,
    ready=st.booleans(),
    unscheduled=NOTES,
    disruption=NOTES,
    own=NOTES,
    waiting=NOTES,
    running_since=MOMENTS,
    terminated=st.none() | terminated,
    others_running=st.booleans(),
)
volumes = st.builds(
    Volume,
    name=st.just("volume"),
    uid=st.just("volume-1"),
    owner_uid=OWNERS,
    label_uid=OWNERS,
    phase=st.sampled_from(["Pending", "Bound", "Lost", "Odd"]),
    deleting=st.booleans(),
    note=NOTES,
)
refusals = st.none() | st.builds(
    Refusal, st.just(Note("QuotaExceeded")), MOMENTS.filter(lambda moment: moment is not None), st.booleans()
)


def children(kind: Any, wanted: str) -> st.SearchStrategy[Any]:
    """Some objects of a kind, one of which may have the name that is wanted, whoever owns it."""
    return st.lists(st.builds(kind, st.sampled_from([wanted, "older"]), st.just("uid"), OWNERS), max_size=2).map(tuple)


seens = st.builds(
    Seen,
    pod=st.none() | pods,
    volume=st.none() | volumes,
    configs=st.lists(st.builds(Config, st.sampled_from(["config", "older"]), st.just("c"), OWNERS), max_size=2).map(
        tuple
    ),
    config_name=st.sampled_from(["config", ""]),
    policies=st.lists(st.builds(Policy, st.sampled_from(["policy", "older"]), st.just("p"), OWNERS), max_size=2).map(
        tuple
    ),
    policy_name=st.sampled_from(["policy", ""]),
    reader=st.none() | st.builds(Reader, st.just("reader"), st.just("r"), OWNERS, deleting=st.booleans()),
    refusal=refusals,
    resize_refusal=refusals,
)
ends = st.builds(
    Termination,
    pod_uid=UIDS,
    exit_code=st.none() | st.just(1),
    reason=st.just("Error"),
    started_at=TEXTS,
    finished_at=TEXTS,
)
conditions = st.lists(
    st.builds(
        Condition,
        type=st.sampled_from(get_args(ConditionType)),
        status=st.sampled_from(["True", "False", "Unknown"]),
        reason=REASONS.filter(bool),
        last_transition_time=st.just(times.text(NOW)),
    ),
    unique_by=lambda condition: condition.type,
    max_size=7,
).map(tuple)
statuses = st.builds(
    CrawlJobStatus,
    phase=st.sampled_from(get_args(Phase)),
    conditions=conditions,
    attempt=st.integers(0, 10**6),
    restarts=st.integers(0, 10**6),
    consecutive_failures=st.integers(0, 10**6),
    unhealthy_ends=st.integers(0, 10**6),
    active_seconds=st.integers(0, 10**9),
    current_pod=st.none() | st.builds(PodRef, name=st.just("docs"), uid=UIDS, started_at=TEXTS),
    last_termination=st.none() | ends,
    history=st.lists(ends, max_size=3).map(tuple),
    next_restart_time=TEXTS,
    start_time=TEXTS,
    completion_time=TEXTS,
    observed_restart_request=st.none() | st.sampled_from(["now", "then"]),
    spec_hash=MARKS,
)
jobs = st.builds(
    lambda status, number, deleting: Job(
        "crawls",
        "docs",
        UID,
        3,
        status,
        None if number is None else spec_of(number),
        (Problem("spec", "bad"),) if number is None else (),
        deleting,
    ),
    statuses,
    st.none() | st.integers(0, len(SPECS) - 1),
    st.integers(0, 20).map(lambda number: number == 0),
)


@settings(max_examples=1500, deadline=None)
@given(jobs, seens)
def test_whatever_is_seen_the_decision_is_safe(owner: Job, seen: Seen) -> None:
    """Never two Pods, never a foreign object touched, never a wait that is negative or lost."""
    decision = decide(owner, seen, NOW)
    created = [action for action in decision.actions if isinstance(action, CreatePod)]
    if created:
        assert len(created) == 1
        assert seen.pod is None, "at most one Pod"
        assert seen.reader is None or seen.reader.owner_uid != owner.uid, "the volume has one user"
        assert decision.actions[-1] == created[0] or all(
            isinstance(action, ChangeVolume) for action in decision.actions[decision.actions.index(created[0]) + 1 :]
        ), "the Pod comes after what it needs"
        assert created[0].limit_seconds is None or created[0].limit_seconds > 0
    for action in decision.actions:
        judge(action, owner, seen)
    if decision.recheck_at is not None:
        assert decision.recheck_at > NOW - timedelta(seconds=1), "no wait is negative"
    over = owner.deleting or finished(replace(owner, status=decision.status))
    if (
        decision.status.next_restart_time
        and decision.status.phase == "Restarting"
        and not decision.actions
        and not over
    ):
        assert decision.recheck_at is not None, "whoever waits looks again"
        assert decision.recheck_at <= NOW + timedelta(seconds=400)
    same_again(owner, seen, decision)


def judge(action: object, owner: Job, seen: Seen) -> None:
    """One action, against what is seen."""
    match action:
        case DeletePod(_, uid):
            assert seen.pod is not None
            assert (seen.pod.uid, seen.pod.owner_uid) == (uid, owner.uid)
            assert not seen.pod.deleting
        case DeleteConfig(name, _):
            assert any(config.name == name and config.owner_uid == owner.uid for config in seen.configs)
            assert name != seen.config_name
        case DeletePolicy(name, _):
            assert any(policy.name == name and policy.owner_uid == owner.uid for policy in seen.policies)
        case DeleteReader(name, uid):
            assert seen.reader is not None
            assert (seen.reader.name, seen.reader.uid, seen.reader.owner_uid) == (name, uid, owner.uid)
            assert not seen.reader.deleting
        case ChangeVolume():
            assert seen.volume is not None
            assert seen.volume.belongs_to(owner.uid)
        case CreateVolume():
            assert seen.volume is None
            assert owner.spec is not None
            assert owner.spec.storage.existing_claim is None
        case CreateConfig():
            assert not any(config.name == seen.config_name for config in seen.configs)
        case CreatePolicy():
            assert not any(policy.name == seen.policy_name for policy in seen.policies)


def same_again(owner: Job, seen: Seen, decision: Decision) -> None:
    """Once written, the same state leads to the same status: nothing is counted twice, and no write follows a write."""
    again = decide(replace(owner, status=decision.status), seen, NOW)
    third = decide(replace(owner, status=again.status), seen, NOW)
    assert third.status == again.status
    assert len(again.status.history) <= max(len(decision.status.history), 10)
    assert again.status.restarts == decision.status.restarts
