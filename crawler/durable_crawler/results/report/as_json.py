"""The report for programs: one JSON document, described in docs/reference/report.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from durable_crawler.results.findings import Findings, Listed, Source, Target
from durable_crawler.results.report.about import About, json_text, time

VERSION = 1
"""Of the document; raised when a key changes its meaning or goes away."""


def write(findings: Findings, about: About) -> Iterator[str]:
    """The document, a line for each element of its lists."""
    totals = findings.totals
    head = {
        "version": VERSION,
        "frontier": about.frontier,
        "made": time(about.made_ms),
        "program": f"durable-crawler {about.version}",
        "crawl": {
            "first": time(totals.first_ms),
            "last": time(totals.last_ms),
            "pages": totals.pages,
            "outcomes": totals.outcomes,
            "links": totals.links,
            "refusedReferences": totals.refused,
        },
        "classes": {str(confidence): count for confidence, count in totals.classes.items()},
    }
    yield json_text(head)[:-1]
    yield ',\n"targets": ['
    for number, (target, sources) in enumerate(findings.targets()):
        yield ",\n" if number else "\n"
        yield from _target(target, sources)
    yield "\n]"
    for name, rows in _lists(findings):
        yield f',\n"{name}": ['
        for number, row in enumerate(rows):
            yield (",\n" if number else "\n") + json_text(row)
        yield "\n]"
    yield "}\n"


def _target(target: Target, sources: Iterator[Source]) -> Iterator[str]:
    head = {
        "class": str(target.confidence),
        "url": target.url,
        "fragment": target.fragment,
        "why": target.why,
        "status": target.status,
        "outcome": target.outcome,
        "redirects": [{"url": hop.url, "status": hop.status, "location": hop.location} for hop in target.hops],
        "firstLinked": target.first_linked,
        "links": target.links,
    }
    yield json_text(head)[:-1] + ', "sources": ['
    for number, source in enumerate(sources):
        row = {"url": source.url, "text": source.text, "rel": source.rel, "position": source.position}
        yield (", " if number else "") + json_text(row)
    yield "]}"


def _lists(findings: Findings) -> Iterator[tuple[str, Iterable[Any]]]:
    yield "orphans", (row.url for row in findings.orphans())
    yield "slowest", _rows(findings.slowest())
    yield "largest", _rows(findings.largest())
    yield "deepest", _rows(findings.deepest())
    yield "duplicates", (list(urls) for urls in findings.duplicates())
    yield "disallowed", _rows(findings.disallowed())
    yield "unfinished", _rows(findings.unfinished())


def _rows(rows: Iterable[Listed]) -> Iterator[dict[str, str]]:
    return ({"url": row.url, "value": row.value} for row in rows)
