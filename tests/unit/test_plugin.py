"""``kubectl crawl`` at an API server in memory: where results are read, what is left behind, what is said."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from tests.support.builders import job
from tests.support.plugin_cluster import IMAGE, NAMESPACE, SUCCESS, Cluster, exited
from tests.support.podsecurity import violations

from crawljob.reports import form_for
from crawljob_operator import names, render
from crawljob_operator.kube import CONFIGS, EVENTS, JOBS, ApiError, Kube, NoClusterError
from crawljob_operator.plugin import actions, output, reader, remote, volume
from crawljob_operator.plugin.cli import plugin
from crawljob_operator.plugin.errors import CutOffError, PluginError
from crawljob_operator.plugin.reader import Over, Ready, Starting

RUNNING = {"running": {"startedAt": "2031-05-06T07:08:09Z"}}
DONE = {"terminated": {"exitCode": 0}}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The one that the plugin connects to; nothing in it lasts."""
    made = Cluster()

    async def connect(**_: object) -> Cluster:
        return made

    monkeypatch.setattr(Kube, "connect", connect)
    monkeypatch.setattr(volume, "POLL_SECONDS", 0.001)
    return made


def run(*arguments: str) -> Result:
    return CliRunner().invoke(plugin, arguments)


def sentence(result: Result, code: int = 1) -> str:
    """The one line on standard error with which it failed; nothing went to standard output."""
    assert (result.exit_code, result.stdout) == (code, "")
    *_, line = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return line


# -- where results are read --------------------------------------------------------------------------------------------


def test_a_running_crawl_is_asked_in_its_own_pod(cluster: Cluster) -> None:
    owner = cluster.crawljob()
    cluster.pod(owner, RUNNING)
    result = run("report", "docs", "-o", "html")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "result\n", "")
    assert cluster.commands == [["durable-crawler", "report", "--db", "/data/frontier.db", "--format", "html"]]
    assert cluster.places == [(render.pod_name(owner), names.CONTAINER)]
    assert not cluster.created, "its volume has one user"


@pytest.mark.parametrize("state", [None, DONE], ids=["no Pod", "an ended Pod"])
def test_else_the_volume_is_read_through_a_job_that_is_removed(cluster: Cluster, state: Any) -> None:
    owner = cluster.crawljob()
    cluster.volume(owner)
    if state:
        cluster.pod(owner, state)
    result = run("export", "docs", "links", "-o", "csv")
    assert (result.exit_code, result.stdout) == (0, "result\n")
    assert cluster.commands == [
        ["durable-crawler", "export", "--db", "/tmp/frontier.db", "links", "--format", "csv"]  # in its Pod
    ]
    assert cluster.places == [("reader-x", reader.CONTAINER)]
    (made,) = cluster.created
    assert made["metadata"]["name"] == render.reader_name(owner)
    assert cluster.deleted == [render.reader_name(owner)]
    assert not cluster.jobs()


def test_a_url_is_never_taken_for_a_flag(cluster: Cluster) -> None:
    cluster.pod(cluster.crawljob(), RUNNING)
    assert run("explain", "docs", "--", "--help").exit_code == 0
    (command,) = cluster.commands
    assert command[-2:] == ["--", "--help"]


