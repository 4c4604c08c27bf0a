"""The main job: one CrawlJob crawls real documentation, survives kills, and is seen by a real Collector.

With ``SITE=large`` the site is Rust's documentation instead of Python's.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import product, spantree
from tests.support.cluster import collector, testbed
from tests.support.cluster.collector import Span
from tests.support.cluster.site import Site, documentation
from tests.support.product import Job

from durable_crawler.urls import Refusal, canonical

LARGE = os.environ.get("SITE") == "large"
DOCUMENTATION = "rust-doc" if LARGE else "python3-doc"
LIMIT_SECONDS = 2400 if LARGE else 240
WORKERS = 8
SPEC: dict[str, Any] = {
    "scope": {"maxPages": 100_000, "maxLinksPerPage": 20_000, "maxDepth": 100},
    "fetch": {"workers": WORKERS, "perHost": WORKERS, "maxBodyBytes": 64 * 1024 * 1024, "totalTimeout": "60s"},
    "network": {"allowCIDRs": ["203.0.113.0/24"]},  # where the site is: a range for documentation
    "restartPolicy": {"backoff": {"initialSeconds": 1}},
    "telemetry": {"endpoint": collector.GRPC, "tracesSampleRatio": 0.01 if LARGE else 0.3},
}
KILLS = 5
SAMPLES = sorted((Path(__file__).resolve().parents[2] / "manifests" / "samples").glob("*.yaml"))
assert SAMPLES, "there are samples"

pytestmark = pytest.mark.timeout(LIMIT_SECONDS + 300)


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    collector.deploy()
    product.install("--set", f"telemetry.endpoint={collector.GRPC}")


@pytest.fixture(scope="module")
def start_page() -> str:
    # Rust's own index.html leads everywhere; Python's too.
    return "/index.html"


@pytest.fixture(scope="module")
def reachable(start_page: str, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What an independent crawler finds, from the server's log of it: canonical paths."""
    with Site(documentation(DOCUMENTATION), port=8081) as site:
        options = ("--spider", "-r", "-l", "inf", "--follow-tags=a,area", "-e", "robots=off", "-nv", "--tries=1")
        command = ["wget", *options, "-o", "wget.log", site.url(start_page)]
        folder = tmp_path_factory.mktemp("wget")
        done = subprocess.run(command, cwd=folder, timeout=LIMIT_SECONDS, check=False)
        assert done.returncode in (0, 8), (folder / "wget.log").read_text()[-2000:]  # 8: it met broken links
        return {path_of(site, site.url(request.path)) for request in site.requests()}


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(documentation(DOCUMENTATION), requests_per_second=0 if LARGE else 60) as served:
        yield served


@pytest.fixture
def slow_site() -> Iterator[Site]:
    """Slow enough that a sixth of it takes longer than finding the process that is to be killed."""
    with Site(documentation(DOCUMENTATION), requests_per_second=0 if LARGE else 25) as served:
        yield served


def path_of(site: Site, url: str) -> str:
    """A URL's identity without the server's address: one function for both crawlers."""
    identity = canonical(url)
    assert not isinstance(identity, Refusal), url
    prefix = site.url("/")
    assert identity.startswith(prefix)
    return identity.removeprefix(prefix)


def apply(site: Site, namespace: str, name: str, start_page: str) -> Job:
    testbed.apply(product.crawljob(name, site.url(start_page), **SPEC), "-n", namespace)
    return Job(name, namespace)


def test_documentation_is_crawled_completely(
    site: Site, namespace: str, start_page: str, reachable: set[str], tmp_path: Path
) -> None:
    job = apply(site, namespace, "docs", start_page)
    job.until(lambda: job.status.get("phase") == "Running", 90, "the crawl to run")
    job.wait("Complete", LIMIT_SECONDS)

    found = {path_of(site, url) for url in job.frontier().finished_urls()}
    assert found - reachable == set()
    assert reachable - found == set()
    assert len(found) > 300
    assert job.frontier().broken_invariants() == []
    asked = Counter(request.path for request in site.requests())
    assert max(asked.values()) == 1, "an undisturbed crawl asks once"

    status = job.status
    assert job.condition("Complete")["reason"] == "CrawlFinished"
    assert job.condition("Ready")["status"] == "True"
    assert status["progress"]["done"] == len(found)
    assert status["progress"]["pending"] == 0
    assert status.get("restarts", 0) == 0
    header, row = testbed.kubectl("get", "crawl", "docs", "-n", namespace).splitlines()
    assert header.split() == ["NAME", "PHASE", "REASON", "DONE", "PENDING", "RESTARTS", "AGE"]
    assert row.split()[:6] == ["docs", "Complete", "CrawlFinished", str(len(found)), "0", "0"]


