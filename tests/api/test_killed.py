"""An operator that dies before or after any one of its writes: the job ends up the same.

The reconciler runs in this process, against the real API server, with its own clock; the operator of the session rests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kubernetes.aio import client, config
from tests.api.conftest import OPERATOR, Crawl
from tests.support.apiserver import ApiServer, Raw
from tests.support.builders import summary

from crawljob_operator.kube import Kube
from crawljob_operator.netsettings import NetworkSettings
from crawljob_operator.progress import ProgressReader
from crawljob_operator.reconcile import Reconciler
from crawljob_operator.workqueue import Key

WRITES = 15  # of an undisturbed life with one failure, Events included
IMAGE = "registry.example/crawler:1"


class Killed(BaseException):
    """The process is gone: nothing catches this."""


class MortalKube(Kube):
    """Dies at one write, before it is sent or after it was carried out."""

    def __init__(self, configuration: client.Configuration) -> None:
        super().__init__(configuration)
        self.writes = 0
        self.fatal: tuple[int, str] = (0, "")

    async def _call(self, method: str, path: str, **more: Any) -> Raw:
        if method == "GET":
            return await super()._call(method, path, **more)
        self.writes += 1
        if self.fatal == (self.writes, "before"):
            raise Killed
        answer = await super()._call(method, path, **more)
        if self.fatal == (self.writes, "after"):
            raise Killed
        return answer


class Life:
    """Reconciles one job until nothing more is to be done, with a new operator after each death."""

    def __init__(self, kube: MortalKube, progress: ProgressReader, crawl: Crawl) -> None:
        self._kube, self._progress = kube, progress
        self._key = Key(crawl.namespace, crawl.name)
        self._late = timedelta()
        self.deaths = 0
        self._born()

    def _born(self) -> None:
        self._reconciler = Reconciler(
            self._kube, self._progress, IMAGE, NetworkSettings(), clock=lambda: datetime.now(UTC) + self._late
        )

    async def settle(self) -> None:
        """Reconcile for as long as there is something to do at once."""
        for _ in range(20):
            try:
                if await self._reconciler.reconcile(self._key) != 0.0:
                    return
            except Killed:
                self.deaths += 1
                self._born()
        raise AssertionError("it never comes to rest")

    async def wait(self, seconds: float) -> None:
        """Let time pass."""
        self._late += timedelta(seconds=seconds)
        await self.settle()
        await self.settle()


@pytest.fixture
async def kube(server: ApiServer) -> AsyncIterator[MortalKube]:
    """A client with the operator's own rights."""
    configuration = client.Configuration()
    await config.load_kube_config(str(server.kubeconfig(OPERATOR)), client_configuration=configuration)  # type: ignore[no-untyped-call]
    async with MortalKube(configuration) as mortal:
        yield mortal


@pytest.mark.usefixtures("resting")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, WRITES + 1))
async def test_a_death_at_any_write_changes_nothing(kube: MortalKube, crawl: Crawl, number: int, when: str) -> None:
    """One Pod at a time, each end counted once, the same volume, and the same result."""
    kube.fatal = (number, when)
    assert await live(kube, crawl) == 1, "this write exists"


@pytest.mark.usefixtures("resting")
async def test_these_are_all_writes(kube: MortalKube, crawl: Crawl) -> None:
    """So that the rows above leave none out."""
    assert await live(kube, crawl) == 0
    assert kube.writes == WRITES


async def live(kube: MortalKube, crawl: Crawl) -> int:
    """One life with a failure and a good end; returns the operator's deaths."""
    crawl.apply()
    async with ProgressReader(30) as progress:
        life = Life(kube, progress, crawl)
        await life.settle()
        (first,) = crawl.kubelet.pods()
        (volume,) = crawl.volumes()
        crawl.kubelet.exit(first, 1)
        await life.settle()
        await life.settle()
        assert [p["metadata"]["uid"] for p in crawl.kubelet.pods()] == [first["metadata"]["uid"]]
        await life.wait(3)
        (second,) = crawl.kubelet.pods()
        assert second["metadata"]["uid"] != first["metadata"]["uid"]
        crawl.kubelet.exit(second, 0, summary(done=5))
        await life.settle()
        await life.settle()
    status = crawl.status()
    assert (status["phase"], status["restarts"], status["progress"]["done"]) == ("Complete", 1, 5)
    assert [end["podUID"] for end in status["history"]] == [p["metadata"]["uid"] for p in (second, first)]
    assert [claim["metadata"]["uid"] for claim in crawl.volumes()] == [volume["metadata"]["uid"]]
    return life.deaths
