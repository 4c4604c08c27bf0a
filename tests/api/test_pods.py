"""How Pods end, or do not begin, and what the operator makes of it. The scenarios are numbered."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api.conftest import Crawl, HastyOperator, Operator
from tests.support.apiserver import Api, Raw, wait_until
from tests.support.builders import crawljobs, marker_pod, summary
from tests.support.faultproxy import FaultProxy

from crawljob.exitcodes import ExitCode
from crawljob_operator import times

DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}


def running(crawl: Crawl, **spec: Any) -> Raw:
    """The Pod of a new job, bound and running."""
    crawl.apply(**spec)
    pod = crawl.kubelet.new_pod()
    crawl.kubelet.bind(pod)
    crawl.kubelet.run(pod)
    crawl.wait_phase("Running")
    return pod


def successor(crawl: Crawl, pod: Raw) -> Raw:
    """The status when the next Pod is there and known."""
    new = crawl.kubelet.new_pod(besides=pod["metadata"]["uid"])
    known = lambda: crawl.status().get("currentPod", {}).get("uid") == new["metadata"]["uid"]  # noqa: E731
    wait_until(known, "the new Pod in the status")
    return crawl.status()


def test_scenario_17_no_second_pod_while_one_terminates(proxy: FaultProxy, hasty: HastyOperator, crawl: Crawl) -> None:
    """However often the job is looked at."""
    hasty.start()
    pod = running(crawl)
    crawl.api.delete(f"/api/v1/namespaces/{crawl.namespace}/pods/{pod['metadata']['name']}")
    crawl.wait_condition("Ready", "False", "PodTerminating")
    since = len(proxy.calls)
    for number in range(10):
        look = {"metadata": {"labels": {"look": str(number)}}}
        crawl.api.patch(crawljobs(crawl.namespace, crawl.name), look)
        looks = lambda n=number: len(proxy.made("get", resource="crawljobs", since=since)) > n  # noqa: E731
        wait_until(looks, "a reconcile")
    assert proxy.made("create", "delete", resource="pods", since=since) == []
    assert [p["metadata"]["uid"] for p in crawl.kubelet.pods()] == [pod["metadata"]["uid"]]
    crawl.kubelet.remove(pod)
    assert successor(crawl, pod)["restarts"] == 1


def test_scenario_18_a_lost_node_is_waited_for(proxy: FaultProxy, hasty: HastyOperator, crawl: Crawl) -> None:
    """Nobody knows whether the crawler still runs there: no force, no second one, until the Pod is gone."""
    hasty.start()
    pod = running(crawl)
    since = len(proxy.calls)
    crawl.api.delete(f"/api/v1/namespaces/{crawl.namespace}/pods/{pod['metadata']['name']}")
    words = "Node node-1 which was running pod is unresponsive"
    crawl.kubelet.status(pod, "Running", {"running": {}}, reason="NodeLost", message=words)
    assert crawl.wait_condition("Ready", "False", "NodeLost")["message"] == words
    begin = len(proxy.calls)
    wait_until(lambda: len(proxy.made("get", resource="pods", since=begin)) >= 3, "more looks")
    assert proxy.made("create", "delete", resource="pods", since=since) == []
    crawl.kubelet.remove(pod)
    assert successor(crawl, pod)["consecutiveFailures"] == 0


@pytest.mark.parametrize(
    ("status", "reason", "counted"),
    [
        ({"reason": "Evicted", "message": "The node was low on memory.", "conditions": [DISRUPTED]}, "Evicted", False),
        # The kubelet sets no DisruptionTarget where the Pod itself has overrun its limits.
        ({"reason": "Evicted", "message": "Usage of EmptyDir volume exceeds the limit."}, "Evicted", True),
        ({"reason": "Terminated", "message": "Pod was terminated due to node shutdown."}, "NodeShutdown", False),
        ({"conditions": [DISRUPTED]}, "TerminationByKubelet", False),
    ],
    ids=["19_pressure", "19b_own_limit", "21_shutdown", "21_reason_missing"],
)
def test_scenario_19_21_a_pod_without_an_end_of_its_container(
    operator: Operator, crawl: Crawl, status: Raw, reason: str, counted: bool
) -> None:
    """The Pod's own words are taken; DisruptionTarget decides whether it counts."""
    pod = running(crawl)
    crawl.kubelet.status(pod, "Failed", **status)
    after = successor(crawl, pod)
    assert (after["lastTermination"]["reason"], after["lastTermination"]["counted"]) == (reason, counted)
    assert (after["restarts"], after["consecutiveFailures"]) == (1, int(counted))


