"""``crawljob-operator check``: each right is asked for, each answer is one line, and every no says what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import pytest
from click.testing import CliRunner, Result

from crawljob import spec
from crawljob_operator import check, cli, names, rbac
from crawljob_operator.check import Right
from crawljob_operator.kube import ApiError, Kube, NoClusterError, Raw, Resource


class Cluster:
    """An API server that says yes to what an operator may do, but for what is given."""

    def __init__(self, *, lacking: tuple[str, ...] = (), having: tuple[str, ...] = ()) -> None:
        self.lacking, self.having = lacking, having
        self.asked: list[dict[str, str]] = []
        self.tried: list[Raw] = []
        self.refusal: Exception | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def allowed(self, attributes: Mapping[str, str]) -> bool:
        self.asked.append(dict(attributes))
        if self.refusal:
            raise self.refusal
        resource = "/".join(filter(None, (attributes["resource"], attributes.get("subresource"))))
        word = f"{attributes['verb']} {resource}"
        forbidden = {f"{verb} {resource}" for _, resource, verb in check.FORBIDDEN}
        return word in self.having or (word not in forbidden and word not in self.lacking)

    async def try_create(self, _: Resource, body: Raw) -> None:
        self.tried.append(body)
        if self.refusal:
            raise self.refusal


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command against a cluster, or where there is none (an exception)."""

    def ran(cluster: Cluster | Exception, *arguments: str, **environment: str) -> Result:
        async def connect() -> Cluster:
            if isinstance(cluster, Exception):
                raise cluster
            return cluster

        monkeypatch.setattr(Kube, "connect", connect)
        return CliRunner().invoke(cli.main, ["check", *arguments], env=environment)

    return ran


def test_every_right_of_the_code_is_asked_for_and_no_other_is_wanted(run: Any) -> None:
    cluster = Cluster()
    result = run(cluster, "rights")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert len(lines) == len(cluster.asked)
    assert all(line.startswith("ok    ") for line in lines)
    for rule in rbac.rules(clusterwide=True):
        for verb in rule["verbs"]:
            resource, _, part = rule["resources"][0].partition("/")
            wanted = {"group": rule["apiGroups"][0], "resource": resource, "subresource": part, "verb": verb}
            wanted["name"] = rule.get("resourceNames", [""])[0]
            assert {key: value for key, value in wanted.items() if value} in cluster.asked
    assert "ok    may patch crawljobs/status.durable-crawler.io in the whole cluster" in lines
    assert "ok    may not list secrets in the whole cluster" in lines
    assert "ok    may not create pods/exec in the whole cluster" in lines


def test_chosen_namespaces_are_asked_about_one_by_one_and_the_cluster_is_not(run: Any) -> None:
    cluster = Cluster()
    assert run(cluster, "rights", **{names.ENV_NAMESPACES: "team-a,team-b"}).exit_code == 0
    assert {attributes["namespace"] for attributes in cluster.asked} == {"team-a", "team-b"}
    assert not [attributes for attributes in cluster.asked if attributes["resource"] == "customresourcedefinitions"]


def test_what_it_must_not_have_is_asked_about_where_it_lives_too(run: Any) -> None:
    cluster = Cluster()
    assert run(cluster, "rights", "home", **{names.ENV_NAMESPACES: "team-a"}).exit_code == 0
    at_home = [attributes for attributes in cluster.asked if attributes["namespace"] == "home"]
    assert len(at_home) == len(check.FORBIDDEN)
    cluster = Cluster()
    assert run(cluster, "rights", "team-a", **{names.ENV_NAMESPACES: "team-a"}).exit_code == 0
    assert len(cluster.asked) == len([*check.needed(["team-a"]), *check.forbidden(["team-a"])]), "once is enough"


def test_what_is_missing_is_named_with_what_to_do(run: Any) -> None:
    result = run(Cluster(lacking=("delete pods",)), "rights")
    assert result.exit_code == 1
    (line,) = (line for line in result.stdout.splitlines() if not line.startswith("ok "))
    assert line.startswith("FAIL  may delete pods in the whole cluster: the operator's account lacks it; upgrade")
    assert result.stderr == "Error: 1 of these checks failed; each says what to do\n"


@pytest.mark.parametrize("right", [f"{verb} {resource}" for _, resource, verb in check.FORBIDDEN])
def test_a_right_too_much_fails_too(run: Any, right: str) -> None:
    result = run(Cluster(having=(right,)), "rights")
    assert result.exit_code == 1
    assert "must not; find who binds it (kubectl get clusterrolebindings,rolebindings " in result.stdout


def test_nothing_is_both_needed_and_forbidden() -> None:
    assert not {*check.needed(())} & {*check.forbidden(())}
    assert Right("", "pods", "get", "team-a") in {*check.needed(["team-a"])}


def test_the_sample_has_every_field_and_is_only_tried(run: Any) -> None:
    cluster = Cluster()
    result = run(cluster, "sample", "team-a")
    assert (result.exit_code, result.stdout[:6]) == (0, "ok    ")
    (body,) = cluster.tried
    assert body["metadata"]["namespace"] == "team-a"
    assert {*body["spec"]} == {field.alias for field in spec.CrawlJobSpec.model_fields.values()}


@pytest.mark.parametrize(
    ("status", "advice"),
    [(400, "crds.enabled=true"), (404, "crds.enabled=true"), (403, "may not create CrawlJobs there")],
)
def test_a_refused_sample_says_what_to_do_and_what_the_server_said(run: Any, status: int, advice: str) -> None:
    cluster = Cluster()
    cluster.refusal = ApiError(status, "Because", 'unknown field "spec.new"')
    result = run(cluster, "sample", "team-a")
    assert result.exit_code == 1
    assert advice in result.stdout
    assert 'unknown field "spec.new"' in result.stdout


@pytest.mark.parametrize("failure", [NoClusterError("no cluster to talk to"), TimeoutError(), OSError("unreachable")])
@pytest.mark.parametrize("command", [("rights",), ("sample", "team-a")])
def test_without_an_answer_it_fails_in_one_line(run: Any, failure: Exception, command: tuple[str, ...]) -> None:
    result = run(failure, *command)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("Error: ")


def test_the_operator_itself_needs_an_image_and_the_checks_do_not() -> None:
    result = CliRunner().invoke(cli.main, [], env={names.ENV_CRAWLER_IMAGE: None})
    assert result.exit_code == 2
    assert f"Missing option '{names.FLAG_CRAWLER_IMAGE}'." in result.stderr
    help_ = CliRunner().invoke(cli.main, ["check", "--help"], env={names.ENV_CRAWLER_IMAGE: None})
    assert (help_.exit_code, "rights" in help_.stdout, "sample" in help_.stdout) == (0, True, True)
