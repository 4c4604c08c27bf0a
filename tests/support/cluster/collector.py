"""The OpenTelemetry Collector in the cluster: deployed, restarted, and what it received, read back from its files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.cluster.testbed import apply, host_dir, kubectl

NAMESPACE = "observability"
GRPC = f"http://otel-collector.{NAMESPACE}.svc:4317"
HTTP = f"http://otel-collector.{NAMESPACE}.svc:4318"
MANIFEST = Path(__file__).with_name("collector.yaml")
TRACES, METRICS = "traces.jsonl", "metrics.jsonl"
_DEPLOYMENT = ("deployment/otel-collector", "-n", NAMESPACE)
# The kinds of a metric's data in OTLP's JSON.
_DATA = ("sum", "gauge", "histogram", "exponentialHistogram", "summary")


@dataclass(frozen=True)
class Span:
    """One span; ids are lowercase hexadecimal, times are nanoseconds."""

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    kind: int
    start: int
    end: int
    status: int
    message: str
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]
    scope: str
    events: tuple[Mapping[str, Any], ...] = field(default=())
    links: tuple[Mapping[str, Any], ...] = field(default=())


@dataclass(frozen=True)
class Point:
    """One data point. `value` is a number, or None where `raw` holds a histogram's buckets, count and sum."""

    name: str
    kind: str
    unit: str
    value: float | None
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]
    start: int
    time: int
    raw: Mapping[str, Any]


def deploy() -> None:
    """Deploy the Collector and wait until it receives; deploying it again changes nothing."""
    image = os.environ.get("COLLECTOR_IMAGE", "otel-collector:test")
    apply(MANIFEST.read_text().replace("COLLECTOR_IMAGE", image))
    _ready()


def restart() -> None:
    """Replace the Collector's Pod; the old one writes what it holds before it ends, and the files are continued."""
    kubectl("rollout", "restart", *_DEPLOYMENT)
    _ready()


def flush() -> None:
    """Make sure that everything received so far is in the files."""
    restart()


def stop() -> None:
    """Take the Collector away, as in an outage; start() brings it back."""
    kubectl("scale", "--replicas=0", *_DEPLOYMENT)
    kubectl("wait", "--for=delete", "pod", "-l", "app.kubernetes.io/name=otel-collector", "-n", NAMESPACE)


def start() -> None:
    """Undo stop()."""
    kubectl("scale", "--replicas=1", *_DEPLOYMENT)
    _ready()


def reset() -> None:
    """Forget what was received. The Collector is away meanwhile: truncating its open files would leave holes."""
    stop()
    for name in (TRACES, METRICS):
        (_folder() / name).unlink(missing_ok=True)
    start()


def read_spans() -> list[Span]:
    """Every span in the file, in the order of arrival."""
    return [
        Span(
            trace_id=span["traceId"],
            span_id=span["spanId"],
            parent_id=span.get("parentSpanId") or None,
            name=span.get("name", ""),
            kind=int(span.get("kind", 0)),
            start=int(span.get("startTimeUnixNano", 0)),
            end=int(span.get("endTimeUnixNano", 0)),
            status=int(span.get("status", {}).get("code", 0)),
            message=span.get("status", {}).get("message", ""),
            attributes=attributes(span),
            resource=attributes(group.get("resource", {})),
            scope=scope.get("scope", {}).get("name", ""),
            events=tuple({**event, "attributes": attributes(event)} for event in span.get("events", [])),
            links=tuple(span.get("links", [])),
        )
        for line in _lines(TRACES)
        for group in line.get("resourceSpans", [])
        for scope in group.get("scopeSpans", [])
        for span in scope.get("spans", [])
    ]


def read_metrics() -> list[Point]:
    """Every data point in the file, in the order of arrival; a cumulative counter appears once per export."""
    return [
        _point(metric, kind, point, group)
        for line in _lines(METRICS)
        for group in line.get("resourceMetrics", [])
        for scope in group.get("scopeMetrics", [])
        for metric in scope.get("metrics", [])
        for kind in _DATA
        for point in metric.get(kind, {}).get("dataPoints", [])
    ]


def attributes(holder: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a span, point, event or resource as plain Python values."""
    return {entry["key"]: _value(entry.get("value", {})) for entry in holder.get("attributes", [])}


def _point(metric: Mapping[str, Any], kind: str, point: Mapping[str, Any], group: Mapping[str, Any]) -> Point:
    value = float(point["asInt"]) if "asInt" in point else point.get("asDouble")
    return Point(
        name=metric["name"],
        kind=kind,
        unit=metric.get("unit", ""),
        value=value,
        attributes=attributes(point),
        resource=attributes(group.get("resource", {})),
        start=int(point.get("startTimeUnixNano", 0)),
        time=int(point.get("timeUnixNano", 0)),
        raw=point,
    )


def _value(value: Mapping[str, Any]) -> Any:
    if "intValue" in value:
        return int(value["intValue"])  # a string in JSON
    if "arrayValue" in value:
        return [_value(entry) for entry in value["arrayValue"].get("values", [])]
    if "kvlistValue" in value:
        return {entry["key"]: _value(entry.get("value", {})) for entry in value["kvlistValue"].get("values", [])}
    return next(iter(value.values()), None)


def _lines(name: str) -> Iterator[dict[str, Any]]:
    path = _folder() / name
    text = path.read_text() if path.exists() else ""
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):  # the last one may be half written
            yield json.loads(line)


def _folder() -> Path:
    return host_dir() / "collector"


def _ready() -> None:
    kubectl("rollout", "status", *_DEPLOYMENT, "--timeout=90s", timeout=100)
