"""An operator that is killed before or after any of its writes, and started again: the job ends up the same.

Real processes and real SIGKILLs, by the proxy in between: when a write has come and was not forwarded, or when it was
carried out and not answered. All that an operator leaves behind is in the API server; so a story in which each process
dies at its first write, in turns before it and after it, is one in which each write is died at in both ways.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from tests.api.conftest import SPEED, Crawl, HastyOperator, make_namespace
from tests.support.apiserver import Api, ApiServer, Raw, wait_until
from tests.support.builders import crawljobs, marker_pod, summary
from tests.support.faultproxy import Call, FaultProxy
from tests.support.podhistory import PodHistory

from crawljob_operator.identity import child_name

MAX_DEATHS = 200
DISRUPTED = [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]
INTERRUPTED = summary("interrupted", "Interrupted", 143)


class Life:
    """One namespace with its own operator, which dies after ``danger`` was called: at each write, or at two."""

    def __init__(self, server: ApiServer, proxy: FaultProxy, number: int | None) -> None:
        """With a ``number``: before that write, and once more after the one that follows."""
        self.namespace = make_namespace(server.admin)
        self.api: Api = server.admin
        self.crawl = Crawl(self.api, self.namespace)
        self.deaths: list[Call] = []
        self.claims: dict[str, set[str]] = {}
        """UIDs of the claims that the Pods of each CrawlJob had."""
        self._proxy, self._number = proxy, number
        self._history = PodHistory(self.api, self.namespace)
        self._operator = HastyOperator(server, proxy, SPEED, "--namespace", self.namespace)
        self._dies = ""
        self._base = 0
        self._struck = threading.Semaphore(0)
        self._over = False

    @contextmanager
    def lived(self) -> Iterator[None]:
        """With an operator that lives, and is started again after each death as a kubelet would."""
        self._proxy.before_write = lambda number, call: self._strike("before", number, call)
        self._proxy.after_write = lambda number, call: self._strike("after", number, call)
        self._operator.launch()
        nurse = threading.Thread(target=self._revive, name="nurse")
        nurse.start()
        try:
            yield
        finally:
            self._over = True
            self._struck.release()
            nurse.join(30)
            self._operator.kill()

    def end(self) -> None:
        """Leave no CrawlJobs behind: they would keep the session's operator busy."""
        self.api.call("DELETE", crawljobs(self.namespace))

    def danger(self) -> None:
        """From here on it dies."""
        self._base, self._dies = self._proxy.written, "before"

    def stop(self) -> None:
        """The operator is gone for now."""
        self._operator.kill()

    def start(self) -> None:
        """And comes back."""
        self._operator.launch()

    def running(self, besides: Raw | None = None, crawl: Crawl | None = None) -> Raw:
        """A new Pod, bound and running, which the operator knows of."""
        crawl = crawl or self.crawl
        pod = crawl.kubelet.new_pod(besides=besides["metadata"]["uid"] if besides else "")
        crawl.kubelet.bind(pod)
        crawl.kubelet.run(pod)
        crawl.wait_phase("Running")
        wait_until(lambda: crawl.status()["currentPod"]["uid"] == pod["metadata"]["uid"], "the Pod in the status")
        name = pod["spec"]["volumes"][1]["persistentVolumeClaim"]["claimName"]
        (claim,) = [claim for claim in crawl.volumes() if claim["metadata"]["name"] == name]
        self.claims.setdefault(crawl.name, set()).add(claim["metadata"]["uid"])
        return pod

    def stopped(self, pod: Raw, crawl: Crawl | None = None) -> None:
        """The kubelet stops a Pod, once the operator has asked for it."""
        crawl = crawl or self.crawl
        crawl.kubelet.wait_stop(pod)
        crawl.kubelet.exit(pod, 143, INTERRUPTED)
        crawl.kubelet.remove(pod)

    def quiet(self) -> None:
        """Wait until a look at the job that needs no write makes none."""

        def silent() -> bool:
            since = len(self._proxy.calls)
            # One reconcile at a time: when the second begins, the first is over.
            for number in (1, 2):
                look = {"metadata": {"labels": {"example.com/look": f"{since}-{number}"}}}
                self.api.patch(crawljobs(self.namespace, self.crawl.name), look)
                wait_until(lambda n=number: self._looks(since) >= n, "a reconcile")  # type: ignore[misc]
            return not self._proxy.writes(since)

        wait_until(silent, "an operator that has nothing more to write")

    def _looks(self, since: int) -> int:
        return sum(c.name == self.crawl.name for c in self._proxy.made("get", resource="crawljobs", since=since))

    def pods(self) -> list[str]:
        """The UIDs of all Pods that were made; never two of a job at once."""
        return self._history.made()

    def _strike(self, when: str, number: int, call: Call) -> bool:
        if when != self._dies or (self._number and when == "before" and number != self._base + self._number):
            return False
        self.deaths.append(call)
        if len(self.deaths) > MAX_DEATHS:
            return False  # the test is about to say that it never becomes quiet
        self._dies = "after" if when == "before" else "" if self._number else "before"
        self._operator.signal_kill()
        self._struck.release()
        return True

    def _revive(self) -> None:
        while True:
            self._struck.acquire()
            if self._over:
                return
            self._operator.kill()
            self._operator.launch()