@pytest.mark.parametrize("where", ["in its Pod", "in a Job", "in a Job without the file", "without the right"])
def test_a_url_is_explained_with_the_crawls_own_file(cluster: Cluster, where: str) -> None:
    owner = cluster.crawljob()
    assert owner.spec is not None
    name = render.config_name(owner, owner.spec)
    if where == "in its Pod":
        cluster.pod(owner, RUNNING)
    else:
        cluster.volume(owner)
    if where == "in a Job":
        cluster.put(CONFIGS, {"metadata": {"name": name}})
    if where == "without the right":
        cluster.refusals["configmaps"] = ApiError(403, "Forbidden", "no")
    assert run("explain", "docs", "http://a/", "-o", "json").exit_code == 0
    (command,) = cluster.commands
    known = where in ("in its Pod", "in a Job")
    assert command[:3] == ["durable-crawler", "explain", "--db"]
    assert command[4:] == [
        *(["--file", "/etc/crawljob/crawljob.yaml"] if known else []),
        "--format",
        "json",
        "--",
        "http://a/",
    ]
    for made_job in cluster.created:
        pod = made_job["spec"]["template"]["spec"]
        assert ({"name": "config", "configMap": {"name": name}} in pod["volumes"]) == known
        mounts = {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
        assert ("/etc/crawljob" in mounts) == known


@pytest.mark.parametrize(
    ("given", "status", "spec", "image"),
    [
        (("--image", "own:1"), {}, {"image": "spec:1"}, "own:1"),
        ((), {}, {"image": "spec:1"}, IMAGE),
        ((), {"image": ""}, {"image": "spec:1"}, "spec:1"),
    ],
)
def test_the_job_has_the_image_that_wrote_the_frontier(
    cluster: Cluster, given: tuple[str, ...], status: Any, spec: Any, image: str
) -> None:
    cluster.volume(cluster.crawljob(status, **spec))
    assert run("report", "docs", *given).exit_code == 0
    template = cluster.created[0]["spec"]["template"]["spec"]
    assert {container["image"] for key in ("initContainers", "containers") for container in template[key]} == {image}


def test_the_job_is_bounded_restricted_and_goes_where_the_crawler_would() -> None:
    owner = job(
        imagePullPolicy="Never",
        podTemplate={
            "labels": {"team": "docs"},
            "annotations": {"example.org/inject": "no"},
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "crawl", "operator": "Exists"}],
            "imagePullSecrets": [{"name": "pull"}],
            "resources": {"limits": {"memory": "1Gi", "ephemeral-storage": "10Mi"}},
        },
    )
    body = reader.body(owner, "crawler:1", "claim", Decimal(1024), "mark")
    spec, template = body["spec"], body["spec"]["template"]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (0, 3600, 30)
    (reference,) = body["metadata"]["ownerReferences"]
    assert (reference["uid"], reference["controller"], reference["blockOwnerDeletion"]) == (owner.uid, True, False)
    assert violations(template) == []
    labels = template["metadata"]["labels"]
    assert labels["team"] == "docs"
    assert labels[names.LABEL_UID] == owner.uid, "the crawl's NetworkPolicy is for it too"
    assert labels[names.LABEL_COMPONENT] == names.READER_COMPONENT, "nobody takes it for a crawler"
    assert template["metadata"]["annotations"] == {"example.org/inject": "no"}
    pod = template["spec"]
    assert pod["nodeSelector"] == {"disk": "ssd"}
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert pod["tolerations"] == [{"key": "crawl", "operator": "Exists"}]
    assert pod["automountServiceAccountToken"] is False
    (copier,), (holder,) = pod["initContainers"], pod["containers"]
    assert copier["command"] == ["kubectl-crawl", "inside", "copy", "/data/frontier.db", "/tmp/frontier.db"]
    assert {"name": "data", "mountPath": "/data", "readOnly": True} in copier["volumeMounts"]
    assert "data" not in {mount["name"] for mount in holder["volumeMounts"]}
    assert holder["command"] == ["kubectl-crawl", "inside", "hold", "30"]
    assert holder["resources"] == {"limits": {"memory": "1Gi"}}, "the database is copied to where that limit counts"
    assert holder["imagePullPolicy"] == "Never"
    scratch = {"name": "scratch", "emptyDir": {"sizeLimit": str(2 * 1024 + 64 * 1024 * 1024)}}
    assert pod["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "claim"}}, scratch]


def test_a_job_of_a_spec_that_cannot_be_read_is_made_all_the_same(cluster: Cluster) -> None:
    cluster.volume(cluster.crawljob(fetch={"workers": -1}))
    assert run("report", "docs").exit_code == 0


# -- what is left behind -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["on_create", "on_exec"])
async def test_an_interrupted_plugin_removes_its_job(cluster: Cluster, moment: str) -> None:
    owner = cluster.crawljob()
    cluster.volume(owner)
    reading = actions.Reading(["report"], [], None, None, 5)

    def interrupt(*_: object) -> None:
        task.cancel()

    setattr(cluster, moment, interrupt)
    kube: Any = cluster
    task = asyncio.create_task(actions.read(kube, NAMESPACE, "docs", reading))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cluster.created
    assert not cluster.jobs()


def test_somebody_elses_reader_is_waited_for_and_left_alone(cluster: Cluster) -> None:
    owner = cluster.crawljob()
    cluster.volume(owner)
    cluster.put(JOBS, reader.body(owner, IMAGE, "claim", Decimal(1), "somebody"))
    result = run("report", "docs", "--start-timeout", "1")
    assert "Somebody else reads these results with Job" in sentence(result)
    assert len(result.stderr.splitlines()) == 2, "it says once what it waits for"
    assert cluster.jobs() == [render.reader_name(owner)]
    assert not cluster.deleted


def test_a_reader_that_has_ended_makes_room(cluster: Cluster) -> None:
    owner = cluster.crawljob()
    cluster.volume(owner)
    old = reader.body(owner, IMAGE, "claim", Decimal(1), "somebody")
    cluster.put(JOBS, {**old, "status": {"conditions": [{"type": "Complete", "status": "True"}]}})
    assert run("report", "docs").exit_code == 0
    assert not cluster.jobs()


def test_a_foreign_job_of_that_name_is_never_touched(cluster: Cluster) -> None:
    owner = cluster.crawljob()
    cluster.volume(owner)
    cluster.put(JOBS, {"metadata": {"name": render.reader_name(owner)}})
    assert "belongs to somebody else" in sentence(run("report", "docs"))
    assert cluster.jobs() == [render.reader_name(owner)]


def test_a_crawl_that_starts_again_takes_its_volume(cluster: Cluster) -> None:
    """The operator removes the Job: the reader is killed, and the user is told why."""
    owner = cluster.crawljob()
    cluster.volume(owner)
    cluster.status = exited(137)
    cluster.on_exec = lambda: cluster.objects.pop((JOBS.plural, render.reader_name(owner)))
    result = CliRunner().invoke(plugin, ["export", "docs", "pages"])
    assert result.exit_code == 1
    assert "the crawl starts again or is deleted; ask once it runs" in result.stderr.splitlines()[-1]


# -- what is said ------------------------------------------------------------------------------------------------------


def test_no_such_crawljob(cluster: Cluster) -> None:
    for command in (("report", "none"), ("status", "none"), ("suspend", "none"), ("explain", "none", "http://a/")):
        assert "There is no CrawlJob none in namespace crawls" in sentence(run(*command))
    assert "in namespace other" in sentence(run("status", "none", "-n", "other"))
    assert not cluster.created


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"startTime": None}, "The crawl has not begun: no operator has seen it yet."),
        ({}, "is gone, and the results with it."),
    ],
)
def test_no_volume(cluster: Cluster, status: Any, words: str) -> None:
    cluster.crawljob(status)
    assert words in sentence(run("report", "docs"))


