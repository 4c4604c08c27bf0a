"""The operator while the API server is not itself: it hears again, or it ends; it is never alive and deaf.

Each outage has an operator, a proxy and a namespace of its own, and all happen at the same time: ten minutes of an
operator's time last twenty seconds here, and nobody waits for them more than once. Their full listings are an hour
apart where the watches alone shall be heard again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Self

import pytest
from tests.api.conftest import OPERATOR, Crawl, HastyOperator, Operator, make_namespace
from tests.support.apiserver import ApiServer, wait_until
from tests.support.builders import crawljobs
from tests.support.faultproxy import Cut, Expired, Fault, FaultProxy, Silence, Slow, Status

SPEED = 30
TEN_MINUTES = 600 / SPEED
HEARS_WITHIN = 60 / SPEED
MACHINE = 8.0
"""Seconds that this machine may take for the work itself, which no clock makes faster."""
RARELY = ("--resync", "3600")
WATCHED = {"crawljobs", "persistentvolumeclaims", "pods"}


class Outage:
    """One operator behind its proxy, with one crawl whose Pod waits to be started."""

    def __init__(self, server: ApiServer, name: str, flags: tuple[str, ...]) -> None:
        self.crawl = Crawl(server.admin, make_namespace(server.admin))
        self.proxy = FaultProxy(server, OPERATOR, name)
        self._server, self._flags = server, flags
        self.operator: HastyOperator

    def __enter__(self) -> Self:
        self.proxy.__enter__()
        self.operator = HastyOperator(
            self._server, self.proxy, SPEED, "--namespace", self.crawl.namespace, *self._flags
        )
        self.operator.start()
        self.crawl.apply()
        self.pod = self.crawl.kubelet.new_pod()
        # A claim that is bound, and a Pod that does not run, are looked at again for no other reason than an event.
        self.crawl.bind_volume()
        self.crawl.wait_condition("StorageReady", "True")
        self.watches()
        return self

    def __exit__(self, *_: object) -> None:
        if self.operator.running():
            self.operator.kill()
        self.crawl.api.call("DELETE", crawljobs(self.crawl.namespace))
        self.proxy.__exit__()

    def watches(self, within: float = 60) -> None:
        """All watches are open."""
        wait_until(lambda: set(self.proxy.watching()) >= WATCHED, "all watches", within)

    def hears(self, within: float, what: str) -> None:
        """A CrawlJob, a Pod and a claim are served that begin to be there now."""
        after = self.crawl.beside("after")
        after.apply(storage={"size": "2Gi"})
        wait_until(after.kubelet.pods, f"the Pod of a job that was made after {what}", within + MACHINE)
        self.watches(within + MACHINE)
        self.crawl.kubelet.remove(self.pod)
        wait_until(lambda: self.crawl.status()["restarts"] == 1, f"a Pod's end after {what}", within + MACHINE)
        after.bind_volume("2Gi")
        wait_until(lambda: after.condition("StorageReady")["status"] == "True", "a claim's end", within + MACHINE)


def _endures(fault: Fault, *verbs: str, resource: str = "", flags: tuple[str, ...] = RARELY) -> Callable[..., None]:
    """3: ten minutes of it; afterwards it hears within a minute, or it has ended and hears when it is started again."""

    def happens(server: ApiServer, name: str) -> None:
        with Outage(server, name, flags) as outage:
            operator, proxy = outage.operator, outage.proxy
            with proxy.fault(fault, *verbs, resource=resource) as rule, ExitStack() as more:
                if "watch" not in verbs:
                    more.enter_context(proxy.fault(Expired(), "watch", times=len(WATCHED)))  # so that it lists again
                proxy.cut()
                over = threading.Event()
                operator.at_end(over)
                over.wait(TEN_MINUTES)
            assert rule.hits > 0, "the fault struck"
            if not operator.running():
                assert operator.ended() not in (0, None)
                operator.start()
            outage.hears(HEARS_WITHIN, name)

    return happens


def _loses_one_watch(server: ApiServer, name: str) -> None:
    """3: one watch is given up while another waits for its next attempt, which must not keep the process alive."""
    with Outage(server, name, RARELY) as outage:
        operator, proxy = outage.operator, outage.proxy
        with proxy.fault(Status(503), "watch", resource="pods") as rule:
            proxy.cut("pods")
            wait_until(lambda: rule.hits > 3, "attempts at a watch")
            with proxy.fault(Status(410, "Expired"), "watch", resource="crawljobs"):
                proxy.cut("crawljobs")
                code = wait_until(operator.ended, "the operator's end")
        assert code == 1
        operator.start()
        outage.hears(HEARS_WITHIN, name)


def _is_told_to_stop(server: ApiServer, name: str) -> None:
    """3: SIGTERM while watches wait for their next attempt."""
    with Outage(server, name, RARELY) as outage, outage.proxy.fault(Status(503), "watch") as rule:
        outage.proxy.cut()
        wait_until(lambda: rule.hits > 9, "attempts at watches")
        assert outage.operator.terminate() == 0


def _expires(server: ApiServer, name: str) -> None:
    """3: the ordinary way in which a watch ends, again and again."""
    with Outage(server, name, RARELY) as outage:
        with outage.proxy.fault(Expired(), "watch", times=30) as rule:
            outage.proxy.cut()
            wait_until(lambda: rule.left == 0, "thirty expired watches")
            outage.hears(HEARS_WITHIN, name)
        assert outage.operator.running()


def _falls_silent(server: ApiServer, name: str) -> None:
    """4: watches stand and say nothing, new ones as well; what happens is found by the full listing."""
    with Outage(server, name, ()) as outage, outage.proxy.fault(Silence(), "watch"):
        outage.crawl.beside("after").apply()
        wait_until(outage.crawl.beside("after").kubelet.pods, "the Pod of a new job", 330 / SPEED + MACHINE)
        assert outage.operator.running()


def _freezes(server: ApiServer, name: str) -> None:
    """4: the connections of the watches are dead and nobody says so; new ones are well."""
    with Outage(server, name, RARELY) as outage:
        outage.proxy.freeze()
        outage.hears(70 / SPEED, name)  # the watches' limit of inactivity
        assert outage.operator.running()


def _misses_a_pods_end(server: ApiServer, name: str) -> None:
    """5: a Pod goes while nobody watches, and the version from which to go on watching is too old."""
    with Outage(server, name, ()) as outage:
        proxy = outage.proxy
        with proxy.fault(Status(503), "watch"):
            proxy.cut()
            wait_until(lambda: not WATCHED & set(proxy.watching()), "no watch")
            outage.crawl.kubelet.remove(outage.pod)
        with proxy.fault(Expired(), "watch", times=len(WATCHED)) as rule:
            wait_until(lambda: rule.left == 0, "the expired watches")
            new = wait_until(outage.crawl.kubelet.pods, "a new Pod", 330 / SPEED + MACHINE)
        assert new[0]["metadata"]["uid"] != outage.pod["metadata"]["uid"]
        assert outage.crawl.status()["lastTermination"]["reason"] == "PodDeleted"


def _misses_a_jobs_end(server: ApiServer, name: str) -> None:
    """6: a CrawlJob goes while nobody watches and its restart is due: nothing is done, and soon nothing asked."""
    with Outage(server, name, ("--resync", "60")) as outage:
        crawl, proxy = outage.crawl, outage.proxy
        crawl.edit(restartPolicy={"backoff": {"initialSeconds": 60, "maxSeconds": 60}})
        crawl.kubelet.exit(outage.pod, 1)
        crawl.wait_condition("Restarting", "True", "BackoffWaiting")
        wait_until(lambda: proxy.made("create", resource="events"), "the Event about it, which is its last write")
        with proxy.fault(Status(503), "watch"):
            proxy.cut()
            wait_until(lambda: not WATCHED & set(proxy.watching()), "no watch")
            since = len(proxy.calls)
            crawl.api.delete(crawljobs(crawl.namespace, crawl.name))
            wait_until(lambda: proxy.made("get", resource="crawljobs", since=since), "the restart's time", MACHINE)
        outage.watches(HEARS_WITHIN + MACHINE)

        def listings(number: int) -> int:
            begin = len(proxy.calls)
            wait_until(
                lambda: len(proxy.made("list", resource="crawljobs", since=begin)) >= number,
                "full listings",
                number * 66 / SPEED + MACHINE,
            )
            return begin

        listings(1)  # what was left of it, its Pod and its claim, was seen once more
        begin = listings(3)
        assert proxy.made("get", resource="crawljobs", since=begin) == []
        assert proxy.writes(since) == []
        assert len(crawl.kubelet.pods()) == 1, "the garbage collector's, not ours"


ENDURED: dict[str, Callable[[ApiServer, str], None]] = {
    "http_410_on_watch": _endures(Status(410, "Expired"), "watch"),
    "410_in_the_stream": _expires,
    "503_on_watch": _endures(Status(503), "watch"),
    "500_on_list": _endures(Status(500), "list"),
    "503_on_everything": _endures(Status(503), "watch", "list", "get", "create", "patch", flags=()),
    "403_on_pods_only": _endures(Status(403, "Forbidden"), "watch", "list", resource="pods", flags=()),
    "429_on_watch": _endures(Status(429, "TooManyRequests", retry_after=5), "watch"),
    "429_on_list": _endures(Status(429, "TooManyRequests", retry_after=5), "list"),
    "cut_connections": _endures(Cut(), "watch"),
    "410_on_one_503_on_another": _loses_one_watch,
    "told_to_stop_in_an_outage": _is_told_to_stop,
}
OUTAGES = {
    **ENDURED,
    "silent_watches": _falls_silent,
    "frozen_connections": _freezes,
    "a_pods_end_is_missed": _misses_a_pods_end,
    "a_jobs_end_is_missed": _misses_a_jobs_end,
}


@pytest.fixture(scope="module")
def outages(server: ApiServer, _operator: Operator) -> Iterator[dict[str, Future[None]]]:
    """All outages, begun at once; the session's operator rests."""
    if _operator.running():
        _operator.terminate()
    with ThreadPoolExecutor(len(OUTAGES), "outage") as pool:
        yield {name: pool.submit(happens, server, name) for name, happens in OUTAGES.items()}


