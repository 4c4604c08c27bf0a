"""Names, hashes and ids that follow from a CrawlJob's UID and spec, always the same."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from crawljob.spec import CrawlJobSpec

_LABEL_MAX = 63
_HASH_LENGTH = 10

NOT_IN_THE_POD = {
    "active_deadline_seconds",
    "pod_failure_policy",
    "restart_policy",
    "restart_requested_at",
    "start_deadline_seconds",
    "storage",
    "suspend",
    "ttl_seconds_after_finished",
}
"""Fields of the spec that only the operator obeys."""


def child_name(name: str, *identity: str) -> str:
    """``<name>-<hash>`` as a DNS label of at most 63 characters; the hash makes it unique however much was cut."""
    kept = name.replace(".", "-")[: _LABEL_MAX - _HASH_LENGTH - 1].strip("-")
    return f"{kept}-{digest(*identity)[:_HASH_LENGTH]}"


def label_value(name: str) -> str:
    """A CrawlJob's name as a label's value, which has at most 63 characters where a name may have 253."""
    return name if len(name) <= _LABEL_MAX else child_name(name, name)


def spec_hash(spec: CrawlJobSpec) -> str:
    """Hash of what shapes the Pod.

    Only values that differ from their default: a release that brings new fields restarts nothing that runs. A default
    never changes within a version of the API, which has stored it in every CrawlJob. Suspending, restart rules,
    deadlines and the volume do not shape the Pod; a restart request has a mark of its own.
    """
    given = _without_empty(spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=NOT_IN_THE_POD))
    return digest(json.dumps(given, sort_keys=True))[:16]


def request_mark(request: str | None) -> str:
    """A restart request as a label's value, which the text itself may not be; empty where there is none."""
    return "" if request is None else digest("restart", request)[:16]


def trace_id(uid: str) -> str:
    """The one trace of a CrawlJob: 32 hexadecimal digits."""
    return digest("trace", uid)[:32]


def traceparent(uid: str, attempt: int) -> str:
    """W3C trace context for the Pod of one attempt, sampled: the crawler chooses its URLs itself."""
    return f"00-{trace_id(uid)}-{attempt_span_id(uid, attempt)}-01"


def attempt_span_id(uid: str, attempt: int) -> str:
    """The span of one attempt, under which its crawler's spans hang: 16 hexadecimal digits."""
    return digest("attempt", uid, str(attempt))[:16]


def crawl_span_id(uid: str) -> str:
    """The root of the CrawlJob's trace, under which its attempts hang: 16 hexadecimal digits."""
    return digest("crawl", uid)[:16]


def fraction(*parts: str) -> float:
    """A number in [0, 1) that looks random and is not."""
    return int(digest(*parts)[:13], 16) / 16**13


def digest(*parts: str) -> str:
    """SHA-256 over the parts, each with its length, in hexadecimal digits."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode()
        total.update(len(data).to_bytes(8, "big") + data)
    return total.hexdigest()


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _without_empty(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item != {}}
    return value
