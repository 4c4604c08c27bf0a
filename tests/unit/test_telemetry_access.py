"""How a collector lets a crawl's telemetry in: headers, certificates, and whose collector it is; over real sockets."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.builders import job
from tests.support.crawler import crawl
from tests.support.misbehaving import Authority
from tests.support.otlp import COLLECTORS, PROTOCOLS, Collector, Protocol
from tests.support.podsecurity import violations

from crawljob.exitcodes import ExitCode
from crawljob.problems import InvalidInputError
from crawljob.summary import Progress
from crawljob.telemetry import Telemetry as Spec
from crawljob_operator import identity, render
from crawljob_operator.telemetry import Telemetry as OperatorTelemetry
from crawljob_telemetry.credentials import Credentials
from durable_crawler.access_telemetry import addressed, read
from durable_crawler.clock import SystemClock
from durable_crawler.outcomes import PageRecord
from durable_crawler.telemetry import Stats, Telemetry

SECRET = "s3cr3t-q7J-value"
REF = {"name": "collector", "key": "token"}
HEADER = {"name": "Authorization", "valueFrom": {"secretKeyRef": REF}}
TLS = {"ca": {"configMapKeyRef": {"name": "ca", "key": "ca.crt"}}, "clientCertificate": {"secretName": "client"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority with a server's and a client's certificate, and the Secrets of a crawl."""
    folder = tmp_path_factory.mktemp("secrets")
    authority = Authority(folder)
    authority.server()
    authority.client(folder / "client")
    (folder / "collector").mkdir()
    (folder / "collector" / "token").write_text(f"{SECRET}\n")
    return folder


@pytest.fixture(params=PROTOCOLS)
def collector(request: pytest.FixtureRequest, folder: Path) -> Iterator[tuple[Collector, Protocol]]:
    with COLLECTORS[request.param](folder) as running:
        running.wants = ("authorization", SECRET)
        yield running, request.param


def spec(endpoint: str = "https://127.0.0.1:1", protocol: str = "grpc", **fields: Any) -> Spec:
    given = {"endpoint": endpoint, "protocol": protocol, "tracesSampleRatio": 1.0, **fields}
    return Spec.model_validate(given, strict=False)


async def send(telemetry: Spec, credentials: Credentials) -> Stats:
    stats = Stats(Progress)
    sending = Telemetry(telemetry, stats, SystemClock(), {}, credentials=credentials)
    sending.start()
    sending.page_settled(PageRecord("http://h/", "h", 0, 1, "done", None, ()))
    await sending.aclose(30)
    return stats


