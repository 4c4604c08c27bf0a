"""Opens a crawl's results for reading: in its own Pod where that runs, else from its volume, through a Job.

What was made here is removed at the end, also after Ctrl-C. Who is killed leaves it to the Job itself (see ``reader``).
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from decimal import Decimal

from crawljob.units import quantity
from crawljob_operator import names, render
from crawljob_operator.conditions import find
from crawljob_operator.kube import (
    CONFIGS,
    CRAWLJOBS,
    EVENTS,
    JOBS,
    NETWORK_ERRORS,
    PODS,
    VOLUMES,
    ApiError,
    ConflictError,
    Kube,
)
from crawljob_operator.observed import Job, Pod, Volume, owner_uid
from crawljob_operator.plugin import reader
from crawljob_operator.plugin.errors import CutOffError, PluginError
from crawljob_operator.plugin.reader import Over, Raw, Ready
from crawljob_operator.plugin.remote import Place
from crawljob_operator.podstate import explain
from crawljob_operator.reconcile import read_job

POLL_SECONDS = 0.5
_SPEC = f"{names.CONFIG_DIR}/{names.CONFIG_FILE}"
EVENTS_SECONDS = 5
"""A Job whose Pod is refused says so in its Events only."""

Tell = Callable[[str], object]


async def crawljob(kube: Kube, namespace: str, name: str) -> Job:
    """The CrawlJob. Raises ``PluginError`` where there is none."""
    raw = await kube.get(CRAWLJOBS, namespace, name)
    if raw is None:
        raise PluginError(f"There is no CrawlJob {name} in namespace {namespace}; see `kubectl get crawljobs -A`.")
    return read_job(raw)


async def pod_of(kube: Kube, job: Job) -> Pod | None:
    """The CrawlJob's own Pod."""
    raw = await kube.get(PODS, job.namespace, render.pod_name(job))
    pod = Pod.from_raw(raw) if raw else None
    return pod if pod is not None and pod.owner_uid == job.uid else None


def in_pod(job: Job, pod: Pod | None) -> Place | None:
    """Where a running crawl can be asked; ``None`` where none runs."""
    if pod is None or pod.ended or pod.deleting or pod.running_since is None:
        return None
    return Place(job.namespace, pod.name, names.CONTAINER, names.FRONTIER, _SPEC)


@asynccontextmanager
async def results(kube: Kube, job: Job, *, image: str | None, wait_seconds: float, tell: Tell) -> AsyncIterator[Place]:
    """Where the results can be read, for as long as the block lasts.

    Raises ``PluginError`` where they cannot; ``tell`` gets the words of what is waited for.
    """
    pod = await pod_of(kube, job)
    place = in_pod(job, pod)
    if place is not None:
        yield place
        return
    if pod is not None and not pod.ended:
        raise PluginError(f"The crawl's Pod does not run yet, or not any more: {explain(pod).note.message}")
    claim, capacity = await _claim(kube, job)
    chosen = image or (pod.image if pod else "") or job.status.image or (job.spec.image if job.spec else None)
    if not chosen:
        raise PluginError("It is not known with which image this crawl ran; name the crawler's image with --image.")
    mark = reader.client_mark(secrets.token_hex(16))
    config = await _config(kube, job)
    body = reader.body(job, chosen, claim, capacity, mark, config=config)
    try:
        await _create(kube, job, body, wait_seconds, tell)
        name = await _started(kube, job, body, wait_seconds, tell)
        try:
            yield Place(job.namespace, name, reader.CONTAINER, reader.DATABASE, _SPEC if config else None)
        except CutOffError:
            raw = await kube.get(JOBS, job.namespace, render.reader_name(job))
            verdict = reader.state(raw, ())
            if isinstance(verdict, Over):
                raise PluginError(f"The Job that read the volume has ended: {verdict.words}.") from None
            raise
    finally:
        await _remove(kube, job, mark, tell)


async def _config(kube: Kube, job: Job) -> str | None:
    """The ConfigMap with the file of the latest spec, where it is there and may be read: results do without it."""
    if job.spec is None:
        return None
    name = render.config_name(job, job.spec)
    with suppress(ApiError):
        return name if await kube.get(CONFIGS, job.namespace, name) is not None else None
    return None


