"""What the API server itself refuses, naming the field, and what it takes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.apiserver import Answer, Api
from tests.support.builders import crawljob, crawljobs

STRICT = "?fieldValidation=Strict&dryRun=All"

BAD: list[tuple[str, dict[str, Any], str]] = [
    ("no seed", {"seeds": []}, "spec.seeds"),
    ("seed of another scheme", {"seeds": ["https://ok.example/", "ftp://files.example/"]}, "spec.seeds[1]"),
    ("seed without a host", {"seeds": ["http:///nowhere"]}, "spec.seeds[0]"),
    ("relative seed", {"seeds": ["/relative/path"]}, "spec.seeds[0]"),
    ("mail address", {"seeds": ["mailto:someone@example.com"]}, "spec.seeds[0]"),
    ("credentials", {"seeds": ["https://user:secret@docs.example.com/"]}, "spec.seeds[0]"),
    ("user without a password", {"seeds": ["https://user@docs.example.com/"]}, "spec.seeds[0]"),
    ("no workers", {"fetch": {"workers": 0}}, "spec.fetch.workers"),
    ("half a worker", {"fetch": {"workers": 1.5}}, "spec.fetch.workers"),
    ("text as number", {"fetch": {"perHost": "2"}}, "spec.fetch.perHost"),
    ("duration without unit", {"fetch": {"totalTimeout": "15"}}, "spec.fetch.totalTimeout"),
    ("duration out of bounds", {"fetch": {"connectTimeout": "10m"}}, "spec.fetch.connectTimeout"),
    ("no pages", {"scope": {"maxPages": 0}}, "spec.scope.maxPages"),
    ("pattern of a relative path", {"scope": {"include": ["/ok/*", "docs/*"]}}, "spec.scope.include[1]"),
    ("pattern with a blank", {"scope": {"exclude": ["/a b"]}}, "spec.scope.exclude[0]"),
    ("pattern of a host in upper case", {"scope": {"exclude": ["https://X.example/*"]}}, "spec.scope.exclude[0]"),
    ("range with host bits", {"network": {"allowCIDRs": ["10.0.0.0/8", "10.1.2.3/8"]}}, "spec.network.allowCIDRs[1]"),
    ("address as range", {"network": {"allowCIDRs": ["10.0.0.1"]}}, "spec.network.allowCIDRs[0]"),
    ("range that is none", {"network": {"allowCIDRs": ["300.0.0.0/8"]}}, "spec.network.allowCIDRs[0]"),
    ("port", {"listen": {"port": 70000}}, "spec.listen.port"),
    ("size", {"storage": {"size": "lots"}}, "spec.storage.size"),
    ("no size", {"storage": {"size": "0Gi"}}, "spec.storage.size"),
    ("access mode", {"storage": {"accessModes": ["ReadWriteMany"]}}, "spec.storage.accessModes[0]"),
    ("backoff", {"restartPolicy": {"backoff": {"initialSeconds": 60, "maxSeconds": 10}}}, "spec.restartPolicy.backoff"),
    ("telemetry", {"telemetry": {"endpoint": "grpc://collector:4317"}}, "spec.telemetry.endpoint"),
    ("unknown field", {"worker": 3}, "spec.worker"),
    ("unknown nested field", {"fetch": {"wrokers": 3}}, "spec.fetch.wrokers"),
    ("privilege", {"podTemplate": {"serviceAccountName": "admin"}}, "spec.podTemplate.serviceAccountName"),
]

GOOD: list[tuple[str, dict[str, Any]]] = [
    ("the smallest", {}),
    ("an at sign in a path", {"seeds": ["https://docs.example.com/@user?at=a@b"]}),
    ("upper case and a port", {"seeds": ["HTTPS://Docs.Example.COM:8443/"]}),
    ("an address", {"seeds": ["http://[2001:db8::1]:8080/"]}),
    ("all the rest", {"fetch": {"workers": 4, "totalTimeout": "1m30s"}, "storage": {"size": "500Mi"}}),
    ("ranges", {"network": {"allowCIDRs": ["10.0.0.0/8", "fd00::/8", "192.0.2.7/32", "::/0"] * 25}}),
    ("patterns", {"scope": {"include": ["/docs/*?v=[1]", "https://[::1]:8080/*"] * 50, "exclude": ["*.pdf"] * 100}}),
    ("resources", {"podTemplate": {"resources": {"requests": {"cpu": 1}, "limits": {"memory": "512Mi"}}}}),
]


def refused(answer: Answer) -> str:
    """The words of a refusal."""
    assert answer.status in (400, 422), f"{answer.status}: {answer.message}"
    return answer.message


@pytest.mark.parametrize(("spec", "field"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_input_is_refused_with_its_field(api: Api, spec: dict[str, Any], field: str) -> None:
    """As ``kubectl apply`` sends it."""
    answer = api.call("POST", crawljobs("default") + STRICT, crawljob("bad", **spec))
    assert field in refused(answer)


@pytest.mark.parametrize("spec", [row[1] for row in GOOD], ids=[row[0] for row in GOOD])
def test_good_input_is_taken(api: Api, spec: dict[str, Any]) -> None:
    """What people write is not refused by a rule that is too narrow."""
    answer = api.call("POST", crawljobs("default") + STRICT, crawljob("good", **spec))
    assert answer.status == 201, answer.message


def test_a_job_without_seeds_names_them(api: Api) -> None:
    """A required field is named too."""
    body = crawljob("bad")
    del body["spec"]["seeds"]
    assert "spec.seeds: Required value" in refused(api.call("POST", crawljobs("default") + STRICT, body))


def test_the_volume_cannot_be_changed(api: Api, namespace: str) -> None:
    """Neither by another value nor by taking the field away."""
    api.create(crawljobs(namespace), crawljob("docs", namespace, storage={"size": "1Gi"}, suspend=True))
    for storage in ({"size": "2Gi"}, None):
        path = crawljobs(namespace, "docs")
        answer = api.call("PATCH", path, {"spec": {"storage": storage}}, "application/merge-patch+json")
        assert "spec" in refused(answer)
        assert "cannot be changed" in answer.message