@pytest.mark.parametrize(("phase", "words"), [("Pending", "is not bound yet"), ("Lost", "has lost")])
def test_a_volume_without_results(cluster: Cluster, phase: str, words: str) -> None:
    cluster.volume(cluster.crawljob(), phase=phase)
    assert words in sentence(run("report", "docs"))


def test_no_image(cluster: Cluster) -> None:
    cluster.volume(cluster.crawljob({"image": ""}))
    assert "--image" in sentence(run("report", "docs"))


def test_a_pod_that_does_not_run_yet(cluster: Cluster) -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image x"}}
    cluster.pod(cluster.crawljob(), waiting, phase="Pending")
    assert "Back-off pulling image x" in sentence(run("report", "docs"))
    assert not cluster.created


@pytest.mark.parametrize(
    ("resource", "words"),
    [
        ("crawljobs", "You may not do that (docs/results.md lists the rights): because"),
        ("jobs", "You may not do that (docs/results.md lists the rights): because"),
        ("exec", "needs the verbs get and create on pods/exec"),
    ],
)
def test_no_rights(cluster: Cluster, resource: str, words: str) -> None:
    cluster.volume(cluster.crawljob())
    cluster.refusals[resource] = ApiError(403, "Forbidden", "because")
    result = run("report", "docs")
    assert (result.exit_code, result.stdout) == (1, "")
    assert [line for line in result.stderr.splitlines() if line.startswith("Error: ") and words in line]


