"""What a decision may ask for, as data; ``apply`` executes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CreateVolume:
    """Create the PersistentVolumeClaim."""


@dataclass(frozen=True, slots=True)
class CreateConfig:
    """Create the ConfigMap with the crawler's file."""


@dataclass(frozen=True, slots=True)
class CreatePolicy:
    """Create the NetworkPolicy."""


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create the Pod of this attempt."""

    attempt: int
    limit_seconds: int | None = None
    """When the kubelet ends it, should we not be there to do so."""


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete this Pod and no other, gracefully."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class DeleteConfig:
    """Delete a ConfigMap that no Pod uses any more."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class DeletePolicy:
    """Delete a NetworkPolicy that the next Pod must not have, or that somebody has edited."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class DeleteReader:
    """Delete a Job that reads results from the volume, and its Pod before it."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ChangeVolume:
    """Enlarge our PersistentVolumeClaim, or let it go with the CrawlJob (``owned``) or stay."""

    name: str
    uid: str
    size: str | None = None
    owned: bool | None = None


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the CrawlJob itself, and by the garbage collector all that it owns."""

    uid: str


Action = (
    CreateVolume
    | CreateConfig
    | CreatePolicy
    | CreatePod
    | DeletePod
    | DeleteConfig
    | DeletePolicy
    | DeleteReader
    | ChangeVolume
    | DeleteJob
)
