"""What may be said about the crawler's Pod: where it runs and what it needs, never what it may do.

Who may create CrawlJobs may create restricted Pods, no more: there is no service account, no volume and no security
context here. What the API server alone can judge (affinity, topology) is passed on and its refusal is shown.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from crawljob import API_GROUP
from crawljob.access import KeyRef, ObjectName
from crawljob.model import Model, cel
from crawljob.units import ResourceQuantity

RESERVED_LABELS = ("app.kubernetes.io/name", "app.kubernetes.io/component", "app.kubernetes.io/managed-by")
"""Labels that the operator sets itself, besides those of our own group."""

RESERVED_ENVIRONMENT = frozenset(
    {"TRACEPARENT", "OTEL_RESOURCE_ATTRIBUTES", "K8S_NODE_NAME", "K8S_POD_NAME", "K8S_POD_UID"}
)
"""Variables that the operator sets itself."""

FORBIDDEN_ANNOTATIONS = (
    # Read by the API server, the kubelet or the container runtime: profiles, devices, another sandbox.
    "container.apparmor.security.beta.kubernetes.io/",
    "container.seccomp.security.alpha.kubernetes.io/",
    "seccomp.security.alpha.kubernetes.io/",
    "security.alpha.kubernetes.io/",
    "cdi.k8s.io/",
    "dev.gvisor.",
    "io.katacontainers.",
    "io.kubernetes.cri-o.",
    "run.oci.",
    # Read by the network: other networks, other addresses, past the NetworkPolicy.
    "cni.projectcalico.org/",
    "k8s.ovn.org/",
    "k8s.v1.cni.cncf.io/",
    "ovn.kubernetes.io/",
    "v1.multus-cni.io/",
    # Read by a mesh's webhook, which adds the volumes that they name.
    "sidecar.istio.io/userVolume",
)
"""Beginnings of annotations by which a Pod gets more than the restricted profile and its NetworkPolicy give it.

What a cluster's own webhooks make of others only its administrators know, who must bound that themselves.
"""

_QUALIFIED = r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
_LABEL_VALUE = r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$"

_PASSED_ON: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}

Key = Annotated[str, Field(min_length=1, max_length=317, pattern=_QUALIFIED)]
LabelValue = Annotated[str, Field(max_length=63, pattern=_LABEL_VALUE)]


class Resources(Model):
    """Requests and limits of the crawler's container."""

    requests: dict[Literal["cpu", "memory", "ephemeral-storage"], ResourceQuantity] = Field(
        default_factory=dict, description="What the scheduler keeps free."
    )
    limits: dict[Literal["cpu", "memory", "ephemeral-storage"], ResourceQuantity] = Field(
        default_factory=dict, description="What the kubelet enforces."
    )


class Toleration(Model):
    """A taint that the Pod tolerates, as in core/v1."""

    key: Key | None = Field(None, description="The taint's key; all keys without it.")
    operator: Literal["Exists", "Equal"] = Field("Equal", description="Whether the value must be equal.")
    value: LabelValue | None = Field(None, description="The taint's value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="The taint's effect; all effects without it."
    )
    toleration_seconds: int | None = Field(None, ge=0, le=2**53, description="How long NoExecute is tolerated.")


