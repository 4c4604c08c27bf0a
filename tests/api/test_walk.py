"""A random walk through everything that can happen to a CrawlJob, on a real API server; a failure prints its seed.

The reconciler runs in this process with a clock of its own, so that days pass in seconds: it dies at any of its writes,
does not hear of what happens, and has a clock that is wrong. After each step what must always hold is judged, and after
each row of steps what must hold once everything has been heard.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kubernetes.aio import client, config
from tests.api.conftest import OPERATOR, Crawl, Operator, make_namespace
from tests.support.apiserver import ApiServer, Raw
from tests.support.builders import crawljobs, summary
from tests.support.podhistory import PodHistory

from crawljob.exitcodes import ExitCode
from crawljob_operator import names, times
from crawljob_operator.kube import Kube
from crawljob_operator.netsettings import NetworkSettings
from crawljob_operator.progress import ProgressReader
from crawljob_operator.reconcile import Reconciler
from crawljob_operator.workqueue import Key

SEEDS = (1, 2, 3, 4)
STEPS = 500
ROW = 25
MAX_WAIT = 60
LONGEST = timedelta(seconds=1.1 * MAX_WAIT + 61)  # with jitter, and two clocks that are wrong by half a minute
EXITS = (0, 1, 1, 1, ExitCode.OUT_OF_DISK, ExitCode.OWNED, 137, ExitCode.SIGTERM)


class Killed(BaseException):
    """The process is gone: nothing catches this."""


class MortalKube(Kube):
    """Dies at one of its writes, before it is sent or after it was carried out."""

    def __init__(self, configuration: client.Configuration) -> None:
        super().__init__(configuration)
        self.writes = 0
        self.last_write = ""
        self.fatal: tuple[int, str] = (0, "")

    async def _call(self, method: str, path: str, **more: Any) -> Raw:
        if method == "GET":
            return await super()._call(method, path, **more)
        self.writes += 1
        self.last_write = f"{method} {path} {more.get('body')}"
        if self.fatal == (self.writes, "before"):
            raise Killed
        answer = await super()._call(method, path, **more)
        if self.fatal == (self.writes, "after"):
            raise Killed
        return answer


class Walk:
    """One CrawlJob after the other under one name, with an operator and a kubelet."""

    def __init__(self, kube: MortalKube, progress: ProgressReader, crawl: Crawl, seed: int) -> None:
        self._kube, self._progress, self.crawl = kube, progress, crawl
        self._key = Key(crawl.namespace, crawl.name)
        self._random = random.Random(seed)
        self._late = self._skew = timedelta()
        self.deaf_until = 0
        self.step = 0
        self.done: list[str] = []
        self._operator()
        self._new_job()

    def now(self) -> datetime:
        """True time, in which hours pass."""
        return datetime.now(UTC) + self._late

    def _operator(self) -> None:
        self._reconciler = Reconciler(
            self._kube,
            self._progress,
            "registry.example/crawler:1",
            NetworkSettings(),
            clock=lambda: self.now() + self._skew,
        )
        self._due: datetime | None = None

    def _new_job(self) -> None:
        self.crawl.kubelet.now = self.now
        policy = {"backoffLimit": 4, "backoff": {"initialSeconds": 10, "maxSeconds": MAX_WAIT}}
        self.uid = str(self.crawl.apply(restartPolicy=policy)["metadata"]["uid"])
        self.entered: dict[str, Raw] = {}
        self.recorded: set[str] = set()
        self.claims_deleted = 0
        self.claims: list[str] = []
        self.see()

    async def look(self) -> None:
        """The operator does all that is to be done at once, unless it dies; then its successor does."""
        for _ in range(40):
            try:
                wait = await self._reconciler.reconcile(self._key)
            except Killed:
                self.done.append("(killed)")
                self._operator()
                continue
            if wait != 0.0:
                self._due = None if wait is None else self.now() + timedelta(seconds=wait)
                return
        raise AssertionError("it never comes to rest")

    async def take_step(self) -> None:
        """Something happens; the operator hears of it, or not."""
        self.step += 1
        happen = self._random.choice(self._possible())  # judged by what the last step has seen
        self.done.append(happen.__name__.strip("_"))
        happen()
        if (self._due is not None and self._due <= self.now()) or self.step >= self.deaf_until:
            await self.look()
        self.judge()

    async def settle(self) -> None:
        """Everything is heard; the kubelet and the controllers finish what was begun."""
        self.deaf_until, self._kube.fatal = 0, (0, "")
        for _ in range(6):
            self.see()
            self._finish_deletions()
            await self.look()
            self._late += timedelta(seconds=2 * MAX_WAIT)
        await self.look()
        self.judge()
        before = self._kube.writes
        await self.look()
        assert self._kube.writes == before, f"not quiet: {self._kube.last_write}"
        self._judge_rest()

    def _possible(self) -> list[Any]:
        """What can happen, as often as its weight says: Pods live long enough to end by themselves as a rule."""
        weights: dict[Any, int] = {
            self._time_passes: 4,
            self._kill: 2 if self._kube.fatal[0] <= self._kube.writes else 0,
            self._cut_watch: 2,
            self._clock_skew: 2,
            self._edit: 1,
            self._edit_of_no_weight: 1,
            self._request_restart: 1,
        }
        suspended = self.job["spec"].get("suspend")
        weights |= {self._resume: 8} if suspended else {self._suspend: 1}
        if any("deletionTimestamp" in volume["metadata"] for volume in self.volumes):
            weights[self._finish_deletions] = 4
        elif self.volumes:
            weights[self._delete_volume] = 1
        if self.pod is not None:
            weights |= {self._delete_pod: 1, self._lose_pod: 1}
            phase, bound = self.pod["status"]["phase"], "nodeName" in self.pod["spec"]
            if "deletionTimestamp" in self.pod["metadata"]:
                weights[self._finish_deletions] = 8
            elif not bound:
                weights[self._bind] = 12
            elif phase == "Pending":
                weights[self._run] = 12
            if phase == "Running":
                weights |= {self._exit: 12, self._evict: 4}
        return [what for what, weight in weights.items() for _ in range(weight)]

    def see(self) -> None:
        """Read what there is."""
        pods = [p for p in self.crawl.kubelet.pods() if p["metadata"]["labels"][names.LABEL_UID] == self.uid]
        assert len(pods) <= 1, "at most one Pod"
        self.pod = pods[0] if pods else None
        self.volumes = [v for v in self.crawl.volumes() if v["metadata"]["labels"][names.LABEL_UID] == self.uid]
        self.job = self.crawl.get()

    def _present(self) -> Raw:
        assert self.pod is not None, "chosen only where there is one"
        return self.pod

    def _time_passes(self) -> None:
        self._late += timedelta(seconds=self._random.choice((1, 10, 60, 700)))

    def _kill(self) -> None:
        self._kube.fatal = (self._kube.writes + self._random.randint(1, 5), self._random.choice(("before", "after")))

    def _cut_watch(self) -> None:
        self.deaf_until = self.step + self._random.randint(1, 6)

    def _clock_skew(self) -> None:
        self._skew = timedelta(seconds=self._random.randint(-30, 30))

    def _bind(self) -> None:
        self.crawl.kubelet.bind(self._present())

    def _run(self) -> None:
        self.crawl.kubelet.run(self._present())

    def _exit(self) -> None:
        code = self._random.choice(EXITS)
        self.crawl.kubelet.exit(self._present(), code, summary() if code == 0 and self._random.random() < 0.3 else "")

    def _evict(self) -> None:
        target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        self.crawl.kubelet.exit(self._present(), self._random.choice((0, 137, 143)), conditions=[target])

    def _delete_pod(self) -> None:
        self.crawl.api.delete(self._path("pods", self._present()))

    def _lose_pod(self) -> None:
        self.crawl.kubelet.remove(self._present())

    def _delete_volume(self) -> None:
        self.claims_deleted += 1
        self.crawl.api.delete(self._path("persistentvolumeclaims", self.volumes[0]))

    def _finish_deletions(self) -> None:
        pod = self.pod
        if pod is not None and "deletionTimestamp" in pod["metadata"]:
            self.crawl.kubelet.remove(pod)
            pod = None
        for claim in self.volumes:
            if "deletionTimestamp" in claim["metadata"] and (pod is None or pod["status"]["phase"] == "Failed"):
                path = self._path("persistentvolumeclaims", claim)
                self.crawl.api.patch(path, {"metadata": {"finalizers": None}})

    def _edit(self) -> None:
        self.crawl.edit(scope={"maxPages": self._random.randint(1, 3)})

    def _edit_of_no_weight(self) -> None:
        self.crawl.edit(ttlSecondsAfterFinished=self._random.choice((None, 10**8)))

    def _suspend(self) -> None:
        self.crawl.edit(suspend=True)

    def _resume(self) -> None:
        self.crawl.edit(suspend=False)

    def _request_restart(self) -> None:
        self.crawl.edit(restartRequestedAt=times.text(self.now()))

    def _path(self, plural: str, item: Raw) -> str:
        return f"/api/v1/namespaces/{self.crawl.namespace}/{plural}/{item['metadata']['name']}"

    def judge(self) -> None:
        """What always holds."""
        self.see()
        status = self.job.get("status", {})
        history = status.get("history", [])
        for end in history:
            known = self.entered.setdefault(end["podUID"], end)
            assert known == end, "an end is entered once and not changed"
        if "currentPod" in status:
            self.recorded.add(status["currentPod"]["uid"])
        uids = [end["podUID"] for end in history]
        assert len(uids) == len(set(uids)), "each end once"
        finished = sum(end.get("exitCode") == 0 and end["reason"] == "CrawlFinished" for end in self.entered.values())
        assert status.get("restarts", 0) == len(self.entered) - finished, "restarts are the ends that were not the last"
        assert status.get("consecutiveFailures", 0) <= sum(end["counted"] for end in self.entered.values())
        due = times.parse(status.get("nextRestartTime"))
        assert due is None or due - self.now() <= timedelta(seconds=1.1 * MAX_WAIT + 61), (
            "no wait is lost in the future"
        )
        for claim in self.volumes:
            if claim["metadata"]["uid"] not in self.claims:
                self.claims.append(claim["metadata"]["uid"])
        assert len(self.claims) <= 1 + self.claims_deleted, "the claim stays"

    def _judge_rest(self) -> None:
        """What holds when all is heard and done."""
        status, pod = self.job["status"], self.pod
        alive = {pod["metadata"]["uid"]} if pod else set()
        assert self.recorded - alive <= set(self.entered), "no end of a recorded Pod is lost"
        if status["phase"] in ("Complete", "Failed"):
            return
        if self.job["spec"].get("suspend"):
            assert (status["phase"], pod) == ("Suspended", None)
            return
        assert pod is not None, status
        assert pod["metadata"]["uid"] == status["currentPod"]["uid"]
        assert pod["status"]["phase"] in ("Pending", "Running")

    def start_anew(self) -> None:
        """A finished job makes room for the next; the garbage collector's work is done here."""
        if self.job["status"]["phase"] not in ("Complete", "Failed") or self._random.random() < 0.3:
            return
        self.done.append("(a new job)")
        self.crawl.api.delete(crawljobs(self.crawl.namespace, self.crawl.name))
        self._new_job()


