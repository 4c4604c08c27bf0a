"""The operator as a process: killed and started again, idle, and with the rights that it declares and no others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.api.conftest import OPERATOR, SPEED, Crawl, HastyOperator, Operator, grant, make_namespace
from tests.support.apiserver import Api, ApiServer, Raw, wait_until
from tests.support.builders import crawljob, crawljobs, summary
from tests.support.faultproxy import FaultProxy, Status
from tests.support.podhistory import PodHistory

from crawljob import API_GROUP, PLURAL
from crawljob_operator import rbac


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


def test_scenario_05_a_pod_that_vanished_while_nobody_looked_is_entered(operator: Operator, crawl: Crawl) -> None:
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


def test_scenario_07_two_operators_at_once(
    server: ApiServer, proxy: FaultProxy, hasty: HastyOperator, crawl: Crawl
) -> None:
    """Both see each failure: one Pod at a time, each end entered once."""
    other = HastyOperator(server, proxy, SPEED, "--namespace", crawl.namespace)
    history = PodHistory(crawl.api, crawl.namespace)
    hasty.start()
    other.start()
    try:
        crawl.apply()
        pod: Raw = {"metadata": {"uid": ""}}
        for _ in range(5):
            pod = crawl.kubelet.new_pod(besides=pod["metadata"]["uid"])
            crawl.kubelet.exit(pod, 1)
        pod = crawl.kubelet.new_pod(besides=pod["metadata"]["uid"])
        crawl.kubelet.exit(pod, 0, summary())
        status = crawl.wait_phase("Complete")
    finally:
        other.kill()
    made = history.made()
    assert (status["restarts"], status["consecutiveFailures"]) == (5, 5)
    assert [end["podUID"] for end in status["history"]] == made[::-1]
    assert 409 in {call.status for call in proxy.writes()}, "they got into each other's way"


def test_scenario_08_a_pod_that_is_there_already_is_no_error(
    proxy: FaultProxy, hasty: HastyOperator, crawl: Crawl
) -> None:
    """A read that does not show our own Pod yet leads to a second creation, which the API server refuses."""
    begin = len(hasty.log())
    with proxy.fault(Status(404, "NotFound"), "get", resource="pods", times=2):
        hasty.start()
        crawl.apply()
        crawl.kubelet.run(crawl.kubelet.new_pod())
        status = crawl.wait_phase("Running")
    assert [call.status for call in proxy.made("create", resource="pods")] == [201, 409]
    assert (status["restarts"], status["attempt"]) == (0, 1)
    assert "reconcile failed" not in hasty.log()[begin:]
    assert crawl.api.items(f"/api/v1/namespaces/{crawl.namespace}/events") == []


def test_scenario_10_five_hundred_finished_jobs(
    server: ApiServer, proxy: FaultProxy, hasty: HastyOperator, crawl: Crawl
) -> None:
    """An operator that starts looks at each one, and writes nothing."""
    hasty.start()
    crawl.apply()
    crawl.kubelet.exit(crawl.kubelet.new_pod(), 0, summary())
    status = crawl.wait_phase("Complete")
    hasty.kill()
    names = [f"finished-{number}" for number in range(500)]

    def make(name: str) -> None:
        crawl.api.create(crawljobs(crawl.namespace), crawljob(name, crawl.namespace))
        crawl.api.patch(f"{crawljobs(crawl.namespace, name)}/status", {"status": status})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(make, names))
    since = len(proxy.calls)
    operator = HastyOperator(server, proxy, 1, "--namespace", crawl.namespace)
    operator.start()
    try:
        wait_until(lambda: len({c.name for c in proxy.made("get", resource="pods", since=since)}) > 500, "500 looks")
        crawl.name = "one-more"
        crawl.apply(suspend=True)
        crawl.wait_phase("Suspended")  # by the order of the queue, after all others
    finally:
        operator.kill()
        crawl.api.call("DELETE", crawljobs(crawl.namespace))  # or the session's operator lists them for ever
    assert {call.name for call in proxy.writes(since)} == {"one-more"}
    assert len(crawl.kubelet.pods()) == 1


def test_scenario_11_ten_idle_minutes_send_no_write(server: ApiServer, proxy: FaultProxy, namespace: str) -> None:
    """Through twenty full listings, with a running, a finished, a failed and a suspended job."""
    operator = HastyOperator(server, proxy, 100, "--namespace", namespace, "--resync", "30")
    operator.start()
    try:
        running, finished, failed, paused = (
            Crawl(server.admin, namespace).beside(name) for name in ("running", "finished", "failed", "paused")
        )
        for crawl, suspend in ((running, False), (finished, False), (failed, False), (paused, True)):
            crawl.apply(suspend=suspend)
        running.kubelet.run(running.kubelet.new_pod())
        finished.kubelet.exit(finished.kubelet.new_pod(), 0, summary())
        failed.kubelet.exit(failed.kubelet.new_pod(), 2)
        for crawl, phase in ((running, "Running"), (finished, "Complete"), (failed, "Failed"), (paused, "Suspended")):
            crawl.wait_phase(phase)
        wait_until(lambda: len(proxy.made("create", resource="events")) == 2, "what is said of two ends")
        since = len(proxy.calls)
        wait_until(lambda: len(proxy.made("list", resource="crawljobs", since=since)) > 20, "twenty listings")
    finally:
        operator.kill()
    assert proxy.writes(since) == []


def test_scenario_12_a_defect_for_one_job_is_shown_and_hurts_no_other(hasty: HastyOperator, crawl: Crawl) -> None:
    """The others go on; the status says what is wrong, and takes it back."""
    hasty.poison = "poisoned"
    hasty.start()
    poisoned, other = crawl.beside("poisoned"), crawl.beside("other")
    poisoned.apply()
    other.apply()
    other.kubelet.new_pod()
    stalled = poisoned.wait_condition("Stalled", "True", "ReconcileError")
    assert "a defect of the operator" in stalled["message"]
    assert poisoned.condition("Ready")["status"] == "False"
    version = poisoned.get()["metadata"]["resourceVersion"]
    wait_until(lambda: hasty.log().count('"crawljob": "' + f"{crawl.namespace}/poisoned") > 3, "more attempts")
    assert poisoned.get()["metadata"]["resourceVersion"] == version, "it is said once"
    hasty.kill()
    hasty.poison = ""
    hasty.start()
    poisoned.kubelet.run(poisoned.kubelet.new_pod())
    poisoned.wait_phase("Running")
    assert poisoned.condition("Stalled")["status"] == "False"


def test_scenario_43_a_deletion_needs_no_operator(operator: Operator, crawl: Crawl) -> None:
    """Nothing of ours holds the CrawlJob or its Pod."""
    crawl.apply()
    pod = crawl.kubelet.new_pod()
    operator.kill()
    crawl.api.delete(crawljobs(crawl.namespace, crawl.name))
    assert crawl.api.get(crawljobs(crawl.namespace, crawl.name)) is None
    assert "finalizers" not in pod["metadata"]


def test_scenario_44_a_namespace_that_is_going(server: ApiServer, proxy: FaultProxy, crawl: Crawl) -> None:
    """Its refusals are told and asked about at long intervals; the log is no storm."""
    operator = HastyOperator(server, proxy, 60, "--namespace", crawl.namespace)
    operator.start()
    try:
        crawl.apply()
        pod = crawl.kubelet.new_pod()
        crawl.kubelet.run(pod)
        crawl.wait_phase("Running")
        begin = len(operator.log())
        crawl.api.delete(f"/api/v1/namespaces/{crawl.namespace}")
        crawl.kubelet.remove(pod)
        crawl.wait_condition("Ready", "False", "NamespaceTerminating")
        since = len(proxy.calls)
        wait_until(lambda: len(proxy.made("create", since=since)) >= 4, "four more attempts: 10, 20, 40 and 80 s", 30)
    finally:
        operator.kill()
    assert {call.resource for call in proxy.writes(since)} <= {"pods", "events"}
    assert len(proxy.made("create", resource="events", since=since)) <= 1
    assert operator.log()[begin:].count('"level": "warning"') <= 2, "an Event that could not be recorded"
    assert '"level": "error"' not in operator.log()[begin:]


def test_scenario_46_what_has_failed_does_not_run_again(proxy: FaultProxy, hasty: HastyOperator, crawl: Crawl) -> None:
    """Neither for an edit of its metadata nor for a new operator."""
    hasty.start()
    crawl.apply()
    crawl.kubelet.exit(crawl.kubelet.new_pod(), 2)
    crawl.wait_phase("Failed")
    wait_until(lambda: proxy.made("create", resource="events"), "its Event")
    since = len(proxy.calls)
    for number in range(2):
        hasty.kill()
        crawl.api.patch(crawljobs(crawl.namespace, crawl.name), {"metadata": {"labels": {"edit": str(number)}}})
        begin = len(proxy.calls)
        hasty.start()
        wait_until(lambda b=begin: len(proxy.made("get", resource="crawljobs", since=b)) > 1, "two looks")  # type: ignore[misc]
    assert proxy.writes(since) == []


def test_scenario_57_a_thousand_failures_are_one_event(proxy: FaultProxy, hasty: HastyOperator, crawl: Crawl) -> None:
    """With a count; and each failure costs a handful of writes. (Fifteen here: each goes the same way.)"""
    hasty.start()
    crawl.apply(restartPolicy={"backoffLimit": 1000, "backoff": {"initialSeconds": 1, "maxSeconds": 1}})
    pod: Raw = {"metadata": {"uid": ""}}
    for _ in range(15):
        pod = crawl.kubelet.new_pod(besides=pod["metadata"]["uid"])
        crawl.kubelet.exit(pod, 1)
    crawl.kubelet.new_pod(besides=pod["metadata"]["uid"])
    (event,) = crawl.api.items(f"/api/v1/namespaces/{crawl.namespace}/events")
    assert (event["reason"], event["count"]) == ("Error", 15)
    assert len(proxy.writes()) < 15 * 8
    assert len(proxy.calls) < 15 * 60


def test_scenario_58_an_operator_of_one_namespace_needs_a_role_in_it_only(
    server: ApiServer, api: Api, namespace: str
) -> None:
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


def test_scenario_58_a_namespace_that_is_closed_does_not_stop_the_others(
    server: ApiServer, api: Api, namespace: str
) -> None:
    """As a deleted one is: its Role is gone with it. When it is there again, it is served."""
    user, closed = "half-blind", make_namespace(api)
    grant(api, user, namespace)
    process = Operator(server, user, "--namespace", closed, "--namespace", namespace)
    process.start()
    try:
        crawl, later = Crawl(api, namespace), Crawl(api, closed)
        later.apply()
        crawl.apply()
        crawl.kubelet.exit(crawl.kubelet.new_pod(), 0, summary())
        crawl.wait_phase("Complete")
        assert f"nothing is done in the namespace {closed}" in process.log()
        assert "phase" not in later.status()
        grant(api, user, closed)
        later.kubelet.exit(later.kubelet.new_pod(), 0, summary())
        later.wait_phase("Complete")
    finally:
        assert process.terminate() == 0
        api.call("DELETE", crawljobs(closed))


def test_scenario_13_it_answers_and_ends_when_it_is_told(operator: Operator) -> None:
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
    crawl.apply(ttlSecondsAfterFinished=1, suspend=True)
    crawl.wait_phase("Suspended")
    reader = crawl.read()
    crawl.edit(suspend=False)
    crawl.reader_told_to_go(reader)
    crawl.reader_is_gone(reader)
    pod = crawl.kubelet.new_pod()
    for _ in range(2):  # the second time, the Event of the first is counted
        crawl.kubelet.exit(pod, 1)
        pod = crawl.kubelet.new_pod(besides=pod["metadata"]["uid"])
    crawl.kubelet.run(pod)
    crawl.wait_phase("Running")
    crawl.edit(listen={"port": 9191}, storage={"whenDeleted": "Retain"})  # another file, policy and Pod; a freed volume
    pod = crawl.kubelet.new_pod(besides=pod["metadata"]["uid"])
    crawl.kubelet.run(pod)
    crawl.wait_phase("Running")
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
        wait_until(lambda: needed <= _used(server, crawl), "the use of every right")
    except AssertionError:
        raise AssertionError(f"nothing needs {sorted(needed - _used(server, crawl))}") from None
    assert _used(server, crawl) == needed


def _used(server: ApiServer, crawl: Crawl) -> set[tuple[str, str, str]]:
    """Group, resource and verb of each request of the session; other tests forbid some, nobody this crawl's."""
    used = set()
    for record in server.requests(OPERATOR):
        reference = record.get("objectRef")
        if reference is None or reference.get("apiGroup") == "authorization.k8s.io":
            continue  # discovery, and what `check rights` asks about oneself: every account may
        # Admission may refuse what the rights allow; it answers 403 as well.
        if record["annotations"]["authorization.k8s.io/decision"] != "allow":
            assert reference.get("namespace") != crawl.namespace, record
            continue
        sub = f"/{reference['subresource']}" if "subresource" in reference else ""
        used.add((reference.get("apiGroup", ""), reference["resource"] + sub, record["verb"]))
    return used
