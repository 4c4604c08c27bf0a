"""The one object that the engine talks to: counts, traces and the bounded end of both.

Composed by the command line. ``start`` once the first requests are under way (loading the exporters takes CPU time),
``page_settled`` per claim, ``aclose`` after the last flush.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from crawljob.summary import RunSummary
from crawljob.telemetry import Telemetry as TelemetrySpec
from crawljob_telemetry.credentials import Credentials
from crawljob_telemetry.sink import Signal, Sink, close
from crawljob_telemetry.span_queue import SpanQueue, SpanSignal
from durable_crawler.clock import Clock
from durable_crawler.logs import Limited
from durable_crawler.outcomes import PageRecord
from durable_crawler.telemetry.catalogue import collect
from durable_crawler.telemetry.stats import Stats
from durable_crawler.telemetry.trace import Chosen, Sampler, trace_from

if TYPE_CHECKING:  # OpenTelemetry is loaded in the sinks' threads only
    from opentelemetry.sdk.trace import ReadableSpan

    from durable_crawler.telemetry.spans import SpanBuilder

SERVICE = "durable-crawler"
SCOPE = "durable_crawler"

METRICS_INTERVAL_S = 10.0
SPANS_INTERVAL_S = 1.0

_logger = logging.getLogger(__name__)
_log = Limited(_logger)


class Telemetry:
    """Counters always; traces and metrics over OTLP when the spec names an endpoint.

    ``trace_id`` and ``span_id`` (of the run's span, or of the given parent where none is sent) are lowercase hex, for
    the logs. ``OTEL_SDK_DISABLED=true`` is obeyed.
    """

    def __init__(
        self,
        spec: TelemetrySpec,
        stats: Stats,
        clock: Clock,
        environ: Mapping[str, str],
        *,
        credentials: Credentials | None = None,
        metrics_interval: float = METRICS_INTERVAL_S,
    ) -> None:
        """``metrics_interval`` in seconds, from the end of an export to the next."""
        self._spec = spec
        self._credentials = credentials or Credentials()
        self._stats = stats
        self._clock = clock
        self._environ = environ
        self._trace = trace_from(environ)
        self._instance_id = str(uuid.uuid4())
        self._started_ns = clock.wall_ns()
        self._ended: tuple[int, RunSummary | None] | None = None
        self._sinks: list[Sink] = []
        self._closed = False
        self._metrics_interval = metrics_interval
        self._sampler = Sampler(spec.traces_sample_ratio)
        self._queue: SpanQueue[Chosen] = SpanQueue(stats.spans)
        disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        self._sends = spec.endpoint is not None and not disabled
        self._span_sink = Sink("spans", self._open_spans, self._queue.abandon, SPANS_INTERVAL_S)
        self.trace_id = f"{self._trace.trace_id:032x}"
        self.span_id = f"{self._trace.run_id if self._sends else self._trace.page_parent_id:016x}"

    def start(self) -> None:
        """Start sending; does nothing without an endpoint. Returns at once."""
        if not self._sends or self._sinks or self._closed:
            return
        metric_sink = Sink("metrics", self._open_metrics, _nothing_kept, self._metrics_interval)
        self._sinks = [self._span_sink, metric_sink]
        for sink in self._sinks:
            sink.start()

    def page_settled(self, record: PageRecord) -> None:
        """Count the record, and queue its spans when it is chosen. Never raises, never waits."""
        try:
            self._stats.page_settled(record)
            if self._sends and not self._closed:
                self._trace_page(record)
        except Exception:  # noqa: BLE001  a wrong count must not change a page's outcome
            _log.warning("page_settled", "telemetry: a page could not be counted", exc_info=True)

    async def aclose(self, timeout: float = 2.5, summary: RunSummary | None = None) -> None:
        """Send the last numbers and spans, for at most ``timeout`` seconds in all; what is left then is dropped.

        Call it after the engine's last flush: the gauges that are sent last are those that ``stats`` returns now.
        """
        if self._closed:
            return
        self._closed = True
        self._ended = (self._clock.wall_ns(), summary)
        if not self._sinks:
            return
        await close(self._sinks, timeout)
        _logger.info("telemetry closed", extra={f"spans_{key}": count for key, count in self._stats.spans.items()})

    def _trace_page(self, record: PageRecord) -> None:
        if self._sampler.chooses(record) and self._queue.put(Chosen.of(record, self._clock.wall_ns())):
            self._stats.traced(record, self._trace)
            if self._queue.batch_waits:
                self._span_sink.wake()
        self._stats.untraced = self._sampler.untraced

    def _open_spans(self) -> Signal:
        from crawljob_telemetry.exporters import resource_from, scope, span_exporter  # noqa: PLC0415
        from crawljob_telemetry.finished import Origin  # noqa: PLC0415
        from durable_crawler.telemetry.spans import SpanBuilder  # noqa: PLC0415

        resource = resource_from(SERVICE, self._environ, self._instance_id)
        builder = SpanBuilder(self._trace, Origin(resource, scope(SCOPE)))
        # The run's span comes first: the root is worth more than what time may not suffice for.
        return SpanSignal(
            self._queue,
            builder.page,
            span_exporter(self._spec, self._credentials),
            first=lambda: self._run_span(builder),
        )

    def _open_metrics(self) -> Signal:
        from crawljob_telemetry.exporters import metric_exporter, resource_from, scope  # noqa: PLC0415
        from crawljob_telemetry.otlp_metrics import MetricSignal  # noqa: PLC0415

        return MetricSignal(
            lambda: collect(self._stats),
            self._stats.metric_exports,
            metric_exporter(self._spec, self._credentials),
            resource_from(SERVICE, self._environ, self._instance_id),
            scope(SCOPE),
            started_ns=self._started_ns,
            now_ns=self._clock.wall_ns,
        )

    def _run_span(self, builder: SpanBuilder) -> ReadableSpan | None:
        ended, self._ended = self._ended, None
        return None if ended is None else builder.run(self._started_ns, *ended)


def _nothing_kept() -> None:
    return
