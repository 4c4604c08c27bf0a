"""The bounded queue between the event loop and the thread that builds and sends spans.

``telemetry`` puts chosen records in; the span sink's thread takes them out as ``SpanSignal``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from durable_crawler.outcomes import PageRecord
from durable_crawler.telemetry.stats import Stats
from durable_crawler.telemetry.trace import stages_shown

if TYPE_CHECKING:  # OpenTelemetry is loaded in the sink's thread only
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

    from durable_crawler.telemetry.spans import SpanBuilder

QUEUED_SPANS_MAX = 4096
BATCH_SPANS = 64
"""A batch is encoded in one go under the interpreter's lock: larger ones are felt in the event loop."""

TRIES = 3
"""Exports of one batch until it is given up: a batch that the collector refuses must not block the others for ever."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A record that becomes spans, and when it was settled."""

    record: PageRecord
    settled_ns: int

    @property
    def spans(self) -> int:
        """How many spans it becomes."""
        fetched = self.record.fetched
        return 1 + len(stages_shown(self.record)) + (0 if fetched is None else len(fetched.exchanges))


class SpanQueue:
    """Put by one thread, taken by another: each has its own counter, so that no lock is needed."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._records: deque[Chosen] = deque()
        self._put = 0
        self._taken = 0

    def put(self, record: PageRecord, settled_ns: int) -> bool:
        """Queue a record, or count it as dropped when the queue is full; true when a whole batch waits."""
        if record.fetched is not None and record.fetched.body is not None:
            record = replace(record, fetched=replace(record.fetched, body=None))  # not to keep megabytes alive
        chosen = Chosen(record, settled_ns)
        if self._put - self._taken + chosen.spans > QUEUED_SPANS_MAX:
            self._stats.spans["dropped"] += chosen.spans
            return False
        self._put += chosen.spans
        self._records.append(chosen)
        return self._put - self._taken >= BATCH_SPANS

    def take(self) -> Chosen | None:
        """The oldest record; ``None`` when there is none."""
        try:
            chosen = self._records.popleft()
        except IndexError:
            return None
        self._taken += chosen.spans
        return chosen

    def abandon(self) -> None:
        """Count everything that is queued as dropped."""
        while (chosen := self.take()) is not None:
            self._stats.spans["dropped"] += chosen.spans


class SpanSignal:
    """The queue as a sink sends it: batches of at most ``BATCH_SPANS``, a refused one kept and tried again."""

    def __init__(
        self,
        queue: SpanQueue,
        builder: SpanBuilder,
        exporter: SpanExporter,
        stats: Stats,
        run_span: Callable[[SpanBuilder], ReadableSpan | None],
    ) -> None:
        """``run_span`` gives the run's own span once, at the end, and ``None`` before."""
        self._queue = queue
        self._builder = builder
        self._exporter = exporter
        self._stats = stats
        self._run_span = run_span
        self._spans: list[ReadableSpan] = []
        self._tries = 0

    def batches(self) -> Iterator[bool]:
        """See ``sink.Signal``."""
        if (run := self._run_span(self._builder)) is not None:
            self._spans.insert(0, run)  # first: the root is worth more than what time may not suffice for
        while self._fill():
            batch = self._spans[:BATCH_SPANS]
            taken = self._exporter.export(batch).name == "SUCCESS"
            self._tries += 1
            if taken or self._tries >= TRIES:
                self._stats.spans["sent" if taken else "failed"] += len(batch)
                del self._spans[:BATCH_SPANS]
                self._tries = 0
            yield taken

    def abandon(self) -> None:
        """See ``sink.Signal``."""
        self._stats.spans["dropped"] += len(self._spans)
        self._spans.clear()
        self._queue.abandon()

    def shutdown(self) -> None:
        """See ``sink.Signal``."""
        self._exporter.shutdown()

    def _fill(self) -> bool:
        while len(self._spans) < BATCH_SPANS and (chosen := self._queue.take()) is not None:
            self._spans += self._builder.page(chosen.record, chosen.settled_ns)
        return bool(self._spans)
