"""The report for people: one HTML file that needs no network, no server, and no script to be read.

Whatever comes from a crawled site is text, escaped, or the address of a link that is http or https. The policy in the
page's head lets run exactly the script and the style that stand here, should anything have been missed.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from html import escape
from importlib.resources import files

from durable_crawler.results.classify import PROBLEMS
from durable_crawler.results.findings import Findings, Listed, Source, Target
from durable_crawler.results.report.about import HEADINGS, MEANINGS, About, printable, time


def write(findings: Findings, about: About) -> Iterator[str]:
    """The page: sums, the table of problems, lists of pages."""
    totals = findings.totals
    style, script = _resource("page.css"), _resource("page.js")
    allowed = f"style-src {_source(style)}; script-src {_source(script)}"
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>Crawl report</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#problems">To the links with a problem</a>\n'
        f"<header>\n<h1>Crawl report</h1>\n<p>{totals.pages.get('done', 0):,} pages and {totals.links:,} links, "
        f"{time(totals.first_ms)} to {time(totals.last_ms)}</p>\n</header>\n<main>\n"
    )
    yield '<ul class="sums" aria-label="Targets by class">\n'
    for confidence, count in totals.classes.items():
        yield f'<li><b>{count:,}</b><span class="class {confidence}">{confidence}</span></li>\n'
    yield "</ul>\n"
    yield from _problems(findings)
    lists: tuple[tuple[str, str, Iterable[Listed]], ...] = (
        ("Orphans", "No page that was read links to them.", findings.orphans()),
        ("Slowest pages", "The time of the last request, without waiting for a turn.", findings.slowest()),
        ("Largest pages", "", findings.largest()),
        ("Deepest pages", "", findings.deepest()),
        ("Disallowed by robots.txt", "Never asked for.", findings.disallowed()),
        ("Not finished", "They belong to the crawl and have no result yet.", findings.unfinished()),
        ("Same content", "Pages of one group are the same, byte for byte.", _groups(findings)),
        ("References that are not followed", "By reason.", _refused(totals.refused.items())),
    )
    for number, (heading, meaning, rows) in enumerate(lists):
        yield from _list(f"list-{number}", heading, meaning, rows)
    yield (
        f"</main>\n<footer>Made {time(about.made_ms)} from {_text(about.frontier)} by durable-crawler "
        f"{_text(about.version)}.</footer>\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _problems(findings: Findings) -> Iterator[str]:
    yield '<section aria-labelledby="heading">\n<h2 id="heading">Links with a problem</h2>\n'
    classes = findings.totals.classes
    for confidence in PROBLEMS:
        if classes[confidence]:
            yield f'<p><span class="class {confidence}">{confidence}</span>: {MEANINGS[confidence]}</p>\n'
    if not any(classes[confidence] for confidence in PROBLEMS):
        yield '<p id="problems">There is none.</p>\n</section>\n'
        return
    options = "".join(
        f'<option value="{confidence}">{HEADINGS[confidence]}</option>'
        for confidence in PROBLEMS
        if classes[confidence]
    )
    yield (
        '<div class="tools" id="problems-tools" hidden><label>Show <select><option value="">all classes</option>'
        f'{options}</select></label><label>that contain <input type="search"></label></div>\n'
        '<div class="scroll"><table class="sortable" id="problems"><thead><tr><th scope="col">Class</th>'
        '<th scope="col">Target</th><th scope="col">Why</th><th scope="col">Links</th>'
        '<th scope="col">On</th></tr></thead>\n<tbody>\n'
    )
    for target, sources in findings.targets():
        yield from _row(target, sources)
    yield "</tbody></table></div>\n</section>\n"


def _row(target: Target, sources: Iterator[Source]) -> Iterator[str]:
    where = f"{target.url}#{target.fragment}" if target.fragment else target.url
    yield (
        f'<tr data-kind="{target.confidence}"><td class="class {target.confidence}">{target.confidence}</td>'
        f"<td>{_link(where)}</td><td>{_text(target.why)}</td>"
        f'<td class="number" data-value="{target.links}">{target.links:,}</td><td>'
    )
    if not target.links:
        yield f"found on {_link(target.first_linked)}" if target.first_linked else "a seed"
    else:
        yield f"<details><summary>{target.links:,} link{'s' * (target.links > 1)}</summary><ul>"
        for source in sources:
            text = f' <span class="text">“{_text(source.text)}”</span>' if source.text else ""
            yield f"<li>{_link(source.url)}{text}</li>"
        yield "</ul></details>"
    yield "</td></tr>\n"


def _list(name: str, heading: str, meaning: str, rows: Iterable[Listed]) -> Iterator[str]:
    some = False
    for row in rows:
        if not some:
            some = True
            yield f'<section aria-labelledby="{name}-heading">\n<h2 id="{name}-heading">{heading}</h2>\n'
            yield f"<p>{meaning}</p>\n" if meaning else ""
            yield (
                f'<div class="scroll"><table class="sortable" id="{name}"><thead><tr><th scope="col">What</th>'
                '<th scope="col">Why</th></tr></thead>\n<tbody>\n'
            )
        number = "" if row.number is None else f' class="number" data-value="{row.number}"'
        yield f"<tr><td>{_link(row.url)}</td><td{number}>{_text(row.value)}</td></tr>\n"
    if some:
        yield "</tbody></table></div>\n</section>\n"


def _groups(findings: Findings) -> Iterator[Listed]:
    for number, urls in enumerate(findings.duplicates(), start=1):
        for url in urls:
            yield Listed(url, f"group {number} of {len(urls)}", number)


def _refused(reasons: Iterable[tuple[str, int]]) -> Iterator[Listed]:
    return (Listed(reason, f"{count:,}", count) for reason, count in reasons)


def _link(url: str) -> str:
    """A link where it leads to the web; anything else is its text."""
    shown = _text(url)
    if not url.startswith(("http://", "https://")):
        return shown
    return f'<a href="{escape(url)}" rel="noreferrer">{shown}</a>'


def _text(text: str) -> str:
    return escape(printable(text))


@cache
def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