@dataclass(frozen=True)
class End:
    """What a story leads to, however often the operator died in it; each CrawlJob had so many ``claims``."""

    restarts: int
    failures: int
    claims: int = 1


def failure(life: Life) -> End:
    """1: an end that is counted, a wait, and a successor that finishes."""
    life.danger()
    life.crawl.apply()
    first = life.running()
    life.crawl.kubelet.exit(first, 1)
    second = life.running(besides=first)
    life.crawl.kubelet.exit(second, 0, summary(done=5))
    status = life.crawl.wait_phase("Complete")
    assert status["progress"]["done"] == 5
    return End(1, 1)


def absence(life: Life) -> End:
    """2: while the operator is away a Pod fails, another spec is edited, one job is made and one deleted."""
    edited, deleted, made = (life.crawl.beside(name) for name in ("edited", "deleted", "made"))
    failed = life.crawl = life.crawl.beside("failed")
    pods = {}
    for crawl in (failed, edited, deleted):
        crawl.apply()
        pods[crawl.name] = life.running(crawl=crawl)
    life.stop()
    failed.kubelet.exit(pods["failed"], 1)
    edited.edit(scope={"maxPages": 5})
    made.apply()
    deleted.api.delete(crawljobs(life.namespace, "deleted"))
    life.danger()
    life.start()
    life.stopped(pods["edited"], edited)
    for crawl in (failed, edited):
        life.running(besides=pods[crawl.name], crawl=crawl)
    life.running(crawl=made)
    life.crawl = failed
    status = edited.status()
    assert (status["restarts"], status["lastTermination"]["reason"]) == (1, "SpecChanged")
    assert [p["metadata"]["uid"] for p in deleted.kubelet.pods()] == [pods["deleted"]["metadata"]["uid"]]
    return End(1, 1)


def missed(life: Life) -> End:
    """5: a Pod is gone at once, and nobody saw how."""
    life.crawl.apply()
    pod = life.running()
    life.danger()
    life.crawl.kubelet.remove(pod)
    life.running(besides=pod)
    return End(1, 0)


def deletion(life: Life) -> End:
    """16, 17: somebody deletes the Pod, which takes its time."""
    life.crawl.apply()
    pod = life.running()
    life.danger()
    life.crawl.api.delete(f"/api/v1/namespaces/{life.namespace}/pods/{pod['metadata']['name']}")
    life.crawl.wait_condition("Ready", "False", "PodTerminating")
    life.stopped(pod)
    life.running(besides=pod)
    return End(1, 0)


def eviction(life: Life) -> End:
    """20: an evicted crawler exits with 0 and has work left."""
    life.crawl.apply()
    pod = life.running()
    life.danger()
    life.crawl.kubelet.exit(pod, 0, conditions=DISRUPTED)
    life.running(besides=pod)
    return End(1, 0)


def conflict(life: Life) -> End:
    """31: somebody's Pod has our name, for a while."""
    made = life.crawl.apply(suspend=True)
    life.crawl.wait_phase("Suspended")
    life.danger()
    name = child_name(life.crawl.name, made["metadata"]["uid"])
    theirs = life.api.create(f"/api/v1/namespaces/{life.namespace}/pods", marker_pod(name))
    life.crawl.edit(suspend=False)
    life.crawl.wait_condition("Stalled", "True", "PodConflict")
    life.crawl.kubelet.remove(theirs)
    life.running()
    return End(0, 0)


def edit(life: Life) -> End:
    """35: an edit that shapes the Pod."""
    life.crawl.apply()
    pod = life.running()
    life.danger()
    life.crawl.edit(scope={"maxPages": 5})
    life.stopped(pod)
    life.running(besides=pod)
    assert life.crawl.status()["lastTermination"]["reason"] == "SpecChanged"
    wait_until(lambda: len(life.crawl.configs()) == 1, "the old ConfigMap's end")
    return End(1, 0)


def request(life: Life) -> End:
    """46: a restart that somebody asks for."""
    life.crawl.apply()
    pod = life.running()
    life.danger()
    life.crawl.edit(restartRequestedAt="2031-01-01T00:00:00Z")
    life.stopped(pod)
    life.running(besides=pod)
    assert life.crawl.status()["lastTermination"]["reason"] == "RestartRequested"
    return End(1, 0)


