"""The life of a CrawlJob on a real API server: one Pod at a time, from the first to the last."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import yaml
from tests.api.conftest import Crawl, HastyOperator, Operator
from tests.support.apiserver import wait_until
from tests.support.builders import crawljobs, marker_pod, summary

from crawljob import manifest
from crawljob_operator.identity import child_name


def test_a_new_job_gets_volume_config_and_pod(operator: Operator, crawl: Crawl) -> None:
    """Everything that a crawl needs is made, owned by the CrawlJob, and admitted by the restricted profile."""
    job = crawl.apply(storage={"size": "2Gi"})
    pod = crawl.kubelet.new_pod()
    (volume,), (config,) = crawl.volumes(), crawl.configs()
    for child in (pod, volume, config):
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (job["metadata"]["uid"], True, True)
    assert volume["spec"]["resources"]["requests"]["storage"] == "2Gi"
    assert volume["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert config["immutable"] is True
    rendered = yaml.safe_load(config["data"]["crawljob.yaml"])
    assert rendered["spec"]["listen"]["address"] == "0.0.0.0"
    assert manifest.parse(rendered["spec"]).seeds == ("https://docs.example.com/",)
    mounted = {next(iter(set(v) - {"name"})): v for v in pod["spec"]["volumes"]}
    assert mounted["configMap"]["configMap"]["name"] == config["metadata"]["name"]
    assert mounted["persistentVolumeClaim"]["persistentVolumeClaim"]["claimName"] == volume["metadata"]["name"]
    assert len(pod["metadata"]["name"]) <= 63


def test_a_crawl_that_finishes_is_complete(operator: Operator, crawl: Crawl) -> None:
    """The summary's reason and counts become the status; nothing runs afterwards."""
    crawl.apply()
    pod = crawl.kubelet.new_pod()
    crawl.kubelet.run(pod)
    status = crawl.wait_phase("Running")
    assert status["currentPod"]["uid"] == pod["metadata"]["uid"]
    crawl.kubelet.exit(pod, 0, summary(reason="PageLimitReached", done=7, pending=3))
    status = crawl.wait_phase("Complete")
    assert crawl.condition("Complete")["reason"] == "PageLimitReached"
    assert crawl.condition("Ready")["status"] == "True"
    assert (status["progress"]["done"], status["progress"]["pending"]) == (7, 3)
    assert status["restarts"] == 0
    assert status["completionTime"]
    assert len(crawl.kubelet.pods()) == 1, "the Pod stays for its logs"


def test_three_failures_are_three_restarts_on_one_volume(operator: Operator, crawl: Crawl) -> None:
    """Each end is counted once, and there is never a second Pod or another volume."""
    crawl.apply()
    pod = crawl.kubelet.new_pod()
    volume = crawl.volumes()[0]["metadata"]["uid"]
    for number in range(1, 4):
        assert pod["metadata"]["labels"]["durable-crawler.io/attempt"] == str(number)
        crawl.kubelet.run(pod)
        crawl.kubelet.exit(pod, 1, "database is locked")
        pod = crawl.kubelet.new_pod(besides=pod["metadata"]["uid"])
    crawl.kubelet.run(pod)
    status = crawl.wait_phase("Running")
    assert (status["restarts"], status["consecutiveFailures"], status["attempt"]) == (3, 3, 4)
    assert [end["exitCode"] for end in status["history"]] == [1, 1, 1]
    assert status["lastTermination"]["message"] == "database is locked"
    assert [claim["metadata"]["uid"] for claim in crawl.volumes()] == [volume]


def test_too_many_failures_in_a_row_fail_the_job(operator: Operator, crawl: Crawl) -> None:
    """After backoffLimit restarts the next failure is the last, and kstatus sees it."""
    crawl.apply(restartPolicy={"backoffLimit": 1, "backoff": {"initialSeconds": 1, "maxSeconds": 1}})
    pod = crawl.kubelet.new_pod()
    crawl.kubelet.exit(pod, 1)
    pod = crawl.kubelet.new_pod(besides=pod["metadata"]["uid"])
    crawl.kubelet.exit(pod, 1)
    status = crawl.wait_phase("Failed")
    assert crawl.condition("Failed")["reason"] == "BackoffLimitExceeded"
    assert crawl.condition("Stalled")["status"] == "True"
    assert crawl.condition("Ready")["status"] == "False"
    assert status["consecutiveFailures"] == 2


