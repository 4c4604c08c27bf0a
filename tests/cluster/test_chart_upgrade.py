"""The chart comes, is upgraded, goes and comes back around a running crawl, and the crawl does not notice.

``charts-previous`` holds the chart as it was packaged (``helm package``) before CrawlJobs had ``scope.include`` and
``scope.exclude``: the upgrade brings a definition with new fields. It runs today's image: that of its time is gone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import product, stories
from tests.support.cluster import testbed
from tests.support.product import NAMESPACE, RELEASE, Job
from tests.support.stories import RESTRICTED, SLOWLY, Place

PREVIOUS = Path(__file__).parent / "charts-previous" / "durable-crawler-0.1.0.tgz"
DEFINITION = "crawljobs.durable-crawler.io"
PAGES = 450
"""Of 300 ms each: more than two minutes, in which everything here happens."""

pytestmark = [
    pytest.mark.timeout(480),
    pytest.mark.skipif(
        testbed.mode() == "existing", reason="an existing cluster has no outside world to serve the site from"
    ),
]
EXTRA = "durable-crawler-newer-image"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A cluster that has never seen the chart, and a site."""
    testbed.helm("uninstall", RELEASE, "-n", NAMESPACE, "--ignore-not-found", "--wait")
    testbed.delete("crd", DEFINITION)
    testbed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": RESTRICTED}})
    with stories.place(tmp_path, pages=PAGES) as made:
        yield made
    testbed.helm("uninstall", RELEASE, "-n", NAMESPACE, "--wait")


class Undisturbed:
    """A crawl that goes on, in the same Pod and on the same volume, and loses nothing."""

    def __init__(self, job: Job) -> None:
        self.job, self.done = job, 0
        self.went_on("the first installation")
        self.pod, self.claim = self._uid("pod"), self._uid("pvc")

    def went_on(self, after: str) -> None:
        """More pages are done than when this was last asked."""
        before, self.done = self.done, self.job.done()
        assert self.done >= before, f"pages were lost with {after}"
        self.job.until(lambda: self.job.done() >= self.done + 3, 60, f"pages done after {after}")
        assert self.job.status["phase"] != "Complete", "the site is too small for this test"

    def was_left_alone(self) -> None:
        """Its Pod, its volume, and no end was entered."""
        assert (self._uid("pod"), self._uid("pvc")) == (self.pod, self.claim)
        assert (self.job.status["restarts"], self.job.status["attempt"]) == (0, 1)
        assert self.job.status.get("history", []) == []

    def was_finished(self, pages: int) -> None:
        """By the one Pod that it had, on the volume that it had, with all pages."""
        assert self._uid("pvc") == self.claim
        (end,) = self.job.status["history"]
        assert (end["podUID"], end["exitCode"], end["reason"]) == (self.pod, 0, "CrawlFinished")
        assert (self.job.status["restarts"], self.job.status["progress"]["done"]) == (0, pages)
        assert self.job.frontier().broken_invariants() == []

    def _uid(self, kind: str) -> str:
        (name,) = self.job.owned(kind)
        found: str = testbed.get_json(kind, name, "-n", self.job.namespace)["metadata"]["uid"]
        return found


def test_a_running_crawl_outlives_every_change_of_its_installation(place: Place) -> None:
    product.install(chart=PREVIOUS)
    newer_image_has_its_rights("create")
    job = place.apply("long", **SLOWLY)
    crawl = Undisturbed(job)
    excluding = place.manifest("excluding", scope={"exclude": ["/*.html"]})
    with pytest.raises(testbed.Failed, match=r"unknown field .*spec\.scope\.exclude"):
        testbed.apply(excluding, "-n", place.namespace)

    newer_image_has_its_rights("delete")
    product.install()
    crawl.went_on("the upgrade")
    crawl.was_left_alone()
    testbed.apply(excluding, "-n", place.namespace)
    Job("excluding", place.namespace).wait("Complete", 60)
    assert Job("excluding", place.namespace).status["progress"]["done"] == 1, "the new field is obeyed"

    helm_test_says_what_is_too_much()
    helm_test_passes_and_leaves_nothing()
    a_typo_changes_nothing()
    crawl.went_on("the refused upgrade")

    testbed.helm("uninstall", RELEASE, "-n", NAMESPACE, "--wait")
    assert not testbed.get_json("deployment", RELEASE, "-n", NAMESPACE)
    assert not testbed.get_json("clusterrole", RELEASE)
    crawl.went_on("the uninstallation")

    product.install()
    crawl.went_on("the second installation")
    crawl.was_left_alone()
    helm_test_passes_and_leaves_nothing()

    job.wait("Complete", 240)
    crawl.was_finished(place.pages)
    asked = place.asked("long")
    assert asked.pop("/robots.txt") == 1
    assert (len(asked), set(asked.values())) == (place.pages, {1}), "each page was asked for exactly once"


def newer_image_has_its_rights(verb: str) -> None:
    """The previous chart comes with the image under test, which asks for Jobs; that chart's own did not."""
    rights = ("--verb=get,delete", "--resource=jobs.batch") if verb == "create" else ()
    account = (f"--clusterrole={EXTRA}", f"--serviceaccount={NAMESPACE}:{RELEASE}") if verb == "create" else ()
    testbed.kubectl(verb, "clusterrole", EXTRA, *rights)
    testbed.kubectl(verb, "clusterrolebinding", EXTRA, *account)


def helm_test_passes_and_leaves_nothing() -> None:
    """In a namespace that admits restricted Pods only."""
    started = time.monotonic()
    said = testbed.helm("test", RELEASE, "-n", NAMESPACE, "--logs", "--timeout", "90s")
    assert "Phase:          Succeeded" in said, said
    assert time.monotonic() - started < 60
    assert "ok    may create pods in the whole cluster" in said
    kinds, selector = "pod,serviceaccount,role,rolebinding", "app.kubernetes.io/component=check"
    assert testbed.kubectl("get", kinds, "-n", NAMESPACE, "-l", selector, "-o", "name") == ""


def helm_test_says_what_is_too_much() -> None:
    """Without being asked for a log; also what is too much in the operator's own namespace only."""
    account = f"--serviceaccount={NAMESPACE}:{RELEASE}"
    testbed.kubectl("create", "rolebinding", "too-much", "--clusterrole=edit", account, "-n", NAMESPACE)
    with pytest.raises(
        testbed.Failed, match=rf"FAIL  may not get secrets in namespace {NAMESPACE}: .* find who binds it"
    ):
        testbed.helm("test", RELEASE, "-n", NAMESPACE, "--timeout", "90s")
    testbed.delete("rolebinding", "too-much", "-n", NAMESPACE)


def a_typo_changes_nothing() -> None:
    """Neither the release nor what runs of it."""
    before = testbed.helm("status", RELEASE, "-n", NAMESPACE, "-o", "json")
    with pytest.raises(testbed.Failed, match="watchNamespace"):
        product.install("--set", "watchNamespace={team-a}")
    assert testbed.helm("status", RELEASE, "-n", NAMESPACE, "-o", "json") == before