async def test_the_collector_is_shown_the_header_and_the_certificate(
    collector: tuple[Collector, Protocol],
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the environment says of certificates and passwords."""
    caplog.set_level(logging.DEBUG)
    other = Authority(tmp_path)
    other.client(tmp_path)
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password other\n")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    running, protocol = collector
    telemetry = spec(running.endpoint, protocol, headers=[HEADER], tls=TLS)
    credentials = read(telemetry, secret_dir=folder, ca=folder / "ca.pem")
    stats = await send(telemetry, credentials)
    assert {span.name for span in running.spans} == {"crawl page", "crawl run"}
    assert running.metrics
    assert (stats.spans["sent"], stats.spans["failed"], running.turned_away) == (2, 0, 0)
    assert SECRET not in caplog.text + repr(credentials) + repr(telemetry)


@pytest.mark.parametrize("missing", ["header", "certificate", "authority"])
async def test_without_any_of_it_nothing_is_taken_and_nothing_is_said_of_the_value(
    collector: tuple[Collector, Protocol], folder: Path, missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An authority that is unknown above all: nothing is sent to a collector that cannot prove who it is."""
    caplog.set_level(logging.DEBUG)
    running, protocol = collector
    given: dict[str, Any] = {"headers": [HEADER], "tls": TLS}
    if missing == "header":
        given["headers"] = []
    elif missing == "certificate":
        given["tls"] = {"ca": TLS["ca"]}
    else:
        given["tls"] = {"clientCertificate": TLS["clientCertificate"]}
    telemetry = spec(running.endpoint, protocol, **given)
    ca = None if missing == "authority" else folder / "ca.pem"
    stats = await send(telemetry, read(telemetry, secret_dir=folder, ca=ca))
    assert not running.traces
    assert not running.metrics
    assert stats.spans["sent"] == 0
    assert stats.spans["failed"] + stats.spans["dropped"] == 2
    assert (running.turned_away > 0) is (missing == "header")
    assert SECRET not in caplog.text


async def test_the_operator_is_let_in_by_opentelemetrys_own_variables(
    collector: tuple[Collector, Protocol], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the chart sets them."""
    running, protocol = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization={SECRET}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(folder / "ca.pem"))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", str(folder / "client" / "tls.crt"))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", str(folder / "client" / "tls.key"))
    async with OperatorTelemetry(Spec(endpoint=running.endpoint, protocol=protocol), {}) as telemetry:
        telemetry.start()
        await running.wait_until(lambda: bool(running.metrics))
    assert running.turned_away == 0


# Files


@pytest.mark.parametrize(
    ("given", "files", "says"),
    [
        ({"headers": [HEADER]}, {}, "spec.telemetry.headers: Secrets are read from files: name their folder with"),
        (
            {"headers": [HEADER]},
            {"--secret-dir": "none"},
            "spec.telemetry.headers[0].valueFrom.secretKeyRef: none/collector/token cannot be read (No such file",
        ),
        ({"tls": TLS}, {"--secret-dir": "."}, "spec.telemetry.tls.ca: the certificates are read from a file: name it"),
        (
            {"tls": {"clientCertificate": TLS["clientCertificate"]}},
            {},
            "spec.telemetry.tls.clientCertificate: Secrets are read from files",
        ),
        (
            {"tls": TLS},
            {"--secret-dir": "none", "--telemetry-ca": "ca.pem"},
            "spec.telemetry.tls.clientCertificate: none/client/tls.crt cannot be read (No such file",
        ),
        (
            {"tls": {"ca": TLS["ca"]}},
            {"--telemetry-ca": "no.pem"},
            "--telemetry-ca: no.pem cannot be read (No such file or directory)",
        ),
        (
            {"tls": {"ca": TLS["ca"]}},
            {"--telemetry-ca": "crawljob.yaml"},
            "--telemetry-ca: crawljob.yaml does not hold PEM certificates",
        ),
    ],
)
async def test_what_cannot_be_read_is_one_sentence_and_no_crawl(
    tmp_path: Path, folder: Path, given: dict[str, Any], files: dict[str, str], says: str
) -> None:
    (tmp_path / "ca.pem").write_bytes((folder / "ca.pem").read_bytes())
    file = tmp_path / "crawljob.yaml"
    telemetry = {"endpoint": "https://127.0.0.1:1", **given}
    body = {"seeds": ["http://127.0.0.1:1/"], "telemetry": telemetry}
    file.write_text(yaml.safe_dump({"apiVersion": "durable-crawler.io/v1alpha1", "kind": "CrawlJob", "spec": body}))
    code, run = await crawl("-f", file.name, *(word for pair in files.items() for word in pair), cwd=tmp_path)
    assert code == ExitCode.INVALID
    assert says in run.errors
    assert not (tmp_path / "frontier.db").exists()


@pytest.mark.parametrize("value", ["gr\u00fcn", " leading", "trailing ", "two\nlines", ""])
def test_a_value_that_grpc_does_not_send_is_named_by_its_file(tmp_path: Path, value: str) -> None:
    (tmp_path / "collector").mkdir()
    (tmp_path / "collector" / "token").write_text(value, encoding="utf-8")
    with pytest.raises(InvalidInputError) as refused:
        read(spec(headers=[HEADER]), secret_dir=tmp_path)
    (problem,) = refused.value.problems
    assert problem.message.startswith(str(tmp_path / "collector" / "token"))
    assert not value or value not in problem.message


def test_a_key_that_is_another_ones_or_wants_a_password_is_refused(tmp_path: Path, folder: Path) -> None:
    client = tmp_path / "client"
    client.mkdir()
    (client / "tls.crt").write_bytes((folder / "client" / "tls.crt").read_bytes())
    (client / "tls.key").write_bytes((folder / "s.key").read_bytes())
    telemetry = spec(tls={"clientCertificate": TLS["clientCertificate"]})
    for _ in range(2):
        with pytest.raises(InvalidInputError, match="are not a PEM certificate and its key without a password"):
            read(telemetry, secret_dir=tmp_path)
        locked = ("openssl", "pkey", "-in", folder / "client" / "tls.key", "-aes256", "-passout", "pass:x", "-out")
        subprocess.run([*locked, client / "tls.key"], check=True, capture_output=True, timeout=60)


# Whose collector


def test_a_spec_without_an_endpoint_has_the_environments() -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    given = addressed(Spec(traces_sample_ratio=0.5), environ)
    assert (given.endpoint, given.protocol, given.traces_sample_ratio) == ("http://c:4318", "http/protobuf", 0.5)
    own = Spec(endpoint="http://own:4317")
    assert addressed(own, environ) is own
    assert addressed(Spec(), {"OTEL_EXPORTER_OTLP_PROTOCOL": "nonsense"}) == Spec()


@pytest.mark.parametrize(
    ("endpoint", "protocol", "named"),
    [
        ("grpc://c:4317", "", "^OTEL_EXPORTER_OTLP_ENDPOINT: must be an absolute http or https URL$"),
        ("http://u:word@c:4317", "", "^OTEL_EXPORTER_OTLP_ENDPOINT: must not contain credentials$"),
        ("http://c:4317", "http/json", "OTEL_EXPORTER_OTLP_PROTOCOL: must be grpc or http/protobuf"),
    ],
)
def test_an_environment_that_cannot_be_obeyed_is_named(endpoint: str, protocol: str, named: str) -> None:
    with pytest.raises(InvalidInputError, match=named):
        addressed(Spec(), {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol})


def environment(collector: Spec | None, **fields: Any) -> dict[str, Any]:
    owner = job(**fields)
    assert owner.spec is not None
    (container,) = render.pod(owner, owner.spec, 1, "i", collector=collector)["spec"]["containers"]
    names = [variable["name"] for variable in container["env"]]
    assert len(set(names)) == len(names)
    return {variable["name"]: variable.get("value") for variable in container["env"]}


def test_crawls_that_name_no_collector_get_the_operators() -> None:
    ours = Spec(endpoint="http://ours:4318", protocol="http/protobuf")
    endpoint, protocol = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL"
    given = environment(ours)
    assert (given[endpoint], given[protocol]) == ("http://ours:4318", "http/protobuf")
    assert not environment(None).keys() & {endpoint, protocol}
    assert not environment(Spec()).keys() & {endpoint, protocol}
    assert not environment(ours, telemetry={"endpoint": "http://theirs:4317"}).keys() & {endpoint, protocol}
    variable = {"name": endpoint, "value": "http://theirs:4317"}
    kept = environment(ours, podTemplate={"env": [variable]})
    assert kept[endpoint] == "http://theirs:4317"
    assert protocol not in kept


def test_the_operators_collector_is_neither_in_the_hash_nor_in_the_file() -> None:
    """Another one restarts no crawl."""
    owner = job()
    assert owner.spec is not None
    one, two = (render.pod(owner, owner.spec, 1, "i", collector=given) for given in (None, spec("http://c:4317")))
    assert one["metadata"] == two["metadata"]
    assert one["spec"]["volumes"] == two["spec"]["volumes"]
    assert "http://c:4317" not in render.config_text(owner, owner.spec)


def test_what_the_collector_wants_to_see_is_mounted_key_by_key() -> None:
    fields = {"endpoint": "https://c:4317", "headers": [HEADER], "tls": TLS}
    owner = job(telemetry=fields)
    assert owner.spec is not None
    body = render.pod(owner, owner.spec, 1, "i")
    (container,) = body["spec"]["containers"]
    assert violations(body) == []

    def secret(number: int, name: str, *keys: str) -> dict[str, Any]:
        items = [{"key": key, "path": key} for key in keys]
        return {"name": f"secret-{number}", "secret": {"secretName": name, "items": items, "defaultMode": 0o440}}

    certificates = {"name": "ca", "items": [{"key": "ca.crt", "path": "ca.pem"}], "defaultMode": 0o440}
    assert body["spec"]["volumes"][3:] == [
        secret(0, "client", "tls.crt", "tls.key"),
        secret(1, "collector", "token"),
        {"name": "telemetry-ca", "configMap": certificates},
    ]
    folders = [mount["mountPath"] for mount in container["volumeMounts"][3:]]
    assert folders == [
        "/etc/crawljob-secrets/client",
        "/etc/crawljob-secrets/collector",
        "/etc/crawljob-telemetry-ca",
    ]
    assert container["args"][-4:] == [
        "--secret-dir",
        "/etc/crawljob-secrets",
        "--telemetry-ca",
        "/etc/crawljob-telemetry-ca/ca.pem",
    ]
    assert identity.spec_hash(owner.spec) != identity.spec_hash(owner.spec.model_copy(update={"telemetry": Spec()}))