def test_a_job_that_cannot_start_is_removed_and_told_in_the_kubelets_words(cluster: Cluster) -> None:
    cluster.volume(cluster.crawljob())
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'}
    cluster.on_create = lambda made: cluster.reader_pod(made, {"name": "copy", "state": {"waiting": waiting}})
    assert 'ImagePullBackOff: Back-off pulling image "x"' in sentence(run("report", "docs"))
    assert not cluster.jobs()


def test_a_job_that_does_not_start_is_told_in_the_schedulers_words(cluster: Cluster) -> None:
    cluster.volume(cluster.crawljob())
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node fits"}
    cluster.on_create = lambda made: cluster.reader_pod(made, conditions=[unscheduled])
    result = run("report", "docs", "--start-timeout", "1")
    assert "did not start within 1 s: Unschedulable: no node fits" in sentence(result)
    assert result.stderr.splitlines()[1] == "waiting: Unschedulable: no node fits"
    assert not cluster.jobs()


@pytest.mark.parametrize("may_read_events", [True, False])
def test_a_job_whose_pod_is_refused_is_told_in_the_words_of_its_events(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, may_read_events: bool
) -> None:
    monkeypatch.setattr(volume, "EVENTS_SECONDS", 0)
    owner = cluster.crawljob()
    cluster.volume(owner)
    uid = f"uid-of-{render.reader_name(owner)}"
    event = {"metadata": {"name": "e"}, "involvedObject": {"uid": uid}, "type": "Warning"}
    cluster.put(EVENTS, {**event, "reason": "FailedCreate", "message": "exceeded quota"})
    if not may_read_events:
        cluster.refusals["events"] = ApiError(403, "Forbidden", "no")
    cluster.on_create = lambda _: None
    said = sentence(run("report", "docs", "--start-timeout", "1"))
    assert said.endswith("FailedCreate: exceeded quota" if may_read_events else "no reason is given")


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (NoClusterError("KUBECONFIG: x names no cluster"), "KUBECONFIG: x names no cluster"),
        (TimeoutError(), "The API server gives no answer: TimeoutError"),
        (ApiError(401, "Unauthorized", "Unauthorized"), "The cluster does not know who you are"),
        (ApiError(500, "InternalError", "etcd is away"), "The API server refuses that: etcd is away"),
    ],
)
def test_no_cluster(monkeypatch: pytest.MonkeyPatch, failure: Exception, words: str) -> None:
    async def connect(**_: object) -> Any:
        raise failure

    monkeypatch.setattr(Kube, "connect", connect)
    assert words in sentence(run("status", "docs"))


def test_what_the_program_says_and_its_exit_code_are_the_plugins(cluster: Cluster, tmp_path: Path) -> None:
    cluster.pod(cluster.crawljob(), RUNNING)
    cluster.out, cluster.err, cluster.status = (b"half",), (b"error: no such frontier\n",), exited(15)
    file = tmp_path / "report.html"
    file.write_text("before")
    result = run("report", "docs", "--output", str(file))
    assert (result.exit_code, result.stdout, result.stderr) == (15, "", "error: no such frontier\n")
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_a_report_that_finds_what_it_looks_for_is_whole(cluster: Cluster, tmp_path: Path) -> None:
    cluster.pod(cluster.crawljob(), RUNNING)
    cluster.status = exited(3)
    file = tmp_path / "report.xml"
    result = run("report", "docs", "-o", "junit", "--fail-on", "broken", "--output", str(file))
    assert (result.exit_code, file.read_text()) == (3, "result\n")
    assert cluster.commands[0][-2:] == ["--fail-on", "broken"]


