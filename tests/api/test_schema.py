"""What the API server itself refuses, naming the field, and what it takes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.apiserver import Answer, Api
from tests.support.builders import crawljob, crawljobs

from crawljob import manifest
from crawljob.problems import InvalidInputError

STRICT = "?fieldValidation=Strict&dryRun=All"

REF = {"name": "login", "key": "api-key"}


def header(
    origin: str = "https://docs.example.com", name: str = "X-Api-Key", secret: str = "login", key: str = "api-key"
) -> dict[str, Any]:
    """A header with a value from a Secret."""
    return {"origin": origin, "name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def headers(*given: dict[str, Any]) -> dict[str, Any]:
    """A spec with these."""
    return {"fetch": {"headers": list(given)}}


def proxy(url: str = "http://proxy.example.com:3128", *, filters: bool = True) -> dict[str, Any]:
    """A spec with a proxy."""
    return {"fetch": {"proxy": {"url": url, "proxyFiltersAddresses": filters}}}


TLS = {"ca": {"configMapKeyRef": REF}, "clientCertificate": {"secretName": "client"}}


def sent(name: str = "X-Api-Key") -> dict[str, Any]:
    """A header for a collector."""
    return {"name": name, "valueFrom": {"secretKeyRef": REF}}


def telemetry(endpoint: str = "https://collector.example.com:4317", **fields: Any) -> dict[str, Any]:
    """A spec with a collector."""
    return {"telemetry": {"endpoint": endpoint, **fields}}


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
    ("second range", {"network": {"allowCIDRs": ["10.0.0.0/8", "10.0.0/8"]}}, "spec.network.allowCIDRs[1]"),
    ("range with too long a prefix", {"network": {"allowCIDRs": ["10.0.0.0/33"]}}, "spec.network.allowCIDRs[0]"),
    ("address as range", {"network": {"allowCIDRs": ["10.0.0.1"]}}, "spec.network.allowCIDRs[0]"),
    ("range that is none", {"network": {"allowCIDRs": ["300.0.0.0/8"]}}, "spec.network.allowCIDRs[0]"),
    ("port", {"listen": {"port": 70000}}, "spec.listen.port"),
    ("listener's address that is none", {"listen": {"address": "1.2.3"}}, "spec.listen.address"),
    ("size", {"storage": {"size": "lots"}}, "spec.storage.size"),
    ("no size", {"storage": {"size": "0Gi"}}, "spec.storage.size"),
    ("access mode", {"storage": {"accessModes": ["ReadWriteMany"]}}, "spec.storage.accessModes[0]"),
    ("backoff", {"restartPolicy": {"backoff": {"initialSeconds": 60, "maxSeconds": 10}}}, "spec.restartPolicy.backoff"),
    ("telemetry", {"telemetry": {"endpoint": "grpc://collector:4317"}}, "spec.telemetry.endpoint"),
    ("telemetry headers for nobody", {"telemetry": {"headers": [sent()]}}, "spec.telemetry"),
    ("telemetry header twice", telemetry(headers=[sent(), sent("x-api-key")]), "spec.telemetry.headers"),
    *(
        (f"telemetry header {name}", telemetry(headers=[sent(name)]), "spec.telemetry.headers[0].name")
        for name in ("Content-Type", "Host", "grpc-timeout", "Trace-Bin", "Proxy-Authorization", "X Y", "x!", "")
    ),
    ("telemetry without encryption", telemetry("http://c:4317", tls=TLS), "spec.telemetry"),
    ("telemetry's certificates for nobody", {"telemetry": {"tls": TLS}}, "spec.telemetry"),
    ("telemetry's tls without anything", telemetry(tls={}), "spec.telemetry.tls"),
    ("telemetry's certificates from nowhere", telemetry(tls={"ca": {}}), "spec.telemetry.tls.ca"),
    ("telemetry unverified", telemetry(tls={**TLS, "insecureSkipVerify": True}), "spec.telemetry.tls"),
    ("both volumes", {"storage": {"existingClaim": "kept", "size": "1Gi"}}, "spec.storage"),
    ("claim's name", {"storage": {"existingClaim": "No Claim"}}, "spec.storage.existingClaim"),
    ("no deadline", {"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds"),
    ("negative time to live", {"ttlSecondsAfterFinished": -1}, "spec.ttlSecondsAfterFinished"),
    (
        "rule without a condition",
        {"podFailurePolicy": {"rules": [{"action": "Ignore"}]}},
        "spec.podFailurePolicy.rules[0]",
    ),
    (
        "rule for exit code 0",
        {"podFailurePolicy": {"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [0]}}]}},
        "spec.podFailurePolicy.rules[0].onExitCodes.values[0]",
    ),
    ("reserved variable", {"podTemplate": {"env": [{"name": "TRACEPARENT"}]}}, "spec.podTemplate.env[0].name"),
    (
        "no time to stop",
        {"podTemplate": {"terminationGracePeriodSeconds": 1}},
        "spec.podTemplate.terminationGracePeriodSeconds",
    ),
    *(
        (f"header origin {origin}", headers(header(origin=origin)), "spec.fetch.headers[0].origin")
        for origin in (
            "https://docs.example.com/",
            "https://Docs.example.com",
            "https://docs.example.com:443",
            "http://docs.example.com:80",
            "https://me@docs.example.com",
            "ftp://docs.example.com",
            "docs.example.com",
            "https://",
        )
    ),
    *(
        (f"header {name}", headers(header(name=name)), "spec.fetch.headers[0].name")
        for name in (
            "Host",
            "USER-AGENT",
            "Content-Length",
            "Proxy-Authorization",
            "If-None-Match",
            "TE",
            "X Y",
            "X:",
            "é",
        )
    ),
    ("header twice", headers(header(), header(name="x-api-key")), "spec.fetch.headers"),
    ("header from nowhere", {"fetch": {"headers": [{**header(), "valueFrom": {}}]}}, "spec.fetch.headers[0].valueFrom"),
    *(
        (f"key {key}", headers(header(key=key)), "spec.fetch.headers[0].valueFrom.secretKeyRef.key")
        for key in ("", ".", "..", "..data", "a/b")
    ),
    ("secret's name", headers(header(secret="../x")), "spec.fetch.headers[0].valueFrom.secretKeyRef.name"),
    ("33 headers", headers(*(header(name=f"X-{n}") for n in range(33))), "spec.fetch.headers"),
    ("no certificates", {"fetch": {"caBundle": {}}}, "spec.fetch.caBundle"),
    (
        "certificates twice",
        {"fetch": {"caBundle": {"secretKeyRef": REF, "configMapKeyRef": REF}}},
        "spec.fetch.caBundle",
    ),
    *(
        (f"proxy {url}", proxy(url), "spec.fetch.proxy.url")
        for url in (
            "https://proxy.example.com:3128",
            "socks5://proxy.example.com:1080",
            "http://me:secret@proxy.example.com",
            "http://proxy.example.com/path",
            "proxy.example.com:3128",
            "http://",
        )
    ),
    ("proxy without a word", {"fetch": {"proxy": {"url": "http://proxy.example.com"}}}, "spec.fetch.proxy"),
    ("proxy that filters nothing", proxy(filters=False), "spec.fetch.proxy"),
    ("unknown field", {"worker": 3}, "spec.worker"),
    ("unknown nested field", {"fetch": {"wrokers": 3}}, "spec.fetch.wrokers"),
    ("privilege", {"podTemplate": {"serviceAccountName": "admin"}}, "spec.podTemplate.serviceAccountName"),
]

OUR_WAY = {"seed without a host"}
"""Which is http://nowhere/ to WHATWG and so to us."""

