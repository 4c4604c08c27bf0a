"""The chart: values that mean something and refuse typos, and objects that a strict cluster admits."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import jsonschema  # type: ignore[import-untyped] # its stubs are a package of their own
import pytest
import yaml
from tests.support import builders, podsecurity
from tests.support.chart_values import BESIDE, MONITORING, OTHER_VALUES, coalesced, other, with_value
from tools.generate import CHART, ROOT

from crawljob import API_GROUP, PLURAL
from crawljob.crd import crd
from crawljob_operator import names, netsettings, rbac
from crawljob_operator import render as crawls
from crawljob_operator.netsettings import NetworkSettings

Objects = list[dict[str, Any]]


class Render(Protocol):
    def __call__(self, values: dict[str, Any], *, tests: bool = False) -> Objects: ...


SCHEMA = json.loads((ROOT / CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((ROOT / CHART / "values.yaml").read_text())


@pytest.fixture(scope="module")
def render(helm: Path, tmp_path_factory: pytest.TempPathFactory) -> Render:
    """Renders the chart as an installation called `test` in the namespace `apart` would be, or with what tests it."""
    folder = tmp_path_factory.mktemp("values")

    def rendered(values: dict[str, Any], *, tests: bool = False) -> Objects:
        file = folder / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        release = ("template", "test", CHART, "--namespace", "apart", *MONITORING)
        done = _helm(helm, *release, "--values", file, *(() if tests else ("--skip-tests",)))
        assert done.returncode == 0, done.stderr
        return [item for item in yaml.safe_load_all(done.stdout) if item]

    return rendered


def _helm(helm: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([helm, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def _leaves(node: Any, path: str = "") -> Iterator[str]:
    if isinstance(node, dict) and node and path.rsplit(".", maxsplit=1)[-1] not in {"labels", "annotations"}:
        for key, value in node.items():
            yield from _leaves(value, f"{path}.{key}" if path else key)
    else:
        yield path


def _one(objects: Objects, kind: str) -> dict[str, Any]:
    (found,) = (item for item in objects if item["kind"] == kind)
    return found


def _container(objects: Objects) -> dict[str, Any]:
    (container,) = _one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def _environment(objects: Objects) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in _container(objects)["env"]}


def test_the_default_values_fit_their_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.Draft7Validator(SCHEMA).validate(VALUES)


def test_every_value_is_described() -> None:
    """A value has a sentence above it, or the object that it is in has one."""
    described, parents = set(), [""] * 8
    text = (ROOT / CHART / "values.yaml").read_text()
    told = False
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            told = told or line.lstrip().startswith("# -- ")
            continue
        key, depth = line.strip().partition(":")[0], (len(line) - len(line.lstrip())) // 2
        parents[depth] = key
        if told:
            described.add(".".join(parents[: depth + 1]))
        told = False
    for path in _leaves(VALUES):
        assert any(path == known or path.startswith(f"{known}.") for known in described), f"nothing describes {path}"


def _levels() -> set[str]:
    """Every value and every object of values."""
    parts = (path.split(".") for path in _leaves(VALUES))
    return {".".join(names[:depth]) for names in parts for depth in range(1, len(names) + 1)}


@pytest.mark.parametrize("path", sorted(_levels() | {"somethingElse"}))
def test_a_typo_in_a_value_is_refused(path: str) -> None:
    values = with_value(f"{path}x", _value(path))
    assert list(jsonschema.Draft7Validator(SCHEMA).iter_errors(coalesced(values, VALUES)))


def _value(path: str) -> Any:
    node = VALUES
    for key in path.split("."):
        node = node.get(key) if isinstance(node, dict) else None
    return node


@pytest.mark.parametrize(
    "values",
    [
        {"watchNamespaces": "default"},
        {"watchNamespaces": ["Not A Name"]},
        {"image": {"repository": ""}},
        {"image": {"repository": "crawler", "tag": "a:b"}},
        {"image": {"repository": "crawler", "pullPolicy": "Sometimes"}},
        {"image": {"repository": "crawler", "digest": "sha256:0"}},
        {"crds": {"keep": "yes"}},
        {"telemetry": {"endpoint": "collector:4317"}},
        {"telemetry": {"endpoint": "http://:4317"}},
        {"telemetry": {"endpoint": "http://user:word@collector:4317"}},
        {"telemetry": {"endpoint": "http://collector:port"}},
        {"telemetry": {"protocol": "http/json"}},
        {"resources": {"limits": {"memory": "lots"}}},
        {"imagePullSecrets": ["pull"]},
        {"serviceAccount": {"name": "Not a name"}},
        {"podMonitor": {"interval": "often"}},
        {"podMonitor": {"labels": {"app.kubernetes.io/name": "other"}}},
        {"commonLabels": {"helm.sh/chart": "other"}},
        {"podLabels": {"durable-crawler.io/crawljob": "other"}},
        {"podLabels": {"app.kubernetes.io/managed-by": "durable-crawler"}},
        {"podLabels": {"a": 1}},
        {"podAnnotations": {"container.apparmor.security.beta.kubernetes.io/operator": "unconfined"}},
        {"deploymentAnnotations": {"meta.helm.sh/release-name": "other"}},
        {"dashboards": {"labels": {"grafana_dashboard": 1}}},
        {"logLevel": "loud"},
        {"extraEnv": [{"name": "LOG_LEVEL", "value": "debug"}]},
        {"extraEnv": [{"name": "A", "valueFrom": {"secret": "b"}}]},
        {"extraEnv": {"A": "b"}},
        {"networkPolicy": False},
        {"networkPolicy": {"limits": {"allowCIDRs": ["10.20.0.0"]}}},
        {"networkPolicy": {"limits": {"allowCIDRs": ["10.20.0.0/33"]}}},
        {"networkPolicy": {"limits": {"allowCIDRs": ["fd00::/129"]}}},
        {"networkPolicy": {"limits": {"allowCIDRs": ["1/1"]}}},
        {"networkPolicy": {"dns": {"ports": []}}},
        {"networkPolicy": {"dns": {"ports": [{"port": "53"}]}}},
        {"networkPolicy": {"dns": {"to": [{}]}}},
        {"networkPolicy": {"dns": {"ports": [{"port": 0}]}}},
        {"networkPolicy": {"collector": {"to": [{"ipBlock": {"cidr": "10.0.0.1"}}]}}},
        {"networkPolicy": {"collector": {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]}}},
        {"networkPolicy": {"collector": {"to": [{"podSelector": {"matchLabel": {}}}]}}},
        {"networkPolicy": {"collector": {"ports": [{"protocol": "ICMP", "port": 1}]}}},
    ],
    ids=str,
)
def test_a_value_of_the_wrong_kind_is_refused(values: dict[str, Any]) -> None:
    assert list(jsonschema.Draft7Validator(SCHEMA).iter_errors(coalesced(values, VALUES)))


@pytest.mark.parametrize(
    "values",
    [
        *({"telemetry": {"endpoint": url}} for url in ("", "https://c.example.org/otlp/", "http://[fd00::1]:4318")),
        {"networkPolicy": {"limits": {"allowCIDRs": ["0.0.0.0/0", "10.1.2.3/32", "::/0", "::ffff:10.0.0.0/104"]}}},
        {"networkPolicy": {"dns": {"ports": [{"port": "dns-tcp"}, {"port": 53}]}}},
    ],
    ids=str,
)
def test_what_the_operator_takes_is_not_refused(values: dict[str, Any]) -> None:
    jsonschema.Draft7Validator(SCHEMA).validate(coalesced(values, VALUES))
    netsettings.parse(json.dumps(values.get("networkPolicy", {})))


def test_helm_itself_refuses_a_typo(helm: Path) -> None:
    done = _helm(helm, "template", "test", CHART, "--set", "watchNamespace=default")
    assert done.returncode != 0
    assert "watchNamespace" in done.stderr


def test_helm_finds_nothing_to_complain_about(helm: Path) -> None:
    done = _helm(helm, "lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_table_of_other_values_names_every_value() -> None:
    assert {*OTHER_VALUES} == {*_leaves(VALUES)}


@pytest.mark.parametrize("path", OTHER_VALUES)
def test_every_value_has_an_effect(path: str, render: Render) -> None:
    values = other(path)
    jsonschema.Draft7Validator(SCHEMA).validate(coalesced(values, VALUES))
    assert render(values) != render(BESIDE.get(path, {}))


@pytest.mark.parametrize("values", [{}, *map(other, OTHER_VALUES)], ids=str)
def test_every_rendered_pod_fits_the_restricted_profile(values: dict[str, Any], render: Render) -> None:
    objects = render(values, tests=True)
    pods = [item["spec"]["template"] for item in objects if "template" in item.get("spec", {})]
    pods += [item for item in objects if item["kind"] == "Pod"]
    assert len(pods) == 3
    assert [podsecurity.violations(pod) for pod in pods] == [[]] * len(pods)
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["resources"]["limits"]["memory"]


def test_the_operator_gets_what_a_collector_wants_to_see(render: Render) -> None:
    """As OpenTelemetry's variables have it: the header from a Secret, the certificates as files."""
    telemetry = {"headersSecret": "h", "tls": {"caSecret": "a", "clientSecret": "c"}}
    pod = _one(render({"telemetry": telemetry}), "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    environment = {variable.pop("name"): variable for variable in container["env"]}
    assert environment["OTEL_EXPORTER_OTLP_HEADERS"] == {"valueFrom": {"secretKeyRef": {"name": "h", "key": "headers"}}}
    folders = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    files = {
        f"{folders[volume['name']]}/{item['path']}": (volume["secret"]["secretName"], item["key"])
        for volume in pod["volumes"]
        for item in volume["secret"]["items"]
    }
    wanted = {"CERTIFICATE": ("a", "ca.crt"), "CLIENT_CERTIFICATE": ("c", "tls.crt"), "CLIENT_KEY": ("c", "tls.key")}
    assert {name: files[environment[f"OTEL_EXPORTER_OTLP_{name}"]["value"]] for name in wanted} == wanted
    assert pod["securityContext"]["fsGroup"] == 65532


@pytest.mark.parametrize("value", ["caSecret", "clientSecret"])
def test_certificates_are_not_taken_for_an_endpoint_in_clear_text(value: str, helm: Path) -> None:
    """As the CrawlJob's own rule has it: the exporters would say nothing, and send without them."""
    certificates = ("--set", f"telemetry.tls.{value}=otlp", "--set")
    done = _helm(helm, "template", "test", CHART, *certificates, "telemetry.endpoint=http://collector:4317")
    assert done.returncode != 0
    assert "telemetry.tls needs a telemetry.endpoint that begins with https://" in done.stderr
    assert (
        _helm(helm, "template", "test", CHART, *certificates, "telemetry.endpoint=https://collector:4317").returncode
        == 0
    )


def test_values_of_a_chart_that_had_less_still_render(render: Render) -> None:
    """As ``helm upgrade --reuse-values`` brings them along."""
    assert render({"telemetry": {"crawls": None, "tls": None, "headersSecret": None}}) == render({})


@pytest.mark.parametrize(
    "path",
    [
        *SCHEMA["required"],
        *("image.repository", "networkPolicy.enabled", "networkPolicy.dns", "networkPolicy.collector"),
        *("crds.enabled", "crds.keep"),  # a blank one would let an uninstall delete every crawl
    ],
)
def test_a_value_that_is_taken_away_is_named(path: str, helm: Path) -> None:
    """Helm's ``null`` removes a default; a template would end in a nil pointer that names nothing."""
    done = _helm(helm, "template", "test", CHART, "--set", f"{path}=null")
    assert done.returncode != 0
    assert f"missing property '{path.rpartition('.')[2]}'" in done.stderr


def test_the_profile_check_sees_what_is_missing() -> None:
    """The judge is judged too: a bare Pod and one with everything forbidden."""
    bare = {"spec": {"containers": [{"name": "a"}]}}
    assert len(podsecurity.violations(bare)) == 4
    wild = {
        "hostNetwork": True,
        "volumes": [{"name": "root", "hostPath": {"path": "/"}}],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 0,
            "seccompProfile": {"type": "Unconfined"},
            "appArmorProfile": {"type": "Unconfined"},
        },
        "containers": [
            {
                "name": "a",
                "ports": [{"containerPort": 1, "hostPort": 1}],
                "securityContext": {
                    "privileged": True,
                    "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]},
                    "appArmorProfile": {"type": "Unconfined"},
                },
            }
        ],
    }
    annotations = {"container.apparmor.security.beta.kubernetes.io/a": "unconfined"}
    assert len(podsecurity.violations({"metadata": {"annotations": annotations}, "spec": wild})) == 11