async def walk(server: ApiServer, seed: int) -> None:
    """One walk, in a namespace of its own."""
    crawl = Crawl(server.admin, make_namespace(server.admin))
    history = PodHistory(crawl.api, crawl.namespace)
    configuration = client.Configuration()
    await config.load_kube_config(str(server.kubeconfig(OPERATOR)), client_configuration=configuration)  # type: ignore[no-untyped-call]
    async with MortalKube(configuration) as kube, ProgressReader(30) as progress:
        going = Walk(kube, progress, crawl, seed)
        try:
            while going.step < STEPS:
                for _ in range(ROW):
                    await going.take_step()
                await going.settle()
                going.start_anew()
                made = history.made()
        except Exception as error:
            last = ", ".join(going.done[-40:])
            raise AssertionError(f"seed {seed}, step {going.step}, after {last}: {error!r}") from error
        finally:
            crawl.api.call("DELETE", crawljobs(crawl.namespace))
    assert len(made) > STEPS / 20, "Pods came and went"


@pytest.fixture(scope="module")
def walks(server: ApiServer, _operator: Operator) -> Iterator[dict[int, Future[None]]]:
    """All walks at once; the session's operator rests."""
    if _operator.running():
        _operator.terminate()
    with ThreadPoolExecutor(len(SEEDS), "walk") as pool:
        yield {seed: pool.submit(lambda s=seed: asyncio.run(walk(server, s))) for seed in SEEDS}  # type: ignore[misc]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_walk(walks: dict[int, Future[None]], seed: int) -> None:
    """One Pod at a time, each end once, the same claim; and, when all is heard, where it should be, and quiet."""
    walks[seed].result(280)
