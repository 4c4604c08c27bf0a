"""The OTLP exporters and the resource that everything sent belongs to.

Imported and called in a sink's thread only: loading gRPC or requests takes a quarter of a second. What the credentials
do not have (headers, certificates), and compression, comes from the standard ``OTEL_EXPORTER_OTLP_*`` variables, which
the exporters read themselves; ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` describe the resource.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.sdk.version import __version__ as sdk_version

from crawljob import __version__
from crawljob.telemetry import Telemetry
from crawljob_telemetry.credentials import Credentials
from crawljob_telemetry.environment import resource_attributes
from crawljob_telemetry.sink import EXPORT_TIMEOUT_S

ANSWER_MAX_BYTES = 64 * 1024
"""Read of a collector's answer over HTTP, whose status says all that matters; a longer one costs its connection."""


def scope(package: str) -> InstrumentationScope:
    """The package that measured."""
    return InstrumentationScope(package, __version__)


def resource_from(service: str, environ: Mapping[str, str], instance_id: str) -> Resource:
    """Who sends: our defaults, over them the environment's attributes, over all ``OTEL_SERVICE_NAME``."""
    attributes = {
        "service.name": service,
        "service.version": __version__,
        "service.instance.id": instance_id,
        "telemetry.sdk.language": "python",
        "telemetry.sdk.name": "opentelemetry",
        "telemetry.sdk.version": sdk_version,
    }
    attributes.update(resource_attributes(environ))
    if name := environ.get("OTEL_SERVICE_NAME"):
        attributes["service.name"] = name
    return Resource(attributes)


def span_exporter(spec: Telemetry, credentials: Credentials) -> SpanExporter:
    """An exporter for the spec's endpoint and protocol."""
    if spec.protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc  # noqa: PLC0415

        return Grpc(endpoint=spec.endpoint, timeout=EXPORT_TIMEOUT_S, **_over_grpc(credentials))
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http  # noqa: PLC0415

    return Http(endpoint=_path(spec, "traces"), timeout=EXPORT_TIMEOUT_S, **_over_http(credentials))


def metric_exporter(spec: Telemetry, credentials: Credentials) -> MetricExporter:
    """An exporter for the spec's endpoint and protocol."""
    if spec.protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as Grpc  # noqa: PLC0415

        return Grpc(endpoint=spec.endpoint, timeout=EXPORT_TIMEOUT_S, **_over_grpc(credentials))
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as Http  # noqa: PLC0415

    return Http(endpoint=_path(spec, "metrics"), timeout=EXPORT_TIMEOUT_S, **_over_http(credentials))


def _over_grpc(given: Credentials) -> dict[str, Any]:
    from grpc import ssl_channel_credentials  # type: ignore[import-untyped]  # noqa: PLC0415

    def read(path: Path | None) -> bytes | None:
        return None if path is None else path.read_bytes()

    options: dict[str, Any] = {"headers": tuple(given.headers.items())} if given.headers else {}
    if given.ca or given.certificate:
        options["credentials"] = ssl_channel_credentials(read(given.ca), read(given.key), read(given.certificate))
    return options


def _over_http(given: Credentials) -> dict[str, Any]:
    import requests  # noqa: PLC0415

    class Session(requests.Session):
        """One that the environment's certificates and passwords do not change, where the spec has given some."""

        def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
            # Without this REQUESTS_CA_BUNDLE would come before the session's own.
            verify = self.verify if verify is None else verify
            return super().merge_environment_settings(url, proxies, stream, verify, cert)

        def send(self, request: Any, **options: Any) -> Any:
            answer = super().send(request, **{**options, "stream": True})
            # As it is, compressed or not: an answer without end, or one that grows when unpacked, takes no memory.
            if len(answer.raw.read(ANSWER_MAX_BYTES, decode_content=False)) == ANSWER_MAX_BYTES:
                answer.close()
            if 300 <= answer.status_code < 400:  # the exporter would count it as taken
                raise requests.RequestException(f"the collector answered {answer.status_code}, a redirect")
            return answer

        def get_redirect_target(self, _: Any) -> None:
            """None is followed, and none is looked up, which would read the whole answer."""

    files = {"certificate_file": given.ca, "client_certificate_file": given.certificate, "client_key_file": given.key}
    options: dict[str, Any] = {name: str(path) for name, path in files.items() if path is not None}
    session = Session()
    if given.headers:
        options["headers"] = given.headers
        session.auth = lambda request: request  # what ~/.netrc says of the host would come before Authorization
    return {**options, "session": session}


def _path(spec: Telemetry, signal: str) -> str:
    assert spec.endpoint is not None, "exporters are built for an endpoint"
    return f"{spec.endpoint.rstrip('/')}/v1/{signal}"
