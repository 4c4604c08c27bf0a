"""The observer that counts and traces. Composed by the command line; everything else only knows ``Observer``.

Spans of an end are queued when this process has written it into the status. One that was killed in between, or that
never learned that its write succeeded, has sent nothing: so each listing queues what the statuses say of the last hour
and this process has not queued yet. After a start that is all of it; a span may be sent twice, with the same ids.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from crawljob.status import CrawlJobStatus
from crawljob.telemetry import Telemetry as TelemetrySpec
from crawljob_operator import times
from crawljob_operator.observed import Job
from crawljob_operator.observer import Observer
from crawljob_operator.telemetry import ends
from crawljob_operator.telemetry.catalogue import collect
from crawljob_operator.telemetry.drift import Drift
from crawljob_operator.telemetry.ends import End, Owner
from crawljob_operator.telemetry.stats import PHASES, Stats
from crawljob_telemetry import prometheus
from crawljob_telemetry.credentials import Credentials
from crawljob_telemetry.limited import Limited
from crawljob_telemetry.sink import Signal, Sink, close
from crawljob_telemetry.span_queue import SpanQueue, SpanSignal

SERVICE = "crawljob-operator"
SCOPE = "crawljob_operator"

METRICS_INTERVAL_S = 10.0
SPANS_INTERVAL_S = 1.0
CLOSE_S = 2.0

TRIES = 20
"""Exports of a batch until it is given up: with their backoff eight minutes, in which a collector is back."""

SENT_AGAIN = timedelta(hours=1)
"""Ends that are younger are sent again by an operator that has just started."""

_FROM_THE_ENVIRONMENT = Credentials()

_logger = logging.getLogger(__name__)
_log = Limited(_logger, interval=60.0)


class Telemetry(Observer):
    """Numbers always; spans and metrics over OTLP, from ``start`` on, when the spec names an endpoint.

    ``OTEL_SDK_DISABLED=true`` is obeyed. Leaving ``async with`` sends what is left, for at most two seconds.
    """

    def __init__(
        self,
        spec: TelemetrySpec,
        environ: Mapping[str, str],
        *,
        clock: Callable[[], datetime] | None = None,
        metrics_interval: float = METRICS_INTERVAL_S,
    ) -> None:
        """``metrics_interval`` in seconds, from the end of an export to the next."""
        self.stats = Stats()
        self._spec = spec
        self._environ = environ
        self._now = clock or (lambda: datetime.now(UTC))
        self._metrics_interval = metrics_interval
        self._instance_id = str(uuid.uuid4())
        self._started_ns = time.time_ns()
        self._drift = Drift()
        self._phases: dict[str, int] = {}
        self._queue: SpanQueue[End] = SpanQueue(self.stats.spans)
        self._queued: dict[tuple[str, str], datetime] = {}
        """Ends of the last hour that this process has queued."""
        disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        self._sends = spec.endpoint is not None and not disabled
        self._span_sink = Sink("spans", self._open_spans, self._queue.abandon, SPANS_INTERVAL_S)
        self._sinks: list[Sink] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        sinks, self._sinks = self._sinks, []
        await close(sinks, CLOSE_S)

    def start(self) -> None:
        """Start sending; does nothing without an endpoint. Returns at once."""
        if not self._sends or self._sinks:
            return
        metrics = Sink("metrics", self._open_metrics, lambda: None, self._metrics_interval)
        self._sinks = [self._span_sink, metrics]
        for sink in self._sinks:
            sink.start()

    def text(self) -> str:
        """All metrics in the Prometheus text format."""
        return prometheus.render(collect(self.stats))

    def called(self, verb: str, code: str, seconds: float) -> None:
        """See ``Observer``."""
        self.stats.called(verb, code, seconds)

    def taken(self, waited: float) -> None:
        """See ``Observer``."""
        self.stats.queue_seconds.observe(waited)

    def reconciled(self, result: str, seconds: float) -> None:
        """See ``Observer``."""
        self.stats.reconcile_seconds[result].observe(seconds)

    def written(self, job: Job, status: CrawlJobStatus) -> None:
        """See ``Observer``."""
        try:
            for end in ends.restarts(job.status, status):
                self.stats.restarted(end.reason)
            owner = Owner(job.namespace, job.name, job.uid)
            before = {end.key for end in ends.ends(owner, job.status)}
            self._trace(end for end in ends.ends(owner, status) if end.key not in before)
        except Exception:  # noqa: BLE001  a wrong count must not fail a reconcile
            _log.warning("written", "telemetry: an end could not be counted", exc_info=True)

    def heard(self, resource: str, key: tuple[str, str] | None = None, version: str = "") -> None:
        """See ``Observer``."""
        self.stats.heard(resource)
        if key is not None:
            self._drift.heard(key, version)

    def listing(self) -> None:
        """See ``Observer``."""
        self._phases = dict.fromkeys(PHASES, 0)
        self._drift.began()

    def listed(self, raw: Mapping[str, Any]) -> None:
        """See ``Observer``."""
        try:
            metadata, status = raw["metadata"], raw.get("status") or {}
            owner = Owner(metadata["namespace"], metadata["name"], metadata["uid"])
            self._drift.listed((owner.namespace, owner.name), metadata["resourceVersion"])
            phase = status.get("phase")
            self._phases[phase if phase in self._phases else CrawlJobStatus().phase] += 1
            since = self._now() - SENT_AGAIN
            if self._sends and _ended_after(since, status):
                known = ends.ends(owner, CrawlJobStatus.model_validate(status))
                self._trace(end for end in known if end.at is not None and end.at > since)
        except Exception:  # noqa: BLE001  a wrong count must not fail a resync
            _log.warning("listed", "telemetry: a CrawlJob could not be counted", exc_info=True)

    def listing_ended(self, closed: Collection[str] = ()) -> None:
        """See ``Observer``."""
        self.stats.jobs = self._phases
        self.stats.drift += self._drift.ended(closed)
        since = self._now() - SENT_AGAIN
        self._queued = {key: at for key, at in self._queued.items() if at > since}

    def _trace(self, found: Iterable[End]) -> None:
        if not self._sends:
            return
        for end in found:
            if end.at is None or end.key in self._queued:
                continue
            self._queued[end.key] = end.at
            if self._queue.put(end) and self._queue.batch_waits:
                self._span_sink.wake()

    def _open_spans(self) -> Signal:
        from crawljob_operator.telemetry.spans import SpanBuilder  # noqa: PLC0415
        from crawljob_telemetry.exporters import resource_from, scope, span_exporter  # noqa: PLC0415
        from crawljob_telemetry.finished import Origin  # noqa: PLC0415

        builder = SpanBuilder(Origin(resource_from(SERVICE, self._environ, self._instance_id), scope(SCOPE)))
        return SpanSignal(self._queue, builder.build, span_exporter(self._spec, _FROM_THE_ENVIRONMENT), tries=TRIES)

    def _open_metrics(self) -> Signal:
        from crawljob_telemetry.exporters import metric_exporter, resource_from, scope  # noqa: PLC0415
        from crawljob_telemetry.otlp_metrics import MetricSignal  # noqa: PLC0415

        return MetricSignal(
            lambda: collect(self.stats),
            self.stats.metric_exports,
            metric_exporter(self._spec, _FROM_THE_ENVIRONMENT),
            resource_from(SERVICE, self._environ, self._instance_id),
            scope(SCOPE),
            started_ns=self._started_ns,
            now_ns=time.time_ns,
        )


def _ended_after(since: datetime, status: Mapping[str, Any]) -> bool:
    """Whether a status has anything young: reading all of an old one, in every listing, would be for nothing."""
    latest = (status.get("lastTermination") or {}).get("finishedAt"), status.get("completionTime")
    return any(at is not None and at > since for at in map(times.parse, latest))