# What CEL can do in the oldest Kubernetes that kubeVersion admits (isIP and isCIDR, for example, came later): one rule
# that an API server cannot read costs the whole kind.
CEL_MACROS = {"all", "exists_one", "has", "size"}
CEL_STRINGS = {"duration", "endsWith", "lowerAscii", "matches", "startsWith"}
CEL_LIBRARIES = {"compareTo", "getHostname", "getScheme", "isGreaterThan", "isQuantity", "isURL", "quantity", "url"}


def test_the_rules_of_the_kind_need_no_newer_kubernetes() -> None:
    def rules(schema: Any) -> Iterator[str]:
        for key, value in schema.items() if isinstance(schema, dict) else enumerate(schema):
            if key in ("rule", "messageExpression") and isinstance(value, str):
                yield re.sub("'[^']*'", "''", value)
            elif isinstance(value, dict | list):
                yield from rules(value)

    found = list(rules(crd()))
    assert len(found) > 10
    assert {name for rule in found for name in re.findall(r"(\w+)\(", rule)} <= CEL_MACROS | CEL_STRINGS | CEL_LIBRARIES


def test_the_definition_is_the_models_and_survives_an_uninstall(render: Render) -> None:
    definition = _one(render({}), "CustomResourceDefinition")
    assert definition["spec"] == crd()["spec"]
    assert definition["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert "annotations" not in _one(render({"crds": {"keep": False}}), "CustomResourceDefinition")["metadata"]
    assert not [item for item in render({"crds": {"enabled": False}}) if item["kind"] == "CustomResourceDefinition"]


def test_the_whole_cluster_is_watched_with_a_cluster_role(render: Render) -> None:
    objects = render({})
    assert _one(objects, "ClusterRole")["rules"] == rbac.rules(clusterwide=True)
    assert _one(objects, "ClusterRoleBinding")["subjects"] == [
        {"kind": "ServiceAccount", "name": _account(objects), "namespace": "apart"}
    ]
    assert not {"Role", "RoleBinding"} & {item["kind"] for item in objects}
    assert names.ENV_NAMESPACES not in _environment(objects)


def test_chosen_namespaces_are_watched_with_a_role_in_each(render: Render) -> None:
    objects = render({"watchNamespaces": ["team-a", "team-b"]})
    assert not {"ClusterRole", "ClusterRoleBinding"} & {item["kind"] for item in objects}
    for kind in ("Role", "RoleBinding"):
        assert [x["metadata"]["namespace"] for x in objects if x["kind"] == kind] == ["team-a", "team-b"]
    for item in objects:
        if item["kind"] == "Role":
            assert item["rules"] == rbac.rules(clusterwide=False)
        if item["kind"] == "RoleBinding":
            assert item["subjects"][0] == {"kind": "ServiceAccount", "name": _account(objects), "namespace": "apart"}
    assert _environment(objects)[names.ENV_NAMESPACES] == "team-a,team-b"


@pytest.mark.parametrize("clusterwide", [True, False])
def test_the_operator_has_no_right_that_it_must_never_have(clusterwide: bool) -> None:
    rights = {
        (resource, verb)
        for rule in rbac.rules(clusterwide=clusterwide)
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert not {resource for resource, _ in rights} & {"secrets", "pods/exec", "nodes", "*"}
    assert "*" not in {verb for _, verb in rights}


def test_the_crawler_runs_the_operators_image_unless_told_otherwise(render: Render) -> None:
    own = {"image": {"repository": "crawler", "tag": "1.2.3"}}
    assert _container(render(own))["image"] == "crawler:1.2.3"
    assert _environment(render(own))[names.ENV_CRAWLER_IMAGE] == "crawler:1.2.3"
    other = {**own, "crawler": {"image": "other:1"}}
    assert _container(render(other))["image"] == "crawler:1.2.3"
    assert _environment(render(other))[names.ENV_CRAWLER_IMAGE] == "other:1"


def test_the_operator_gets_the_policies_peers_as_they_are(render: Render) -> None:
    """And understands them; without a value it has the same defaults, but for the collector's ports."""
    given = netsettings.parse(_environment(render({}))[names.ENV_NETWORK_POLICY])
    assert (given.enabled, given.dns, given.collector.to) == (True, NetworkSettings().dns, ())
    for path, value in OTHER_VALUES.items():
        part, _, key = path.removeprefix("networkPolicy.").partition(".")
        if path.startswith("networkPolicy.") and key:
            text = _environment(render(with_value(path, value)))[names.ENV_NETWORK_POLICY]
            assert getattr(netsettings.parse(text), part).rendered()[key] == value


def test_the_operator_sends_where_it_is_told_and_says_who_it_is(render: Render) -> None:
    assert names.ENV_OTLP_ENDPOINT not in _environment(render({}))
    entries = _container(render({"telemetry": {"endpoint": "http://collector:4318", "protocol": "http/protobuf"}}))[
        "env"
    ]
    given = {entry["name"]: entry.get("value") or entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in entries}
    assert given[names.ENV_OTLP_ENDPOINT] == "http://collector:4318"
    assert given[names.ENV_OTLP_PROTOCOL] == "http/protobuf"
    assert [*given].index("K8S_POD_UID") < [*given].index(names.ENV_RESOURCE_ATTRIBUTES), "named after they are defined"
    attributes = dict(pair.split("=") for pair in given[names.ENV_RESOURCE_ATTRIBUTES].split(","))
    assert attributes["k8s.namespace.name"] == "apart"
    assert (attributes["k8s.pod.uid"], given["K8S_POD_UID"]) == ("$(K8S_POD_UID)", "metadata.uid")


def test_the_deployment_is_one_operator_at_a_time_and_is_probed_where_it_listens(render: Render) -> None:
    deployment = _one(render({}), "Deployment")["spec"]
    assert deployment["replicas"] == 1
    assert deployment["strategy"] == {"type": "Recreate"}
    assert deployment["selector"]["matchLabels"].items() <= deployment["template"]["metadata"]["labels"].items()
    container = _container(render({}))
    port = int(names.DEFAULT_LISTEN.rsplit(":", 1)[1])
    assert container["ports"] == [{"name": "http", "containerPort": port}]
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}


def test_the_operators_own_pod_is_none_of_the_pods_that_it_watches(render: Render) -> None:
    labels = _one(render({}), "Deployment")["spec"]["template"]["metadata"]["labels"]
    key, value = names.SELECTOR.split("=")
    assert labels.get(key) != value


@pytest.mark.parametrize("release", ["durable-crawler", "a", "x" * 53])
def test_names_fit_for_every_release_name(release: str, helm: Path) -> None:
    done = _helm(helm, "template", release, CHART)
    assert done.returncode == 0, done.stderr
    for item in yaml.safe_load_all(done.stdout):
        assert len(item["metadata"]["name"]) <= 63


def test_what_makes_the_operator_its_own_cannot_be_taken_by_extra_variables(render: Render) -> None:
    """The schema's list is all that the chart sets; a duplicate would win over it, or lose, unseen."""
    telemetry = {
        "endpoint": "https://collector:4317",
        "headersSecret": "otlp",
        "tls": {"caSecret": "ca", "clientSecret": "client"},
        "crawls": {"enabled": False},
    }
    own = {entry["name"] for entry in _container(render({"watchNamespaces": ["a"], "telemetry": telemetry}))["env"]}
    item = SCHEMA["properties"]["extraEnv"]["items"]["properties"]["name"]
    assert own <= {*item["not"]["enum"]}


def test_everything_that_the_chart_makes_says_whose_it_is(render: Render) -> None:
    values = {f"{part}.enabled": True for part in ("podMonitor", "prometheusRule", "dashboards")}
    asked = {path.split(".")[0]: {"enabled": value} for path, value in values.items()}
    objects = render({**asked, "commonLabels": {"team": "docs"}}, tests=True)
    for item in objects:
        labels = item["metadata"]["labels"]
        assert {"app.kubernetes.io/instance": "test", "team": "docs"}.items() <= labels.items()
        assert labels["helm.sh/chart"].startswith("durable-crawler-")


def test_monitoring_that_the_cluster_does_not_know_is_refused_in_one_sentence(helm: Path) -> None:
    for value in ("podMonitor.enabled", "prometheusRule.enabled"):
        done = _helm(helm, "template", "test", CHART, "--set", f"{value}=true")
        assert done.returncode != 0
        assert f"{value} asks for a P" in done.stderr
        assert "--api-versions monitoring.coreos.com/v1" in done.stderr


def test_an_account_of_somebody_elses_must_have_a_name(helm: Path) -> None:
    done = _helm(helm, "template", "test", CHART, "--set", "serviceAccount.create=false")
    assert done.returncode != 0
    assert "say in serviceAccount.name" in done.stderr


def test_an_account_of_somebody_elses_gets_the_rights(render: Render) -> None:
    objects = render({"serviceAccount": {"create": False, "name": "mine"}})
    assert not [item for item in objects if item["kind"] == "ServiceAccount"]
    assert _one(objects, "ClusterRoleBinding")["subjects"][0]["name"] == "mine"
    assert _one(objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == "mine"


def test_the_monitors_select_our_pods_by_their_port_and_name_the_labels_as_telemetry_does(render: Render) -> None:
    objects = render({"podMonitor": {"enabled": True}})
    operators, crawlers = (item["spec"] for item in objects if item["kind"] == "PodMonitor")
    template = _one(objects, "Deployment")["spec"]["template"]
    assert operators["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    owner = builders.job()
    assert owner.spec is not None
    pod = crawls.pod(owner, owner.spec, 1, "image")
    assert crawlers["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert crawlers["namespaceSelector"] == {"any": True}
    for spec in (operators, crawlers):
        (endpoint,) = spec["podMetricsEndpoints"]
        assert endpoint["port"] == names.PORT_NAME == _container(objects)["ports"][0]["name"]
    (endpoint,) = crawlers["podMetricsEndpoints"]
    sources = {rule["targetLabel"]: rule["sourceLabels"] for rule in endpoint["relabelings"]}
    wanted = {"crawljob_name": names.LABEL_CRAWLJOB, "crawljob_uid": names.LABEL_UID}
    wanted |= {"crawljob_attempt": names.LABEL_ATTEMPT}
    meta = {
        target: [f"__meta_kubernetes_pod_label_{re.sub('[^a-zA-Z0-9_]', '_', label)}"]
        for target, label in wanted.items()
    }
    assert sources == {"k8s_namespace_name": ["__meta_kubernetes_namespace"], **meta}
    chosen = render({"podMonitor": {"enabled": True}, "watchNamespaces": ["team-a"]})
    assert chosen[-1]["spec"]["namespaceSelector"] == {"matchNames": ["team-a"]}


def test_dashboards_and_alerts_are_shipped_as_they_are(render: Render) -> None:
    objects = render({"dashboards": {"enabled": True}, "prometheusRule": {"enabled": True}})
    files = sorted((ROOT / CHART / "files/dashboards").glob("*.json"))
    assert files
    maps = [item for item in objects if item["kind"] == "ConfigMap"]
    assert [{path.name: json.loads(path.read_text())} for path in files] == [
        {name: json.loads(text) for name, text in item["data"].items()} for item in maps
    ]
    for item in maps:
        assert item["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert len(item["data"].popitem()[1]) < 1 << 20, "what a ConfigMap may hold"
    alerts = yaml.safe_load((ROOT / CHART / "files/rules.yaml").read_text())
    assert _one(objects, "PrometheusRule")["spec"] == alerts


def test_helm_test_asks_with_the_operators_account_and_grants_nothing_but_one_dry_run(render: Render) -> None:
    for values, account in ({}, "test-durable-crawler"), ({"serviceAccount": {"name": "mine"}}, "mine"):
        hooks = _hooks(render(values, tests=True))
        pods = {item["metadata"]["name"]: item["spec"] for item in hooks if item["kind"] == "Pod"}
        assert pods["test-durable-crawler-rights"]["serviceAccountName"] == account
        assert pods["test-durable-crawler-sample"]["serviceAccountName"] == "test-durable-crawler-sample"
        (role,) = (item for item in hooks if "Role" in item["kind"] and "rules" in item)
        assert (role["kind"], role["metadata"]["namespace"]) == ("Role", "apart")
        assert role["rules"] == [{"apiGroups": [API_GROUP], "resources": [PLURAL], "verbs": ["create"]}]
        bound = {(s["namespace"], s["name"]) for item in hooks if "Binding" in item["kind"] for s in item["subjects"]}
        assert bound == {("apart", "test-durable-crawler-sample")}


def test_helm_test_leaves_nothing_and_is_asked_for_where_crawls_are(render: Render) -> None:
    hooks = _hooks(render({"watchNamespaces": ["team-a", "team-b"]}, tests=True))
    for item in hooks:
        assert item["metadata"]["annotations"]["helm.sh/hook"] == "test"
        assert "hook-succeeded" in item["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
    commands = [item["spec"]["containers"][0] for item in hooks if item["kind"] == "Pod"]
    assert [container["command"][2:] for container in commands] == [["rights", "apart"], ["sample", "team-a"]]
    assert [container["env"] for container in commands] == [
        [{"name": names.ENV_NAMESPACES, "value": "team-a,team-b"}]
    ] * 2
    assert {item["metadata"]["namespace"] for item in hooks if "Role" in item["kind"]} == {"team-a"}


def _hooks(objects: Objects) -> Objects:
    return [item for item in objects if "helm.sh/hook" in item["metadata"].get("annotations", {})]


def test_the_notes_are_true_for_the_chosen_values(helm: Path) -> None:
    install = ("install", "test", CHART, "--dry-run=client", "--namespace", "apart")
    plain = _helm(helm, *install).stdout
    assert "every namespace" in plain
    assert "No telemetry is collected" in plain
    watched = _helm(helm, *install, "--set", "telemetry.endpoint=http://collector:4317,dashboards.enabled=true").stdout
    assert "The operator and crawls send their telemetry to http://collector:4317" in watched
    alone = _helm(helm, *install, "--set", "telemetry.endpoint=http://c:4317,telemetry.crawls.enabled=false").stdout
    assert "The operator sends its telemetry to http://c:4317" in alone
    assert "Grafana's sidecar" in watched
    chosen = _helm(helm, *install, "--set", "watchNamespaces={team-a}", "--set", "crds.keep=false").stdout
    notes = chosen[chosen.index("NOTES:") :]
    assert "runs CrawlJobs in team-a." in notes
    assert "deletes the CrawlJob definition" in notes


def _account(objects: Objects) -> str:
    name = _one(objects, "ServiceAccount")["metadata"]["name"]
    assert _one(objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == name
    return str(name)
