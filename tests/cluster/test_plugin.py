"""``kubectl crawl`` at a real cluster, by an account with the rights of docs/results.md and no other.

During a run, when it is suspended, done or failed, without an operator; and what stays behind of a plugin that dies.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support import product, stories
from tests.support.cluster import testbed
from tests.support.product import Job
from tests.support.stories import SLOWLY, Place

from crawljob_operator import names
from crawljob_operator.plugin import reader

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        testbed.mode() == "existing", reason="an existing cluster has no outside world to serve the site from"
    ),
]

ROOT = Path(__file__).resolve().parents[2]
READERS = f"{names.LABEL_COMPONENT}={names.READER_COMPONENT}"


@dataclass(frozen=True)
class User:
    """Somebody with kubectl, the plugin and an account of the namespace."""

    environment: Mapping[str, str]
    namespace: str

    def start(self, *arguments: str, output: Any = subprocess.PIPE) -> subprocess.Popen[str]:
        """Type ``kubectl crawl …``, and do not wait. As in a terminal, whatever the tests' own one ignores."""
        return subprocess.Popen(
            ["env", "--default-signal=INT", "kubectl", "crawl", *arguments],
            env=dict(self.environment),
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
        )

    def crawl(self, *arguments: str, code: int = 0) -> str:
        """Type it; what it printed. With another ``code``, what it said."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=150)
        assert process.returncode == code, f"{arguments}: {process.returncode}\n{err}"
        return err if code else out


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    product.install()
    with stories.place(tmp_path_factory.mktemp("site"), pages=20) as made:
        yield made


@pytest.fixture(scope="module")
def user(place: Place, tmp_path_factory: pytest.TempPathFactory) -> User:
    """Its kubeconfig has the namespace, its PATH the plugin."""
    folder = tmp_path_factory.mktemp("user")
    space = place.namespace
    text = (ROOT / "docs" / "results.md").read_text()
    (role,) = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL))
    assert role["kind"] == "Role"
    testbed.apply(role, "-n", space)
    testbed.kubectl("create", "serviceaccount", "person", "-n", space)
    name = role["metadata"]["name"]
    testbed.kubectl("create", "rolebinding", name, f"--role={name}", f"--serviceaccount={space}:person", "-n", space)
    token = testbed.kubectl("create", "token", "person", "-n", space, "--duration=2h").strip()
    config = json.loads(testbed.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    config["users"] = [{"name": "person", "user": {"token": token}}]
    (context,) = config["contexts"]
    context["context"].update(user="person", namespace=space)
    (folder / "kubeconfig").write_text(json.dumps(config))
    program = folder / "kubectl-crawl"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m crawljob_operator.plugin.cli "$@"\n')
    program.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return User({**os.environ, "KUBECONFIG": str(folder / "kubeconfig"), "PATH": path}, space)


@pytest.fixture(scope="module")
def finished(place: Place) -> Job:
    job = place.apply("finished")
    job.wait("Complete", 120)
    return job


def nothing_is_left(place: Place, seconds: float = 60) -> None:
    """Neither Jobs nor Pods of readers."""
    testbed.wait_until(lambda: not readers(place, "job") and not readers(place, "pod"), seconds, "the readers to go")


def readers(place: Place, kind: str) -> list[Mapping[str, Any]]:
    found = testbed.get_json(kind, "-l", READERS, "-n", place.namespace)
    items: list[Mapping[str, Any]] = found["items"] if found else []
    return items


def urls(rows: str) -> set[str]:
    return {json.loads(line)["url"] for line in rows.splitlines()}


def page_by_port_forward(pod: str, namespace: str) -> str:
    """What a browser gets that somebody points at the crawl's own page."""
    command = ["kubectl", "port-forward", "-n", namespace, f"pod/{pod}", ":9091"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forwarding:
        try:
            assert forwarding.stdout is not None
            found = re.search(r"127\.0\.0\.1:(\d+)", forwarding.stdout.readline())
            assert found is not None
            with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/", timeout=30) as answer:
                text: str = answer.read().decode()
                return text
        finally:
            forwarding.terminate()


def test_during_a_run_and_suspended(place: Place, user: User) -> None:
    job = place.apply("running", politeness={"delay": "1s"}, fetch={"workers": 1, "perHost": 1})
    job.until(lambda: job.done() >= 3, 90, "some pages done")
    status = json.loads(user.crawl("status", "running", "-o", "json"))
    assert status["status"]["phase"] == "Running"
    assert status["frontier"]["pages"]["done"] >= 3
    assert "crawljob" in user.crawl("status", "running")
    assert len(urls(user.crawl("export", "running", "pages"))) == place.pages, "known are all links of the first page"
    seed = place.site.url("/")
    assert seed in user.crawl("explain", "running", seed)
    assert not readers(place, "job"), "the running Pod was asked"
    assert "Crawl of frontier.db" in page_by_port_forward(job.owned("pod")[0], place.namespace)

    assert user.crawl("suspend", "running") == "crawljob.durable-crawler.io/running suspended\n"
    job.wait("Suspended", 60)
    left = job.frontier().snapshot()
    assert 3 <= left.done < place.pages
    rows = [json.loads(line) for line in user.crawl("export", "running", "pages").splitlines()]
    assert len(rows) == place.pages
    assert json.loads(user.crawl("explain", "running", seed, "-o", "json"))
    nothing_is_left(place)
    user.crawl("resume", "running")
    job.until(lambda: job.done() > left.done, 60, "it to go on")
    testbed.delete("crawljob", "running", "-n", place.namespace)


def test_after_success_also_without_an_operator(place: Place, user: User, finished: Job, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert user.crawl("report", "finished", "-o", "html", "--output", str(page)) == ""
    assert page.read_text().rstrip().endswith("</html>")
    product.stop_operator()
    try:
        rows = urls(user.crawl("export", "finished", "pages"))
        assert rows == finished.frontier().finished_urls()
        assert len(rows) == place.pages
        assert json.loads(user.crawl("report", "finished", "-o", "json"))
        status = json.loads(user.crawl("status", "finished", "-o", "json"))
        assert (status["frontier"], status["status"]["phase"]) == (None, "Complete")
        nothing_is_left(place)
    finally:
        product.start_operator()


def test_after_failure_also_without_an_operator(place: Place, user: User, tmp_path: Path) -> None:
    """Killed with its database open: what was committed is only in the WAL, beside a file that must not change."""
    job = place.apply("failed", restartPolicy={"backoffLimit": 0}, **SLOWLY)
    job.until(lambda: job.done() >= 4, 90, "some pages done")
    (pod,) = job.owned("pod")
    testbed.kill_container(pod, place.namespace, "crawler")
    job.wait("Failed", 60)
    files = {file.name: file.read_bytes() for file in testbed.volume_path(job.claim, place.namespace).iterdir()}
    assert files["frontier.db-wal"], "it was not closed in order"
    rows = [json.loads(line) for line in user.crawl("export", "failed", "pages").splitlines()]
    assert len(rows) == place.pages
    done = sum(row["state"] == "done" for row in rows)
    assert 4 <= done < place.pages
    product.stop_operator()
    try:
        report = tmp_path / "report.json"
        assert "unchecked" in user.crawl("report", "failed", "--output", str(report), "--fail-on", "unchecked", code=3)
        assert json.loads(report.read_text())["crawl"]["pages"]["done"] == done
        page = user.crawl("report", "failed", "-o", "html")
        assert page.rstrip().endswith("</html>")
        assert "it is a seed" in user.crawl("explain", "failed", place.site.url("/"))
        assert "Failed (BackoffLimitExceeded)" in user.crawl("status", "failed", "--watch")
    finally:
        product.start_operator()
    after = {file.name: file.read_bytes() for file in testbed.volume_path(job.claim, place.namespace).iterdir()}
    assert after == files
    nothing_is_left(place)


def test_ctrl_c_removes_the_job(place: Place, user: User, finished: Job) -> None:
    process = user.start("export", finished.name, "pages")
    testbed.wait_until(lambda: readers(place, "job"), 60, "a reader", interval=0.1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    nothing_is_left(place)


def test_a_job_that_cannot_start_is_told_in_the_kubelets_words(place: Place, user: User, finished: Job) -> None:
    said = user.crawl("report", finished.name, "--image", "registry.invalid/none:1", code=1)
    *_, line = said.splitlines()
    assert line.startswith("Error: The results cannot be read with Job finished-")
    assert "ImagePullBackOff" in line
    assert "registry.invalid/none:1" in line
    nothing_is_left(place)
    assert "There is no CrawlJob none" in user.crawl("report", "none", code=1)


def killed_while_it_reads(place: Place, user: User, job: Job) -> str:
    """Kill a plugin whose Job has begun to run; the Job's UID."""
    process = user.start("export", job.name, "pages", output=subprocess.DEVNULL)

    def runs() -> bool:
        return any(pod["status"].get("phase") == "Running" for pod in readers(place, "pod"))

    testbed.wait_until(runs, 60, "a reader that runs", interval=0.1)
    process.kill()
    process.communicate(timeout=30)
    jobs = readers(place, "job")
    if process.returncode != -signal.SIGKILL or not jobs:
        pytest.fail("the plugin was done before it was killed")
    uid: str = jobs[0]["metadata"]["uid"]
    return uid


def test_a_crawl_that_is_asked_for_again_does_not_wait_for_a_reader(place: Place, user: User, finished: Job) -> None:
    uid = killed_while_it_reads(place, user, finished)
    before = finished.status["currentPod"]["uid"]
    user.crawl("restart", finished.name)

    def again() -> bool:
        pod = finished.status.get("currentPod") or {}
        return bool(pod.get("uid", before) != before)

    finished.until(again, reader.IDLE_SECONDS - 5, "the next Pod, before the reader would have ended by itself")
    assert uid not in [job["metadata"]["uid"] for job in readers(place, "job")]
    finished.wait("Complete", 90)
    assert finished.status["restarts"] == 0
    nothing_is_left(place)


def test_of_a_killed_plugin_nothing_stays(place: Place, user: User, finished: Job) -> None:
    uid = killed_while_it_reads(place, user, finished)
    assert uid in [job["metadata"]["uid"] for job in readers(place, "job")]
    nothing_is_left(place, reader.IDLE_SECONDS + reader.KEPT_SECONDS + 60)
    assert len(urls(user.crawl("export", finished.name, "pages"))) == place.pages
