"""A small API server in memory for the plugin's tests: objects by name, and a program that answers in a container."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from aiohttp import WSMessage, WSMsgType
from tests.support.builders import UID

from crawljob import API_GROUP, API_VERSION, KIND
from crawljob_operator import names, render
from crawljob_operator.kube import CRAWLJOBS, JOBS, PODS, VOLUMES, ApiError, ConflictError, NotFoundError, Resource
from crawljob_operator.observed import Job
from crawljob_operator.plugin import reader
from crawljob_operator.reconcile import read_job

Raw = dict[str, Any]

NAMESPACE = "crawls"
IMAGE = "registry.example/crawler:1"
SUCCESS: Raw = {"status": "Success"}


def exited(code: int) -> Raw:
    """How a kubelet tells that a program has failed."""
    return {"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]}}


class Cluster:
    """Plays ``Kube``; a reader's Pod runs as soon as its Job is made, unless ``on_create`` says otherwise."""

    namespace = NAMESPACE

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Raw] = {}
        self.created: list[Raw] = []
        self.deleted: list[str] = []
        self.patched: list[tuple[str, Raw]] = []
        self.commands: list[list[str]] = []
        self.places: list[tuple[str, str]] = []
        self.out: Sequence[bytes] = (b"result\n",)
        self.err: Sequence[bytes] = ()
        self.status: Raw | None = SUCCESS
        self.refusals: dict[str, ApiError] = {}
        self.on_create: Callable[[Raw], None] = self.start
        self.on_exec: Callable[[], object] = lambda: None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    def put(self, resource: Resource, raw: Raw) -> None:
        raw.setdefault("metadata", {}).setdefault("uid", f"uid-of-{raw['metadata']['name']}")
        self.objects[resource.plural, raw["metadata"]["name"]] = raw

    def crawljob(self, status: Raw | None = None, **spec: Any) -> Job:
        raw = {
            "apiVersion": f"{API_GROUP}/{API_VERSION}",
            "kind": KIND,
            "metadata": {"name": "docs", "namespace": NAMESPACE, "uid": UID, "generation": 1},
            "spec": {"seeds": ["https://docs.example.com/"], **spec},
            "status": {"observedGeneration": 1, "image": IMAGE, "startTime": "2031-05-06T07:08:09Z", **(status or {})},
        }
        self.put(CRAWLJOBS, raw)
        return read_job(raw)

    def volume(self, job: Job, **status: Any) -> None:
        body = {"phase": "Bound", "capacity": {"storage": "2Gi"}, **status}
        self.put(VOLUMES, {"metadata": {"name": render.claim_name(job, job.spec)}, "status": body})

    def pod(self, job: Job, state: Raw | None = None, **status: Any) -> None:
        """The crawler's own Pod."""
        owners = render.owner_references(job)
        containers = [] if state is None else [{"name": names.CONTAINER, "state": state}]
        self.put(
            PODS,
            {
                "metadata": {"name": render.pod_name(job), "uid": "pod-1", "ownerReferences": owners},
                "spec": {"containers": [{"name": names.CONTAINER, "image": IMAGE}]},
                "status": {"phase": "Running", "containerStatuses": containers, **status},
            },
        )

    def start(self, job: Raw) -> None:
        """What controller, scheduler and kubelet do with a reader."""
        self.reader_pod(job, {"name": reader.CONTAINER, "state": {"running": {}}})

    def reader_pod(self, job: Raw, *containers: Raw, **status: Any) -> None:
        body = {"initContainerStatuses": list(containers), **status}
        labels = job["spec"]["template"]["metadata"]["labels"]
        self.put(PODS, {"metadata": {"name": "reader-x", "labels": labels}, "status": body})

    async def get(self, resource: Resource, _: str, name: str) -> Raw | None:
        if resource.plural in self.refusals:
            raise self.refusals[resource.plural]
        return self.objects.get((resource.plural, name))

    async def items(self, resource: Resource, _: str, *, labels: str = "", fields: str = "") -> AsyncIterator[Raw]:
        if resource.plural in self.refusals:
            raise self.refusals[resource.plural]
        key, _, value = labels.partition("=")
        for (plural, _name), raw in list(self.objects.items()):
            involved = f"involvedObject.uid={raw.get('involvedObject', {}).get('uid')}"
            fits = involved == fields if fields else raw["metadata"].get("labels", {}).get(key) == value
            if plural == resource.plural and fits:
                yield raw

    async def create(self, resource: Resource, body: Raw) -> Raw:
        if resource.plural in self.refusals:
            raise self.refusals[resource.plural]
        if (resource.plural, body["metadata"]["name"]) in self.objects:
            raise ConflictError(409, "AlreadyExists", "there is one already")
        self.put(resource, body)
        self.created.append(body)
        self.on_create(body)
        return body

    async def delete(self, resource: Resource, _: str, name: str, uid: str, *, children_first: bool = False) -> None:
        raw = self.objects.get((resource.plural, name))
        if raw is None:
            return
        assert raw["metadata"]["uid"] == uid
        assert children_first, "the volume is free when the Pod is gone"
        del self.objects[resource.plural, name]
        self.deleted.append(name)

    async def patch(self, resource: Resource, _: str, name: str, patch: Raw) -> Raw:
        if (resource.plural, name) not in self.objects:
            raise NotFoundError(404, "NotFound", f"{name} not found")
        self.patched.append((name, patch))
        found = self.objects[resource.plural, name]
        return {**found, "spec": {**found.get("spec", {}), **patch["spec"]}}

    @asynccontextmanager
    async def exec(self, _: str, pod: str, container: str, command: Sequence[str]) -> AsyncIterator[Any]:
        if "exec" in self.refusals:
            raise self.refusals["exec"]
        self.commands.append(list(command))
        self.places.append((pod, container))
        self.on_exec()
        yield self._messages()

    async def _messages(self) -> AsyncIterator[WSMessage]:
        yield WSMessage(WSMsgType.BINARY, b"\x01", None)  # a kubelet's first word in each channel is empty
        for number, texts in ((1, self.out), (2, self.err)):
            for text in texts:
                yield WSMessage(WSMsgType.BINARY, bytes([number]) + text, None)
        if self.status is not None:
            text = json.dumps(self.status).encode()
            for part in (text[:5], text[5:]):
                yield WSMessage(WSMsgType.BINARY, b"\x03" + part, None)

    def jobs(self) -> list[str]:
        """Names of the Jobs that are there."""
        return [name for plural, name in self.objects if plural == JOBS.plural]
