"""``kubectl crawl`` and the operator at a real API server: patches, the reader's Job, and who makes room for whom."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest
from tests.api.conftest import Crawl, HastyOperator, jobs
from tests.support.apiserver import Api, ApiServer, wait_until
from tests.support.builders import crawljobs, summary
from tests.support.faultproxy import FaultProxy

from crawljob_operator import names

PROGRAM = [sys.executable, "-m", "crawljob_operator.plugin.cli"]


class User:
    """Somebody with a kubeconfig."""

    def __init__(self, server: ApiServer, namespace: str, user: str = "admin") -> None:
        self._environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig(user))}
        self._namespace = namespace

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        words: Sequence[str] = [*PROGRAM, *arguments, "-n", self._namespace]
        return subprocess.Popen(words, env=self._environment, stdout=-1, stderr=-1, text=True)

    def crawl(self, *arguments: str, code: int = 0) -> str:
        """What it printed; with another ``code`` what it said."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=60)
        assert process.returncode == code, err
        return err if code else out


@pytest.fixture
def user(server: ApiServer, namespace: str) -> User:
    return User(server, namespace)


def completed(crawl: Crawl) -> None:
    """A crawl that is done."""
    crawl.apply()
    pod = crawl.kubelet.new_pod()
    crawl.kubelet.run(pod)
    crawl.bind_volume()
    crawl.kubelet.exit(pod, 0, summary())
    crawl.wait_phase("Complete")


@pytest.mark.usefixtures("operator")
def test_suspend_resume_and_restart_are_one_patch_each(server: ApiServer, crawl: Crawl, user: User) -> None:
    crawl.apply()
    pod = crawl.kubelet.new_pod()
    crawl.kubelet.run(pod)
    assert user.crawl("suspend", "docs") == "crawljob.durable-crawler.io/docs suspended\n"
    crawl.wait_phase("Suspended")
    assert "Suspended" in user.crawl("status", "docs")
    user.crawl("resume", "docs")
    pod = crawl.kubelet.new_pod(besides=pod["metadata"]["uid"])
    crawl.kubelet.run(pod)
    crawl.wait_phase("Running")
    user.crawl("restart", "docs")
    again = crawl.kubelet.new_pod(besides=pod["metadata"]["uid"])
    wait_until(lambda: crawl.status().get("observedRestartRequest"), "the request to be followed")
    assert again["metadata"]["labels"][names.LABEL_RESTART]
    spec = crawl.get()["spec"]
    assert spec["suspend"] is False
    assert spec["restartRequestedAt"] == crawl.status()["observedRestartRequest"]
    managers = {entry["manager"] for entry in crawl.get()["metadata"]["managedFields"]}
    assert names.PLUGIN in managers, "who changed it can be seen"
    patches = [
        record
        for record in server.requests("admin")
        if record["verb"] == "patch"
        and record["objectRef"].get("namespace") == crawl.namespace
        and record["objectRef"]["resource"] == "crawljobs"
    ]
    assert len(patches) == 3


@pytest.mark.usefixtures("operator")
def test_a_reader_makes_room_before_a_suspended_crawl_goes_on(crawl: Crawl) -> None:
    crawl.apply(suspend=True)
    crawl.wait_phase("Suspended")
    reader = crawl.read()
    crawl.edit(suspend=False)
    crawl.reader_told_to_go(reader)
    crawl.wait_condition("Ready", "False", "ResultsBeingRead")
    assert not [pod for pod in crawl.kubelet.pods() if names.COMPONENT in pod["metadata"]["labels"].values()]
    crawl.reader_is_gone(reader)
    crawl.kubelet.run(crawl.kubelet.new_pod())
    assert crawl.wait_phase("Running")["restarts"] == 0


@pytest.mark.usefixtures("operator")
def test_a_reader_makes_room_when_a_finished_crawl_is_asked_for_again(crawl: Crawl, user: User) -> None:
    completed(crawl)
    reader = crawl.read()
    before = crawl.kubelet.pods()[0]["metadata"]["uid"]
    user.crawl("restart", "docs")
    crawl.reader_told_to_go(reader)
    crawl.reader_is_gone(reader)
    pod = crawl.kubelet.new_pod(besides=before)
    crawl.kubelet.run(pod)
    crawl.wait_phase("Running")


