"""The CrawlJob's status as the operator writes it and ``kubectl get`` shows it (conditions by kstatus' rules)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from crawljob.summary import Progress

Phase = Literal["Pending", "Running", "Restarting", "Suspended", "Complete", "Failed", "Stalled"]

ConditionType = Literal["Ready", "StorageReady", "Suspended", "Restarting", "Complete", "Failed", "Stalled"]

MESSAGE_MAX = 1024
"""Of a Pod's end: a status holds a dozen of these."""
CONDITION_MESSAGE_MAX = 32_768
"""``metav1.Condition``'s own bound: an invalid spec has one message for all its problems."""
HISTORY_MAX = 10

Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
"""RFC 3339 in UTC with seconds, as Kubernetes writes ``metav1.Time``."""


class _Status(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", frozen=True, validate_by_name=True)


class Condition(_Status):
    """``metav1.Condition``."""

    type: ConditionType
    status: Literal["True", "False", "Unknown"]
    reason: str = Field(min_length=1, max_length=64, pattern="^[A-Za-z]+$")
    message: str = Field("", max_length=CONDITION_MESSAGE_MAX)
    last_transition_time: Time
    observed_generation: int = 0


class PodRef(_Status):
    """The Pod that the operator works with."""

    name: str
    uid: str
    started_at: Time | None = Field(None, description="Since when its crawler runs.")


class Termination(_Status):
    """How one Pod ended."""

    pod_uid: str = Field(alias="podUID", description="The Pod's UID: its end is counted once.")
    attempt: int = Field(0, description="Number of this Pod, from 1; its span's id follows from it.")
    exit_code: int | None = Field(None, description="Exit code of the crawler; none where the kubelet reported none.")
    signal: int | None = None
    reason: str = Field(max_length=64, description="OOMKilled, Evicted, Interrupted, Error, PodDeleted, ...")
    message: str = Field("", max_length=MESSAGE_MAX)
    counted: bool = Field(False, description="Whether it counts towards backoffLimit.")
    started_at: Time | None = None
    finished_at: Time | None = None


class ReportedProgress(Progress):
    """The crawler's own counts, with the time at which the operator read them."""

    updated_at: Time | None = None


class CrawlJobStatus(_Status):
    """What is so, and why."""

    observed_generation: int = 0
    phase: Phase = "Pending"
    conditions: tuple[Condition, ...] = Field(
        (), json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    )
    attempt: int = Field(0, description="Number of the current or last Pod, from 1.")
    restarts: int = Field(0, description="Pods that ended before the crawl did, each counted once by its UID.")
    consecutive_failures: int = Field(0, description="Counted failures since the last healthy run.")
    unhealthy_ends: int = Field(
        0,
        description="Pods in a row that ended unasked, counted or not, since the last healthy run.",
    )
    current_pod: PodRef | None = None
    last_termination: Termination | None = None
    history: tuple[Termination, ...] = Field((), max_length=HISTORY_MAX, description="Latest ends, newest first.")
    next_restart_time: Time | None = None
    start_time: Time | None = Field(None, description="When the first Pod was made.")
    completion_time: Time | None = Field(None, description="When the job became Complete or Failed.")
    active_seconds: int = Field(0, description="Seconds that the Pods which have ended have run.")
    observed_restart_request: str | None = Field(None, description="The latest restartRequestedAt that was followed.")
    spec_hash: str = Field("", description="Hash of what shapes the current Pod.")
    image: str = Field("", description="Image of the current or last Pod, with which its results are read.")
    progress: ReportedProgress | None = None
    trace_id: str = Field("", alias="traceID", description="The one trace of this CrawlJob, in hexadecimal digits.")