def test_scenario_19c_disruptions_in_a_row_wait_all_the_same(hasty: HastyOperator, crawl: Crawl) -> None:
    """None counts towards the limit, and each waits longer than the one before."""
    hasty.start()
    backoff = {"initialSeconds": 4, "maxSeconds": 16}
    crawl.apply(restartPolicy={"backoffLimit": 0, "backoff": backoff})
    pod = crawl.kubelet.new_pod()
    waits = []
    for number in range(1, 5):
        crawl.kubelet.status(pod, "Failed", reason="Evicted", conditions=[DISRUPTED])
        wait_until(lambda n=number: crawl.status().get("restarts") == n, "the end in the status")  # type: ignore[misc]
        status = crawl.status()
        due, ended = (times.parse(t) for t in (status["nextRestartTime"], status["lastTermination"]["finishedAt"]))
        assert due is not None
        assert ended is not None
        waits.append((due - ended).total_seconds())
        pod = crawl.kubelet.new_pod(besides=pod["metadata"]["uid"])
    assert crawl.status()["consecutiveFailures"] == 0
    assert waits[0] < waits[1] < waits[2] < 20


def test_scenario_23_a_pull_that_never_works_fails_in_time(hasty: HastyOperator, crawl: Crawl) -> None:
    """After startDeadlineSeconds, with the kubelet's words; one that recovers before just runs."""
    hasty.start()
    late, never = crawl.beside("late"), crawl.beside("never")
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
    for job, limit in ((late, 3600), (never, 60)):
        job.apply(startDeadlineSeconds=limit)
        job.kubelet.status(job.kubelet.new_pod(), "Pending", waiting)
    failed = never.wait_condition("Failed", "True", "StartDeadlineExceeded")
    assert "Back-off pulling image" in failed["message"]
    late.kubelet.run(late.kubelet.pods()[0])
    assert late.wait_phase("Running")["restarts"] == 0


def test_scenario_25_a_missing_secret_starts_when_it_is_there(operator: Operator, crawl: Crawl) -> None:
    """The kubelet tries by itself; the status says what is missing."""
    crawl.apply()
    pod = crawl.kubelet.new_pod()
    words = 'secret "login" not found'
    crawl.kubelet.status(pod, "Pending", {"waiting": {"reason": "CreateContainerConfigError", "message": words}})
    assert crawl.wait_condition("Ready", "False", "CreateContainerConfigError")["message"] == words
    crawl.kubelet.run(pod)
    assert crawl.wait_phase("Running")["restarts"] == 0
    assert [p["metadata"]["uid"] for p in crawl.kubelet.pods()] == [pod["metadata"]["uid"]]


def test_scenario_28_a_denied_pod_is_reported_once(
    api: Api, proxy: FaultProxy, hasty: HastyOperator, crawl: Crawl
) -> None:
    """With the policy's words, slow attempts, one Event; it runs when the policy allows it."""
    hasty.start()
    group, name = "/apis/admissionregistration.k8s.io/v1", crawl.namespace
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": crawl.namespace}}
    denial = {"expression": "false", "message": "no crawling on Sundays", "reason": "Forbidden"}
    common = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    policy = {"matchConstraints": {"resourceRules": [rule]}, "validations": [denial]}
    binding = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": here},
    }
    api.create(f"{group}/validatingadmissionpolicies", {**common, "kind": "ValidatingAdmissionPolicy", "spec": policy})
    api.create(
        f"{group}/validatingadmissionpolicybindings",
        {**common, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding},
    )
    pods = f"/api/v1/namespaces/{crawl.namespace}/pods?dryRun=All"
    wait_until(lambda: api.call("POST", pods, marker_pod("probe")).status == 403, "the policy")
    crawl.apply()
    stalled = crawl.wait_condition("Stalled", "True", "PodAdmissionRejected")
    assert "no crawling on Sundays" in stalled["message"]
    wait_until(lambda: len(proxy.made("create", resource="pods")) >= 3, "attempts after 10 and 20 s")
    assert {call.status for call in proxy.made("create", resource="pods")} == {403}
    events = api.items(f"/api/v1/namespaces/{crawl.namespace}/events")
    assert [(event["reason"], event["count"]) for event in events] == [("PodAdmissionRejected", 1)]
    for plural in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
        api.delete(f"{group}/{plural}/{name}")
    crawl.kubelet.new_pod()
    crawl.wait_condition("Stalled", "False")