@pytest.mark.usefixtures("operator")
def test_a_reader_that_comes_between_is_removed_beside_the_starting_pod(crawl: Crawl) -> None:
    """The plugin looked when there was no Pod, and made its Job when there was one."""
    crawl.apply()
    crawl.kubelet.new_pod()
    reader = crawl.read()
    crawl.reader_told_to_go(reader)
    crawl.reader_is_gone(reader)


@pytest.mark.usefixtures("operator")
def test_readers_of_what_rests_and_jobs_of_others_are_left_alone(api: Api, crawl: Crawl) -> None:
    completed(crawl)
    reader = crawl.read()
    crawl.edit(ttlSecondsAfterFinished=86_400)  # it is looked at again
    wait_until(lambda: crawl.status()["observedGeneration"] == 2, "a look")
    found = api.get(jobs(crawl.namespace, reader["metadata"]["name"]))
    assert found is not None
    assert "deletionTimestamp" not in found["metadata"]
    api.patch(jobs(crawl.namespace, reader["metadata"]["name"]), {"metadata": {"ownerReferences": None}})
    crawl.edit(restartRequestedAt="again")
    crawl.kubelet.new_pod(besides=crawl.kubelet.pods()[0]["metadata"]["uid"])
    found = api.get(jobs(crawl.namespace, reader["metadata"]["name"]))
    assert found is not None
    assert "deletionTimestamp" not in found["metadata"], "it is not ours any more (law O6)"


def test_a_killed_operator_leaves_no_second_user_of_the_volume(
    crawl: Crawl, hasty: HastyOperator, proxy: FaultProxy
) -> None:
    """Between telling the reader to go and making the Pod."""
    hasty.start()
    crawl.apply(suspend=True)
    crawl.wait_phase("Suspended")
    reader = crawl.read()
    crawl.edit(suspend=False)
    crawl.reader_told_to_go(reader)
    hasty.kill()
    hasty.start()
    crawl.wait_condition("Ready", "False", "ResultsBeingRead")
    assert not crawl.kubelet.pods()
    crawl.reader_is_gone(reader)
    crawl.kubelet.new_pod()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("operator")
def test_the_job_is_made_as_the_api_server_wants_it_and_removed_on_a_signal(
    api: Api, crawl: Crawl, user: User, how: signal.Signals
) -> None:
    completed(crawl)
    process = user.start("report", "docs")
    (made,) = wait_until(lambda: api.items(jobs(crawl.namespace)), "a Job")
    assert made["metadata"]["ownerReferences"][0]["uid"] == crawl.get()["metadata"]["uid"]
    images = {container["image"] for container in made["spec"]["template"]["spec"]["containers"]}
    assert images == {crawl.status()["image"]}
    process.send_signal(how)
    process.communicate(timeout=30)
    assert process.returncode == 128 + how
    crawl.reader_told_to_go(made)
    crawl.reader_is_gone(made)


@pytest.mark.usefixtures("operator")
def test_without_rights_it_says_which(server: ApiServer, crawl: Crawl, namespace: str) -> None:
    crawl.apply(suspend=True)
    stranger = User(server, namespace, "stranger")
    for command in ("status", "suspend", "report"):
        said = stranger.crawl(command, "docs", code=1)
        assert said.startswith("Error: You may not do that (docs/results.md lists the rights): ")
        assert 'User "stranger" cannot' in said
        assert len(said.splitlines()) == 1


def test_a_crawljob_that_is_not_there(api: Api, namespace: str, user: User) -> None:
    assert api.get(crawljobs(namespace, "none")) is None
    assert user.crawl("suspend", "none", code=1) == (
        f"Error: There is no CrawlJob none in namespace {namespace}; see `kubectl get crawljobs -A`.\n"
    )


def test_a_kubeconfig_that_names_no_cluster() -> None:
    done = subprocess.run(
        [*PROGRAM, "status", "docs", "--kubeconfig", "/nonexistent"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Error: KUBECONFIG: /nonexistent names no cluster to work with")
