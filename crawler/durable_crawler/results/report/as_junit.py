"""The report for CI systems: JUnit's XML, one test case for each target with a problem."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from xml.sax.saxutils import escape, quoteattr

from durable_crawler.results.classify import PROBLEMS, Confidence
from durable_crawler.results.findings import Findings, Source
from durable_crawler.results.report.about import About, printable

FAILURES = frozenset({Confidence.BROKEN, Confidence.FRAGMENT})
"""Classes that fail a test case; the others skip it, with the reason: they are no fault of the site's for sure."""

_SOURCES = 100  # of a target that are named in its message; CI systems show all of it at once


def write(findings: Findings, about: About) -> Iterator[str]:
    """A suite for the whole crawl. Targets that are fine are counted by one case that passes, those that were not asked
    for by one that is skipped: who looks for green must see that nothing is known of them.
    """
    classes = findings.totals.classes
    problems = sum(classes[confidence] for confidence in PROBLEMS)
    failures = sum(classes[confidence] for confidence in FAILURES)
    unchecked = classes[Confidence.UNCHECKED]
    skipped = problems - failures + bool(unchecked)
    counts = f'tests="{1 + failures + skipped}" failures="{failures}" skipped="{skipped}" errors="0"'
    yield f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="durable-crawler {about.version}" {counts}>\n'
    yield f"<testsuite name={_attribute(about.frontier)} {counts}>\n"
    fine = classes[Confidence.OK]
    yield f'<testcase classname="{Confidence.OK}" name="{fine} targets are fine"/>\n'
    for target, sources in findings.targets():
        where = f"{target.url}#{target.fragment}" if target.fragment else target.url
        yield f'<testcase classname="{target.confidence}" name={_attribute(where)}>'
        kind = f'type="{target.confidence}" ' if target.confidence in FAILURES else ""
        tag = "failure" if target.confidence in FAILURES else "skipped"
        yield f"<{tag} {kind}message={_attribute(target.why)}>"
        yield from (escape(line) for line in _where(target.links, target.first_linked, sources))
        yield f"</{tag}></testcase>\n"
    if unchecked:
        yield f'<testcase classname="{Confidence.UNCHECKED}" name="{unchecked} targets were not asked for"><skipped/>'
        yield "</testcase>\n"
    yield "</testsuite>\n</testsuites>\n"


def _where(links: int, first_linked: str | None, sources: Iterator[Source]) -> Iterator[str]:
    for source in islice(sources, _SOURCES):
        yield f"on {printable(source.url)}" + (f": {printable(source.text)}" if source.text else "") + "\n"
    if links > _SOURCES:
        yield f"and {links - _SOURCES} more link(s)\n"
    if not links:
        yield f"found on {printable(first_linked)}\n" if first_linked else "a seed\n"


def _attribute(text: str) -> str:
    return quoteattr(printable(text))
