"""What the chart renders, judged by a real API server: every object of every choice of values.

Each is a dry run of a server-side apply in a restricted namespace, and every field must be known. The kinds of the
Prometheus Operator are its own definitions, from the Go module that is pinned beside the test programs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.api.conftest import OPERATOR, grant, make_namespace
from tests.support.apiserver import Api, ApiServer, Raw, wait_until
from tests.support.chart_values import MONITORING, OTHER_VALUES, other
from tests.support.toolchain import binaries
from tools import generate

from crawljob_operator import check, names

PODS = "/api/v1/namespaces/{}/pods?dryRun=All&fieldValidation=Strict"
PLURALS = {"NetworkPolicy": "networkpolicies"}
CLUSTER_SCOPED = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}

# Choices that one value alone does not make.
MATRIX: dict[str, dict[str, Any]] = {
    "defaults": {},
    "namespaces": {"watchNamespaces": ["TEAM"], "podMonitor": {"enabled": True}},
    "everything": {
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboards": {"enabled": True},
        "telemetry": {"endpoint": "http://collector:4317"},
        "commonLabels": {"team": "docs"},
    },
    "nothing": {"crds": {"enabled": False}, "networkPolicy": {"enabled": False}},
    **{path: other(path) for path in OTHER_VALUES if path != "watchNamespaces"},
}

Render = Callable[[dict[str, Any], str], list[Raw]]


@pytest.fixture(scope="module")
def monitoring(server: ApiServer) -> None:
    """The kinds PodMonitor and PrometheusRule."""
    folder = "example/prometheus-operator-crd"
    files = binaries.module_files(
        "prometheus-operator",
        "github.com/prometheus-operator/prometheus-operator",
        *(f"{folder}/monitoring.coreos.com_{plural}.yaml" for plural in ("podmonitors", "prometheusrules")),
    )
    for file in files:
        server.admin.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(file.read_text()))
    for plural in ("podmonitors", "prometheusrules"):
        wait_until(partial(_served, server.admin, f"/apis/monitoring.coreos.com/v1/{plural}"), plural)


def _served(api: Api, path: str) -> bool:
    return api.call("GET", path).status == 200


@pytest.fixture(scope="module")
def render(tmp_path_factory: pytest.TempPathFactory) -> Render:
    """Renders the chart with what tests it, into a namespace."""
    helm, file = generate.find_helm(), tmp_path_factory.mktemp("values") / "values.yaml"

    def rendered(values: dict[str, Any], namespace: str) -> list[Raw]:
        file.write_text(yaml.safe_dump(values).replace("TEAM", namespace))
        release = ("template", "test", generate.CHART, "--namespace", namespace, *MONITORING, "--values", file)
        done = subprocess.run(
            [helm, *release], cwd=generate.ROOT, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return [item for item in yaml.safe_load_all(done.stdout) if item]

    return rendered


@pytest.fixture(scope="module")
def place(server: ApiServer) -> str:
    """A namespace that enforces the restricted profile, with the accounts that the chart's Pods run with.

    In a dry run no account is made, and a Pod without its account is refused.
    """
    name = make_namespace(server.admin)
    for account in ("test-durable-crawler", "test-durable-crawler-sample", "mine"):
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}
        server.admin.create(f"/api/v1/namespaces/{name}/serviceaccounts", body)
    return name


def path_of(item: Raw) -> str:
    """Where the API server keeps an object."""
    version, kind, metadata = item["apiVersion"], item["kind"], item["metadata"]
    root = "/api/v1" if version == "v1" else f"/apis/{version}"
    scope = "" if kind in CLUSTER_SCOPED else f"/namespaces/{metadata['namespace']}"
    return f"{root}{scope}/{PLURALS.get(kind, f'{kind.lower()}s')}/{metadata['name']}"


def refused(api: Api, item: Raw) -> str:
    """The API server's words; none when it would take the object."""
    query = "?dryRun=All&fieldManager=test&force=true&fieldValidation=Strict"
    answer = api.call("PATCH", path_of(item) + query, item, "application/apply-patch+yaml")
    return "" if answer.status < 300 else f"{item['kind']} {item['metadata']['name']}: {answer.message}"