@pytest.mark.parametrize("status", [None, exited(137)], ids=["cut off", "killed"])
def test_half_a_result_is_no_result(cluster: Cluster, tmp_path: Path, status: Any) -> None:
    cluster.pod(cluster.crawljob(), RUNNING)
    cluster.status = status
    sentence(run("export", "docs", "pages", "--output", str(tmp_path / "pages.jsonl")))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_whoever_ends_it_leaves_no_job(cluster: Cluster, tmp_path: Path, number: signal.Signals) -> None:
    """SIGHUP is what a terminal sends that is closed."""
    cluster.volume(cluster.crawljob({"phase": "Complete"}))
    cluster.on_create = lambda _: os.kill(os.getpid(), number)
    before = signal.signal(number, signal.SIG_DFL)  # whatever the tests' own shell ignores
    try:
        result = run("export", "docs", "pages", "--output", str(tmp_path / "pages.jsonl"))
    finally:
        signal.signal(number, before)
    assert (result.exit_code, len(cluster.created), cluster.jobs()) == (128 + number, 1, [])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "form"),
    [
        ([], "html"),
        (["--output", "a.md"], "markdown"),
        (["--output", "a.HTML"], "html"),
        (["--output", "a.json"], "json"),
        (["--output", "a.xml"], "junit"),
        (["--output", "a"], "html"),
        (["--output", "a.md", "-o", "junit"], "junit"),
    ],
)
def test_a_report_has_the_form_that_its_file_says(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: Sequence[str], form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    cluster.pod(cluster.crawljob(), RUNNING)
    assert run("report", "docs", *words).exit_code == 0
    assert cluster.commands[0][-2:] == ["--format", form]


def test_a_report_for_a_terminal_can_be_read_there() -> None:
    assert form_for(None, terminal=True) == "markdown"
    assert form_for(Path("report.html"), terminal=True) == form_for(None, terminal=False) == "html"


def test_an_output_that_cannot_be_written(cluster: Cluster, tmp_path: Path) -> None:
    cluster.volume(cluster.crawljob({"phase": "Complete"}))
    assert "cannot be written (No such file or directory)" in sentence(
        run("report", "docs", "--output", str(tmp_path / "none" / "report.html"))
    )
    assert not cluster.created, "nor is a Job made for it"


def test_a_file_appears_whole(tmp_path: Path) -> None:
    file = tmp_path / "pages.csv"
    file.write_text("before")
    with output.opened(file) as write:
        write(b"one\n")
        assert file.read_text() == "before"
        write(b"two\n")
    assert file.read_text() == "one\ntwo\n"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("words", [("export", "docs", "pages"), ("status", "docs"), ("suspend", "docs")], ids=" ".join)
def test_a_standard_output_that_takes_nothing_is_not_the_clusters_fault(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, words: Sequence[str]
) -> None:
    cluster.pod(cluster.crawljob(), RUNNING)
    cluster.out = (b"result",)

    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(click.ClickException) as refused:
            plugin.main(words, standalone_mode=False)
    assert str(refused.value) == "Standard output cannot be written (No space left on device)."


# -- status, and the patches -------------------------------------------------------------------------------------------

PROGRESS = {"done": 1234, "failed": 5, "pending": 7, "updatedAt": "2031-05-06T07:08:09Z"}
READY = {
    "type": "Ready",
    "status": "False",
    "reason": "BackoffWaiting",
    "message": "Restart at\x1b[2J 10:00",
    "lastTransitionTime": "2031-05-06T07:08:09Z",
}
WAITING = {"phase": "Restarting", "restarts": 2, "attempt": 3, "conditions": [READY], "progress": PROGRESS}


def test_status_of_a_crawl_without_a_pod_is_what_the_crawljob_says(cluster: Cluster) -> None:
    cluster.crawljob(WAITING)
    result = run("status", "docs")
    assert result.stdout.splitlines() == [
        "crawljob crawls/docs: Restarting (BackoffWaiting)",
        "  Restart at [2J 10:00",
        "  attempt 3, 2 restarts, 1,234 pages done, 5 of them failed, 7 pending, as of 2031-05-06T07:08:09Z",
    ]
    assert not cluster.commands


def test_status_of_a_running_crawl_is_live(cluster: Cluster) -> None:
    cluster.pod(cluster.crawljob({"phase": "Running"}), RUNNING)
    assert run("status", "docs").stdout.splitlines()[-1] == "result"
    cluster.out = (b'{"phase": ', b'"running"}')
    document = json.loads(run("status", "docs", "-o", "json").stdout)
    assert document["frontier"] == {"phase": "running"}
    assert document["status"]["phase"] == "Running"
    assert [command[-1] for command in cluster.commands] == ["table", "json"]


def test_status_that_no_operator_keeps_says_so(cluster: Cluster) -> None:
    job = cluster.crawljob({"phase": "Running", "observedGeneration": 0})
    cluster.pod(job, {"terminated": {"exitCode": 137}})
    result = run("status", "docs")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "crawljob crawls/docs: Running")
    assert result.stderr.splitlines() == [
        "no Pod of it runs: this is what an operator saw last",
        "no operator has seen it as it is now",
    ]


