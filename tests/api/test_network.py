"""The crawl's NetworkPolicy on a real API server: made before the Pod, replaced with it, never somebody else's."""

from __future__ import annotations

import pytest
from tests.api.conftest import OPERATOR, Crawl, Operator, policies
from tests.support.apiserver import ApiServer, Raw, wait_until

from crawljob_operator import network
from crawljob_operator.netsettings import NetworkSettings
from crawljob_operator.reconcile import read_job

ALL = ["0.0.0.0/0", "::/0", "169.254.0.0/16", "fd00::/8", "192.168.77.1/32"]


def allowed(policy: Raw) -> list[str]:
    """The ranges that the spec has opened; the first two are the global addresses."""
    return [peer["ipBlock"]["cidr"] for peer in policy["spec"]["egress"][-1]["to"]][2:]


def test_it_is_there_before_the_pod_and_owned(operator: Operator, crawl: Crawl) -> None:
    job = crawl.apply()
    pod = crawl.kubelet.new_pod()
    (policy,) = crawl.policies()
    (owner,) = policy["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (job["metadata"]["uid"], True)
    assert int(policy["metadata"]["resourceVersion"]) < int(pod["metadata"]["resourceVersion"])
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()


def test_an_edited_range_makes_another_policy_with_the_next_pod(operator: Operator, crawl: Crawl) -> None:
    """The running Pod keeps its own; the next one never has both. Every range that a spec may have is accepted."""
    crawl.apply(network={"allowCIDRs": ["10.0.0.0/8"]})
    first = crawl.kubelet.new_pod()
    crawl.kubelet.bind(first)
    crawl.kubelet.run(first)
    crawl.wait_phase("Running")
    (old,) = crawl.policies()
    assert allowed(old) == ["10.0.0.0/8"]
    crawl.edit(network={"allowCIDRs": ALL})
    crawl.wait_condition("Restarting", "True", "SpecChanged")
    assert crawl.policies() == [old]
    crawl.kubelet.remove(first)
    second = crawl.kubelet.new_pod(besides=first["metadata"]["uid"])
    (new,) = crawl.policies()
    assert allowed(new) == ALL
    assert int(new["metadata"]["resourceVersion"]) < int(second["metadata"]["resourceVersion"])


def test_a_policy_that_is_deleted_by_hand_comes_back(operator: Operator, crawl: Crawl) -> None:
    """No watch tells of it; the next full listing does."""
    crawl.apply()
    crawl.kubelet.run(crawl.kubelet.new_pod())
    crawl.wait_phase("Running")
    (policy,) = crawl.policies()
    crawl.api.delete(policies(crawl.namespace, policy["metadata"]["name"]))
    (again,) = wait_until(crawl.policies, "a policy")
    assert again["spec"] == policy["spec"]
    assert len(crawl.kubelet.pods()) == 1


def test_a_policy_that_is_edited_by_hand_is_made_again(operator: Operator, crawl: Crawl) -> None:
    """Open or closed, it would be another one than the spec asks for; a label of somebody's is no matter."""
    crawl.apply()
    crawl.kubelet.run(crawl.kubelet.new_pod())
    crawl.wait_phase("Running")
    (policy,) = crawl.policies()
    path = policies(crawl.namespace, policy["metadata"]["name"])
    crawl.api.patch(path, {"spec": {"egress": [{}]}})
    wait_until(lambda: [found["spec"] for found in crawl.policies()] == [policy["spec"]], "the policy as it was")
    (again,) = crawl.policies()
    crawl.api.patch(path, {"metadata": {"labels": {"team": "docs"}}})
    crawl.edit(suspend=False, ttlSecondsAfterFinished=60)
    wait_until(lambda: crawl.status()["observedGeneration"] == crawl.get()["metadata"]["generation"], "a look")
    assert [found["metadata"]["uid"] for found in crawl.policies()] == [again["metadata"]["uid"]]
    assert len(crawl.kubelet.pods()) == 1


def test_a_foreign_policy_of_its_name_is_left_alone(operator: Operator, crawl: Crawl) -> None:
    """Nothing runs beside it, and the conflict is named; when it is gone, the crawl goes on."""
    crawl.apply(suspend=True)
    crawl.wait_phase("Suspended")
    job = read_job(crawl.get())
    assert job.spec is not None
    name = network.policy_name(job, job.spec, NetworkSettings())
    theirs = crawl.api.create(
        policies(crawl.namespace),
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": name},
            "spec": {"podSelector": {}},
        },
    )
    crawl.edit(suspend=False)
    stalled = crawl.wait_condition("Stalled", "True", "PolicyConflict")
    assert name in stalled["message"]
    assert [policy["metadata"] for policy in crawl.policies()] == [theirs["metadata"]]
    assert crawl.kubelet.pods() == []
    crawl.api.delete(policies(crawl.namespace, name))
    crawl.kubelet.new_pod()
    assert len(crawl.policies()) == 1


@pytest.mark.usefixtures("resting")
def test_an_operator_without_policies_takes_the_old_one_away_with_the_next_pod(server: ApiServer, crawl: Crawl) -> None:
    with_policies = Operator(server, OPERATOR)
    with_policies.start()
    crawl.apply()
    first = crawl.kubelet.new_pod()
    crawl.kubelet.run(first)
    crawl.wait_phase("Running")
    assert len(crawl.policies()) == 1
    with_policies.terminate()

    without = Operator(server, OPERATOR, "--network-policy", '{"enabled": false}')
    without.start()
    try:
        crawl.edit(restartPolicy={"backoffLimit": 5})
        wait_until(lambda: crawl.status()["observedGeneration"] == 2, "a look at it")
        assert len(crawl.policies()) == 1, "the running Pod keeps it"
        crawl.kubelet.exit(first, 1)
        crawl.kubelet.new_pod(besides=first["metadata"]["uid"])
        assert crawl.policies() == []
    finally:
        assert without.terminate() == 0