GOOD: list[tuple[str, dict[str, Any]]] = [
    ("the smallest", {}),
    ("an at sign in a path", {"seeds": ["https://docs.example.com/@user?at=a@b"]}),
    ("upper case and a port", {"seeds": ["HTTPS://Docs.Example.COM:8443/"]}),
    ("an address", {"seeds": ["http://[2001:db8::1]:8080/"]}),
    ("all the rest", {"fetch": {"workers": 4, "totalTimeout": "1m30s"}, "storage": {"size": "500Mi"}}),
    ("ranges", {"network": {"allowCIDRs": ["10.0.0.0/8", "fd00::/8", "192.0.2.7/32", "::/0"] * 25}}),
    ("patterns", {"scope": {"include": ["/docs/*?v=[1]", "https://[::1]:8080/*"] * 50, "exclude": ["*.pdf"] * 100}}),
    (
        "lifecycle",
        {
            "activeDeadlineSeconds": 3600,
            "startDeadlineSeconds": 0,
            "ttlSecondsAfterFinished": 0,
            "restartRequestedAt": "2031-05-06T07:08:09Z",
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
                    {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [1, 137]}},
                ]
            },
        },
    ),
    ("listener's address", {"listen": {"address": "::"}}),
    ("an existing claim", {"storage": {"existingClaim": "kept.claim-1", "whenDeleted": "Retain"}}),
    (
        "placement",
        {
            "podTemplate": {
                "labels": {"team": "docs"},
                "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone"}],
                "tolerations": [{"operator": "Exists"}],
                "env": [{"name": "TZ", "value": "UTC"}],
            }
        },
    ),
    (
        "headers",
        headers(
            header(),
            header(origin="http://docs.example.com"),
            *(header(name=f"X-{n}-{'a' * 100}", key=".k..x", secret="a.b-c") for n in range(30)),
        ),
    ),
    (
        "headers of an address",
        {"seeds": ["http://[2001:db8::1]:81/"], **headers(header(origin="http://[2001:db8::1]:81"))},
    ),
    ("proxy", proxy("http://[2001:db8::1]:3128/")),
    ("telemetry", telemetry(tls=TLS, headers=[sent(f"X-{n}-{'a' * 100}") for n in range(32)])),
    ("telemetry in upper case", telemetry("HTTPS://Collector.example.com", tls={"ca": {"secretKeyRef": REF}})),
    ("telemetry in clear", telemetry("http://collector:4317", headers=[sent()], protocol="http/protobuf")),
    ("certificates", {"fetch": {"caBundle": {"configMapKeyRef": REF}}}),
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