@pytest.mark.parametrize("trouble", ["no right", "a failing program", "no status"])
def test_status_without_an_answer_from_the_pod_is_what_the_crawljob_says(cluster: Cluster, trouble: str) -> None:
    cluster.pod(cluster.crawljob({"phase": "Running"}), RUNNING)
    match trouble:
        case "no right":
            cluster.refusals["exec"] = ApiError(403, "Forbidden", "no")
        case "a failing program":
            cluster.err, cluster.status = (b"error: is locked\n",), exited(1)
        case _:
            cluster.out = (b"<html>",)
    result = run("status", "docs", "-o", "json")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["frontier"], document["status"]["phase"]) == (0, None, "Running")
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("only what the CrawlJob says: ")


def test_watching_ends_with_the_crawl(cluster: Cluster) -> None:
    cluster.pod(cluster.crawljob({"phase": "Running"}), RUNNING)
    looks = iter([b"one", b"one", b"two"])

    def look() -> None:
        text = next(looks, None)
        cluster.out = (text,) if text else ()
        if text is None:
            cluster.crawljob({"phase": "Complete"})

    cluster.on_exec = look
    result = CliRunner().invoke(plugin, ["status", "docs", "--watch", "--interval", "1"])
    assert result.exit_code == 0
    lines = result.stdout.split()
    assert [lines.count(word) for word in ("one", "two")] == [1, 1], "only what is new is printed"
    assert lines.count("Complete") == 1
    assert "\x1b" not in result.stdout, "nothing is cleared that is no terminal"


@pytest.mark.parametrize(("command", "value"), [("suspend", True), ("resume", False)])
def test_suspend_and_resume_are_one_patch(cluster: Cluster, command: str, value: bool) -> None:
    cluster.crawljob()
    assert run(command, "docs").stdout == f"crawljob.durable-crawler.io/docs {command.removesuffix('e')}ed\n"
    assert cluster.patched == [("docs", {"spec": {"suspend": value}})]


@pytest.mark.parametrize(
    ("command", "phase", "suspended", "words"),
    [
        ("suspend", "Failed", False, "it is Failed, and nothing runs: that counts once it is restarted"),
        ("resume", "Complete", True, "it is Complete, and nothing runs: that counts once it is restarted"),
        ("restart", "Complete", True, "it is suspended, and begins once it is resumed: kubectl crawl resume docs"),
        ("restart", "Complete", False, ""),
        ("suspend", "Running", False, ""),
        ("resume", "Suspended", True, ""),
    ],
)
def test_a_patch_after_which_nothing_happens_says_so(
    cluster: Cluster, command: str, phase: str, words: str, *, suspended: bool
) -> None:
    cluster.crawljob({"phase": phase}, suspend=suspended)
    result = run(command, "docs")
    assert (result.exit_code, result.stderr.rstrip("\n"), len(cluster.patched)) == (0, words, 1)


