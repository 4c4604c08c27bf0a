"""What one reconcile has seen, as values: the CrawlJob, its Pod, its volume, its ConfigMaps and NetworkPolicies.

Views are read from raw API objects so that a missing status, a null list or an odd time is an ordinary case
(``decide`` must be total), and so that tests can write the few fields that matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Self

from crawljob.problems import Problem
from crawljob.spec import CrawlJobSpec
from crawljob.status import CrawlJobStatus
from crawljob.summary import Progress
from crawljob.units import quantity
from crawljob_operator import names, times

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """The CrawlJob; ``spec`` is ``None`` where it cannot be used, and ``problems`` says why."""

    namespace: str
    name: str
    uid: str
    generation: int
    status: CrawlJobStatus
    spec: CrawlJobSpec | None = None
    problems: tuple[Problem, ...] = ()
    deleting: bool = False

    @property
    def restart_request(self) -> str | None:
        """The restart request that holds: taking ``restartRequestedAt`` away requests nothing."""
        given = self.spec.restart_requested_at if self.spec is not None else None
        return given or self.status.observed_restart_request


@dataclass(frozen=True, slots=True)
class Terminated:
    """The end of the crawler's container."""

    exit_code: int | None
    signal: int | None = None
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """A reason in CamelCase with somebody's own words: the scheduler's, the kubelet's, an admission plugin's."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Pod:
    """What matters of a Pod; a foreign one too, which ``owner_uid`` tells."""

    name: str
    uid: str
    owner_uid: str = ""
    phase: str = "Pending"
    deleting: bool = False
    gone_by: datetime | None = None
    """When it should be gone that is being deleted: Kubernetes' ``deletionTimestamp`` has the grace in it."""
    node: str = ""
    ip: str = ""
    spec_hash: str = ""
    request_mark: str = ""
    attempt: int = 0
    config_name: str = ""
    image: str = ""
    created_at: datetime | None = None
    ready: bool = False
    node_silent: bool = False
    """Whether it was found not ready by the node controller, because its node does not answer."""
    unscheduled: Note | None = None
    disruption: Note | None = None
    conditions: frozenset[tuple[str, str]] = frozenset()
    """Type and status of each condition."""
    own: Note | None = None
    waiting: Note | None = None
    running_since: datetime | None = None
    terminated: Terminated | None = None
    memory_limit: str = ""
    others_running: bool = False
    """Whether a container besides the crawler's still runs: an injected sidecar."""
    warning: Note | None = None
    """The latest Event about it, where that is a warning; read only while it starts for long."""

    @property
    def at_rest(self) -> bool:
        """Whether nothing in it runs any more; it is kept for its logs. The phase may not say so yet."""
        return self.phase in ("Succeeded", "Failed") or (self.terminated is not None and not self.others_running)

    @property
    def ended(self) -> bool:
        """Whether the crawler will not run again in it; an injected sidecar may still."""
        return self.terminated is not None or self.phase in ("Succeeded", "Failed")

    @classmethod
    def from_raw(cls, raw: Raw) -> Self:
        """Read a Pod as the API server returns it."""
        metadata, spec, status = _map(raw, "metadata"), _map(raw, "spec"), _map(raw, "status")
        labels = _map(metadata, "labels")
        conditions = {str(item.get("type")): item for item in _maps(status, "conditions")}
        ready = _map(conditions, "Ready")
        container = _named(_maps(status, "containerStatuses"), names.CONTAINER)
        state = _map(container, "state")
        running = _map(state, "running") if "running" in state else None
        attempt = str(labels.get(names.LABEL_ATTEMPT, ""))
        wanted = _named(_maps(spec, "containers"), names.CONTAINER)
        limits = _map(_map(wanted, "resources"), "limits")
        return cls(
            name=str(metadata.get("name", "")),
            uid=str(metadata.get("uid", "")),
            owner_uid=owner_uid(raw),
            phase=str(status.get("phase") or "Pending"),
            deleting=bool(metadata.get("deletionTimestamp")),
            gone_by=times.parse(metadata.get("deletionTimestamp")),
            node=str(spec.get("nodeName") or ""),
            ip=str(status.get("podIP") or ""),
            spec_hash=str(labels.get(names.LABEL_SPEC_HASH, "")),
            request_mark=str(labels.get(names.LABEL_RESTART, "")),
            attempt=int(attempt) if attempt.isascii() and attempt.isdigit() else 0,
            # By the volume's name: a webhook may have put a ConfigMap of its own before ours.
            config_name=str(_map(_named(_maps(spec, "volumes"), names.CONFIG_VOLUME), "configMap").get("name") or ""),
            image=str(wanted.get("image") or ""),
            created_at=times.parse(metadata.get("creationTimestamp")),
            ready=ready.get("status") == "True",
            # The kubelet says why, or that the containers are not ready; the node controller turns only this condition.
            node_silent=ready.get("status") == "False"
            and not ready.get("reason")
            and _map(conditions, "ContainersReady").get("status") == "True",
            unscheduled=_condition(conditions, "PodScheduled", "False"),
            disruption=_condition(conditions, "DisruptionTarget", "True"),
            conditions=frozenset((kind, str(item.get("status"))) for kind, item in conditions.items()),
            own=_note(status),
            waiting=_note(_map(state, "waiting")),
            running_since=None if running is None else times.parse(running.get("startedAt")),
            terminated=_terminated(state),
            memory_limit=str(limits.get("memory", "")),
            others_running=any(
                "running" in _map(item, "state") and item.get("name") != names.CONTAINER
                for item in _maps(status, "containerStatuses")
            ),
        )