@pytest.mark.parametrize(
    ("spec", "field"), [row[1:] for row in BAD if row[0] not in OUR_WAY], ids=[r[0] for r in BAD if r[0] not in OUR_WAY]
)
def test_the_program_refuses_the_same(spec: dict[str, Any], field: str) -> None:
    """A file that runs without a cluster is one that the API server takes."""
    with pytest.raises(InvalidInputError) as invalid:
        manifest.parse(crawljob("bad", **spec)["spec"])
    assert any(problem.path.startswith(field) for problem in invalid.value.problems)


def test_host_bits_are_refused_by_the_program_alone() -> None:
    """No expression that every Kubernetes understands tells them; in a cluster it is a condition."""
    with pytest.raises(InvalidInputError, match=r"spec\.network\.allowCIDRs\[1\]: .*its host bits must be zero"):
        manifest.parse(crawljob("bad", network={"allowCIDRs": ["10.0.0.0/8", "10.1.2.3/8"]})["spec"])


@pytest.mark.parametrize("spec", [row[1] for row in GOOD], ids=[row[0] for row in GOOD])
def test_good_input_is_taken(api: Api, spec: dict[str, Any]) -> None:
    """What people write is not refused by a rule that is too narrow."""
    answer = api.call("POST", crawljobs("default") + STRICT, crawljob("good", **spec))
    assert answer.status == 201, answer.message
    manifest.parse(crawljob("good", **spec)["spec"])


def test_a_job_without_seeds_names_them(api: Api) -> None:
    """A required field is named too."""
    body = crawljob("bad")
    del body["spec"]["seeds"]
    assert "spec.seeds: Required value" in refused(api.call("POST", crawljobs("default") + STRICT, body))


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        ({"size": "2Gi"}, {"size": "1Gi"}, "storage.size may only grow"),
        ({"size": "2Gi"}, {"size": None}, "storage.size may only grow"),
        ({"size": "2Gi"}, None, "storage.size may only grow"),
        (None, {"size": "512Mi"}, "storage.size may only grow"),
        ({}, {"storageClassName": "fast"}, "storage.storageClassName cannot be changed"),
        ({"storageClassName": "fast"}, None, "storage.storageClassName cannot be changed"),
        ({}, {"accessModes": ["ReadWriteOnce"]}, "storage.accessModes cannot be changed"),
        ({"existingClaim": "kept"}, {"existingClaim": "other"}, "storage.existingClaim cannot be changed"),
        ({"existingClaim": "kept"}, {"existingClaim": None}, "storage.existingClaim cannot be changed"),
        (None, {"existingClaim": "kept"}, "storage.existingClaim cannot be changed"),
        (None, {"size": "2Gi"}, ""),
        ({"size": "1Gi"}, {"size": "1536Mi"}, ""),
        ({"size": "1Gi"}, {"whenDeleted": "Retain"}, ""),
        (None, {"accessModes": ["ReadWriteOncePod"]}, ""),
    ],
)
def test_the_volume_may_only_grow(
    api: Api, namespace: str, before: dict[str, Any] | None, after: dict[str, Any] | None, word: str
) -> None:
    """Neither another value nor taking the field away gets past the rule."""
    given = {"storage": before} if before is not None else {}
    api.create(crawljobs(namespace), crawljob("docs", namespace, suspend=True, **given))
    path = crawljobs(namespace, "docs")
    answer = api.call("PATCH", path, {"spec": {"storage": after}}, "application/merge-patch+json")
    if word:
        assert word in refused(answer)
    else:
        assert answer.status == 200, answer.message
