"""What users do to a CrawlJob and its volume, and what time does: edits, names, deadlines, deletion and return."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api.conftest import Crawl, HastyOperator, Operator
from tests.support.apiserver import Api, Raw, wait_until
from tests.support.builders import crawljobs, summary
from tests.support.faultproxy import FaultProxy
from tests.support.podhistory import PodHistory


def claim_path(claim: Raw) -> str:
    """The API server's path of a claim."""
    metadata = claim["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/persistentvolumeclaims/{metadata['name']}"


def test_scenario_37_an_edit_during_the_wait_is_in_the_next_pod(hasty: HastyOperator, crawl: Crawl) -> None:
    """And what was edited to help need not wait."""
    hasty.start()
    crawl.apply(restartPolicy={"backoff": {"initialSeconds": 3600, "maxSeconds": 3600}})
    pod = crawl.kubelet.new_pod()
    crawl.kubelet.exit(pod, 1)
    crawl.wait_condition("Restarting", "True", "BackoffWaiting")
    crawl.edit(image="registry.example/mended:2")
    new = crawl.kubelet.new_pod(besides=pod["metadata"]["uid"])
    assert new["spec"]["containers"][0]["image"] == "registry.example/mended:2"
    assert crawl.status()["consecutiveFailures"] == 1


def test_scenario_39_a_job_that_is_made_again_starts_afresh(hasty: HastyOperator, crawl: Crawl) -> None:
    """Under the same name, at once, while what belonged to the old one is still there."""
    hasty.start()
    history = PodHistory(crawl.api, crawl.namespace)
    crawl.apply()
    old = crawl.kubelet.new_pod()
    crawl.kubelet.exit(old, 1)
    wait_until(lambda: crawl.status().get("restarts") == 1, "the end in the status")
    (claim,) = crawl.volumes()
    crawl.api.delete(crawljobs(crawl.namespace, crawl.name))
    job = crawl.apply()
    new = crawl.kubelet.new_pod_of(job)
    crawl.kubelet.run(new)
    status = crawl.wait_phase("Running")
    assert (status["restarts"], status["attempt"], status.get("history", [])) == (0, 1, [])
    mounted = new["spec"]["volumes"][1]["persistentVolumeClaim"]["claimName"]
    assert mounted != claim["metadata"]["name"]
    assert new["metadata"]["uid"] in history.made()


def test_scenario_40_the_time_to_live_deletes_once_and_only_this_job(
    proxy: FaultProxy, hasty: HastyOperator, crawl: Crawl
) -> None:
    """When an operator's clock jumps ahead the deletion comes early, but not twice, and never hits a successor."""
    hasty.start()
    crawl.apply(ttlSecondsAfterFinished=3600)
    crawl.kubelet.exit(crawl.kubelet.new_pod(), 0, summary())
    crawl.wait_phase("Complete")
    hasty.kill()
    hasty.clock.skew = 7200
    hasty.start()
    wait_until(lambda: crawl.api.get(crawljobs(crawl.namespace, crawl.name)) is None, "the deletion")
    again = crawl.apply(ttlSecondsAfterFinished=3600)
    crawl.kubelet.new_pod_of(again)
    assert [call.status for call in proxy.made("delete", resource="crawljobs")] == [200]
    assert crawl.get()["metadata"]["uid"] == again["metadata"]["uid"]


@pytest.mark.parametrize("name", ["a" * 253, ".".join(["docs.example"] * 19), "a" * 60 + ".b", "a" * 60 + ".c"])
def test_scenario_41_long_names(operator: Operator, api: Api, namespace: str, name: str) -> None:
    """Names of Pods and claims and values of labels fit, whatever the job is called."""
    crawl = Crawl(api, namespace, name)
    crawl.apply()
    pod = crawl.kubelet.new_pod()
    assert len(pod["metadata"]["name"]) <= 63
    assert all(len(value) <= 63 for value in pod["metadata"]["labels"].values())
    crawl.kubelet.exit(pod, 0, summary())
    crawl.wait_phase("Complete")


def test_scenario_42_many_seeds(operator: Operator, crawl: Crawl) -> None:
    """Nearly as much as the contract allows; nothing of it is copied to where it would break."""
    job = crawl.apply(seeds=[f"https://docs.example.com/{number}/{'x' * 880}" for number in range(220)])
    assert sum(map(len, job["spec"]["seeds"])) > 190_000
    crawl.kubelet.run(crawl.kubelet.new_pod())
    crawl.wait_phase("Running")
    assert "annotations" not in crawl.get()["metadata"]
    assert "annotations" not in crawl.kubelet.pods()[0]["metadata"]


def test_scenario_46_a_restart_request_runs_a_failed_job_again(hasty: HastyOperator, crawl: Crawl) -> None:
    """Once for each new value."""
    hasty.start()
    crawl.apply()
    pod = crawl.kubelet.new_pod()
    crawl.kubelet.exit(pod, 2)
    crawl.wait_phase("Failed")
    crawl.edit(restartRequestedAt="2031-01-01T00:00:00Z")
    new = crawl.kubelet.new_pod(besides=pod["metadata"]["uid"])
    crawl.kubelet.exit(new, 2)
    wait_until(lambda: crawl.status()["lastTermination"]["podUID"] == new["metadata"]["uid"], "the second end")
    crawl.wait_phase("Failed")
    hasty.kill()
    hasty.start()
    crawl.edit(suspend=False)
    wait_until(lambda: crawl.status()["observedGeneration"] == crawl.get()["metadata"]["generation"], "a look")
    assert [p["metadata"]["uid"] for p in crawl.kubelet.pods()] == [new["metadata"]["uid"]]


def test_scenario_47_a_deadline_that_passed_without_an_operator(hasty: HastyOperator, crawl: Crawl) -> None:
    """The kubelet has a limit of its own in the Pod; the operator that comes back says what it was."""
    hasty.start()
    crawl.apply(activeDeadlineSeconds=60, startDeadlineSeconds=30)
    pod = crawl.kubelet.new_pod()
    assert pod["spec"]["activeDeadlineSeconds"] == 90
    crawl.kubelet.now = hasty.clock.now
    crawl.kubelet.run(pod)
    crawl.wait_phase("Running")
    hasty.kill()
    words = "Pod was active on the node longer than the specified deadline"
    hasty.clock.skew = 120
    crawl.kubelet.status(pod, "Failed", reason="DeadlineExceeded", message=words)
    hasty.start()
    crawl.wait_condition("Failed", "True", "DeadlineExceeded")


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("ProvisioningFailed", ("False", "PVCPending")), ("WaitForFirstConsumer", ("Unknown", "WaitForFirstConsumer"))],
)
def test_scenario_50_why_a_claim_is_pending(
    hasty: HastyOperator, crawl: Crawl, reason: str, expected: tuple[str, str]
) -> None:
    """In the volume controller's words; the Pod is made all the same, or nothing would ever be bound."""
    hasty.start()
    crawl.apply()
    crawl.kubelet.new_pod()
    (claim,) = crawl.volumes()
    event: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "why", "namespace": crawl.namespace},
        "involvedObject": {"kind": "PersistentVolumeClaim", "uid": claim["metadata"]["uid"], "apiVersion": "v1"},
        "reason": reason,
        "message": "in the controller's words",
    }
    event["involvedObject"] |= {"name": claim["metadata"]["name"], "namespace": crawl.namespace}
    crawl.api.create(f"/api/v1/namespaces/{crawl.namespace}/events", event)
    assert crawl.wait_condition("StorageReady", *expected)["message"] == "in the controller's words"


