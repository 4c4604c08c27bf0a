"""The operator's decisions against a small world that does anything at any time, an operator that dies included.

The world keeps one Pod name as the API server does. Whatever happens, the laws hold; and when nothing more happens,
the job gets to where it should be.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.builders import NOW, job, summary

from crawljob.spec import CrawlJobSpec
from crawljob.units import quantity
from crawljob_operator import render, times
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
from crawljob_operator.decide import decide
from crawljob_operator.identity import request_mark, spec_hash
from crawljob_operator.observed import Config, Job, Note, Pod, Policy, Reader, Seen, Terminated, Volume

FINISHED = {"Complete", "Failed"}


START_SECONDS = 50_000


@cache
def spec_of(
    suspend: bool = False,
    workers: int = 1,
    request: str | None = None,
    deadline: int | None = None,
    gibibytes: int = 1,
    retain: bool = False,
) -> CrawlJobSpec:
    """One of the few specs of this world; making one anew at every step would be most of the work."""
    spec = job(
        suspend=suspend,
        fetch={"workers": workers},
        restartPolicy={"backoffLimit": 3},
        restartRequestedAt=request,
        activeDeadlineSeconds=deadline,
        startDeadlineSeconds=START_SECONDS,
        storage={"size": f"{gibibytes}Gi", "whenDeleted": "Retain" if retain else "Delete"},
    ).spec
    assert spec is not None
    return spec


@cache
def config_of(workers: int, request: str | None) -> str:
    """The ConfigMap's name that goes with it."""
    return render.config_name(job(), spec_of(workers=workers, request=request))


