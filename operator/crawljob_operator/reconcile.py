"""One level-based reconcile: read live, decide, write the status if it changed, then act.

Called by the work queue with a key, whatever woke it. It may be killed between any two calls: the next one begins
with what the API server has.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from crawljob import manifest
from crawljob.problems import InvalidInputError, Problem
from crawljob.spec import CrawlJobSpec
from crawljob.status import CrawlJobStatus
from crawljob.telemetry import Telemetry
from crawljob_operator import names, network, render
from crawljob_operator.announce import announce
from crawljob_operator.apply import Refused, apply
from crawljob_operator.decide import Decision, decide
from crawljob_operator.kube import (
    CONFIGS,
    CRAWLJOBS,
    EVENTS,
    JOBS,
    NETWORK_ERRORS,
    PODS,
    POLICIES,
    VOLUMES,
    ApiError,
    ConflictError,
    Kube,
    NotFoundError,
    Resource,
)
from crawljob_operator.netsettings import NetworkSettings
from crawljob_operator.observed import Config, Job, Note, Pod, Policy, Reader, Refusal, Seen, Volume
from crawljob_operator.observer import Observer
from crawljob_operator.patching import status_patch
from crawljob_operator.podstate import PATIENCE, explain
from crawljob_operator.policies import readers
from crawljob_operator.progress import ProgressReader
from crawljob_operator.workqueue import Key

log = logging.getLogger(__name__)

REFUSAL_FIRST_SECONDS = 10
REFUSAL_MAX_SECONDS = 300


@dataclass(frozen=True, slots=True)
class _Refusals:
    """Refusals in a row of one CrawlJob's generation; only in memory, a new operator simply asks again."""

    generation: int
    number: int
    latest: Refusal


