"""Builders of what tests of the operator need: CrawlJobs, Pods, ends of Pods, and a hand that plays the kubelet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.apiserver import Api, Raw, wait_until

from crawljob import API_GROUP, API_VERSION, KIND, PLURAL, manifest
from crawljob.status import CrawlJobStatus
from crawljob.summary import Progress, RunSummary
from crawljob_operator import names, render, times
from crawljob_operator.identity import request_mark, spec_hash
from crawljob_operator.observed import Config, Job, Pod, Seen, Terminated, Volume

NOW = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
UID = "0b6b8a4e-0000-4000-8000-000000000001"


def crawljob(name: str, namespace: str = "default", **spec: Any) -> Raw:
    """A CrawlJob as a user applies it; restarts are quick, and the test's kubelet may take its time."""
    restart = {"backoff": {"initialSeconds": 1, "maxSeconds": 1}}
    return {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "seeds": ["https://docs.example.com/"],
            "restartPolicy": restart,
            "startDeadlineSeconds": 0,
            **spec,
        },
    }


def marker_pod(name: str) -> Raw:
    """A Pod of nobody's that the restricted profile admits."""
    security = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    confined = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "theirs", "image": "registry.example/theirs:1", "securityContext": confined}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], "securityContext": security},
    }


def job(status: CrawlJobStatus | None = None, *, name: str = "docs", uid: str = UID, **spec: Any) -> Job:
    """A CrawlJob as the decision gets it."""
    body = {"seeds": ["https://docs.example.com/"], **spec}
    return Job("crawls", name, uid, 1, status or CrawlJobStatus(), manifest.parse(body))


def pod(owner: Job, uid: str = "pod-1", **fields: Any) -> Pod:
    """A Pod of this CrawlJob, pending unless said otherwise."""
    assert owner.spec is not None
    own = {
        "name": render.pod_name(owner),
        "owner_uid": owner.uid,
        "spec_hash": spec_hash(owner.spec),
        "request_mark": request_mark(owner.restart_request),
        "attempt": owner.status.attempt or 1,
        "config_name": render.config_name(owner, owner.spec),
        "created_at": NOW - timedelta(seconds=60),
    }
    return Pod(**{**own, "uid": uid, **fields})


def running(owner: Job, uid: str = "pod-1", *, since: float = 30, **fields: Any) -> Pod:
    """A Pod that has been crawling for ``since`` seconds."""
    start = NOW - timedelta(seconds=since)
    own = {"phase": "Running", "ready": True, "running_since": start, "node": "node-1", "ip": "127.0.0.1"}
    return pod(owner, uid, **{**own, **fields})


def ended(
    owner: Job, code: int | None, uid: str = "pod-1", *, ran: float = 30, message: str = "", **fields: Any
) -> Pod:
    """A Pod whose crawler has ended just now, after ``ran`` seconds; ``None``: it never had a container."""
    end = None
    if code is not None:
        reason = fields.pop("reason", "Completed" if code == 0 else "Error")
        end = Terminated(code, None, reason, message, NOW - timedelta(seconds=ran), NOW)
    return pod(owner, uid, **{"phase": "Failed" if code else "Succeeded", "terminated": end, **fields})


def around(owner: Job, pod: Pod | None = None, **fields: Any) -> Seen:
    """What is seen when volume and ConfigMap are as they should be."""
    assert owner.spec is not None
    config = render.config_name(owner, owner.spec)
    own = {
        "volume": Volume(render.claim_name(owner, owner.spec), "volume-1", owner.uid, "Bound"),
        "configs": (Config(config, "config-1", owner.uid),),
        "config_name": config,
    }
    return Seen(pod=pod, **{**own, **fields})


def summary(outcome: Any = "finished", reason: str = "CrawlFinished", code: int = 0, **counts: int) -> str:
    """A crawler's last word."""
    return RunSummary(outcome=outcome, reason=reason, exit_code=code, progress=Progress(**counts)).to_json()