class World(RuleBasedStateMachine):
    """A namespace with one CrawlJob."""

    def __init__(self) -> None:
        super().__init__()
        self.now: datetime = NOW
        self.owner: Job = replace(job(), spec=spec_of())
        self.pod: Pod | None = None
        self.volume: Volume | None = None
        self.configs: dict[str, Config] = {}
        self.policies: dict[str, Policy] = {}
        self.reader: Reader | None = None
        self.peers = 1
        self.made: list[str] = []
        self.foreign = False
        self.gibibytes = 1

    def operate(self, steps: int = 99) -> None:
        """One reconcile that dies after ``steps`` calls."""
        owner = self.owner
        assert owner.spec is not None
        seen = Seen(
            pod=self.pod,
            volume=self.volume,
            configs=tuple(self.configs.values()),
            config_name=self.config_name(),
            policies=tuple(self.policies.values()),
            policy_name=self.policy_name(),
            reader=self.reader,
        )
        decision = decide(owner, seen, self.now)
        status = decision.status
        if status != owner.status:
            if steps == 0:
                return
            steps -= 1
            assert status.restarts >= owner.status.restarts
            assert status.attempt >= owner.status.attempt
            self.owner = replace(owner, status=status)
        if status.phase == "Restarting" and status.next_restart_time and self.pod and self.pod.terminated:
            assert decision.recheck_at is not None, "whoever waits looks again"
        if decision.recheck_at is not None:
            assert decision.recheck_at - self.now <= timedelta(seconds=START_SECONDS), "no wait is lost in the future"
        for action in decision.actions:
            if steps == 0:
                return
            steps -= 1
            self.execute(action)

    def config_name(self) -> str:
        """What the next Pod's file is called."""
        assert self.owner.spec is not None
        return config_of(self.owner.spec.fetch.workers, self.owner.restart_request)

    def execute(self, action: object) -> None:
        owner = self.owner
        assert owner.spec is not None
        match action:
            case CreateVolume():
                assert self.volume is None
                storage = owner.spec.storage
                size = quantity(storage.wanted_size)
                self.volume = Volume(
                    render.claim_name(owner, owner.spec),
                    "volume",
                    owner.uid if storage.when_deleted == "Delete" else "",
                    "Bound",
                    requested=size,
                    capacity=size,
                    label_uid=owner.uid,
                )
            case ChangeVolume(_, uid, size, owned):
                assert self.volume is not None
                assert self.volume.uid == uid
                assert size is not None or owned is not None
                if size is not None:
                    assert self.volume.requested is not None
                    assert quantity(size) > self.volume.requested, "a volume never shrinks"
                    self.volume = replace(self.volume, requested=quantity(size), capacity=quantity(size))
                if owned is not None:
                    assert owned != bool(self.volume.owner_uid), "no write that changes nothing"
                    self.volume = replace(self.volume, owner_uid=owner.uid if owned else "")
            case CreateConfig():
                name = self.config_name()
                self.configs[name] = Config(name, name, owner.uid)
            case DeleteConfig(name, _):
                assert self.pod is None or self.pod.config_name != name
                del self.configs[name]
            case CreatePolicy():
                name = self.policy_name()
                assert name not in self.policies
                self.policies[name] = Policy(name, name, owner.uid)
            case DeletePolicy(name, _):
                assert self.pod is None, "a policy stays as long as a Pod may use it"
                del self.policies[name]
            case CreatePod(attempt, limit_seconds):
                assert (limit_seconds is None) == (owner.spec.active_deadline_seconds is None)
                assert limit_seconds is None or limit_seconds > 0
                assert self.pod is None, "at most one Pod"
                assert self.reader is None, "the volume has one user"
                wanted = self.policy_name()
                assert set(self.policies) == ({wanted} if wanted else set()), "policies add up"
                assert self.volume is not None
                assert not self.volume.deleting
                self.made.append(f"pod-{len(self.made) + 1}")
                self.pod = self.new_pod(self.made[-1], attempt)
                assert self.pod.config_name in self.configs
            case DeletePod(_, uid):
                assert self.pod is not None
                assert self.pod.uid == uid
                assert self.pod.owner_uid == owner.uid, "foreign Pods are never deleted"
                # A Pod that has ended goes at once; another one gets its grace.
                self.pod = None if self.pod.phase in ("Succeeded", "Failed") else replace(self.pod, deleting=True)

            case DeleteReader(_, uid):
                assert self.reader is not None
                assert (self.reader.uid, self.reader.deleting) == (uid, False)
                self.reader = replace(self.reader, deleting=True)

    def policy_name(self) -> str:
        """The policy that spec and chart ask for; none where the chart says so."""
        assert self.owner.spec is not None
        return f"policy-{self.owner.spec.fetch.workers}-{self.peers}" if self.peers else ""

    def new_pod(self, uid: str, attempt: int = 0) -> Pod:
        """What the API server makes of a rendered Pod."""
        spec = self.owner.spec
        assert spec is not None
        return Pod(
            name="docs",
            uid=uid,
            owner_uid=self.owner.uid,
            spec_hash=spec_hash(spec),
            attempt=attempt,
            config_name=self.config_name(),
            request_mark=request_mark(self.owner.restart_request),
            created_at=self.now,
        )

    @rule()
    def reconcile(self) -> None:
        """At any time."""
        self.operate()

    @rule(steps=st.integers(0, 4))
    def reconcile_and_die(self, steps: int) -> None:
        """Killed between any two calls."""
        self.operate(steps)

    @rule()
    def the_backoff_ends(self) -> None:
        """The operator looks again exactly when it said that it would."""
        due = times.parse(self.owner.status.next_restart_time)
        if due is not None:
            self.now = max(self.now, due)
            self.operate()
            self.operate()

    @rule(seconds=st.integers(1, 400))
    def time_passes(self, seconds: int) -> None:
        """Time passes."""
        self.now += timedelta(seconds=seconds)

    @precondition(lambda self: self.pod is not None and not self.pod.ended and not self.foreign)
    @precondition(lambda self: self.volume is not None)
    @rule()
    def starts(self) -> None:
        """The kubelet starts the crawler, which takes its volume."""
        assert self.pod is not None
        self.pod = replace(self.pod, phase="Running", ready=True, running_since=self.now)

    @precondition(lambda self: self.pod is not None and not self.pod.ended and not self.foreign)
    @rule(code=st.sampled_from([0, 1, 1, 1, 14, 137, 143]), evicted=st.booleans(), last_word=st.booleans())
    def ends(self, code: int, evicted: bool, last_word: bool) -> None:
        """The crawler ends, on its own or not, with a last word or not."""
        assert self.pod is not None
        message = summary() if code == 0 and last_word else ""
        end = Terminated(code, None, "", message, self.pod.running_since, self.now)
        disruption = Note("EvictionByEvictionAPI") if evicted else None
        phase = "Failed" if code else "Succeeded"
        self.pod = replace(self.pod, phase=phase, ready=False, terminated=end, disruption=disruption)

    @precondition(lambda self: self.pod is not None and self.pod.deleting)
    @rule()
    def is_gone(self) -> None:
        """A deletion comes to its end."""
        self.pod = None

    @precondition(lambda self: self.pod is not None)
    @rule(force=st.booleans())
    def somebody_deletes_it(self, force: bool) -> None:
        """A user deletes the Pod."""
        assert self.pod is not None
        self.pod = None if force else replace(self.pod, deleting=True)
        self.foreign = self.foreign and not force

    @precondition(lambda self: self.pod is None)
    @rule()
    def somebody_takes_the_name(self) -> None:
        """A foreign Pod has our name."""
        self.pod = replace(self.new_pod("foreign"), owner_uid="somebody")
        self.foreign = True

    @precondition(lambda self: self.foreign)
    @rule()
    def the_foreign_pod_goes(self) -> None:
        """And goes again."""
        self.pod = None
        self.foreign = False

    @rule(
        suspend=st.booleans(),
        workers=st.integers(1, 2),
        request=st.sampled_from([None, None, "a", "b"]),
        deadline=st.sampled_from([None, None, None, 500]),
        retain=st.booleans(),
        grow=st.booleans(),
    )
    def is_edited(
        self, suspend: bool, workers: int, request: str | None, deadline: int | None, retain: bool, grow: bool
    ) -> None:
        """The user edits the spec; a finished job runs again only when that is requested."""
        before, asked = self.owner.status, request and request != self.owner.status.observed_restart_request
        self.gibibytes += grow and self.gibibytes < 3
        spec = spec_of(suspend, workers, request, deadline, self.gibibytes, retain)
        self.owner = replace(self.owner, spec=spec, generation=self.owner.generation + 1)
        self.operate()
        if before.phase in FINISHED and not self.foreign:
            assert (self.owner.status.phase in FINISHED) == (not asked)

    @rule(peers=st.integers(0, 2))
    def the_chart_changes(self, peers: int) -> None:
        """Other peers for the policies, or no policies."""
        self.peers = peers

    @rule()
    def somebody_deletes_the_policies(self) -> None:
        """By hand."""
        self.policies.clear()

    @precondition(lambda self: self.pod is None or (self.pod.running_since is None and not self.foreign))
    @rule(volume=st.booleans(), config=st.booleans())
    def what_nothing_protects_is_deleted(self, volume: bool, config: bool) -> None:
        """The user deletes the volume or the ConfigMap; a running Pod's volume is protected."""
        if volume and not (self.pod is not None and self.pod.ended):
            self.volume = None
        if config:
            self.configs.pop(self.config_name(), None)

    @precondition(lambda self: self.reader is None and (self.pod is None or self.pod.running_since is None))
    @rule()
    def somebody_reads(self) -> None:
        """A Job with the volume; its maker looked before, and may have been late."""
        self.reader = Reader("reader", "reader-uid", self.owner.uid)

    @precondition(lambda self: self.reader is not None)
    @rule()
    def the_reader_is_gone(self) -> None:
        """At its end, or because it was told to."""
        self.reader = None

    @invariant()
    def every_end_is_counted_once(self) -> None:
        """And no Pod twice."""
        status = self.owner.status
        uids = [end.pod_uid for end in status.history]
        assert len(uids) == len(set(uids))
        assert status.restarts <= len(self.made)
        assert "foreign" not in uids
        assert status.consecutive_failures <= status.restarts

    def teardown(self) -> None:
        """When the world is quiet, the job arrives: finished, suspended, or with a Pod of its present spec."""
        if self.foreign:
            self.pod, self.foreign = None, False
        for _ in range(12):
            if self.pod is not None and self.pod.deleting:
                self.pod = None
            if self.reader is not None and self.reader.deleting:
                self.reader = None
            self.operate()
            self.now += timedelta(seconds=400)
        status, spec = self.owner.status, self.owner.spec
        assert spec is not None
        if status.phase in FINISHED:
            return
        if spec.suspend:
            assert (status.phase, self.pod) == ("Suspended", None)
            return
        assert self.pod is not None
        assert self.pod.spec_hash == spec_hash(spec)
        assert self.volume is not None
        assert self.volume.requested == quantity(spec.storage.wanted_size)
        assert bool(self.volume.owner_uid) == (spec.storage.when_deleted == "Delete")
        assert status.observed_restart_request == self.owner.restart_request
        assert self.pod.request_mark == request_mark(self.owner.restart_request)
        assert not self.pod.ended
        assert self.policies or not self.peers, "a Pod without its policy gets one"
        writes = self.owner.status
        self.operate()
        assert self.owner.status == writes, "quiet"


World.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
TestWorld = World.TestCase
