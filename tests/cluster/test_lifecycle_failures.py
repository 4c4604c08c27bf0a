"""What cannot work, on a real node and scheduler: each says why in whose words it was told, and none disturbs another.

All are applied at once; each test looks at its own, and mends it where it can be mended.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.support import product, stories
from tests.support.cluster import testbed
from tests.support.product import Job
from tests.support.stories import Place

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        testbed.mode() == "existing", reason="an existing cluster has no outside world to serve the site from"
    ),
]

QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "no-pods"},
    "spec": {"hard": {"pods": "0"}},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    product.install()
    with stories.place(tmp_path_factory.mktemp("site"), pages=3) as made:
        yield made


@pytest.fixture(scope="module")
def full(place: Place) -> Iterator[str]:
    """A namespace whose quota allows no Pod."""
    with testbed.namespace("full") as name:
        testbed.apply(QUOTA, "-n", name)
        yield name


@pytest.fixture(scope="module")
def jobs(place: Place, full: str) -> Mapping[str, Job]:
    """All of them, begun."""
    secret("two-lines", place.namespace, "first\nsesame")
    secret("no-pem", place.namespace, "no certificate")
    specs: dict[str, dict[str, Any]] = {
        "bad-value": {"fetch": {"headers": [header(place, "two-lines")]}},
        "bad-bundle": {"fetch": {"caBundle": {"secretKeyRef": {"name": "no-pem", "key": "token"}}}},
        "out-of-memory": {
            "podTemplate": {"resources": {"limits": {"memory": "24Mi"}}},
            "restartPolicy": {"backoffLimit": 1, "backoff": {"initialSeconds": 1}},
        },
        "no-image": {"image": "registry.nowhere.test/crawler:none", "startDeadlineSeconds": 20},
        "wrong-image": {"image": "registry.nowhere.test/crawler:none"},
        "bad-image": {"image": "Not An Image"},
        "no-secret": {"fetch": {"headers": [header(place, "comes-later")]}},
        "no-node": {"podTemplate": {"nodeSelector": {"kubernetes.io/arch": "none"}}},
        "no-class": {"storage": {"storageClassName": "nowhere"}},
    }
    begun = {name: place.apply(name, **spec) for name, spec in specs.items()}
    return {**begun, "no-room": place.apply("no-room", namespace=full)}


def secret(name: str, namespace: str, value: str) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"token": value}}
    testbed.apply(body, "-n", namespace)


def header(place: Place, name: str) -> dict[str, Any]:
    """A header with a value from that Secret."""
    source = {"secretKeyRef": {"name": name, "key": "token"}}
    return {"origin": place.site.url("/").removesuffix("/"), "name": "X-Token", "valueFrom": source}


def told(job: Job, *reasons: str, within: float = 60) -> str:
    """Wait until ``kubectl get`` gives one of the reasons; the message that goes with it."""
    job.until(lambda: job.condition("Ready").get("reason") in reasons, within, f"the reason {' or '.join(reasons)}")
    row = testbed.kubectl("get", "crawl", job.name, "-n", job.namespace, "--no-headers").split()
    assert row[2] in reasons
    message: str = job.condition("Ready")["message"]
    return message


def recovered(job: Job) -> None:
    job.wait("Complete", 120)
    assert job.status["consecutiveFailures"] == 0
    assert job.condition("Ready")["status"] == "True"


def test_a_job_without_room_waits_for_it(jobs: Mapping[str, Job]) -> None:
    job = jobs["no-room"]
    assert "exceeded quota: no-pods" in told(job, "QuotaExceeded")
    assert not job.owned("pod")
    testbed.delete("resourcequota", "no-pods", "-n", job.namespace)
    recovered(job)
    assert job.status["restarts"] == 0


def test_a_secret_that_is_missing_is_named_and_waited_for(place: Place, jobs: Mapping[str, Job]) -> None:
    job = jobs["no-secret"]
    assert 'secret "comes-later" not found' in told(job, "FailedMount")
    secret("comes-later", place.namespace, "sesame")
    recovered(job)
    assert job.status["restarts"] == 0


@pytest.mark.parametrize(
    ("name", "reasons", "phase", "says"),
    [
        ("bad-image", ("InvalidImageName",), "Stalled", "Not An Image"),
        ("wrong-image", ("ErrImagePull", "ImagePullBackOff"), "Pending", "registry.nowhere.test/crawler:none"),
    ],
)
def test_an_image_that_cannot_be_had_is_recovered_from_by_an_edit(
    jobs: Mapping[str, Job], name: str, reasons: tuple[str, ...], phase: str, says: str
) -> None:
    job = jobs[name]
    assert says in told(job, *reasons)
    assert job.status["phase"] == phase
    assert (job.condition("Stalled").get("status") == "True") == (phase == "Stalled")
    job.edit(image=os.environ["CRAWLER_IMAGE"])
    recovered(job)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("bad-value", "spec.fetch.headers[0].valueFrom.secretKeyRef"),
        ("bad-bundle", "does not hold PEM certificates"),
    ],
)
def test_a_file_that_only_the_crawler_can_judge_fails_the_job(jobs: Mapping[str, Job], name: str, says: str) -> None:
    job = jobs[name]
    job.wait("Failed", 90)
    assert job.condition("Failed")["reason"] == "InvalidConfiguration"
    assert says in job.condition("Failed")["message"]
    assert "sesame" not in str(job.status), "no value of a Secret is told"
    assert (job.status["lastTermination"]["exitCode"], len(job.status["history"])) == (2, 1)


def test_too_little_memory_is_named_each_time(jobs: Mapping[str, Job]) -> None:
    job = jobs["out-of-memory"]
    job.wait("Failed", 120)
    ends = job.status["history"]
    assert [(end["reason"], end["exitCode"], end["counted"]) for end in ends] == [("OOMKilled", 137, True)] * 2
    failed = job.condition("Failed")
    assert failed["reason"] == "BackoffLimitExceeded"
    assert "more memory than its limit of 24Mi" in failed["message"]


def test_an_image_that_does_not_exist_fails_the_job_in_time(jobs: Mapping[str, Job]) -> None:
    job = jobs["no-image"]
    job.wait("Failed", 60)
    failed = job.condition("Failed")
    assert failed["reason"] == "StartDeadlineExceeded"
    assert re.search(r"; (ErrImagePull|ImagePullBackOff): .*registry\.nowhere\.test/crawler:none", failed["message"])
    assert job.status["restarts"] == 0


def test_a_pod_that_fits_no_node_says_so_and_is_no_failure(jobs: Mapping[str, Job]) -> None:
    job = jobs["no-node"]
    assert "didn't match Pod's node affinity/selector" in told(job, "Unschedulable")
    assert job.status["restarts"] == 0
    job.edit(podTemplate={"nodeSelector": None})
    recovered(job)


def test_a_storage_class_that_does_not_exist_is_named(jobs: Mapping[str, Job]) -> None:
    job = jobs["no-class"]
    job.until(lambda: "nowhere" in job.condition("StorageReady").get("message", ""), 60, "its words")
    storage = job.condition("StorageReady")
    assert (storage["status"], storage["reason"]) == ("False", "PVCPending")
    assert 'storageclass.storage.k8s.io "nowhere" not found' in storage["message"]
    told(job, "Unschedulable")
    assert job.status["restarts"] == 0
