"""Which trace this process belongs to, which pages are traced, and the ids of their spans: pure, no OpenTelemetry.

Called by ``telemetry`` on the hot path (``Sampler``) and by ``spans`` in the exporter's thread.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Self

from durable_crawler.outcomes import PageRecord, Stage

ALWAYS_TRACED_MAX = 1000
"""Failed, quarantined and lost pages of a run that have a span although their hash does not choose them."""

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")


@dataclass(frozen=True, slots=True)
class Trace:
    """The run's place in a trace. ``parent_id`` is the span that TRACEPARENT names, if it does."""

    trace_id: int
    run_id: int
    parent_id: int | None

    @property
    def page_parent_id(self) -> int:
        """The parent of page spans.

        The given parent rather than the run's own span: a killed process never sends that one, and its pages' spans
        would hang in the air.
        """
        return self.run_id if self.parent_id is None else self.parent_id

    def span_id(self, url: str, attempt: int, part: int) -> int:
        """The id of an attempt's span (``part`` 0) or of its n-th child: the same whenever the same one is sent."""
        seed = self.trace_id.to_bytes(16, "big") + attempt.to_bytes(8, "big") + part.to_bytes(4, "big")
        return int.from_bytes(blake2b(url.encode("utf-8", "replace"), digest_size=8, key=seed).digest(), "big") or 1


def trace_from(environ: Mapping[str, str]) -> Trace:
    """Continue the trace of a W3C ``TRACEPARENT``, or begin a new one when it is absent or malformed.

    Its sampled flag is not obeyed: pages are chosen by the hash of their URL, and failed ones always are.
    """
    run_id = secrets.randbits(64) or 1
    match = _TRACEPARENT.fullmatch(environ.get("TRACEPARENT", "").strip())
    if match is not None:
        version, trace_id, parent_id, more = match.groups()
        valid = int(trace_id, 16) and int(parent_id, 16) and version != "ff" and not (version == "00" and more)
        if valid:
            return Trace(int(trace_id, 16), run_id, int(parent_id, 16))
    return Trace(secrets.randbits(128) or 1, run_id, None)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A record that becomes spans, and when it was settled, in nanoseconds since the epoch."""

    record: PageRecord
    settled_ns: int

    @classmethod
    def of(cls, record: PageRecord, settled_ns: int) -> Self:
        """Without the page's body: a queue is not to keep megabytes alive."""
        if record.fetched is not None and record.fetched.body is not None:
            record = replace(record, fetched=replace(record.fetched, body=None))
        return cls(record, settled_ns)

    @property
    def spans(self) -> int:
        """How many spans it becomes."""
        fetched = self.record.fetched
        return 1 + len(stages_shown(self.record)) + (0 if fetched is None else len(fetched.exchanges))


class Sampler:
    """Chooses pages by a hash of their URL: all attempts at a page, in every process of a crawl, or none."""

    def __init__(self, ratio: float) -> None:
        self._below = int(ratio * 2**64)
        self._always_left = ALWAYS_TRACED_MAX
        self.untraced = 0
        """Pages that should always be traced and were not, because there were too many."""

    def chooses(self, record: PageRecord) -> bool:
        """Whether this record becomes spans."""
        if record.settled == "released":
            return False  # no attempt was charged: the next one has the same number, and would have the same ids
        digest = blake2b(record.url.encode("utf-8", "replace"), digest_size=8).digest()
        if int.from_bytes(digest, "big") < self._below:
            return True
        if not _always_traced(record):
            return False
        if self._always_left == 0:
            self.untraced += 1
            return False
        self._always_left -= 1
        return True


def stages_shown(record: PageRecord) -> list[Stage]:
    """The stages that become spans: ``fetch`` only when it never came to a request, whose spans say more."""
    requested = record.fetched is not None and record.fetched.exchanges
    return [stage for stage in record.stages if stage.name != "fetch" or not requested]


def _always_traced(record: PageRecord) -> bool:
    if record.settled in ("quarantined", "lost"):
        return True
    # A deferred attempt may still succeed: an outage must not use up the limit before anything has failed for good.
    return record.settled == "done" and record.outcome is not None and record.outcome.failed