def growth(life: Life) -> End:
    """51: a volume that grows."""
    made: Raw = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": life.namespace}}
    made |= {"provisioner": "example.com/disks", "allowVolumeExpansion": True}
    life.api.create("/apis/storage.k8s.io/v1/storageclasses", made)
    life.crawl.apply(storage={"storageClassName": life.namespace})
    life.crawl.kubelet.new_pod()
    life.crawl.bind_volume()
    life.crawl.wait_condition("StorageReady", "True")
    life.danger()
    life.crawl.edit(storage={"size": "3Gi"})

    def grown() -> bool:
        return bool(life.crawl.volumes()[0]["spec"]["resources"]["requests"]["storage"] == "3Gi")

    wait_until(grown, "a claim that asks for more")
    life.running()
    return End(0, 0)


def suspension(life: Life) -> End:
    """36: suspended and resumed."""
    life.crawl.apply()
    pod = life.running()
    life.danger()
    life.crawl.edit(suspend=True)
    life.stopped(pod)
    life.crawl.wait_condition("Suspended", "True")
    life.crawl.edit(suspend=False)
    life.running()
    assert life.crawl.status()["lastTermination"]["reason"] == "Suspended"
    return End(1, 0)


def recreation(life: Life) -> End:
    """39: deleted and made again under the same name: nothing of the old one is adopted."""
    life.crawl.apply()
    pod = life.running()
    life.crawl.kubelet.exit(pod, 1)
    wait_until(lambda: life.crawl.status().get("restarts") == 1, "the end in the status")
    old = {item["metadata"]["uid"] for item in (*life.crawl.volumes(), pod)}
    life.danger()
    life.api.delete(crawljobs(life.namespace, life.crawl.name))
    # No garbage collector runs here; it would remove these in the background.
    for volume in life.crawl.volumes():
        path = f"/api/v1/namespaces/{life.namespace}/persistentvolumeclaims/{volume['metadata']['name']}"
        life.api.patch(path, {"metadata": {"finalizers": None}})
        life.api.delete(path)
    life.crawl.apply()
    life.crawl.kubelet.remove(pod)
    new = life.running()
    assert not old & {item["metadata"]["uid"] for item in (*life.crawl.volumes(), new)}
    return End(0, 0, claims=2)


def loss(life: Life) -> End:
    """48: the volume is deleted under a running Pod; a new one is made when it is gone, and not silently."""
    life.crawl.apply()
    pod = life.running()
    (volume,) = life.crawl.volumes()
    path = f"/api/v1/namespaces/{life.namespace}/persistentvolumeclaims/{volume['metadata']['name']}"
    life.danger()
    life.api.delete(path)
    life.crawl.wait_condition("StorageReady", "False", "PVCTerminating")
    life.crawl.kubelet.exit(pod, 1)
    life.crawl.wait_condition("Ready", "False", "PVCTerminating")
    assert life.crawl.kubelet.pods() == []
    life.api.patch(path, {"metadata": {"finalizers": None}})
    life.running(besides=pod)
    return End(1, 1, claims=2)


STORIES = (
    failure, absence, missed, deletion, eviction, conflict, edit, request, growth, suspension, recreation, loss,
)  # fmt: skip


@pytest.mark.parametrize("story", STORIES, ids=lambda story: str(story.__name__))
def test_scenario_01_no_operator_survives_a_write(
    server: ApiServer, proxy: FaultProxy, story: Callable[[Life], End]
) -> None:
    """Each write is died at, before it and after it."""
    deaths = live(server, proxy, story)
    assert len(deaths) >= 6, "it has written"


def test_scenario_01_an_operator_dies_at_any_one_write(server: ApiServer, proxy: FaultProxy) -> None:
    """The same in the middle of a process's life, for each write of the longest story about one Pod after the other."""
    number = 1
    while live(server, proxy, failure, number):
        number += 1
    assert number > 10, "it has written"


def live(server: ApiServer, proxy: FaultProxy, story: Callable[[Life], End], number: int | None = None) -> list[Call]:
    """One Pod at a time, each end entered once, the same volume, and then no more writes; returns the deaths."""
    life = Life(server, proxy, number)
    try:
        with life.lived():
            end = story(life)
            life.quiet()
        judge(life, end)
    except AssertionError as error:
        raise AssertionError(f"after deaths at {life.deaths}: {error}") from error
    finally:
        life.end()
    return life.deaths


def judge(life: Life, end: End) -> None:
    """What holds at the end of each life."""
    made, status = life.pods(), life.crawl.status()
    entered = [termination["podUID"] for termination in status.get("history", [])]
    assert (status["restarts"], status["consecutiveFailures"]) == (end.restarts, end.failures), status
    assert len(entered) == len(set(entered)), f"an end was entered twice: {entered}"
    assert set(entered) <= set(made)
    assert [len(claims) for claims in life.claims.values()] == [end.claims] * len(life.claims), life.claims
