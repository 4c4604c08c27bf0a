"""CrawlJobs by the hundred for ``benchmarks.operator``, and a hand that plays scheduler, volume binder and kubelet.

What the hand writes and when the operator's status shows it are noted: that is the operator's reaction, seen from
outside. A Pod goes on only after the status has said how it is, so that each life has every step.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self

from tests.support.apiserver import ApiServer, Raw
from tests.support.builders import Kubelet, crawljob, crawljobs, summary

HANDS = 8
"""Writes of the fleet at a time; as many as the operator has workers."""
PAGES = 40


@dataclass(slots=True)
class Life:
    """One CrawlJob. ``fails``: its first Pod ends with exit code 1. ``stays``: its Pod goes on running."""

    name: str
    fails: bool = False
    stays: bool = False
    pods: list[Raw] = field(default_factory=list)
    phase: str = ""
    expected: str = "Pending"
    since: float = 0
    reactions: list[float] = field(default_factory=list)
    """Seconds from each of our writes to the status that shows it."""

    @property
    def settled(self) -> bool:
        """Whether it has come to where it shall."""
        return self.phase == ("Running" if self.stays else "Complete")


class Fleet:
    """CrawlJobs of one namespace; used within ``with``. An error of the hand ends the waiting."""

    def __init__(self, server: ApiServer, namespace: str, lives: Sequence[Life], port: int) -> None:
        self._server = server
        self._api = server.admin
        self._namespace = namespace
        self._kubelet = Kubelet(server.admin, namespace)
        self._port = port
        self._pool = ThreadPoolExecutor(HANDS, thread_name_prefix="fleet")
        self._changed = threading.Condition()
        self._errors: list[BaseException] = []
        self._watches: list[http.client.HTTPSConnection] = []
        self._closing = False
        self.lives = {life.name: life for life in lives}

    def __enter__(self) -> Self:
        make_namespace(self._server, self._namespace)
        self._start_watch(f"/api/v1/namespaces/{self._namespace}/pods", self._pod_seen)
        self._start_watch(crawljobs(self._namespace), self._job_seen)
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._pool.shutdown(cancel_futures=True)
        for connection in self._watches:
            # An API server that is to end would wait for them. The threads that read from them notice by themselves.
            connection.sock.shutdown(socket.SHUT_RDWR)

    def start(self, at_a_time: int) -> None:
        """Create all CrawlJobs, at most so many that have not come to where they shall."""
        for begun, life in enumerate(self.lives.values()):
            with self._changed:
                while not self._errors and begun - self._settled() >= at_a_time:
                    self._changed.wait()
            self._submit(self._create, life)

    def wait(self, limit: float) -> bool:
        """Whether all have come to where they shall within ``limit`` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._errors or self._settled() == len(self.lives), limit)
            if self._errors:
                raise self._errors[0]
            return self._settled() == len(self.lives)

    def phases(self) -> Counter[str]:
        """How many are in which phase."""
        return Counter(life.phase or "none" for life in self.lives.values())

    def reactions(self) -> list[float]:
        """Seconds from what was done to a CrawlJob or its Pod to the status that shows it."""
        return [seconds for life in self.lives.values() for seconds in life.reactions]

    def _settled(self) -> int:
        return sum(life.settled for life in self.lives.values())

    def _submit(self, work: Callable[..., None], *arguments: Any) -> None:
        self._pool.submit(work, *arguments).add_done_callback(self._noted)

    def _noted(self, future: Future[None]) -> None:
        if not future.cancelled() and (error := future.exception()):
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._errors.append(error)
            self._changed.notify_all()

    def _create(self, life: Life) -> None:
        life.since = time.monotonic()
        body = crawljob(life.name, self._namespace, listen={"port": self._port})
        self._api.create(crawljobs(self._namespace), body)

    def _pod_seen(self, pod: Raw) -> None:
        life = self.lives[pod["metadata"]["ownerReferences"][0]["name"]]
        if all(known["metadata"]["uid"] != pod["metadata"]["uid"] for known in life.pods):
            life.pods.append(pod)
            self._submit(self._run, life, pod)

    def _job_seen(self, job: Raw) -> None:
        now, life = time.monotonic(), self.lives[job["metadata"]["name"]]
        life.phase = job.get("status", {}).get("phase", "")
        if life.phase and life.phase == life.expected:
            life.reactions.append(now - life.since)
            life.expected = ""
            if life.phase == "Running" and not life.stays:
                self._submit(self._end, life, life.pods[-1])
        if life.settled:
            with self._changed:
                self._changed.notify_all()

    def _run(self, life: Life, pod: Raw) -> None:
        """Bind the volume and the Pod, and start the container."""
        (claim,) = (v["persistentVolumeClaim"] for v in pod["spec"]["volumes"] if "persistentVolumeClaim" in v)
        claims = f"/api/v1/namespaces/{self._namespace}/persistentvolumeclaims"
        self._api.patch(f"{claims}/{claim['claimName']}/status", {"status": {"phase": "Bound"}})
        self._kubelet.bind(pod)
        life.expected, life.since = "Running", time.monotonic()
        self._kubelet.run(pod)

    def _end(self, life: Life, pod: Raw) -> None:
        fails = life.fails and len(life.pods) == 1
        life.expected, life.since = "Restarting" if fails else "Complete", time.monotonic()
        self._kubelet.exit(pod, int(fails), "" if fails else summary(done=PAGES))

    def _start_watch(self, path: str, seen: Callable[[Raw], None]) -> None:
        connection = _connection(self._server)
        connection.request("GET", f"{path}?watch=1&resourceVersion=0&timeoutSeconds=86400")
        self._watches.append(connection)
        threading.Thread(target=self._watch, args=(connection, path, seen), name=f"watch {path}", daemon=True).start()

    def _watch(self, connection: http.client.HTTPSConnection, path: str, seen: Callable[[Raw], None]) -> None:
        try:
            for line in connection.getresponse():
                event = json.loads(line)
                if event["type"] not in ("ADDED", "MODIFIED", "DELETED"):
                    raise RuntimeError(f"the fleet's watch says {event}")
                if event["type"] != "DELETED":
                    seen(event["object"])
            raise RuntimeError(f"the fleet's watch of {path} ended")
        except BaseException as error:  # noqa: BLE001 - whatever ends this thread is told by wait()
            if not self._closing:
                self._fail(error)


def make_namespace(server: ApiServer, name: str) -> None:
    """A namespace that enforces the restricted profile, with the account that every Pod needs."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": name, "labels": labels}
    server.admin.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    server.admin.create(f"/api/v1/namespaces/{name}/serviceaccounts", account)


def _connection(server: ApiServer) -> http.client.HTTPSConnection:
    context = ssl.create_default_context(cafile=server.folder / "ca.crt")
    context.load_cert_chain(server.folder / "admin.crt", server.folder / "admin.key")
    return http.client.HTTPSConnection("127.0.0.1", server.port, context=context)
