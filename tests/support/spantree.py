"""What makes spans a tree: one trace, one root, every parent there, and no span outside the times of its parent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.support.cluster.collector import Span


def faults(spans: Sequence[Span]) -> Iterator[str]:
    """Everything that is wrong with the spans of one crawl; one may have been sent twice, but not with two stories."""
    by_id: dict[str, Span] = {}
    for span in spans:
        before = by_id.setdefault(span.span_id, span)
        if (before.name, before.parent_id, before.start, before.end) != (
            span.name,
            span.parent_id,
            span.start,
            span.end,
        ):
            yield f"{span.name} {span.span_id} was sent twice, differently"
    traces = {span.trace_id for span in spans}
    if len(traces) != 1:
        yield f"there are {len(traces)} traces"
    roots = [span.name for span in by_id.values() if span.parent_id is None]
    if len(roots) != 1:
        yield f"there are {len(roots)} roots: {roots}"
    for span in by_id.values():
        if span.start > span.end:
            yield f"{span.name} {span.span_id} ends before it begins"
        if span.parent_id is None:
            continue
        parent = by_id.get(span.parent_id)
        if parent is None:
            yield f"{span.name} {span.span_id} has a parent that was never sent"
        elif span.start < parent.start or span.end > parent.end:
            early, late = (parent.start - span.start) / 1e9, (span.end - parent.end) / 1e9
            yield f"{span.name} leaves its {parent.name}: {early:+.3f} s before it, {late:+.3f} s after it"
