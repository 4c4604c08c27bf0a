"""What the page shows, as HTML. Pure: made of what was read, and of nothing else.

Whatever comes from a crawled site is escaped text, or the address of a link that is http or https.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from durable_crawler.frontier.overview import Overview, WaitingHost
from durable_crawler.results.explain import Story
from durable_crawler.results.report.about import printable, time

NUMBERS = {
    "done": "done",
    "failed": "failed",
    "pending": "pending",
    "leased": "being worked on",
    "deferred": "tried again later",
    "quarantined": "quarantined",
    "bytes": "bytes",
    "rate": "pages a second",
}
"""Keys of ``/progress`` that are shown, with what they are called."""

REPORTS = {"html": "HTML", "markdown": "Markdown", "json": "JSON", "junit": "JUnit XML"}


@dataclass(frozen=True, slots=True)
class Failure:
    """A page that gave nothing usable."""

    url: str
    why: str
    time_ms: int


def main(name: str, overview: Overview, numbers: Mapping[str, float], failures: Sequence[Failure], now_ms: int) -> str:
    """The page itself. ``numbers`` are those of ``NUMBERS``."""
    shown = "".join(
        f'<li><b data-key="{key}">{_number(numbers[key])}</b><span>{title}</span></li>'
        for key, title in NUMBERS.items()
    )
    reports = "".join(f'<li><a href="/report/{form}" download>{title}</a></li>' for form, title in REPORTS.items())
    return _document(
        name,
        f'<p id="phase">{overview.phase}; as of <time>{time(now_ms)}</time></p>'
        f'<ul class="numbers" aria-label="Pages">{shown}</ul>'
        f'<div id="live">{_hosts(overview, now_ms)}{_failures(failures)}</div>'
        f"{_ask('')}<section><h2>Report</h2><ul>{reports}</ul></section>",
    )


def story(name: str, told: Story) -> str:
    """The story of one URL."""
    rows = (
        [
            part.about,
            f"{_text(part.text)} {_link(part.url) if part.url else ''}",
            time(part.time_ms) if part.time_ms else "",
        ]
        for part in told.parts
    )
    table = _table(("Topic", "What is known", "When"), rows)
    return _document(name, f'{_ask(told.asked)}<h2>{_link(told.url)}</h2>{table}<p><a href="/">Back</a></p>')


def trouble(name: str, sentence: str) -> str:
    """The page where nothing can be read."""
    return _document(name, f'<p role="alert">{_text(sentence)}</p>')


def _document(name: str, body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f'<title>{_text(name)}</title><link rel="stylesheet" href="/page.css">'
        '<script src="/page.js" defer></script></head>'
        f"<body><header><h1>{_text(name)}</h1></header><main>{body}</main></body></html>\n"
    )


def _ask(url: str) -> str:
    return (
        '<form action="/explain" role="search"><label for="url">Explain a URL</label> '
        f'<input id="url" name="url" type="text" size="60" required value="{_text(url)}"> '
        "<button>Explain</button></form>"
    )


def _number(value: float) -> str:
    """A tenth of a page a second is no standstill."""
    return f"{value:,.1f}".removesuffix(".0")


def _hosts(overview: Overview, now_ms: int) -> str:
    if not overview.hosts:
        return ""
    rows = (
        [_text(host.authority), f"{host.pending:,}", f"{host.deferred:,}", _state(host, now_ms)]
        for host in overview.hosts
    )
    return f"<h2>Hosts that have work left</h2>{_table(('Host', 'Pending', 'Tried again later', 'State'), rows)}"


def _state(host: WaitingHost, now_ms: int) -> str:
    if host.closed_until_ms > now_ms:
        return f"left alone until {time(host.closed_until_ms)}"
    return "slowed down" if host.gap_ms else "open"


def _failures(failures: Sequence[Failure]) -> str:
    if not failures:
        return ""
    rows = ([_asked(failure.url), _text(failure.why), time(failure.time_ms)] for failure in failures)
    return f"<h2>Failures that were found last</h2>{_table(('Page', 'Why', 'When'), rows)}"


def _asked(url: str) -> str:
    return f'{_link(url)} <a href="/explain?url={quote(url, safe="")}">why?</a>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML already."""
    head = "".join(f'<th scope="col">{title}</th>' for title in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _link(url: str) -> str:
    shown = _text(url)
    return f'<a href="{escape(url)}" rel="noreferrer">{shown}</a>' if url.startswith(("http://", "https://")) else shown


def _text(text: str) -> str:
    return escape(printable(text))