def test_a_crawl_that_is_killed_five_times_loses_nothing_and_is_one_trace(
    slow_site: Site, namespace: str, start_page: str, reachable: set[str]
) -> None:
    job = apply(slow_site, namespace, "killed", start_page)
    in_flight = 0
    for kill in range(1, KILLS + 1):
        enough = len(reachable) * kill // (KILLS + 1)
        job.until(lambda enough=enough: job.done() >= enough, LIMIT_SECONDS, f"{enough} pages done")  # type: ignore[misc]
        (pod,) = job.owned("pod")
        testbed.kill_container(pod, namespace, "crawler")
        job.until(lambda kill=kill: job.status.get("restarts") == kill, 60, f"restart {kill}")  # type: ignore[misc]
        # What was in flight is at most a page of every worker.
        in_flight += WORKERS
        assert len(job.owned("pod")) <= 1
        last = job.status["lastTermination"]
        assert last["exitCode"] == 137
    job.wait("Complete", LIMIT_SECONDS)

    status = job.status
    assert status["restarts"] == KILLS
    assert status["attempt"] == KILLS + 1
    assert len({end["podUID"] for end in status["history"]}) == len(status["history"])
    reader = job.frontier()
    assert {path_of(slow_site, url) for url in reader.finished_urls()} == reachable
    assert reader.broken_invariants() == [], "each page has one result, and the counters are exact"
    asked = Counter(request.path for request in slow_site.requests())
    assert asked.pop("/robots.txt") == 1, "what robots.txt said is kept over every restart"
    assert asked.total() <= len(reachable) + in_flight

    see_in_the_collector(job)


def spans_of(uid: str) -> list[Span]:
    """What the Collector has of one CrawlJob: the crawler's spans say whose they are by their resource."""
    return [
        span
        for span in collector.read_spans()
        if uid in (span.resource.get("crawljob.uid"), span.attributes.get("crawljob.uid"))
    ]


def see_in_the_collector(job: Job) -> None:
    """One trace over all attempts, the operator's spans above the crawler's; the last gauges equal the database."""
    uid = job.live["metadata"]["uid"]
    root = lambda: any(span.name == "crawl job" for span in spans_of(uid))  # noqa: E731
    job.until(root, 60, "the operator to send the crawl's own span")
    collector.flush()
    spans = spans_of(uid)
    assert {span.trace_id for span in spans} == {job.status["traceID"]}
    attempts = {str(span.resource["crawljob.attempt"]) for span in spans if "crawljob.attempt" in span.resource}
    assert attempts == {str(attempt) for attempt in range(1, KILLS + 2)}
    assert Counter(span.name for span in spans if span.name in ("crawl job", "crawl attempt")).total() == KILLS + 2
    assert any(span.attributes.get("http.request.method") == "GET" for span in spans)
    assert list(spantree.faults(spans)) == []

    points = [point for point in collector.read_metrics() if point.resource.get("crawljob.uid") == uid]
    last = {point.name: point for point in sorted(points, key=lambda point: point.time)}
    counts = job.frontier().snapshot()
    for name in ("done", "pending", "failed", "leased", "deferred"):
        assert last[f"crawler.pages.{name}"].value == getattr(counts, name), name
    assert not any("url" in key for point in points for key in point.attributes), "no URL in a metric's attributes"


def test_deletion_takes_everything_along_with_the_operator_away(site: Site, namespace: str, start_page: str) -> None:
    job = apply(site, namespace, "deleted", start_page)
    job.until(lambda: job.done() > 0, 90, "the crawl to begin")
    kinds = ("pod", "pvc", "configmap", "networkpolicy")
    assert all(job.owned(kind) for kind in kinds)
    product.stop_operator()
    try:
        testbed.delete("crawljob", "deleted", "-n", namespace)
        job.until(lambda: not any(job.owned(kind) for kind in kinds), 90, f"{', '.join(kinds)} to go")
    finally:
        product.start_operator()


def test_uninstalling_leaves_the_definition_and_the_jobs(site: Site, namespace: str, start_page: str) -> None:
    job = apply(site, namespace, "kept", start_page)
    job.until(lambda: job.status.get("phase") == "Running", 90, "the crawl to run")
    testbed.helm("uninstall", product.RELEASE, "-n", product.NAMESPACE, "--wait")
    try:
        assert testbed.get_json("crd", "crawljobs.durable-crawler.io")
        assert job.live["metadata"]["name"] == "kept"
        assert job.owned("pod"), "a running crawl does not need its operator"
    finally:
        product.install("--set", f"telemetry.endpoint={collector.GRPC}")
    job.wait("Complete", LIMIT_SECONDS)
    assert job.status.get("restarts", 0) == 0, "an operator that comes back disturbs nothing"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_every_sample_can_be_applied(namespace: str, sample: Path) -> None:
    """By the API server's own judgement; nothing is kept, for the sites in the samples are not ours to crawl."""
    answer = testbed.kubectl("apply", "--dry-run=server", "-f", str(sample), "-n", namespace)
    assert "created (server dry run)" in answer


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"seeds": []}, "spec.seeds"),
        ({"seeds": ["ftp://files.example/"]}, "spec.seeds[0]"),
        ({"seeds": ["https://ok.example/", "https://user:pw@secret.example/"]}, "spec.seeds[1]"),
        ({"seeds": ["https://ok.example/"], "fetch": {"workers": 0}}, "spec.fetch.workers"),
        ({"seeds": ["https://ok.example/"], "fetch": {"wokers": 1}}, "wokers"),
    ],
)
def test_bad_input_is_refused_by_kubectl_apply(namespace: str, spec: dict[str, Any], says: str) -> None:
    with pytest.raises(testbed.Failed) as refused:
        testbed.apply(product.crawljob("bad", *spec.pop("seeds"), **spec), "-n", namespace)
    assert says in str(refused.value)
    assert Job("bad", namespace).live == {}