class EnvSource(Model):
    """Where the value of a variable comes from."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            "has(self.secretKeyRef) != has(self.configMapKeyRef)", "must have either secretKeyRef or configMapKeyRef"
        )
    )

    secret_key_ref: KeyRef | None = Field(None, description="A key of a Secret.")
    config_map_key_ref: KeyRef | None = Field(None, description="A key of a ConfigMap.")

    @model_validator(mode="after")
    def _one_or_the_other(self) -> Self:
        if (self.secret_key_ref is None) == (self.config_map_key_ref is None):
            raise ValueError("must have either secretKeyRef or configMapKeyRef")
        return self


class EnvVar(Model):
    """An environment variable of the crawler's container."""

    model_config = ConfigDict(
        json_schema_extra=cel("!has(self.value) || !has(self.valueFrom)", "must not have both value and valueFrom")
    )

    name: str = Field(
        min_length=1,
        max_length=128,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        json_schema_extra=cel(
            f"!(self in {sorted(RESERVED_ENVIRONMENT)!r})", "is set by the operator itself; choose another name"
        ),
        description="Name of the variable.",
    )
    value: str | None = Field(None, max_length=4096, description="Its value, empty without it and valueFrom.")
    value_from: EnvSource | None = Field(None, description="Where its value comes from.")

    @field_validator("name")
    @classmethod
    def _not_ours(cls, name: str) -> str:
        if name in RESERVED_ENVIRONMENT:
            raise ValueError("is set by the operator itself; choose another name")
        return name

    @model_validator(mode="after")
    def _one_or_the_other(self) -> Self:
        if self.value is not None and self.value_from is not None:
            raise ValueError("must not have both value and valueFrom")
        return self


class PullSecret(Model):
    """A Secret with the credentials of an image registry."""

    name: ObjectName = Field(description="Name of the Secret.")


class PodTemplate(Model):
    """What may be said about the crawler's Pod; everything else is fixed and fits the restricted profile."""

    labels: dict[Key, LabelValue] = Field(
        default_factory=dict, max_length=64, description="More labels; those of the operator cannot be set."
    )
    annotations: dict[Key, Annotated[str, Field(max_length=16_384)]] = Field(
        default_factory=dict,
        max_length=64,
        description="Annotations, for example those of a service mesh; none that change the Pod's confinement or its "
        "networks.",
    )
    resources: Resources = Field(default_factory=Resources, description="Requests and limits of the container.")
    node_selector: dict[Key, LabelValue] = Field(
        default_factory=dict, max_length=64, description="Labels that the node must have."
    )
    tolerations: tuple[Toleration, ...] = Field((), max_length=64, description="Taints that the Pod tolerates.")
    affinity: dict[str, Any] = Field(
        default_factory=dict, json_schema_extra=_PASSED_ON, description="core/v1 Affinity, passed on as it is."
    )
    topology_spread_constraints: tuple[Annotated[dict[str, Any], Field(json_schema_extra=_PASSED_ON)], ...] = Field(
        (), max_length=16, description="core/v1 TopologySpreadConstraints, passed on as they are."
    )
    priority_class_name: ObjectName | None = Field(None, description="PriorityClass of the Pod.")
    image_pull_secrets: tuple[PullSecret, ...] = Field(
        (), max_length=16, description="Secrets for the registry of the image."
    )
    env: tuple[EnvVar, ...] = Field((), max_length=64, description="Environment variables of the container.")
    termination_grace_period_seconds: int = Field(
        30,
        ge=30,
        le=3600,
        description="What the kubelet waits for after SIGTERM; the crawler itself needs at most 25 s.",
    )

    @field_validator("labels")
    @classmethod
    def _not_ours(cls, labels: dict[str, str]) -> dict[str, str]:
        ours = [key for key in labels if key in RESERVED_LABELS or key.startswith(f"{API_GROUP}/")]
        if ours:
            raise ValueError(f"{', '.join(ours)}: set by the operator itself")
        return labels

    @field_validator("annotations")
    @classmethod
    def _restricted(cls, annotations: dict[str, str]) -> dict[str, str]:
        forbidden = [key for key in annotations if key.startswith(FORBIDDEN_ANNOTATIONS)]
        if forbidden:
            raise ValueError(f"{', '.join(forbidden)}: would change the Pod's confinement or its networks; remove it")
        return annotations

    @field_validator("env")
    @classmethod
    def _each_once(cls, env: tuple[EnvVar, ...]) -> tuple[EnvVar, ...]:
        if len({variable.name for variable in env}) < len(env):
            raise ValueError("must name each variable once")
        return env