async def _claim(kube: Kube, job: Job) -> tuple[str, Decimal]:
    """Name and size of the volume claim. Raises ``PluginError`` where nothing can be read from it."""
    name = render.claim_name(job, job.spec)
    raw = await kube.get(VOLUMES, job.namespace, name)
    if raw is None:
        ready = find(job.status.conditions, "Ready")
        if job.status.start_time is None:
            raise PluginError(f"The crawl has not begun: {ready.message if ready else 'no operator has seen it yet.'}")
        raise PluginError(f"The volume {name} is gone, and the results with it.")
    volume = Volume.from_raw(raw)
    if volume.deleting:
        raise PluginError(f"The volume {name} is being deleted, and the results with it.")
    if volume.phase == "Lost":
        raise PluginError(f"The volume {name} has lost its PersistentVolume, and the results with it.")
    if volume.phase == "Pending":
        raise PluginError(f"The volume {name} is not bound yet, so that nothing was crawled into it.")
    wanted = quantity(job.spec.storage.wanted_size) if job.spec is not None else Decimal(1024**3)
    return name, volume.capacity or volume.requested or wanted


async def _create(kube: Kube, job: Job, body: Raw, wait_seconds: float, tell: Tell) -> None:
    """Make the Job, once another reader of the same volume has gone."""
    name, end, told = body["metadata"]["name"], time.monotonic() + wait_seconds, False
    while True:
        try:
            await kube.create(JOBS, body)
        except ConflictError as error:
            if error.reason != "AlreadyExists":
                raise
        else:
            return
        other = await kube.get(JOBS, job.namespace, name)
        if other is None:
            continue
        if owner_uid(other) != job.uid:
            raise PluginError(f"A Job named {name} belongs to somebody else; delete it first.")
        if reader.ended(other) and not other["metadata"].get("deletionTimestamp"):
            await kube.delete(JOBS, job.namespace, name, other["metadata"]["uid"], children_first=True)
        if time.monotonic() > end:
            raise PluginError(f"Somebody else reads these results with Job {name}; ask again when it is gone.")
        if not told:
            tell(f"Job {name} reads these results already; waiting until it is gone")
            told = True
        await asyncio.sleep(POLL_SECONDS)


async def _started(kube: Kube, job: Job, body: Raw, wait_seconds: float, tell: Tell) -> str:
    """Wait for the Job's Pod; its name. Raises ``PluginError`` with the cluster's words where it does not come."""
    name, begun, told = body["metadata"]["name"], time.monotonic(), ""
    labels = f"{reader.LABEL_CLIENT}={body['metadata']['labels'][reader.LABEL_CLIENT]}"
    tell(f"reading the results from the volume with Job {name}")
    while True:
        raw = await kube.get(JOBS, job.namespace, name)
        pods = [pod async for pod in kube.items(PODS, job.namespace, labels=labels)]
        found = reader.state(raw, pods)
        if isinstance(found, Ready):
            return found.pod
        if isinstance(found, Over):
            raise PluginError(f"The results cannot be read with Job {name}: {found.words}")
        waited = time.monotonic() - begun
        words = found.words
        if not words and waited > EVENTS_SECONDS:
            words = await _warning(kube, job.namespace, [*pods, *([raw] if raw else [])])
        if waited > wait_seconds:
            raise PluginError(f"Job {name} did not start within {wait_seconds:g} s: {words or 'no reason is given'}")
        if words and words != told:
            tell(f"waiting: {words}")
            told = words
        await asyncio.sleep(POLL_SECONDS)


async def _warning(kube: Kube, namespace: str, objects: list[Raw]) -> str:
    """The latest warning about one of the objects; empty where there is none, or no right to read Events."""
    for item in objects:
        fields = f"involvedObject.uid={item['metadata']['uid']}"
        with suppress(ApiError):
            events = [event async for event in kube.items(EVENTS, namespace, fields=fields)]
            warnings = [event for event in events if event.get("type") == "Warning"]
            latest = max(warnings, key=lambda e: e.get("lastTimestamp") or e.get("eventTime") or "", default=None)
            if latest is not None:
                return f"{latest.get('reason')}: {latest.get('message')}"
    return ""


async def _remove(kube: Kube, job: Job, mark: str, tell: Tell) -> None:
    """Remove our Job, if it came to be; whether a creation that was interrupted was carried out is seen only now."""
    name = render.reader_name(job)
    try:
        raw = await kube.get(JOBS, job.namespace, name)
        if raw is None or raw["metadata"].get("labels", {}).get(reader.LABEL_CLIENT) != mark:
            return
        await kube.delete(JOBS, job.namespace, name, raw["metadata"]["uid"], children_first=True)
    except (ApiError, *NETWORK_ERRORS) as error:
        tell(f"Job {name} could not be removed ({error}); it ends by itself in {reader.IDLE_SECONDS} s")