def test_a_wrong_configuration_fails_at_once(operator: Operator, crawl: Crawl) -> None:
    """A restart would not help, so there is none."""
    crawl.apply()
    crawl.kubelet.exit(crawl.kubelet.new_pod(), 2, "spec.fetch: no such thing")
    crawl.wait_phase("Failed")
    failed = crawl.condition("Failed")
    assert (failed["reason"], failed["message"]) == ("InvalidConfiguration", "spec.fetch: no such thing")


def test_a_typo_in_what_is_passed_on_is_named(operator: Operator, crawl: Crawl) -> None:
    """The API server would drop the field, and the Pod would run anywhere."""
    terms = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelektor": {}}]
    crawl.apply(podTemplate={"affinity": {"nodeAffinty": {}}, "topologySpreadConstraints": terms})
    crawl.wait_phase("Stalled")
    stalled = crawl.condition("Stalled")
    assert stalled["reason"] == "PodAdmissionRejected"
    assert 'unknown field "spec.affinity.nodeAffinty"' in stalled["message"]
    assert 'unknown field "spec.topologySpreadConstraints[0].labelSelektor"' in stalled["message"]
    assert crawl.kubelet.pods() == []


def test_scenario_20_an_evicted_pod_that_exits_with_0_is_replaced(operator: Operator, crawl: Crawl) -> None:
    """Exit 0 of a Pod that was taken down is no end of a crawl, and not its fault."""
    crawl.apply()
    pod = crawl.kubelet.new_pod()
    target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    crawl.kubelet.exit(pod, 0, conditions=[target])
    crawl.kubelet.new_pod(besides=pod["metadata"]["uid"])
    status = crawl.status()
    assert (status["restarts"], status["consecutiveFailures"]) == (1, 0)
    assert status["lastTermination"]["reason"] == "EvictionByEvictionAPI"