def test_scenario_28_a_webhook_that_does_not_answer_is_waited_for(api: Api, hasty: HastyOperator, crawl: Crawl) -> None:
    """It is nobody's fault: not Stalled, not Failed."""
    hasty.start()
    group, name = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", crawl.namespace
    hook = {
        "name": "unreachable.example.com",
        "clientConfig": {"url": "https://127.0.0.1:9/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": crawl.namespace}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 1,
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    api.create(group, {**kind, "metadata": {"name": name}, "webhooks": [hook]})
    pods = f"/api/v1/namespaces/{crawl.namespace}/pods?dryRun=All"
    wait_until(lambda: api.call("POST", pods, marker_pod("probe")).status == 500, "the webhook")
    crawl.apply()
    assert "webhook" in crawl.wait_condition("Ready", "False", "WebhookUnavailable")["message"]
    assert crawl.condition("Stalled").get("status") != "True"
    api.delete(f"{group}/{name}")
    crawl.kubelet.new_pod()


@pytest.mark.parametrize(("code", "word"), [(0, summary()), (1, "")], ids=["finished", "failed"])
def test_scenario_29_a_sidecar_does_not_hide_the_crawlers_end(
    operator: Operator, crawl: Crawl, code: int, word: str
) -> None:
    """It comes first in the list and never ends; the Pod is removed."""
    pod = running(crawl)
    sidecar = {"name": "mesh", "image": "mesh", "imageID": "", "ready": True, "restartCount": 0}
    sidecar["state"] = {"running": {"startedAt": None}}
    crawl.kubelet.exit(pod, code, word, phase="Running", others=[sidecar])
    if code:
        wait_until(lambda: crawl.status()["restarts"] == 1, "the end in the status")
    else:
        crawl.wait_phase("Complete")
    crawl.kubelet.wait_stop(pod)
    crawl.kubelet.remove(pod)
    if code:
        assert successor(crawl, pod)["lastTermination"]["exitCode"] == 1


def test_scenario_30_out_of_memory_names_the_limit(hasty: HastyOperator, crawl: Crawl) -> None:
    """Seven times; the seventh is one more than backoffLimit."""
    hasty.start()
    policy = {"backoff": {"initialSeconds": 1, "maxSeconds": 1}}
    crawl.apply(restartPolicy=policy, podTemplate={"resources": {"limits": {"memory": "300Mi"}}})
    pod: Raw = {"metadata": {"uid": ""}}
    for number in range(1, 8):
        pod = crawl.kubelet.new_pod(besides=pod["metadata"]["uid"])
        crawl.kubelet.status(pod, "Failed", {"terminated": {"exitCode": 137, "reason": "OOMKilled"}})
        wait_until(lambda n=number: len(crawl.status().get("history", [])) == n, "the end")  # type: ignore[misc]
        assert crawl.status()["lastTermination"]["reason"] == "OOMKilled"
    failed = crawl.wait_condition("Failed", "True", "BackoffLimitExceeded")
    assert "300Mi" in failed["message"]


def test_scenario_32_the_eightieth_wait_is_the_longest(operator: Operator, crawl: Crawl) -> None:
    """No overflow, no negative wait."""
    pod = running(crawl, restartPolicy={"backoffLimit": 1000, "backoff": {"initialSeconds": 10, "maxSeconds": 300}})
    status = {"restarts": 80, "consecutiveFailures": 79}
    crawl.api.patch(f"{crawljobs(crawl.namespace, crawl.name)}/status", {"status": status})
    crawl.kubelet.exit(pod, 1)
    wait_until(lambda: crawl.status()["restarts"] == 81, "the end in the status")
    after = crawl.status()
    due, ended = (times.parse(t) for t in (after["nextRestartTime"], after["lastTermination"]["finishedAt"]))
    assert due is not None
    assert ended is not None
    assert 270 <= (due - ended).total_seconds() <= 332


def test_scenario_53_a_full_disk_is_named_and_waited_for(operator: Operator, crawl: Crawl) -> None:
    """It may be enlarged meanwhile."""
    pod = running(crawl, restartPolicy={"backoff": {"initialSeconds": 600, "maxSeconds": 600}})
    crawl.kubelet.exit(pod, ExitCode.OUT_OF_DISK, summary("failed", "OutOfDisk", ExitCode.OUT_OF_DISK))
    crawl.wait_condition("Restarting", "True", "BackoffWaiting")
    status = crawl.status()
    assert (status["lastTermination"]["reason"], status["lastTermination"]["counted"]) == ("OutOfDisk", True)
    assert [p["metadata"]["uid"] for p in crawl.kubelet.pods()] == [pod["metadata"]["uid"]], "no hot loop"
