"""Numbers, and the rows of the table that says under which names they are published.

Nothing here imports OpenTelemetry, waits or fails. The names in the text format are those that a Collector's
Prometheus exporter makes of the OTLP ones, so that a dashboard works with either.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

Kind = Literal["counter", "gauge", "histogram"]
Source = TypeVar("Source")
"""What a table reads its numbers from."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram at one moment: ``counts`` has one entry per bound and one for what is above the last."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @property
    def count(self) -> int:
        """Observations in all buckets."""
        return sum(self.counts)


class Histogram:
    """Counts by upper bound; a value equal to a bound belongs to it."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        """Add one observation, in the histogram's unit; a negative one (a clock was set back) counts as 0."""
        value = max(value, 0.0)
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def read(self) -> Buckets:
        """A copy."""
        return Buckets(self._bounds, tuple(self._counts), self._total)


Value = int | float | Buckets
Series = Mapping[tuple[str, ...], Value]
"""Values by the attributes' values, in the order of ``Metric.attributes``; ``()`` where there are none. An attribute
that is empty is not there."""


@dataclass(frozen=True, slots=True)
class Metric(Generic[Source]):
    """One metric: ``name`` and ``unit`` as OpenTelemetry writes them (UCUM; ``{page}`` is a comment)."""

    name: str
    kind: Kind
    unit: str
    description: str
    read: Callable[[Source], Series]
    attributes: tuple[str, ...] = ()

    @property
    def prometheus_name(self) -> str:
        """The name in Prometheus: dots become underscores, the unit and ``_total`` are appended."""
        unit = {"s": "_seconds", "By": "_bytes"}.get(self.unit, "")
        return self.name.replace(".", "_") + unit + ("_total" if self.kind == "counter" else "")


Collected = Sequence[tuple[Metric[Any], Series]]
"""A whole table with its numbers at one moment."""