@pytest.mark.parametrize("name", ["", "crawljob/docs", "docs/status", "..", "Docs", "d" * 254, "a\nb"])
@pytest.mark.parametrize("command", ["status", "suspend"])
def test_what_is_no_name_goes_nowhere(cluster: Cluster, command: str, name: str) -> None:
    cluster.refusals["crawljobs"] = ApiError(500, "InternalError", "asked for")
    result = run(command, name)
    assert (result.exit_code, result.stdout, cluster.patched) == (2, "", [])
    assert f"{name!r} is no name of a CrawlJob" in result.stderr
    if name:
        assert f"{name!r} is no name of a namespace" in run(command, "docs", "--namespace", name).stderr


def test_restart_is_one_patch_and_another_each_time(cluster: Cluster) -> None:
    cluster.crawljob()
    for _ in range(2):
        assert run("restart", "docs").exit_code == 0
    ((_, first), (_, second)) = cluster.patched
    assert first.keys() == {"spec"}
    assert first["spec"].keys() == {"restartRequestedAt"}
    assert first["spec"]["restartRequestedAt"].endswith("Z")
    assert second["spec"]["restartRequestedAt"] >= first["spec"]["restartRequestedAt"]


# -- the pure parts ----------------------------------------------------------------------------------------------------

ALIVE = {"metadata": {"name": "j"}}
REMOVED = Over("it was removed, for the crawl starts again or is deleted; ask once it runs")


def made(*init: Any, **status: Any) -> list[Any]:
    return [{"metadata": {"name": "p"}, "status": {"initContainerStatuses": list(init), **status}}]


@pytest.mark.parametrize(
    ("raw", "pods", "found"),
    [
        (None, [], REMOVED),
        (
            {"metadata": {"deletionTimestamp": "x"}},
            [],
            Over("it was removed, for the crawl starts again or is deleted; ask once it runs"),
        ),
        (ALIVE, [], Starting()),
        (ALIVE, made(), Starting()),
        (ALIVE, [{"metadata": {"name": "p"}}], Starting()),
        (ALIVE, made({"name": "copy", "state": {"running": {}}}), Starting()),
        (ALIVE, made({"name": "copy", "state": {"waiting": {"reason": "PodInitializing"}}}), Starting()),
        (
            ALIVE,
            made({"name": "copy", "state": {"waiting": {"reason": "ErrImagePull", "message": "m"}}}),
            Starting("ErrImagePull: m"),
        ),
        (
            ALIVE,
            made({"name": "copy", "state": {"waiting": {"reason": "InvalidImageName"}}}),
            Over("InvalidImageName: no reason given"),
        ),
        (
            ALIVE,
            made({"name": "copy", "state": {"terminated": {"exitCode": 1, "message": "Error: no frontier\n"}}}),
            Over("no frontier"),
        ),
        (
            ALIVE,
            made({"name": "copy", "state": DONE}, containerStatuses=[{"name": "reader", "state": {"running": {}}}]),
            Ready("p"),
        ),
        (
            {**ALIVE, "status": {"conditions": [{"type": "Failed", "status": "True", "message": "too late"}]}},
            [],
            Over("too late"),
        ),
        (
            {**ALIVE, "status": {"conditions": [{"type": "Failed", "status": "True", "message": "backoff"}]}},
            made(message="Usage of EmptyDir volume exceeds the limit"),
            Over("Usage of EmptyDir volume exceeds the limit"),
        ),
    ],
)
def test_what_a_readers_state_means(raw: Any, pods: Any, found: Any) -> None:
    assert reader.state(raw, pods) == found


def test_how_a_program_ended() -> None:
    assert remote.ended(SUCCESS, "p") == 0
    assert remote.ended(exited(2), "p") == 2
    with pytest.raises(CutOffError, match="was killed in Pod p"):
        remote.ended(exited(137), "p")
    with pytest.raises(PluginError, match="Pod p did not run it: executable file not found"):
        remote.ended({"status": "Failure", "message": "executable file\nnot found"}, "p")
