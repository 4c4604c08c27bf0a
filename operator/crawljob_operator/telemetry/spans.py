"""Spans of attempts and of crawls, built after the fact from what the status says.

Runs in the span sink's thread. The crawler of an attempt has sent its own spans under this attempt's id long before.
"""

from __future__ import annotations

from datetime import datetime

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import SpanContext, Status
from opentelemetry.util.types import AttributeValue

from crawljob.exitcodes import NOT_RETRIABLE
from crawljob.status import Termination
from crawljob_operator import identity, names, times
from crawljob_operator.conditions import find
from crawljob_operator.telemetry.ends import AttemptEnd, CrawlEnd, End, Owner
from crawljob_telemetry.finished import UNSET, Origin, context, error, text

CRAWL = "crawl job"
ATTEMPT = "crawl attempt"


class SpanBuilder:
    """Builds the spans of one operator process."""

    def __init__(self, origin: Origin) -> None:
        self._span = origin.span

    def build(self, end: End) -> list[ReadableSpan]:
        """The end's span."""
        match end:
            case AttemptEnd(owner, termination):
                return [self._attempt(owner, termination)]
            case CrawlEnd():
                return [self._crawl(end)]

    def _attempt(self, owner: Owner, end: Termination) -> ReadableSpan:
        attributes: dict[str, AttributeValue] = {
            **_owned(owner),
            "crawljob.attempt": end.attempt,
            "crawljob.termination.reason": text(end.reason),
            "crawljob.termination.counted": end.counted,
            "k8s.pod.name": identity.child_name(owner.name, owner.uid),
            "k8s.pod.uid": end.pod_uid,
            "k8s.container.name": names.CONTAINER,
        }
        if end.exit_code is not None:
            attributes["process.exit.code"] = end.exit_code
        if end.signal is not None:
            attributes["crawljob.termination.signal"] = end.signal
        status = UNSET
        if end.counted or end.exit_code in NOT_RETRIABLE:
            status = _failed(attributes, end.reason, end.message)
        span_id = identity.attempt_span_id(owner.uid, end.attempt)
        return self._span(
            ATTEMPT,
            _context(owner, span_id),
            _context(owner, identity.crawl_span_id(owner.uid)),
            _stretch(times.parse(end.started_at), times.parse(end.finished_at)),
            attributes=attributes,
            status=status,
        )

    def _crawl(self, end: CrawlEnd) -> ReadableSpan:
        owner, status = end.owner, end.status
        attributes: dict[str, AttributeValue] = {
            **_owned(owner),
            "crawljob.phase": status.phase,
            "crawljob.restarts": status.restarts,
        }
        if status.progress is not None:
            attributes["crawler.pages.done"] = status.progress.done
            attributes["crawler.pages.failed"] = status.progress.failed
        outcome = UNSET
        condition = find(status.conditions, "Failed" if status.phase == "Failed" else "Complete")
        if condition is not None:
            attributes["crawljob.reason"] = text(condition.reason)
            if status.phase == "Failed":
                outcome = _failed(attributes, condition.reason, condition.message)
        return self._span(
            CRAWL,
            _context(owner, identity.crawl_span_id(owner.uid)),
            None,
            _stretch(times.parse(status.start_time), times.parse(status.completion_time)),
            attributes=attributes,
            status=outcome,
        )


def _owned(owner: Owner) -> dict[str, AttributeValue]:
    return {"crawljob.name": owner.name, "crawljob.uid": owner.uid, "k8s.namespace.name": owner.namespace}


def _failed(attributes: dict[str, AttributeValue], reason: str, message: str) -> Status:
    attributes[error_attributes.ERROR_TYPE] = text(reason)
    return error(message)


def _context(owner: Owner, span_id: str) -> SpanContext:
    return context(int(identity.trace_id(owner.uid), 16), int(span_id, 16))


def _stretch(started: datetime | None, ended: datetime | None) -> tuple[int, int]:
    """Nanoseconds. Kubernetes cuts its times to seconds: the end is the last moment of its second, so that what the
    crawler did in it lies within. A Pod of which no start is known has that second only.
    """
    known = ended or started
    assert known is not None, "an end without any time is not queued"
    return _ns(started or known), _ns(known) + 999_999_999


def _ns(time: datetime) -> int:
    return int(time.timestamp()) * 1_000_000_000
