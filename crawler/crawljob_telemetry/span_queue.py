"""The bounded queue between the event loop and the thread that builds and sends spans.

The loop puts in what becomes spans; the span sink's thread takes it out as ``SpanSignal``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from crawljob_telemetry.sink import took

if TYPE_CHECKING:  # OpenTelemetry is loaded in the sink's thread only
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

QUEUED_SPANS_MAX = 4096
BATCH_SPANS = 64
"""A batch is encoded in one go under the interpreter's lock: larger ones are felt in the event loop."""

TRIES = 3
"""Exports of one batch until it is given up: a batch that the collector refuses must not block the others for ever."""


class Traced(Protocol):
    """What becomes spans."""

    @property
    def spans(self) -> int:
        """How many spans it becomes."""
        ...


Item = TypeVar("Item", bound=Traced)


class SpanQueue(Generic[Item]):
    """Put by one thread, taken by another: each has its own counter, so that no lock is needed."""

    def __init__(self, counts: dict[str, int]) -> None:
        """``counts`` of spans by ``sent``, ``failed`` and ``dropped`` is the caller's."""
        self.counts = counts
        self._items: deque[Item] = deque()
        self._put = 0
        self._taken = 0

    @property
    def batch_waits(self) -> bool:
        """Whether there is enough for a whole batch."""
        return self._put - self._taken >= BATCH_SPANS

    def put(self, item: Item) -> bool:
        """Queue an item; false where the queue is full, and its spans are counted as dropped."""
        if self._put - self._taken + item.spans > QUEUED_SPANS_MAX:
            self.counts["dropped"] += item.spans
            return False
        self._put += item.spans
        self._items.append(item)
        return True

    def take(self) -> Item | None:
        """The oldest item; ``None`` when there is none."""
        try:
            item = self._items.popleft()
        except IndexError:
            return None
        self._taken += item.spans
        return item

    def abandon(self) -> None:
        """Count everything that is queued as dropped."""
        while (item := self.take()) is not None:
            self.counts["dropped"] += item.spans


class SpanSignal(Generic[Item]):
    """The queue as a sink sends it: batches of at most ``BATCH_SPANS``, a refused one kept and tried again."""

    def __init__(
        self,
        queue: SpanQueue[Item],
        build: Callable[[Item], list[ReadableSpan]],
        exporter: SpanExporter,
        *,
        first: Callable[[], ReadableSpan | None] = lambda: None,
        tries: int = TRIES,
    ) -> None:
        """``first`` is asked before each round: the one span that must not wait behind the queue, or ``None``."""
        self._queue = queue
        self._build = build
        self._exporter = exporter
        self._counts = queue.counts
        self._first = first
        self._tries_max = tries
        self._spans: list[ReadableSpan] = []
        self._tries = 0

    def batches(self) -> Iterator[bool]:
        """See ``sink.Signal``."""
        if (first := self._first()) is not None:
            self._spans.insert(0, first)
        while self._fill():
            batch = self._spans[:BATCH_SPANS]
            taken = took(self._exporter.export, batch)
            self._tries += 1
            if taken or self._tries >= self._tries_max:
                self._counts["sent" if taken else "failed"] += len(batch)
                del self._spans[:BATCH_SPANS]
                self._tries = 0
            yield taken

    def abandon(self) -> None:
        """See ``sink.Signal``."""
        self._counts["dropped"] += len(self._spans)
        self._spans.clear()
        self._queue.abandon()

    def shutdown(self) -> None:
        """See ``sink.Signal``."""
        self._exporter.shutdown()

    def _fill(self) -> bool:
        while len(self._spans) < BATCH_SPANS and (item := self._queue.take()) is not None:
            self._spans += self._build(item)
        return bool(self._spans)