@dataclass(frozen=True, slots=True)
class Volume:
    """What matters of a PersistentVolumeClaim; ``note`` is the latest Event about it while it is pending."""

    name: str
    uid: str
    owner_uid: str = ""
    phase: str = "Pending"
    deleting: bool = False
    note: Note | None = None
    requested: Decimal | None = None
    capacity: Decimal | None = None
    resizing: str = ""
    """The storage driver's or the kubelet's words while it is being enlarged."""
    label_uid: str = ""
    """UID of the CrawlJob that made it; a retained one has no owner."""

    def belongs_to(self, uid: str) -> bool:
        """Whether it is the volume of this CrawlJob: owned by it, or made by it and retained."""
        return self.owner_uid == uid or (not self.owner_uid and self.label_uid == uid)

    @classmethod
    def from_raw(cls, raw: Raw, note: Note | None = None) -> Self:
        """Read a claim as the API server returns it."""
        metadata, status = _map(raw, "metadata"), _map(raw, "status")
        return cls(
            name=str(metadata.get("name", "")),
            uid=str(metadata.get("uid", "")),
            owner_uid=owner_uid(raw),
            label_uid=str(_map(metadata, "labels").get(names.LABEL_UID, "")),
            phase=str(status.get("phase") or "Pending"),
            deleting=bool(metadata.get("deletionTimestamp")),
            note=note,
            requested=_quantity(_map(_map(_map(raw, "spec"), "resources"), "requests").get("storage")),
            capacity=_quantity(_map(status, "capacity").get("storage")),
            resizing="; ".join(filter(None, (str(item.get("message") or "") for item in _maps(status, "conditions")))),
        )


@dataclass(frozen=True, slots=True)
class Child:
    """An object of this CrawlJob, or a foreign one with the name that we need."""

    name: str
    uid: str
    owner_uid: str = ""

    @classmethod
    def from_raw(cls, raw: Raw) -> Self:
        """Read it as the API server returns it."""
        metadata = _map(raw, "metadata")
        return cls(str(metadata.get("name", "")), str(metadata.get("uid", "")), owner_uid(raw))


class Config(Child):
    """A ConfigMap."""


@dataclass(frozen=True, slots=True)
class Policy(Child):
    """A NetworkPolicy."""

    edited: bool = False
    """Whether its ``spec`` is not the one any more that it was made with: the API server counts them."""

    @classmethod
    def from_raw(cls, raw: Raw) -> Self:
        """Read it as the API server returns it."""
        metadata = _map(raw, "metadata")
        name, uid, generation = str(metadata.get("name", "")), str(metadata.get("uid", "")), metadata.get("generation")
        return cls(name, uid, owner_uid(raw), edited=isinstance(generation, int) and generation > 1)


@dataclass(frozen=True, slots=True)
class Reader(Child):
    """A Job by which somebody reads results from the volume (``kubectl crawl report``)."""

    deleting: bool = False
    """Whether it waits for its Pod to go."""

    @classmethod
    def from_raw(cls, raw: Raw) -> Self:
        """Read it as the API server returns it."""
        metadata = _map(raw, "metadata")
        name, uid = str(metadata.get("name", "")), str(metadata.get("uid", ""))
        return cls(name, uid, owner_uid(raw), deleting=bool(metadata.get("deletionTimestamp")))


@dataclass(frozen=True, slots=True)
class Refusal:
    """The API server refused to create something; it is asked again at ``retry_at``."""

    note: Note
    retry_at: datetime
    stalled: bool = False
    """A person is needed: asking again will not help."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The live state around one CrawlJob.

    ``config_name`` is the ConfigMap that a new Pod would use, ``policy_name`` its NetworkPolicy (empty: it has none).
    """

    pod: Pod | None = None
    volume: Volume | None = None
    configs: tuple[Config, ...] = ()
    config_name: str = ""
    policies: tuple[Policy, ...] = ()
    policy_name: str = ""
    reader: Reader | None = None
    """Looked for only where the crawl needs the volume and does not have it yet."""
    progress: Progress | None = None
    refusal: Refusal | None = None
    resize_refusal: Refusal | None = None
    """The API server will not enlarge the volume."""


def owner_uid(raw: Raw) -> str:
    """UID of the controlling owner, empty where there is none."""
    for reference in _maps(_map(raw, "metadata"), "ownerReferences"):
        if reference.get("controller"):
            return str(reference.get("uid", ""))
    return ""


def _terminated(state: Raw) -> Terminated | None:
    if not isinstance(state.get("terminated"), Mapping):
        return None
    end = _map(state, "terminated")
    return Terminated(
        exit_code=_number(end.get("exitCode")),
        signal=_number(end.get("signal")) or None,
        reason=str(end.get("reason") or ""),
        message=str(end.get("message") or ""),
        started_at=times.parse(end.get("startedAt")),
        finished_at=times.parse(end.get("finishedAt")),
    )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _quantity(value: object) -> Decimal | None:
    try:
        return quantity(str(value)) if value is not None else None
    except ValueError:
        return None  # an exponent, which Kubernetes writes where nobody has asked for one


def _condition(conditions: Raw, kind: str, status: str) -> Note | None:
    condition = _map(conditions, kind)
    if condition.get("status") != status:
        return None
    return Note(str(condition.get("reason") or kind), str(condition.get("message") or ""))


def _note(item: Raw) -> Note | None:
    reason, message = str(item.get("reason") or ""), str(item.get("message") or "")
    return Note(reason, message) if reason or message else None


def _named(items: list[Raw], name: str) -> Raw:
    return next((item for item in items if item.get("name") == name), {})


def _map(raw: Raw, key: str) -> Raw:
    value = raw.get(key)
    return value if isinstance(value, Mapping) else {}


def _maps(raw: Raw, key: str) -> list[Raw]:
    value = raw.get(key)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