@pytest.mark.parametrize("name", ENDURED)
def test_scenario_03_never_alive_and_deaf(outages: dict[str, Future[None]], name: str) -> None:
    """After ten minutes of it, it hears again within one, or it has ended with an error."""
    outages[name].result(110)


@pytest.mark.parametrize("name", ["silent_watches", "frozen_connections"])
def test_scenario_04_silence_is_heard(outages: dict[str, Future[None]], name: str) -> None:
    """Watches that say nothing cost a resync period at most."""
    outages[name].result(110)


def test_scenario_05_a_pods_end_that_was_missed(outages: dict[str, Future[None]]) -> None:
    """The Pod is made anew; no cache remembers the old one."""
    outages["a_pods_end_is_missed"].result(110)


def test_scenario_06_a_jobs_end_that_was_missed(outages: dict[str, Future[None]]) -> None:
    """Nothing more is done for it."""
    outages["a_jobs_end_is_missed"].result(110)


def test_scenario_13_a_slow_api_server_is_no_reason_to_be_restarted(
    server: ApiServer, proxy: FaultProxy, namespace: str
) -> None:
    """``/healthz`` answers at once while every call takes twenty seconds."""
    operator = HastyOperator(server, proxy, 1, "--namespace", namespace)
    operator.start()
    wait_until(lambda: set(proxy.watching()) >= WATCHED, "all watches")
    try:
        with proxy.fault(Slow(20)) as rule:
            proxy.cut()
            Crawl(server.admin, namespace).apply()
            wait_until(lambda: rule.hits >= len(WATCHED), "calls that take long")
            assert all(operator.answers("/healthz", timeout=1) for _ in range(20))
    finally:
        operator.kill()


def test_it_hears_again_after_the_api_server_was_away(server: ApiServer, operator: Operator, crawl: Crawl) -> None:
    """A job that is made right after the outage is served, by the same process."""
    crawl.name = "before"
    crawl.apply(suspend=True)
    crawl.wait_phase("Suspended")
    server.restart_apiserver()
    crawl.api = crawl.kubelet.api = server.admin
    crawl.name = "after"
    crawl.apply()
    wait_until(crawl.kubelet.pods, "the Pod", 60)
    assert operator.running()
    assert operator.answers("/healthz")