class Reconciler:
    """Reconciles CrawlJobs; keeps in memory only what may be lost."""

    def __init__(
        self,
        kube: Kube,
        progress: ProgressReader,
        crawler_image: str,
        network_settings: NetworkSettings,
        *,
        collector: Telemetry | None = None,
        clock: Callable[[], datetime] | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._kube = kube
        self._progress = progress
        self._image = crawler_image
        self._network = network_settings
        self._collector = collector
        self._now = clock or (lambda: datetime.now(UTC))
        self._observer = observer or Observer()
        self._refusals: dict[str, _Refusals] = {}
        self._resize_refusals: dict[str, _Refusals] = {}
        self._tidied: dict[str, tuple[str, str]] = {}
        """Pod and ConfigMap with which a CrawlJob was seen when the ConfigMaps that it no longer needs were removed."""
        self._uids: dict[Key, str] = {}

    async def reconcile(self, key: Key) -> float | None:
        """Bring one CrawlJob forward; returns the seconds until it must be looked at again."""
        raw = await self._kube.get(CRAWLJOBS, key.namespace, key.name)
        if raw is None:
            self._forget(self._uids.pop(key, ""))
            return None
        job = read_job(raw, self._network)
        if self._uids.get(key, job.uid) != job.uid:
            self._forget(self._uids[key])
        self._uids[key] = job.uid
        if job.deleting:
            return None
        seen = await self._look(job)
        now = self._now()
        decision = decide(job, seen, now)
        patch = status_patch(raw.get("status") or {}, decision.status)
        if patch and not await self._write(job, raw, patch):
            return 0.0
        if patch:
            self._observer.written(job, decision.status)
            await self._announce(job, decision, now)
        applied = await apply(self._kube, job, decision.actions, self._image, self._network, collector=self._collector)
        if seen.pod is not None and seen.pod.owner_uid == job.uid and seen.pod.running_since is not None:
            self._tidied[job.uid] = (seen.pod.uid, seen.config_name)
        _remember(self._refusals, job, applied.refused, accepted=applied.changed, now=now)
        _remember(self._resize_refusals, job, applied.resize_refused, accepted=False, now=now)
        if applied.changed:
            return 0.0
        return self._again_in(job, seen, decision, now)

    async def _look(self, job: Job) -> Seen:
        """The live state around the job, each object read from the store."""
        kube, namespace = self._kube, job.namespace
        raw_pod = await kube.get(PODS, namespace, render.pod_name(job))
        raw_volume = await kube.get(VOLUMES, namespace, render.claim_name(job, job.spec))
        pod = Pod.from_raw(raw_pod) if raw_pod else None
        wanted = render.config_name(job, job.spec) if job.spec else ""
        policy = network.policy_name(job, job.spec, self._network) if job.spec else ""
        progress = None
        if pod is not None and pod.owner_uid == job.uid and job.spec is not None:
            pod = await self._explained(namespace, pod)
            progress = await self._progress.read(job.uid, pod, job.spec.listen.port)
        return Seen(
            pod=pod,
            volume=await self._volume(namespace, raw_volume) if raw_volume else None,
            configs=await self._configs(job, pod, wanted),
            config_name=wanted,
            policies=await self._policies(job, pod, policy),
            policy_name=policy,
            reader=await self._reader(job, pod),
            progress=progress,
            refusal=_latest(self._refusals, job),
            resize_refusal=_latest(self._resize_refusals, job),
        )

    async def _configs(self, job: Job, pod: Pod | None, wanted: str) -> tuple[Config, ...]:
        """Without a Pod the one that it would use, whoever owns it; until a Pod runs all of the job, to see what it
        needs and to remove the others.

        A listing costs the API server as much as the namespace has ConfigMaps: not for what has long been running.
        """
        if pod is None:
            raw = await self._kube.get(CONFIGS, job.namespace, wanted) if wanted else None
            return (Config.from_raw(raw),) if raw else ()
        if pod.owner_uid != job.uid or pod.ended or self._tidied.get(job.uid) == (pod.uid, wanted):
            return ()
        return tuple([Config.from_raw(item) async for item in self._labelled(CONFIGS, job)])

    async def _policies(self, job: Job, pod: Pod | None, wanted: str) -> tuple[Policy, ...]:
        """With a living Pod the one that it shall have, or what it has instead; without a Pod all of the job."""
        if pod is not None and (pod.owner_uid != job.uid or pod.ended or not wanted):
            return ()
        raw = await self._kube.get(POLICIES, job.namespace, wanted) if wanted else None
        named = Policy.from_raw(raw) if raw else None
        if pod is not None and named is not None and named.owner_uid == job.uid:
            return (named,)
        others = [Policy.from_raw(item) async for item in self._labelled(POLICIES, job)]
        return (*((named,) if named else ()), *(policy for policy in others if policy.name != wanted))

    async def _reader(self, job: Job, pod: Pod | None) -> Reader | None:
        raw = await self._kube.get(JOBS, job.namespace, render.reader_name(job)) if readers.matters(job, pod) else None
        return Reader.from_raw(raw) if raw else None

    def _labelled(self, resource: Resource, job: Job) -> AsyncIterator[dict[str, Any]]:
        return self._kube.items(resource, job.namespace, labels=f"{names.LABEL_UID}={job.uid}")

    async def _volume(self, namespace: str, raw: dict[str, Any]) -> Volume:
        volume = Volume.from_raw(raw)
        if volume.phase != "Pending" or volume.deleting:
            return volume
        latest = await self._latest_event(namespace, "PersistentVolumeClaim", volume.uid)
        return volume if latest is None else replace(volume, note=_note(latest))

    async def _explained(self, namespace: str, pod: Pod) -> Pod:
        """The Pod with what the kubelet warns of, where it has been starting for long and its status says nothing."""
        late = pod.created_at is not None and self._now() - pod.created_at >= PATIENCE
        if pod.ended or not pod.node or not late or not explain(pod).starting:
            return pod
        latest = await self._latest_event(namespace, "Pod", pod.uid)
        return pod if latest is None or latest.get("type") != "Warning" else replace(pod, warning=_note(latest))

    async def _latest_event(self, namespace: str, kind: str, uid: str) -> dict[str, Any] | None:
        fields = f"involvedObject.uid={uid},involvedObject.kind={kind}"
        events = [event async for event in self._kube.items(EVENTS, namespace, fields=fields)]
        return max(events, key=lambda e: e.get("lastTimestamp") or e.get("eventTime") or "", default=None)

    async def _write(self, job: Job, raw: dict[str, Any], patch: dict[str, Any]) -> bool:
        """Write the status as of what was read; ``False`` when the CrawlJob has changed or gone since."""
        guarded = {"metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]}, "status": patch}
        try:
            await self._kube.patch(CRAWLJOBS, job.namespace, job.name, guarded, part="status")
        except (ConflictError, NotFoundError):
            return False
        return True

    async def _announce(self, job: Job, decision: Decision, now: datetime) -> None:
        for announcement in decision.announcements:
            try:
                await announce(self._kube, job, announcement, now)
            except (ApiError, *NETWORK_ERRORS) as error:
                # Events are for people; a crawl does not wait for them.
                log.warning("an Event was not recorded: %s", error, extra={"crawljob": f"{job.namespace}/{job.name}"})

    def _again_in(self, job: Job, seen: Seen, decision: Decision, now: datetime) -> float | None:
        waits = []
        if decision.recheck_at is not None:
            waits.append(max(0.0, (decision.recheck_at - now).total_seconds()))
        if seen.pod is not None and decision.status.phase == "Running":
            waits.append(max(1.0, self._progress.due_in(job.uid, seen.pod)))
        return min(waits, default=None)

    def _forget(self, uid: str) -> None:
        self._refusals.pop(uid, None)
        self._resize_refusals.pop(uid, None)
        self._tidied.pop(uid, None)
        self._progress.forget(uid)


def _note(event: dict[str, Any]) -> Note:
    return Note(str(event.get("reason") or ""), str(event.get("message") or ""))


def _latest(refusals: dict[str, _Refusals], job: Job) -> Refusal | None:
    found = refusals.get(job.uid)
    return found.latest if found is not None and found.generation == job.generation else None


def _remember(
    refusals: dict[str, _Refusals], job: Job, refused: Refused | None, *, accepted: bool, now: datetime
) -> None:
    """Keep a refusal with the time to ask again, later after each one in a row of the same spec."""
    if refused is None:
        if accepted:
            refusals.pop(job.uid, None)
        return
    before = refusals.get(job.uid)
    number = before.number + 1 if before and before.generation == job.generation else 1
    wait = min(REFUSAL_FIRST_SECONDS * 2 ** min(number - 1, 10), REFUSAL_MAX_SECONDS)
    refusals[job.uid] = _Refusals(
        job.generation, number, Refusal(refused.note, now + timedelta(seconds=wait), refused.stalled)
    )


def read_job(raw: dict[str, Any], settings: NetworkSettings | None = None) -> Job:
    """A CrawlJob as the API server returns it; a spec that cannot be used, or may not be, becomes its problems."""
    metadata = raw["metadata"]
    spec: CrawlJobSpec | None = None
    problems: tuple[Problem, ...] = ()
    try:
        spec = manifest.parse(raw.get("spec"))
        problems = network.beyond_limits(spec, settings or NetworkSettings())
    except InvalidInputError as error:
        problems = error.problems
    return Job(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=metadata.get("generation") or 0,
        status=CrawlJobStatus.model_validate(raw.get("status") or {}),
        spec=None if problems else spec,
        problems=problems,
        deleting=bool(metadata.get("deletionTimestamp")),
    )
