"""What follows from a Pod's end: the wait before a restart, and which ends are failures (as in batch/v1)."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from crawljob.model import Model, cel

CONTAINER = "crawler"
"""Name of the crawler's container; injected sidecars have others."""


class Backoff(Model):
    """The wait before a restart: initialSeconds × multiplier^n, at most maxSeconds, ±10 %."""

    model_config = ConfigDict(
        json_schema_extra=cel("self.maxSeconds >= self.initialSeconds", "maxSeconds must be at least initialSeconds")
    )

    initial_seconds: int = Field(10, ge=1, le=3600, description="Wait before the first restart.")
    max_seconds: int = Field(300, ge=1, le=86_400, description="Longest wait.")
    multiplier: int = Field(2, ge=1, le=10, description="Growth from one wait to the next.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max_seconds < self.initial_seconds:
            raise ValueError("maxSeconds must be at least initialSeconds")
        return self


class RestartPolicy(Model):
    """What happens when the crawler's Pod ends before the crawl does."""

    backoff_limit: int = Field(
        6, ge=0, le=1000, description="Failures in a row after which the job is Failed; a healthy run starts anew."
    )
    backoff: Backoff = Field(default_factory=Backoff, description="The wait before a restart.")
    reset_after_seconds: int = Field(
        600, ge=1, le=86_400, description="A Pod that ran for this long was healthy: failures are counted from 0 again."
    )


class OnExitCodes(Model):
    """Exit codes of the crawler's container; 0 is never a failure and matches nothing."""

    container_name: Literal["crawler"] | None = Field(
        None, description="The crawler's own container, which is the only one that is judged."
    )
    operator: Literal["In", "NotIn"] = Field(description="Whether the exit code must be among the values or not.")
    values: tuple[Annotated[int, Field(ge=1, le=255)], ...] = Field(
        min_length=1,
        max_length=255,
        json_schema_extra={"x-kubernetes-list-type": "set"},
        description="Exit codes, each once.",
    )

    @field_validator("values")
    @classmethod
    def _each_once(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(values)) < len(values):
            raise ValueError("must name each exit code once")
        return values


class OnPodCondition(Model):
    """A condition of the Pod's status, such as DisruptionTarget."""

    type: str = Field(
        min_length=1,
        max_length=316,
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9./_-]*[A-Za-z0-9])?$",
        description="Type of the condition.",
    )
    status: Literal["True", "False", "Unknown"] = Field("True", description="Its status.")


class PodFailurePolicyRule(Model):
    """One rule: what a failure that matches it means."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            "has(self.onExitCodes) != has(self.onPodConditions)",
            "must have either onExitCodes or onPodConditions",
        )
    )

    action: Literal["FailJob", "Ignore", "Count"] = Field(
        description="FailJob ends the job, Ignore restarts without counting, Count counts towards backoffLimit."
    )
    on_exit_codes: OnExitCodes | None = Field(None, description="Matches by the crawler's exit code.")
    on_pod_conditions: tuple[OnPodCondition, ...] | None = Field(
        None, min_length=1, max_length=20, description="Matches when one of these conditions is there."
    )

    @model_validator(mode="after")
    def _one_or_the_other(self) -> Self:
        if (self.on_exit_codes is None) == (self.on_pod_conditions is None):
            raise ValueError("must have either onExitCodes or onPodConditions")
        return self


class PodFailurePolicy(Model):
    """Which ends of a Pod are failures, in the shape of batch/v1.

    Rules are asked in order and the first that matches decides. After them stand our own: disruptions and
    interruptions are not counted, an invalid configuration and an unusable frontier fail the job, all else counts.
    """

    rules: tuple[PodFailurePolicyRule, ...] = Field((), max_length=20, description="Rules; the first match decides.")
