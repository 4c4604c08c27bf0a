"""The Job that reads a volume, as the API server gets it, and what its state means. Pure.

Its Pod waits and the client runs a program in it, as it does in the crawler's own Pod. A Job that writes its result to
its log would lose the most of it: a kubelet keeps 10 MiB of a log and then begins anew, and adds to each line.

Nobody needs to clean up: the Pod ends when nobody has read for ``IDLE_SECONDS`` or after ``LIMIT_SECONDS`` in all, the
Job is removed ``KEPT_SECONDS`` after its end or with its CrawlJob, and by the operator when the crawl starts again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from crawljob import API_GROUP
from crawljob.pod_template import PodTemplate
from crawljob_operator import identity, names, render
from crawljob_operator.observed import Job

Raw = dict[str, Any]

IDLE_SECONDS = 30
LIMIT_SECONDS = 3600
KEPT_SECONDS = 30
CONTAINER = "reader"
COPIER = "copy"
SCRATCH = "/tmp"  # noqa: S108 - inside the container
DATABASE = f"{SCRATCH}/frontier.db"
LABEL_CLIENT = f"{API_GROUP}/client"
"""Random, of the run of the plugin that made it: only that one removes it."""

_SPARE_BYTES = 64 * 1024 * 1024
_HOPELESS = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
"""What a kubelet says and goes on trying, for as long as it is let."""
_ON_ITS_WAY = frozenset({"", "ContainerCreating", "PodInitializing"})


@dataclass(frozen=True, slots=True)
class Ready:
    """The copy is made; programs can be run in this Pod."""

    pod: str


@dataclass(frozen=True, slots=True)
class Starting:
    """Not yet; ``words`` are the scheduler's or the kubelet's, empty where nothing is wrong."""

    words: str = ""


@dataclass(frozen=True, slots=True)
class Over:
    """It will not come; why, as a sentence."""

    words: str


def body(job: Job, image: str, claim: str, capacity: Decimal, client: str, *, config: str | None = None) -> Raw:
    """The Job for one run of the plugin; it fits the restricted profile, and runs where the crawler would.

    ``capacity`` is the volume's, in bytes; ``config`` names the ConfigMap with the crawler's file, if there is one.
    """
    template = job.spec.pod_template if job.spec is not None else PodTemplate()
    name = render.reader_name(job)
    metadata = render.metadata(job, name, {LABEL_CLIENT: client}, component=names.READER_COMPONENT)
    # Who reads results need not have the right that blocking asks for (OwnerReferencesPermissionEnforcement).
    owners = [{**owner, "blockOwnerDeletion": False} for owner in metadata["ownerReferences"]]
    annotations = dict(template.annotations)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**metadata, "ownerReferences": owners},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": LIMIT_SECONDS,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {
                "metadata": {
                    "labels": {**template.labels, **metadata["labels"]},
                    **({"annotations": annotations} if annotations else {}),
                },
                "spec": {
                    **render.placement(template),
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": 5,
                    "securityContext": render.pod_security(),
                    # Two containers: while the second runs, the copy is there.
                    "initContainers": [_container(job, template, image, COPIER)],
                    "containers": [_container(job, template, image, CONTAINER, config)],
                    "volumes": [
                        {"name": "data", "persistentVolumeClaim": {"claimName": claim}},
                        {"name": "scratch", "emptyDir": {"sizeLimit": _room(capacity)}},
                        *([{"name": names.CONFIG_VOLUME, "configMap": {"name": config}}] if config else []),
                    ],
                },
            },
        },
    }


def _container(job: Job, template: PodTemplate, image: str, name: str, config: str | None = None) -> Raw:
    policy = job.spec.image_pull_policy if job.spec is not None else None
    scratch: Raw = {"name": "scratch", "mountPath": SCRATCH}
    program, mounts = ["hold", str(IDLE_SECONDS)], [scratch]
    if name == COPIER:
        program = ["copy", names.FRONTIER, DATABASE]
        mounts = [{"name": "data", "mountPath": names.DATA_DIR, "readOnly": True}, scratch]
    if config:
        mounts.append({"name": names.CONFIG_VOLUME, "mountPath": names.CONFIG_DIR, "readOnly": True})
    groups = (("requests", template.resources.requests), ("limits", template.resources.limits))
    # A limit of ephemeral storage is the crawler's own, which has its database elsewhere.
    kept = {key: {k: v for k, v in values.items() if k != "ephemeral-storage"} for key, values in groups if values}
    return {
        "name": name,
        "image": image,
        **({"imagePullPolicy": policy} if policy else {}),
        "command": [names.PLUGIN, "inside", *program],
        "resources": {key: values for key, values in kept.items() if values},
        "securityContext": render.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def _room(capacity: Decimal) -> str:
    """For the copy, and for what a report sorts."""
    return str(int(capacity) * 2 + _SPARE_BYTES)


def state(job: Raw | None, pods: Sequence[Raw]) -> Ready | Starting | Over:
    """How far a reader is, from its Job and the Pods of it."""
    if job is None or job["metadata"].get("deletionTimestamp"):
        return Over("it was removed, for the crawl starts again or is deleted; ask once it runs")
    pod = max(pods, key=lambda raw: raw["metadata"].get("creationTimestamp") or "", default={})
    status = pod.get("status") or {}
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        found = _of_container(container, pod)
        if found is not None:
            return found
    over = _end(job)
    if over is not None:
        return Over(str(status.get("message") or over.get("message") or over.get("reason") or "it has ended"))
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return Starting(f"{condition.get('reason')}: {condition.get('message')}")
    return Starting()


def _of_container(status: Raw, pod: Raw) -> Ready | Starting | Over | None:
    """What one container tells; ``None`` where it is as it should be and the next is to be asked."""
    found = status.get("state") or {}
    end, waiting = found.get("terminated") or {}, found.get("waiting") or {}
    if end.get("exitCode"):
        words = " ".join(str(end.get("message") or end.get("reason") or f"exit code {end['exitCode']}").split())
        return Over(words.removeprefix("Error: "))
    if status.get("name") == CONTAINER and "running" in found:
        return Ready(pod["metadata"]["name"])
    reason = str(waiting.get("reason") or "")
    if reason in _ON_ITS_WAY:
        return None
    words = f"{reason}: {waiting.get('message') or 'no reason given'}"
    return Over(words) if reason in _HOPELESS else Starting(words)


def ended(job: Raw) -> bool:
    """Whether a Job has done all it will do, and only waits to be removed."""
    return _end(job) is not None


def _end(job: Raw) -> Raw | None:
    conditions: Sequence[Raw] = (job.get("status") or {}).get("conditions") or ()
    ends = (item for item in conditions if item.get("type") in ("Failed", "Complete"))
    return next((item for item in ends if item.get("status") == "True"), None)


def client_mark(random: str) -> str:
    """A label's value from anything."""
    return identity.digest("client", random)[:16]