def test_scenario_51_a_volume_grows(api: Api, hasty: HastyOperator, crawl: Crawl) -> None:
    """Where its class allows it; otherwise the status says so, and the Pod goes on. It never shrinks."""
    hasty.start()
    storage = "/apis/storage.k8s.io/v1/storageclasses"
    name = crawl.namespace
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
    api.create(storage, {**kind, "provisioner": "example.com/disks", "allowVolumeExpansion": False})
    crawl.apply(storage={"size": "1Gi", "storageClassName": name})
    pod = crawl.kubelet.new_pod()
    crawl.kubelet.run(pod)
    crawl.bind_volume()
    crawl.wait_condition("StorageReady", "True")
    crawl.edit(storage={"size": "2Gi"})
    crawl.wait_condition("StorageReady", "False", "ResizePending")
    api.patch(f"{storage}/{name}", {"allowVolumeExpansion": True})

    def grown() -> bool:
        return bool(crawl.volumes()[0]["spec"]["resources"]["requests"]["storage"] == "2Gi")

    wait_until(grown, "a claim that asks for more")
    api.patch(f"{claim_path(crawl.volumes()[0])}/status", {"status": {"capacity": {"storage": "2Gi"}}})
    crawl.wait_condition("StorageReady", "True")
    assert [p["metadata"]["uid"] for p in crawl.kubelet.pods()] == [pod["metadata"]["uid"]]
    smaller = {"spec": {"storage": {"size": "1Gi"}}}
    path = crawljobs(crawl.namespace, crawl.name)
    answer = api.call("PATCH", path, smaller, "application/merge-patch+json")
    assert answer.status == 422, answer.message
    assert "spec.storage" in answer.message