class Kubelet:
    """Does to Pods of one namespace, or of one CrawlJob in it, what scheduler and kubelet would."""

    def __init__(self, api: Api, namespace: str, crawljob: str = "") -> None:
        self.api = api
        self.namespace = namespace
        self.now: Callable[[], datetime] = lambda: datetime.now(UTC)
        self._labels = f"{names.LABEL_CRAWLJOB}={crawljob}" if crawljob else ""

    def pods(self) -> list[Raw]:
        """Every Pod."""
        return self.api.items(f"/api/v1/namespaces/{self.namespace}/pods", self._labels)

    def new_pod(self, *, besides: str = "") -> Raw:
        """Wait for the one Pod, which must not be the one with the UID ``besides``."""

        def found() -> Raw | None:
            pods = self.pods()
            assert len(pods) <= 1, "at most one Pod at any time"
            return pods[0] if pods and pods[0]["metadata"]["uid"] != besides else None

        return wait_until(found, "a new Pod")

    def new_pod_of(self, job: Raw) -> Raw:
        """Wait for the Pod of exactly this CrawlJob; another one's of the same name may be there."""
        uid = job["metadata"]["uid"]

        def found() -> Raw | None:
            return next((p for p in self.pods() if p["metadata"]["labels"][names.LABEL_UID] == uid), None)

        return wait_until(found, "the new CrawlJob's Pod")

    def bind(self, pod: Raw) -> None:
        """Schedule: from now on a deletion waits for the kubelet."""
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod["metadata"]["name"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
        }
        self.api.create(f"{self._path(pod)}/binding", binding)

    def run(self, pod: Raw, ip: str = "127.0.0.1") -> None:
        """Start the container and find it ready."""
        started = {"startedAt": times.text(self.now())}
        self.status(pod, "Running", {"running": started}, podIP=ip, conditions=[{"type": "Ready", "status": "True"}])

    def exit(self, pod: Raw, code: int, message: str = "", **status: Any) -> None:
        """End the container."""
        end = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "message": message}
        now = times.text(self.now())
        phase = status.pop("phase", "Failed" if code else "Succeeded")
        self.status(pod, phase, {"terminated": {**end, "startedAt": now, "finishedAt": now}}, **status)

    def status(
        self, pod: Raw, phase: str, state: Mapping[str, Any] | None = None, *, others: Sequence[Raw] = (), **more: Any
    ) -> None:
        """Write a Pod's status; ``others`` are the statuses of injected containers, which come first."""
        containers: list[Raw] = []
        if state is not None:
            containers = [
                {
                    "name": names.CONTAINER,
                    "image": "crawler",
                    "imageID": "",
                    "ready": "running" in state,
                    "restartCount": 0,
                    "state": dict(state),
                }
            ]
        patch = {"status": {"phase": phase, "containerStatuses": [*others, *containers], **more}}
        self.api.patch(f"{self._path(pod)}/status", patch)

    def wait_stop(self, pod: Raw) -> None:
        """Wait until the Pod is asked to stop, as a bound one is."""

        def asked() -> bool:
            found = [p for p in self.pods() if p["metadata"]["uid"] == pod["metadata"]["uid"]]
            assert found, "a bound Pod is there until the kubelet says that it is gone"
            return "deletionTimestamp" in found[0]["metadata"]

        wait_until(asked, "the Pod's deletion")

    def remove(self, pod: Raw) -> None:
        """Confirm that a Pod which is being deleted is gone."""
        self.api.delete(self._path(pod), grace=0)

    def _path(self, pod: Raw) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}"


def crawljobs(namespace: str, name: str = "") -> str:
    """The API server's path of CrawlJobs."""
    return f"/apis/{API_GROUP}/{API_VERSION}/namespaces/{namespace}/{PLURAL}" + (f"/{name}" if name else "")
