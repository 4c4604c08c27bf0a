"""Findings as documents: each format is a generator of text, so that a report is written as it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from durable_crawler.results.findings import Findings
from durable_crawler.results.report import as_html, as_json, as_junit, as_markdown
from durable_crawler.results.report.about import About

Writer = Callable[[Findings, About], Iterator[str]]

FORMATS: Mapping[str, Writer] = {
    "html": as_html.write,
    "markdown": as_markdown.write,
    "json": as_json.write,
    "junit": as_junit.write,
}
"""Writers by what ``--format`` calls them."""

__all__ = ["FORMATS", "About", "Writer"]
