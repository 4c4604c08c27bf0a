"""The OTLP exporters and the resource that everything sent belongs to.

Imported and called in a sink's thread only: loading gRPC or requests takes a quarter of a second. What is not in the
spec (headers, certificates, compression) comes from the standard ``OTEL_EXPORTER_OTLP_*`` variables, which the
exporters read themselves; ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` describe the resource.
"""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.sdk.version import __version__ as sdk_version

from crawljob import __version__
from crawljob.spec import Telemetry
from crawljob_telemetry.environment import resource_attributes
from crawljob_telemetry.sink import EXPORT_TIMEOUT_S


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


def span_exporter(spec: Telemetry) -> SpanExporter:
    """An exporter for the spec's endpoint and protocol."""
    if spec.protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc  # noqa: PLC0415

        return Grpc(endpoint=spec.endpoint, timeout=EXPORT_TIMEOUT_S)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http  # noqa: PLC0415

    return Http(endpoint=_path(spec, "traces"), timeout=EXPORT_TIMEOUT_S)


def metric_exporter(spec: Telemetry) -> MetricExporter:
    """An exporter for the spec's endpoint and protocol."""
    if spec.protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as Grpc  # noqa: PLC0415

        return Grpc(endpoint=spec.endpoint, timeout=EXPORT_TIMEOUT_S)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as Http  # noqa: PLC0415

    return Http(endpoint=_path(spec, "metrics"), timeout=EXPORT_TIMEOUT_S)


def _path(spec: Telemetry, signal: str) -> str:
    assert spec.endpoint is not None, "exporters are built for an endpoint"
    return f"{spec.endpoint.rstrip('/')}/v1/{signal}"
