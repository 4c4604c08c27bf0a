"""The report for a merge request or an issue: GitHub's Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from durable_crawler.results.classify import PROBLEMS, Confidence
from durable_crawler.results.findings import Findings, Listed
from durable_crawler.results.report.about import HEADINGS, MEANINGS, About, printable, time

_NOT_IN_LINKS = re.compile(r"[<>\s]")


def write(findings: Findings, about: About) -> Iterator[str]:
    """A heading for each class with a target, and the lists behind them."""
    totals = findings.totals
    done = totals.pages.get("done", 0)
    yield f"# Crawl report\n\n{done:,} pages and {totals.links:,} links, "
    yield f"{time(totals.first_ms)} to {time(totals.last_ms)}.\n\n"
    yield "| Class | Targets |\n| --- | ---: |\n"
    for confidence, count in totals.classes.items():
        yield f"| {confidence} | {count:,} |\n"
    yield from _targets(findings)
    lists: tuple[tuple[str, Iterable[Listed]], ...] = (
        ("Orphans", findings.orphans()),
        ("Slowest pages", findings.slowest()),
        ("Largest pages", findings.largest()),
        ("Deepest pages", findings.deepest()),
        ("Disallowed by robots.txt", findings.disallowed()),
        ("Not finished", findings.unfinished()),
    )
    for heading, rows in lists:
        yield from _list(heading, (f"{_link(row.url)}: {_text(row.value)}" for row in rows))
    yield from _list("Same content", (", ".join(map(_link, urls)) for urls in findings.duplicates()))
    yield f"\nMade {time(about.made_ms)} by durable-crawler {about.version}.\n"


def _targets(findings: Findings) -> Iterator[str]:
    last: Confidence | None = None
    for target, sources in findings.targets():
        if target.confidence is not last:
            last = target.confidence
            yield f"\n## {HEADINGS[last]}\n\n{MEANINGS[last]}\n"
        where = f"{target.url}#{target.fragment}" if target.fragment else target.url
        yield f"\n- {_link(where)}: {_text(target.why)}\n"
        for source in sources:
            yield f"  - on {_link(source.url)}" + (f", {_text(source.text)}" if source.text else "") + "\n"
        if not target.links:
            yield f"  - found on {_link(target.first_linked)}\n" if target.first_linked else "  - a seed\n"
    if last is None:
        yield f"\nNo problems: none of {len(PROBLEMS)} classes has a target.\n"


def _list(heading: str, rows: Iterable[str]) -> Iterator[str]:
    for number, row in enumerate(rows):
        if not number:
            yield f"\n## {heading}\n\n"
        yield f"- {row}\n"


def _link(url: str) -> str:
    """A URL that is a link and shows itself: no such link has a space or angle brackets in it (CommonMark 6.5), and
    with one the rest would be Markdown. A canonical URL has none; a fragment is as the page has it.
    """
    return f"<{_NOT_IN_LINKS.sub(lambda found: quote(found[0], safe=''), printable(url))}>"


def _text(text: str) -> str:
    """A site's words as code: nothing in there becomes a link, mentions anybody, or is HTML (CommonMark 6.1)."""
    text = printable(text)
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    # One space at both ends is taken away again; a backtick at an end would belong to the fence.
    room = " " if text[:1] in ("`", " ") or text[-1:] in ("`", " ") else ""
    return f"{fence}{room}{text}{room}{fence}"
