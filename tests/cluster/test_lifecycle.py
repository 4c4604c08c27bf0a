"""A crawl's life on a real node: stopped, deleted, evicted, suspended, asked for again, and its operator with it.

In a namespace that enforces the restricted profile of the Pod Security Standards, so every Pod here fits it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

import pytest
from tests.support import product, stories
from tests.support.cluster import testbed
from tests.support.product import Job
from tests.support.stories import SLOWLY, Place

OPERATOR_POD = ("pod", "-l", f"app.kubernetes.io/instance={product.RELEASE}", "-n", product.NAMESPACE)

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        testbed.mode() == "existing", reason="an existing cluster has no outside world to serve the site from"
    ),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    product.install()
    with stories.place(tmp_path_factory.mktemp("site")) as made:
        yield made


def begun(job: Job, pages: int = 4) -> str:
    """Wait until some pages are done; the UID of the Pod that did them."""
    job.until(lambda: job.done() >= pages, 90, f"{pages} pages done")
    return uid(job)


def uid(job: Job) -> str:
    """UID of its Pod; empty while there is none."""
    found: str = job.pod.get("metadata", {}).get("uid", "")
    return found


def restarted(job: Job) -> None:
    """Wait until an end is entered. The backoff is long enough to look at what the ended Pod has left behind."""
    job.until(lambda: job.status.get("restarts") == 1, 60, "one restart")


def complete(job: Job, pages: int) -> None:
    """Wait for the end of the crawl, and look whether all of it is there."""
    job.wait("Complete", 120)
    assert job.frontier().broken_invariants() == []
    assert job.status["progress"]["done"] == pages


# -- told side by side ------------------------------------------------------------------------------------------------


def an_undisturbed_crawl_exits_with_0(place: Place) -> None:
    job = place.apply("undisturbed")
    complete(job, place.pages)
    (end,) = job.status["history"]
    assert (end["exitCode"], end["reason"], end["podUID"]) == (0, "CrawlFinished", job.status["currentPod"]["uid"])
    assert job.status["restarts"] == 0


def sigterm_with_work_left_exits_with_143(place: Place) -> None:
    job = place.apply("interrupted", restartPolicy={"backoff": {"initialSeconds": 5}}, **SLOWLY)
    begun(job)
    (pod,) = job.owned("pod")
    testbed.kill_container(pod, place.namespace, "crawler", signal="TERM")
    restarted(job)
    assert job.frontier().snapshot().leased == 0, "what was in flight was given back"
    end = job.status["lastTermination"]
    assert (end["exitCode"], end["reason"], end["counted"]) == (143, "Interrupted", False)
    assert job.status["consecutiveFailures"] == 0
    complete(job, place.pages)
    assert place.asked("interrupted").total() <= place.pages + 2, "robots.txt, and what was in flight"


def a_deleted_pod_comes_back_uncounted(place: Place) -> None:
    job = place.apply("deleted-pod", restartPolicy={"backoff": {"initialSeconds": 5}}, **SLOWLY)
    before = begun(job)
    claims = job.owned("pvc")
    testbed.kubectl("delete", "pod", *job.owned("pod"), "-n", place.namespace, "--wait=false")
    restarted(job)
    job.until(lambda: not uid(job), 30, "the Pod to go")
    assert job.frontier().snapshot().leased == 0
    end = job.status["lastTermination"]
    assert (end["podUID"], end["reason"], end["counted"]) == (before, "PodDeleted", False)
    assert end.get("exitCode", 143) == 143, "the kubelet may take the Pod away before its end is seen"
    complete(job, place.pages)
    assert (job.status["restarts"], job.status["consecutiveFailures"], job.owned("pvc")) == (1, 0, claims)


def a_suspended_crawl_goes_on_where_it_was(place: Place) -> None:
    job = place.apply("suspended", **SLOWLY)
    begun(job)
    job.edit(suspend=True)
    job.wait("Suspended", 60)
    assert job.condition("Ready")["status"] == "True", "it is as it was asked to be"
    assert not job.owned("pod")
    (claim,) = job.owned("pvc")
    left = job.frontier().snapshot()
    assert (left.leased, 4 <= left.done < place.pages) == (0, True)
    end = job.status["lastTermination"]
    assert (end["reason"], end["counted"]) == ("Suspended", False)
    job.edit(suspend=False)
    complete(job, place.pages)
    assert job.owned("pvc") == [claim]
    asked = place.asked("suspended")
    assert asked.pop("/robots.txt") == 1
    assert asked.total() <= place.pages + 1, "what was in flight"


def failed_pages_are_tried_again_when_it_is_asked_for(place: Place) -> None:
    job = place.apply("again", stories.FLAKY, fetch={"retries": 0})
    job.wait("Complete", 90)
    assert job.status["progress"]["failed"] == 1
    assert "1 of them failed" in job.condition("Complete")["message"]
    (place.site.root / stories.MENDED).touch()
    job.edit(restartRequestedAt="once more")
    job.until(lambda: job.status.get("observedRestartRequest") == "once more", 60, "the request to be followed")
    complete(job, place.pages + 1)
    assert job.status["progress"]["failed"] == 0
    asked = place.asked("again")
    assert asked.pop(stories.FLAKY) == 2
    assert set(asked.values()) == {1}, "no other page is asked for again"


def a_finished_job_is_deleted_when_its_time_is_over(place: Place) -> None:
    job = place.apply("short-lived", ttlSecondsAfterFinished=3)
    job.wait("Complete", 90)
    assert job.owned("pvc")
    testbed.kubectl("wait", "--for=delete", "crawljob/short-lived", "-n", place.namespace, "--timeout=60s", timeout=70)
    job.until(lambda: not job.owned("pvc") and not job.owned("pod"), 60, "volume and Pod to go")


def a_retained_volume_serves_another_job(place: Place) -> None:
    storage = {"whenDeleted": "Retain"}
    first = place.apply("retained", storage=storage, **SLOWLY)
    begun(first)
    claim, reader = first.claim, first.frontier()
    testbed.delete("crawljob", "retained", "-n", place.namespace)
    first.until(lambda: not first.owned("pod"), 60, "the Pod to go")
    left = reader.snapshot()
    assert (left.leased, 4 <= left.done < place.pages) == (0, True)
    # Of the same name, so that the site's log has both in one.
    second = place.apply("retained", storage={"existingClaim": claim})
    second.wait("Complete", 90)
    assert second.status["progress"]["done"] == place.pages
    assert reader.broken_invariants() == []
    asked = place.asked("retained")
    assert asked.pop("/robots.txt") == 1
    assert asked.total() <= place.pages + 1, "what was done is not asked for again"


def a_volume_that_cannot_grow_stops_nothing(place: Place) -> None:
    job = place.apply("growing", **SLOWLY)
    before = begun(job)
    job.edit(storage={"size": "3Gi"})
    job.until(lambda: job.condition("StorageReady")["reason"] == "ResizePending", 30, "the refusal to be told")
    job.until(lambda: "support resize" in job.condition("StorageReady")["message"], 30, "the API server's words")
    assert job.condition("StorageReady")["status"] == "False"
    complete(job, place.pages)
    assert (uid(job), job.status["restarts"]) == (before, 0)


STORIES: tuple[Callable[[Place], None], ...] = (
    a_suspended_crawl_goes_on_where_it_was,
    a_retained_volume_serves_another_job,
    a_deleted_pod_comes_back_uncounted,
    sigterm_with_work_left_exits_with_143,
    a_volume_that_cannot_grow_stops_nothing,
    failed_pages_are_tried_again_when_it_is_asked_for,
    a_finished_job_is_deleted_when_its_time_is_over,
    an_undisturbed_crawl_exits_with_0,
)


@pytest.fixture(scope="module")
def told(place: Place) -> Iterator[Callable[[Callable[[Place], None]], None]]:
    with stories.told(STORIES, place, limit_seconds=280) as tell:
        yield tell


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_story(story: Callable[[Place], None], told: Callable[[Callable[[Place], None]], None]) -> None:
    told(story)


# -- one after the other: these disturb the operator or the node ------------------------------------------------------


def test_a_drained_node_costs_a_restart_that_is_not_counted(place: Place) -> None:
    """`kubectl drain` itself, through the eviction API; while the node is closed the status says so."""
    job = place.apply("drained", **SLOWLY)
    before = begun(job)
    node, claims = job.pod["spec"]["nodeName"], job.owned("pvc")
    ours = f"--pod-selector=durable-crawler.io/crawljob-uid={job.live['metadata']['uid']}"
    try:
        testbed.kubectl("drain", node, ours, "--delete-emptydir-data", "--timeout=60s", timeout=70)
        job.until(lambda: job.condition("Ready")["reason"] == "Unschedulable", 60, "the scheduler's verdict")
        assert "unschedulable" in job.condition("Ready")["message"], "in the scheduler's own words"
    finally:
        testbed.kubectl("uncordon", node)
    complete(job, place.pages)
    (end,) = (end for end in job.status["history"] if end["podUID"] == before)
    assert (end["reason"], end["counted"]) == ("EvictionByEvictionAPI", False)
    assert (job.status["restarts"], job.status["consecutiveFailures"], job.owned("pvc")) == (1, 0, claims)


def test_a_new_operator_takes_over_what_runs(place: Place) -> None:
    """The same Pod goes on."""
    job = place.apply("rolled", **SLOWLY)
    before = begun(job)
    testbed.kubectl("rollout", "restart", *product.OPERATOR)
    testbed.kubectl("rollout", "status", *product.OPERATOR, "--timeout=90s", timeout=100)
    assert uid(job) == before
    complete(job, place.pages)
    assert (uid(job), job.status["restarts"], job.status["attempt"]) == (before, 0, 1)


def test_an_operator_killed_in_mid_backoff_keeps_the_appointment(place: Place) -> None:
    """What it has written is all that it needs: the end is counted once, and the next Pod comes in time."""
    job = place.apply("backoff", restartPolicy={"backoff": {"initialSeconds": 8}}, **SLOWLY)
    before = begun(job)
    (pod,) = job.owned("pod")
    testbed.kill_container(pod, place.namespace, "crawler")
    restarted(job)
    due = job.status["nextRestartTime"]
    assert (job.status["lastTermination"]["exitCode"], job.status["consecutiveFailures"]) == (137, 1)
    (operator,) = testbed.get_json(*OPERATOR_POD)["items"]
    testbed.kill_container(operator["metadata"]["name"], product.NAMESPACE, "operator")
    job.until(lambda: uid(job) not in ("", before), 60, "the next Pod")
    made = job.pod["metadata"]["creationTimestamp"]
    assert datetime.fromisoformat(made) >= datetime.fromisoformat(due)
    complete(job, place.pages)
    assert (job.status["restarts"], job.status["attempt"]) == (1, 2)


def test_with_the_operator_away_nothing_hangs_and_nothing_runs_for_ever(place: Place) -> None:
    """A namespace goes with all that is in it, and the kubelet stops what has run for too long."""
    with testbed.namespace("doomed") as doomed:
        lost = place.apply("lost", namespace=doomed, **SLOWLY)
        lost.until(lambda: lost.status.get("phase") == "Running", 60, "a crawl that runs")
        # The kubelet's own limit allows for the start, too.
        overdue = place.apply("overdue", activeDeadlineSeconds=4, startDeadlineSeconds=10, politeness={"delay": "1h"})
        overdue.until(lambda: overdue.owned("pod"), 30, "a Pod")
        (pod,) = overdue.owned("pod")
        product.stop_operator()
        try:
            testbed.delete("namespace", doomed)
            assert testbed.get_json("namespace", doomed) is None
            stopped = ("--for=jsonpath={.status.reason}=DeadlineExceeded", f"pod/{pod}", "--timeout=60s")
            testbed.kubectl("wait", *stopped, "-n", place.namespace, timeout=70)
        finally:
            product.start_operator()
    overdue.wait("Failed", 60)
    assert overdue.condition("Failed")["reason"] == "DeadlineExceeded"
    assert "activeDeadlineSeconds (4 s)" in overdue.condition("Failed")["message"]