@pytest.mark.usefixtures("monitoring")
@pytest.mark.parametrize("values", MATRIX.values(), ids=list(MATRIX))
def test_every_object_is_one_that_a_restricted_namespace_takes(
    values: dict[str, Any], api: Api, render: Render, place: str
) -> None:
    objects = render(values, place)
    assert [text for item in objects if (text := refused(api, item))] == []
    templates = [item["spec"]["template"] for item in objects if item["kind"] == "Deployment"]
    assert templates
    for template in templates:
        # A Deployment is always taken; what the profile judges is the Pod.
        pod = {"apiVersion": "v1", "kind": "Pod", **template}
        pod["metadata"] = {**template["metadata"], "name": "operator"}
        answer = api.call("POST", PODS.format(place), pod)
        assert answer.status == 201, answer.message


@pytest.mark.usefixtures("monitoring")
def test_the_judge_refuses_what_is_wrong(api: Api, render: Render, place: str) -> None:
    """An unknown field of each kind, and a Pod that is not restricted."""
    objects = render(MATRIX["everything"], place)
    for item in objects:
        if "spec" in item and item["kind"] != "CustomResourceDefinition":
            assert "unknownField" in refused(api, {**item, "spec": {**item["spec"], "unknownField": 1}})
    (pod, *_) = (item for item in objects if item["kind"] == "Pod")
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    assert "violates PodSecurity" in refused(api, pod)


# -- crawljob-operator check -------------------------------------------------------------------------------------------


def asked(kubeconfig: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The program as ``helm test`` runs it, with somebody's account."""
    return subprocess.run(
        [sys.executable, "-m", "crawljob_operator.cli", "check", *arguments],
        env={**os.environ, "KUBECONFIG": str(kubeconfig), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_an_operator_with_the_charts_rights_passes(server: ApiServer) -> None:
    done = asked(server.kubeconfig(OPERATOR), "rights")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert len(done.stdout.splitlines()) == len([*check.needed(()), *check.forbidden(())])


def test_one_with_roles_passes_in_its_namespaces_and_in_no_other(
    server: ApiServer, api: Api, namespaces: tuple[str, str]
) -> None:
    own, others = namespaces
    grant(api, "limited", own)
    kubeconfig = server.kubeconfig("limited")
    assert asked(kubeconfig, "rights", **{names.ENV_NAMESPACES: own}).returncode == 0
    done = asked(kubeconfig, "rights", **{names.ENV_NAMESPACES: f"{own},{others}"})
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    assert done.returncode == 1
    assert len(failed) == len([*check.needed([others])])
    assert all(f"namespace {others}: the operator's account lacks it" in line for line in failed)


@pytest.fixture
def namespaces(api: Api) -> tuple[str, str]:
    """One that is watched, and one that is not."""
    return make_namespace(api), make_namespace(api)


def test_who_may_do_everything_is_told_of_each_right_too_many(server: ApiServer) -> None:
    done = asked(server.kubeconfig("admin", "system:masters"), "rights")
    assert done.returncode == 1
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    assert len(failed) == len(check.FORBIDDEN)
    assert "FAIL  may not get secrets in the whole cluster" in done.stdout


def test_the_definition_takes_a_job_with_every_field_and_keeps_nothing(
    server: ApiServer, api: Api, namespace: str
) -> None:
    done = asked(server.kubeconfig("admin", "system:masters"), "sample", namespace)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert api.items(f"/apis/durable-crawler.io/v1alpha1/namespaces/{namespace}/crawljobs") == []


def test_a_definition_that_is_older_than_the_operator_would_be_noticed(api: Api, namespace: str) -> None:
    """It does not know a field, and says so also where the field is null."""
    body = check.crawljob(namespace)
    body["spec"]["newer"] = None
    path = f"/apis/durable-crawler.io/v1alpha1/namespaces/{namespace}/crawljobs?dryRun=All&fieldValidation=Strict"
    answer = api.call("POST", path, body)
    assert (answer.status, "spec.newer" in answer.message) == (400, True), answer


def test_who_may_not_create_jobs_is_told_so(server: ApiServer, namespace: str) -> None:
    done = asked(server.kubeconfig(OPERATOR), "sample", namespace)
    assert done.returncode == 1
    assert "may not create CrawlJobs there" in done.stdout
    assert "is forbidden" in done.stdout
