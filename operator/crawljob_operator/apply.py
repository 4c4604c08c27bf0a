"""Executes a decision's actions in their order, each guarded so that a repeated or outdated one does no harm."""

from __future__ import annotations

from dataclasses import dataclass

from crawljob.spec import CrawlJobSpec
from crawljob.telemetry import Telemetry
from crawljob_operator import render
from crawljob_operator.actions import (
    Action,
    ChangeVolume,
    CreateConfig,
    CreatePod,
    CreatePolicy,
    CreateVolume,
    DeleteConfig,
    DeleteJob,
    DeletePod,
    DeletePolicy,
    DeleteReader,
)
from crawljob_operator.kube import (
    CONFIGS,
    CRAWLJOBS,
    JOBS,
    PODS,
    POLICIES,
    VOLUMES,
    ApiError,
    ConflictError,
    Kube,
    NotFoundError,
    Raw,
    Resource,
)
from crawljob_operator.netsettings import NetworkSettings
from crawljob_operator.observed import Job, Note

_KINDS = {DeletePod: PODS, DeleteConfig: CONFIGS, DeletePolicy: POLICIES, DeleteReader: JOBS}


@dataclass(frozen=True, slots=True)
class Refused:
    """The API server will not have this object as it is."""

    note: Note
    stalled: bool


@dataclass(frozen=True, slots=True)
class Applied:
    """``changed``: something was done that calls for another look at once. ``refused``: the rest was not executed."""

    changed: bool = False
    refused: Refused | None = None
    resize_refused: Refused | None = None


async def apply(
    kube: Kube,
    job: Job,
    actions: tuple[Action, ...],
    default_image: str,
    network: NetworkSettings,
    *,
    collector: Telemetry | None = None,
) -> Applied:
    """Execute; the image, the settings and the collector are for what is created.

    Raises ``ApiError`` or a network error where asking again later may help.
    """
    changed, resize_refused, volume_open = False, None, False
    for action in actions:
        match action:
            case DeletePod() | DeleteConfig() | DeletePolicy() | DeleteReader():
                await _delete(kube, _KINDS[type(action)], job.namespace, action.name, action.uid)
            case DeleteJob(uid):
                if volume_open:  # with the job would go a volume that is to stay: the next look, at once, decides
                    changed = True
                else:
                    await _delete(kube, CRAWLJOBS, job.namespace, job.name, uid)
            case ChangeVolume():
                try:
                    resize_refused = await _change_volume(kube, job, action)
                except (NotFoundError, ConflictError):
                    volume_open = True  # another one has the name by now, or none
                else:
                    volume_open = resize_refused is not None
            case CreateVolume() | CreateConfig() | CreatePolicy() | CreatePod():
                assert job.spec is not None, "nothing is created from a spec that cannot be read"
                resource, body = _rendered(action, job, job.spec, default_image, network=network, collector=collector)
                refused = await _create(kube, resource, body)
                if refused is not None:
                    return Applied(changed=True, refused=refused, resize_refused=resize_refused)
                changed = True
    return Applied(changed, resize_refused=resize_refused)


def _rendered(
    action: CreateVolume | CreateConfig | CreatePolicy | CreatePod,
    job: Job,
    spec: CrawlJobSpec,
    default_image: str,
    *,
    network: NetworkSettings,
    collector: Telemetry | None,
) -> tuple[Resource, Raw]:
    match action:
        case CreateVolume():
            return VOLUMES, render.volume(job, spec)
        case CreateConfig():
            return CONFIGS, render.config(job, spec)
        case CreatePolicy():
            return POLICIES, render.policy(job, spec, network)
        case CreatePod(attempt, limit_seconds):
            return PODS, render.pod(job, spec, attempt, default_image, limit_seconds, collector=collector)


async def _delete(kube: Kube, resource: Resource, namespace: str, name: str, uid: str) -> None:
    try:
        # The volume is free when a Job's Pod is gone, not when the Job is.
        await kube.delete(resource, namespace, name, uid, children_first=resource is JOBS)
    except ConflictError:
        return  # another object has the name by now: the next look decides about that one


async def _change_volume(kube: Kube, job: Job, change: ChangeVolume) -> Refused | None:
    """Whose it is first, and by itself: a size that is refused must not take that along."""
    if change.owned is not None:
        owners = render.owner_references(job) if change.owned else None
        await _patch_volume(kube, job, change, {"metadata": {"ownerReferences": owners}})
    if change.size is None:
        return None
    try:
        await _patch_volume(kube, job, change, {"spec": {"resources": {"requests": {"storage": change.size}}}})
    except ApiError as error:
        if error.status not in (403, 422):
            raise
        return Refused(Note("ResizePending", error.message), stalled=False)
    return None


async def _patch_volume(kube: Kube, job: Job, change: ChangeVolume, patch: Raw) -> None:
    """Raises ``ConflictError`` where another claim has the name: that is another UID."""
    guarded = {**patch, "metadata": {**patch.get("metadata", {}), "uid": change.uid}}
    await kube.patch(VOLUMES, job.namespace, change.name, guarded)


async def _create(kube: Kube, resource: Resource, body: Raw) -> Refused | None:
    try:
        await kube.create(resource, body)
    except ConflictError as error:
        if error.reason != "AlreadyExists":
            raise  # a quota that was being updated: ask again
        return None  # the next look tells whose it is
    except ApiError as error:
        refused = _refusal(error, body["kind"])
        if refused is None:
            raise
        return refused
    return None


def _refusal(error: ApiError, kind: str) -> Refused | None:
    """What a refusal means; ``None`` for what is only a moment's trouble of the API server."""
    match error.status:
        case 403 if error.reason == "NamespaceTerminating":
            reason, stalled = error.reason, False
        # The second is a quota that its controller has not counted yet.
        case 403 if any(words in error.message for words in ("exceeded quota", "status unknown for quota")):
            reason, stalled = "QuotaExceeded", False
        case 403 if "cannot create resource" in error.message:  # a right that the operator's account has not got
            reason, stalled = "Forbidden", True
        case 400 | 403 | 422:
            reason, stalled = "PodAdmissionRejected" if kind == "Pod" else "AdmissionRejected", True
        case status if status >= 500 and "webhook" in error.message:
            reason, stalled = "WebhookUnavailable", False
        case _:
            return None
    return Refused(Note(reason, f"{kind}: {error.message}"), stalled)
