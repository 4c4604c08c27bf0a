"""Numbers, and the rows of the table that says under which names they are published.

Nothing here imports OpenTelemetry, waits or fails. The names in the text format are those that a Collector's
Prometheus exporter makes of the OTLP ones, so that a dashboard works with either.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

Kind = Literal["counter", "updowncounter", "gauge", "histogram"]
"""As OpenTelemetry has them: an ``updowncounter`` may be added up over processes, a ``gauge`` not."""
Source = TypeVar("Source")
"""What a table reads its numbers from."""


class Exemplar(NamedTuple):
    """One observation of a histogram, and the span that says more of it."""

    value: float
    time_ns: int
    """When it was made, in nanoseconds since the epoch."""
    trace_id: int
    span_id: int


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram at one moment: ``counts`` has one entry per bound and one for what is above the last."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float
    exemplars: tuple[Exemplar, ...] = ()
    """The newest one of each bucket that has one."""

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
        self._exemplars: dict[int, Exemplar] = {}

    def observe(self, value: float) -> None:
        """Add one observation, in the histogram's unit; a negative one (a clock was set back) counts as 0."""
        value = max(value, 0.0)
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def exemplify(self, exemplar: Exemplar) -> None:
        """An observation that has been added is in a trace: it takes the place of its bucket's last one."""
        self._exemplars[bisect_left(self._bounds, exemplar.value)] = exemplar

    def read(self) -> Buckets:
        """A copy."""
        return Buckets(self._bounds, tuple(self._counts), self._total, tuple(dict(self._exemplars).values()))


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
    def prometheus_type(self) -> str:
        """The type in Prometheus, which has no other for what goes up and down."""
        return "gauge" if self.kind == "updowncounter" else self.kind

    @property
    def prometheus_name(self) -> str:
        """The name in Prometheus: dots become underscores, the unit and ``_total`` are appended."""
        unit = {"s": "_seconds", "By": "_bytes"}.get(self.unit, "")
        return self.name.replace(".", "_") + unit + ("_total" if self.kind == "counter" else "")


Collected = Sequence[tuple[Metric[Any], Series]]
"""A whole table with its numbers at one moment."""
