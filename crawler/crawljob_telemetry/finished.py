"""Spans that are built when all about them is known: nothing is started or ended while work goes on."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.util.types import AttributeValue

UNSET = Status(StatusCode.UNSET)

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class Origin:
    """Who sends: every span of a process has this resource and this scope."""

    def __init__(self, resource: Resource, scope: InstrumentationScope) -> None:
        self._resource = resource
        self._scope = scope

    def span(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        times: tuple[int, int],
        *,
        attributes: Mapping[str, AttributeValue],
        status: Status = UNSET,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> ReadableSpan:
        """A span from its start to its end, in nanoseconds since the epoch."""
        started_ns, ended_ns = times
        return ReadableSpan(
            name,
            context,
            parent,
            resource=self._resource,
            attributes=attributes,
            kind=kind,
            status=status,
            start_time=started_ns,
            end_time=max(started_ns, ended_ns),  # the wall clock may have been set back in between
            instrumentation_scope=self._scope,
        )


def context(trace_id: int, span_id: int, *, remote: bool = False) -> SpanContext:
    """A span's place; always sampled, because whether it is sent is decided before it is built."""
    return SpanContext(trace_id, span_id, remote, _SAMPLED)


def error(cause: str) -> Status:
    """A failure in words, where there are any."""
    return Status(StatusCode.ERROR, text(cause) or None)


def text(value: str) -> str:
    """UTF-8 has no lone surrogates, and one of them would cost the whole batch."""
    return value.encode("utf-8", "replace").decode()
