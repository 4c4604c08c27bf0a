"""A table of metrics in the Prometheus text format, for ``/metrics``.

Rendered by hand from the plain numbers: a scrape must cost the event loop microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from crawljob_telemetry.metrics import Buckets, Collected, Metric, Value

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(collected: Collected) -> str:
    """All metrics as text; a series that has no value yet is left out, its name is not."""
    lines: list[str] = []
    for metric, series in collected:
        name = metric.prometheus_name
        lines.append(f"# HELP {name} {metric.description}")
        lines.append(f"# TYPE {name} {metric.kind}")
        for values, value in series.items():
            lines.extend(_samples(metric, name, values, value))
    return "\n".join(lines) + "\n"


def _samples(metric: Metric[Any], name: str, values: tuple[str, ...], value: Value) -> Iterator[str]:
    named = zip(metric.attributes, values, strict=True)
    labels = [_label(key, text) for key, text in named if text]  # an empty label is none
    suffix = _braces(labels)
    if not isinstance(value, Buckets):
        yield f"{name}{suffix} {value}"
        return
    bounds = [*(f"{bound:g}" for bound in value.bounds), "+Inf"]  # `1`, not `1.0`, as Go writes it
    for bound, count in zip(bounds, accumulate(value.counts), strict=True):
        yield f"{name}_bucket{_braces([*labels, _label('le', bound)])} {count}"
    yield f"{name}_sum{suffix} {value.total}"
    yield f"{name}_count{suffix} {value.count}"


def _label(key: str, text: str) -> str:
    escaped = text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'{key.replace(".", "_")}="{escaped}"'


def _braces(labels: list[str]) -> str:
    return f"{{{','.join(labels)}}}" if labels else ""