def test_a_node_that_does_not_answer_is_said(operator: Operator, crawl: Crawl) -> None:
    """As the node controller writes it; until the Pod is gone there is no other."""
    crawl.apply()
    pod = crawl.kubelet.new_pod()
    crawl.kubelet.bind(pod)
    crawl.kubelet.run(pod)
    crawl.wait_phase("Running")
    silent = [{"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "False"}]
    path = f"/api/v1/namespaces/{crawl.namespace}/pods/{pod['metadata']['name']}"
    crawl.api.patch(f"{path}/status", {"status": {"conditions": silent}})
    assert "node-1" in crawl.wait_condition("Ready", "False", "NodeLost")["message"]
    crawl.api.delete(path)
    crawl.wait_condition("Restarting", "True", "NodeLost")
    assert [p["metadata"]["uid"] for p in crawl.kubelet.pods()] == [pod["metadata"]["uid"]]


def test_scenario_16_a_pod_that_somebody_deleted_comes_back(operator: Operator, crawl: Crawl) -> None:
    """Its successor waits for the old object to be gone; nothing is counted against the crawl."""
    crawl.apply()
    pod = crawl.kubelet.new_pod()
    crawl.kubelet.bind(pod)
    crawl.kubelet.run(pod)
    crawl.wait_phase("Running")
    crawl.api.delete(f"/api/v1/namespaces/{crawl.namespace}/pods/{pod['metadata']['name']}")
    crawl.wait_condition("Ready", "False", "PodTerminating")
    assert [p["metadata"]["uid"] for p in crawl.kubelet.pods()] == [pod["metadata"]["uid"]]
    crawl.kubelet.remove(pod)
    crawl.kubelet.new_pod(besides=pod["metadata"]["uid"])
    status = crawl.status()
    assert status["lastTermination"]["reason"] == "PodDeleted"
    assert (status["restarts"], status["consecutiveFailures"]) == (1, 0)


def test_scenario_36_suspend_keeps_the_volume_and_resume_goes_on(operator: Operator, crawl: Crawl) -> None:
    """The Pod is stopped gracefully; the next one gets the same volume."""
    crawl.apply()
    pod = crawl.kubelet.new_pod()
    crawl.kubelet.bind(pod)
    crawl.kubelet.run(pod)
    volume = crawl.volumes()[0]["metadata"]["uid"]
    crawl.wait_phase("Running")
    crawl.edit(suspend=True)
    crawl.wait_condition("Suspended", "False", "Suspending")
    crawl.kubelet.wait_stop(pod)
    crawl.kubelet.exit(pod, 143, summary("interrupted", "Interrupted", 143, done=3))
    wait_until(lambda: crawl.status()["restarts"] == 1, "the end in the status")
    crawl.kubelet.remove(pod)
    crawl.wait_condition("Suspended", "True")
    assert crawl.condition("Ready")["status"] == "True"
    assert crawl.kubelet.pods() == []
    assert crawl.status()["progress"]["done"] == 3
    crawl.edit(suspend=False)
    crawl.kubelet.run(crawl.kubelet.new_pod())
    status = crawl.wait_phase("Running")
    assert status["consecutiveFailures"] == 0
    assert crawl.condition("Suspended")["status"] == "False"
    assert [claim["metadata"]["uid"] for claim in crawl.volumes()] == [volume]


def test_scenario_35_an_edit_that_shapes_the_pod_restarts_it(operator: Operator, crawl: Crawl) -> None:
    """New bounds reach the crawler by a graceful restart that is not counted; the old ConfigMap goes."""
    crawl.apply()
    pod = crawl.kubelet.new_pod()
    crawl.kubelet.bind(pod)
    crawl.kubelet.run(pod)
    crawl.wait_phase("Running")
    (config,) = crawl.configs()
    crawl.edit(restartPolicy={"backoffLimit": 9})
    wait_until(lambda: crawl.status()["observedGeneration"] == 2, "the first edit")
    assert "deletionTimestamp" not in crawl.kubelet.pods()[0]["metadata"]
    crawl.edit(scope={"maxPages": 5})
    crawl.wait_condition("Restarting", "True", "SpecChanged")
    crawl.kubelet.wait_stop(pod)
    crawl.kubelet.remove(pod)
    new = crawl.kubelet.new_pod(besides=pod["metadata"]["uid"])
    crawl.kubelet.run(new)
    status = crawl.wait_phase("Running")
    assert status["consecutiveFailures"] == 0
    assert status["lastTermination"]["reason"] == "SpecChanged"
    (left,) = wait_until(lambda: found if len(found := crawl.configs()) == 1 else None, "one ConfigMap")
    assert left["metadata"]["uid"] != config["metadata"]["uid"]
    assert "maxPages: 5" in left["data"]["crawljob.yaml"]


def test_scenario_31_a_foreign_pod_with_our_name_is_left_alone(operator: Operator, crawl: Crawl) -> None:
    """The conflict is named, the foreign Pod is never touched, and the crawl goes on when it is gone."""
    job = crawl.apply(suspend=True)
    crawl.wait_phase("Suspended")
    name = child_name(crawl.name, job["metadata"]["uid"])
    theirs = crawl.api.create(f"/api/v1/namespaces/{crawl.namespace}/pods", marker_pod(name))
    crawl.edit(suspend=False)
    crawl.wait_condition("Stalled", "True", "PodConflict")
    assert [p["metadata"]["uid"] for p in crawl.kubelet.pods()] == [theirs["metadata"]["uid"]]
    crawl.kubelet.remove(theirs)
    crawl.kubelet.new_pod()
    crawl.wait_condition("Stalled", "False")


def test_scenario_23_24_26_what_keeps_a_pod_from_running_is_said(operator: Operator, crawl: Crawl) -> None:
    """The scheduler's and the kubelet's texts are in the Ready condition."""
    crawl.apply()
    pod = crawl.kubelet.new_pod()
    words = "0/3 nodes are available: 3 Insufficient memory."
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    crawl.kubelet.status(pod, "Pending", conditions=[unscheduled])
    assert crawl.wait_condition("Ready", "False", "Unschedulable")["message"] == words
    scheduled = [{"type": "PodScheduled", "status": "True"}]
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
    crawl.kubelet.status(pod, "Pending", waiting, conditions=scheduled)
    assert crawl.wait_condition("Ready", "False", "ImagePullBackOff")["message"] == "Back-off pulling image"
    assert crawl.status()["phase"] == "Pending"
    invalid = {"waiting": {"reason": "InvalidImageName", "message": "couldn't parse image name"}}
    crawl.kubelet.status(pod, "Pending", invalid, conditions=scheduled)
    crawl.wait_condition("Stalled", "True", "InvalidImageName")
    crawl.edit(image="registry.example/right:1")
    wait_until(lambda: [p for p in crawl.kubelet.pods() if p["metadata"]["uid"] != pod["metadata"]["uid"]], "a Pod")
    crawl.wait_condition("Stalled", "False")


def test_a_refused_pod_is_reported_and_tried_again(hasty: HastyOperator, crawl: Crawl) -> None:
    """A quota's words reach the user, and nothing is counted."""
    hasty.start()
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    path = f"/api/v1/namespaces/{crawl.namespace}/resourcequotas"
    crawl.api.create(path, quota)
    # Nobody computes the usage here; the quota plugin refuses until somebody has.
    crawl.api.patch(f"{path}/none/status", {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}})
    crawl.apply()
    ready = crawl.wait_condition("Ready", "False", "QuotaExceeded")
    assert "exceeded quota: none" in ready["message"]
    assert crawl.status()["restarts"] == 0
    crawl.api.delete(f"{path}/none")
    crawl.kubelet.new_pod()


def test_scenario_38_a_job_that_is_being_deleted_gets_nothing_new(operator: Operator, crawl: Crawl) -> None:
    """No finalizer of ours holds it, and no new Pod is made for it."""
    crawl.apply()
    pod = crawl.kubelet.new_pod()
    assert "finalizers" not in crawl.get()["metadata"]
    assert "annotations" not in crawl.get()["metadata"]
    crawl.api.patch(crawljobs(crawl.namespace, crawl.name), {"metadata": {"finalizers": ["example.com/theirs"]}})
    crawl.api.delete(crawljobs(crawl.namespace, crawl.name))
    crawl.kubelet.remove(pod)
    marker = crawl.name
    crawl.name = "other"
    crawl.apply()
    wait_until(crawl.kubelet.pods, "the other job's Pod")
    assert len(crawl.kubelet.pods()) == 1
    crawl.api.patch(crawljobs(crawl.namespace, marker), {"metadata": {"finalizers": None}})


def test_a_spec_that_passes_the_schema_and_is_wrong_is_named(operator: Operator, crawl: Crawl) -> None:
    """Every problem with its path; the job goes on when it is put right."""
    crawl.apply(seeds=[f"https://docs.example.com/{number}/{'x' * 900}" for number in range(300)])
    stalled = crawl.wait_condition("Stalled", "True", "InvalidSpec")
    assert "at most 204800 are allowed" in stalled["message"]
    assert crawl.kubelet.pods() == []
    crawl.edit(seeds=["https://docs.example.com/"])
    crawl.kubelet.new_pod()
    crawl.wait_condition("Stalled", "False")


def test_scenario_48_a_lost_volume_is_made_anew_and_said_aloud(operator: Operator, crawl: Crawl) -> None:
    """Never silently: the crawl's state was on it."""
    crawl.apply()
    pod = crawl.kubelet.new_pod()
    (volume,) = crawl.volumes()
    crawl.kubelet.run(pod)
    crawl.wait_phase("Running")
    path = f"/api/v1/namespaces/{crawl.namespace}/persistentvolumeclaims/{volume['metadata']['name']}"
    crawl.api.delete(path)
    crawl.wait_condition("StorageReady", "False", "PVCTerminating")
    crawl.kubelet.exit(pod, 1)
    crawl.wait_condition("Ready", "False", "PVCTerminating")
    assert crawl.kubelet.pods() == []
    crawl.api.patch(path, {"metadata": {"finalizers": None}})
    crawl.kubelet.new_pod()
    events = crawl.api.items(f"/api/v1/namespaces/{crawl.namespace}/events")
    assert "FrontierLost" in [event["reason"] for event in events]


def test_progress_is_read_from_the_pod(operator: Operator, crawl: Crawl) -> None:
    """The crawler's own counts are in the status while it runs."""

    class Progress(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"done": 12, "pending": 30, "rate": 1.5}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Progress) as crawler:
        threading.Thread(target=crawler.serve_forever, daemon=True).start()
        crawl.apply(listen={"port": crawler.server_port})
        crawl.kubelet.run(crawl.kubelet.new_pod())
        progress = wait_until(lambda: crawl.status().get("progress"), "progress")
        crawler.shutdown()
    assert (progress["done"], progress["pending"], progress["rate"]) == (12, 30, 1.5)
    assert progress["updatedAt"]
