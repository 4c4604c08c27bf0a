"""The operator as a process: killed and started again, idle, and with the rights that it declares and no others."""

from __future__ import annotations

from tests.api.conftest import OPERATOR, RESYNC_SECONDS, Crawl, Operator, grant
from tests.support.apiserver import Api, ApiServer, wait_until
from tests.support.builders import crawljobs, summary

from crawljob import API_GROUP, PLURAL
from crawljob_operator import rbac

WRITES = {"create", "update", "patch", "delete"}


def test_a_killed_operator_counts_each_end_once(operator: Operator, crawl: Crawl) -> None:
    """It is killed before it sees an end, while it waits, and before it sees the next Pod."""
    crawl.apply(restartPolicy={"backoff": {"initialSeconds": 3, "maxSeconds": 3}})
    first = crawl.kubelet.new_pod()
    crawl.kubelet.run(first)
    crawl.wait_phase("Running")
    operator.kill()
    crawl.kubelet.exit(first, 1)
    operator.start()
    status = crawl.wait_phase("Restarting")
    assert (status["restarts"], status["lastTermination"]["podUID"]) == (1, first["metadata"]["uid"])
    due = status["nextRestartTime"]
    operator.kill()
    assert [p["metadata"]["uid"] for p in crawl.kubelet.pods()] == [first["metadata"]["uid"]], "kept for its logs"
    operator.start()
    assert crawl.status()["nextRestartTime"] == due
    second = crawl.kubelet.new_pod(besides=first["metadata"]["uid"])
    operator.kill()
    crawl.kubelet.exit(second, 1)
    operator.start()
    wait_until(lambda: crawl.status().get("restarts") == 2, "the second end")
    third = crawl.kubelet.new_pod(besides=second["metadata"]["uid"])
    crawl.kubelet.exit(third, 0, summary(done=1))
    status = crawl.wait_phase("Complete")
    assert (status["restarts"], len(status["history"])) == (2, 3)


def test_a_pod_that_vanished_while_nobody_looked_is_entered(operator: Operator, crawl: Crawl) -> None:
    """A recorded Pod that is gone counts as deleted, once, and not against the crawl."""
    crawl.apply()
    pod = crawl.kubelet.new_pod()
    crawl.kubelet.run(pod)
    crawl.wait_phase("Running")
    operator.kill()
    crawl.kubelet.remove(pod)
    operator.start()
    crawl.kubelet.new_pod()
    status = crawl.status()
    assert (status["restarts"], status["consecutiveFailures"]) == (1, 0)
    assert (status["lastTermination"]["reason"], status["lastTermination"]["counted"]) == ("PodDeleted", False)


def test_an_idle_operator_writes_nothing(server: ApiServer, operator: Operator, crawl: Crawl) -> None:
    """Through two full listings, with a running, a finished and a suspended job, and after its own restart."""
    crawl.apply()
    pod = crawl.kubelet.new_pod()
    crawl.kubelet.run(pod)
    crawl.wait_phase("Running")
    crawl.name = "paused"
    crawl.apply(suspend=True)
    crawl.wait_phase("Suspended")
    crawl.name = "finished"
    crawl.apply()
    others = wait_until(lambda: [p for p in crawl.kubelet.pods() if _is_of(p, "finished")], "its Pod")
    crawl.kubelet.exit(others[0], 0, summary())
    crawl.wait_phase("Complete")
    operator.kill()
    operator.start()

    def listings() -> int:
        return sum(r["verb"] == "list" and r["objectRef"]["resource"] == "crawljobs" for r in server.requests(OPERATOR))

    def settled() -> bool:
        return listings() >= begin + 2

    begin = listings()
    wait_until(settled, "its first listings", 10 * RESYNC_SECONDS)
    writes = len(_writes(server))
    begin = listings()
    wait_until(settled, "two more listings", 10 * RESYNC_SECONDS)
    assert _writes(server)[writes:] == []


def test_an_operator_of_one_namespace_needs_a_role_in_it_only(server: ApiServer, api: Api, namespace: str) -> None:
    """It serves its namespace and asks for nothing outside."""
    user = "namespaced"
    grant(api, user, namespace)
    process = Operator(server, user, "--namespace", namespace)
    process.start()
    try:
        crawl = Crawl(api, namespace)
        crawl.apply()
        crawl.kubelet.exit(crawl.kubelet.new_pod(), 0, summary())
        crawl.wait_phase("Complete")
    finally:
        assert process.terminate() == 0
    for record in server.requests(user):
        if "objectRef" in record:
            assert record["objectRef"].get("namespace") == namespace, record
            assert record["responseStatus"]["code"] != 403, record


def test_it_answers_and_ends_when_it_is_told(operator: Operator) -> None:
    """Its probes answer at once, and SIGTERM ends it in order."""
    assert operator.answers("/healthz")
    assert operator.answers("/readyz")
    assert operator.terminate() == 0


NEVER_CALLED = {
    # Asked by the admission plugin OwnerReferencesPermissionEnforcement, where it is on: we set blockOwnerDeletion.
    (API_GROUP, f"{PLURAL}/finalizers", "update"),
}


def test_it_uses_the_rights_that_it_declares_and_only_those(
    server: ApiServer, operator: Operator, crawl: Crawl
) -> None:
    """A life with all that an operator does: no request was forbidden, and each right was needed."""
    crawl.apply(ttlSecondsAfterFinished=1)
    pod = crawl.kubelet.new_pod()
    for _ in range(2):  # the second time, the Event of the first is counted
        crawl.kubelet.exit(pod, 1)
        pod = crawl.kubelet.new_pod(besides=pod["metadata"]["uid"])
    crawl.kubelet.run(pod)
    crawl.wait_phase("Running")
    crawl.edit(listen={"port": 9191}, storage={"whenDeleted": "Retain"})  # another file, policy and Pod; a freed volume
    pod = crawl.kubelet.new_pod(besides=pod["metadata"]["uid"])
    crawl.kubelet.exit(pod, 0, summary())
    wait_until(lambda: crawl.api.get(crawljobs(crawl.namespace, crawl.name)) is None, "the end of its time to live")

    assert operator.terminate() == 0  # a watch is in the audit log when it has ended
    allowed = {
        (group, resource, verb)
        for rule in rbac.rules(clusterwide=True)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    needed = allowed - NEVER_CALLED
    try:
        wait_until(lambda: needed <= _used(server), "the use of every right")
    except AssertionError:
        raise AssertionError(f"nothing needs {sorted(needed - _used(server))}") from None
    assert _used(server) == needed


def _used(server: ApiServer) -> set[tuple[str, str, str]]:
    """Group, resource and verb of each request of the session, none of which was forbidden."""
    used = set()
    for record in server.requests(OPERATOR):
        reference = record.get("objectRef")
        if reference is None:
            continue  # discovery, which every account may read
        assert record["responseStatus"]["code"] != 403 or record["verb"] == "create", record
        sub = f"/{reference['subresource']}" if "subresource" in reference else ""
        used.add((reference.get("apiGroup", ""), reference["resource"] + sub, record["verb"]))
    return used


def _writes(server: ApiServer) -> list[str]:
    return [f"{r['verb']} {r['requestURI']}" for r in server.requests(OPERATOR) if r["verb"] in WRITES]


def _is_of(pod: dict[str, dict[str, dict[str, str]]], name: str) -> bool:
    return pod["metadata"]["labels"]["durable-crawler.io/crawljob"] == name
