"""Spans built after the fact: one per attempt at a page, with its HTTP exchanges and stages as children.

Runs in the span sink's thread, from records that a queue hands over. Nothing is started or ended while a page is
worked on, so that a page which is not traced costs nothing.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.semconv.attributes import (
    error_attributes,
    http_attributes,
    network_attributes,
    server_attributes,
    url_attributes,
)
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from crawljob.summary import RunSummary
from crawljob_telemetry.finished import UNSET, Origin, context, error, text
from durable_crawler.outcomes import Exchange, PageRecord, Stage
from durable_crawler.telemetry.redacted import redacted
from durable_crawler.telemetry.trace import Chosen, Trace, stages_shown

_PORTS = {"http": 80, "https": 443}


class SpanBuilder:
    """Builds the spans of one process run."""

    def __init__(self, trace: Trace, origin: Origin) -> None:
        self._trace = trace
        self._span = origin.span
        self._given_parent = None if trace.parent_id is None else self._context(trace.parent_id, remote=True)
        self._page_parent = self._context(trace.page_parent_id, remote=trace.parent_id is not None)

    def run(self, started_ns: int, ended_ns: int, summary: RunSummary | None) -> ReadableSpan:
        """The span of the whole run."""
        attributes: dict[str, AttributeValue] = {}
        status = UNSET
        if summary is not None:
            attributes = {
                "crawler.run.outcome": summary.outcome,
                "crawler.run.reason": summary.reason,
                "crawler.run.exit_code": summary.exit_code,
            }
            if summary.progress is not None:
                attributes["crawler.pages.done"] = summary.progress.done
                attributes["crawler.pages.failed"] = summary.progress.failed
            if summary.outcome == "failed":
                attributes[error_attributes.ERROR_TYPE] = summary.reason
                status = error(summary.message)
        return self._span(
            "crawl run",
            self._context(self._trace.run_id),
            self._given_parent,
            (started_ns, ended_ns),
            attributes=attributes,
            status=status,
        )

    def page(self, chosen: Chosen) -> list[ReadableSpan]:
        """The page's span and its children; ``settled_ns`` stands in for the times of a page without stages."""
        record, settled_ns = chosen.record, chosen.settled_ns
        exchanges = () if record.fetched is None else record.fetched.exchanges
        parts: tuple[Exchange | Stage, ...] = (*exchanges, *record.stages)
        times = [moment for part in parts for moment in (part.started_ns, part.ended_ns)]
        span = (min(times, default=settled_ns), max(times, default=settled_ns))
        parent = self._context(self._trace.span_id(record.url, record.attempt, 0))
        spans = [
            self._span(
                "crawl page",
                parent,
                self._page_parent,
                span,
                attributes=_page_attributes(record),
                status=_page_status(record),
            )
        ]
        for index, exchange in enumerate(exchanges):
            spans.append(self._exchange(record, exchange, index, parent))
        for number, stage in enumerate(stages_shown(record), start=len(spans)):
            child = self._context(self._trace.span_id(record.url, record.attempt, number))
            spans.append(self._span(stage.name, child, parent, (stage.started_ns, stage.ended_ns), attributes={}))
        return spans

    def _exchange(self, record: PageRecord, exchange: Exchange, index: int, parent: SpanContext) -> ReadableSpan:
        attributes: dict[str, AttributeValue] = {
            http_attributes.HTTP_REQUEST_METHOD: exchange.method,
            url_attributes.URL_FULL: redacted(text(exchange.url)),
            **_server(exchange.url),
            **_network(exchange),
        }
        status = UNSET
        if index:
            attributes[http_attributes.HTTP_REQUEST_RESEND_COUNT] = index
        if exchange.status is not None:
            attributes[http_attributes.HTTP_RESPONSE_STATUS_CODE] = exchange.status
        if exchange.error or exchange.status is None:
            attributes[error_attributes.ERROR_TYPE] = exchange.error or _outcome(record)
            status = error(exchange.error)
        elif exchange.status >= 400:
            attributes[error_attributes.ERROR_TYPE] = str(exchange.status)
            status = Status(StatusCode.ERROR)
        return self._span(
            exchange.method,
            self._context(self._trace.span_id(record.url, record.attempt, index + 1)),
            parent,
            (exchange.started_ns, exchange.ended_ns),
            attributes=attributes,
            status=status,
            kind=SpanKind.CLIENT,
        )

    def _context(self, span_id: int, *, remote: bool = False) -> SpanContext:
        return context(self._trace.trace_id, span_id, remote=remote)


def _page_attributes(record: PageRecord) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        url_attributes.URL_FULL: redacted(text(record.url)),
        "crawler.depth": record.depth,
        "crawler.attempt": record.attempt,
        "crawler.state": record.settled,
        "crawler.links": record.links,
    }
    if record.outcome is not None:
        attributes["crawler.outcome"] = record.outcome.value
    if record.fetched is not None:
        attributes["crawler.body.size"] = record.fetched.body_bytes
        if record.fetched.status is not None:
            attributes[http_attributes.HTTP_RESPONSE_STATUS_CODE] = record.fetched.status
    if _failed(record):
        attributes[error_attributes.ERROR_TYPE] = _outcome(record)
    return attributes


def _page_status(record: PageRecord) -> Status:
    if not _failed(record):
        return UNSET
    if record.settled == "lost":
        return Status(StatusCode.ERROR, "the lease was lost; nothing of this attempt was kept")
    return error(redacted(record.fetched.error) if record.fetched is not None else "")


def _failed(record: PageRecord) -> bool:
    if record.settled in ("quarantined", "lost"):
        return True
    return record.outcome is not None and record.outcome.failed


def _outcome(record: PageRecord) -> str:
    """``error.type``: one of a few words, never a text."""
    if record.settled in ("quarantined", "lost") or record.outcome is None:
        return record.settled
    return record.outcome.value


def _network(exchange: Exchange) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {}
    if exchange.version:
        attributes[network_attributes.NETWORK_PROTOCOL_VERSION] = exchange.version
    if exchange.peer is not None:
        address, port = exchange.peer
        attributes[network_attributes.NETWORK_PEER_ADDRESS] = address
        attributes[network_attributes.NETWORK_PEER_PORT] = port
    return attributes


def _server(url: str) -> dict[str, AttributeValue]:
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return {}
    attributes: dict[str, AttributeValue] = {}
    if parts.hostname:
        attributes[server_attributes.SERVER_ADDRESS] = parts.hostname
    if port:
        attributes[server_attributes.SERVER_PORT] = port
    return attributes
