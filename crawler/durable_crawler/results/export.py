"""Pages and links as rows for other programs, streamed from one snapshot, as JSON Lines, CSV or (``parquet``) Parquet.

The columns are the interface: they are added to at the end, never renamed. docs/reference/export.md describes them.
"""

from __future__ import annotations

import csv
import io
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from durable_crawler.results import reading
from durable_crawler.results.classify import judge
from durable_crawler.results.report.about import json_text, printable

Kind = Literal["string", "integer", "boolean", "time", "list"]
"""``time``: milliseconds since the epoch, UTC. ``list``: of strings, in CSV joined by line feeds."""

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, what is in it, whether it may be empty."""

    name: str
    kind: Kind
    meaning: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """What is exported under one name."""

    columns: Sequence[Column]
    rows: Callable[[sqlite3.Connection], Iterator[Row]]


def _pages(connection: sqlite3.Connection) -> Iterator[Row]:
    for page in reading.pages(connection):
        verdict = judge(page)
        redirects = [f"{hop.status} {hop.location}" for hop in page.hops]
        yield (
            *(page.url, page.authority, page.state, str(verdict.confidence), page.outcome, page.status, page.final_url),
            *(redirects, page.content_type or None, page.bytes, page.content_hash, page.title or None, page.canonical),
            *(page.depth, page.found_on, page.left_out, page.links, page.nofollow, page.dropped_links, page.noindex),
            *(page.retries, page.finished_ms, page.duration_ms, page.waited_ms, page.parse_ms, page.error or None),
        )


def _links(connection: sqlite3.Connection) -> Iterator[Row]:
    for link in reading.links(connection):
        yield link.source, link.target, link.fragment or None, link.text or None, link.rel or None, link.position


TABLES: Mapping[str, Table] = {
    "pages": Table(
        (
            Column("url", "string", "The canonical URL."),
            Column("authority", "string", "Its host, with a port that is not the scheme's."),
            Column("state", "string", "pending, leased, deferred, done, quarantined or excluded."),
            Column("class", "string", "What is said of it as a target of links, as in a report."),
            Column("outcome", "string", "How the work on it ended.", optional=True),
            Column("status", "integer", "HTTP status of the last response.", optional=True),
            Column("final_url", "string", "Where the last response came from, if it is another URL.", optional=True),
            Column("redirects", "list", "The status of each redirect and where it led to."),
            Column("content_type", "string", "As it was sent.", optional=True),
            Column("bytes", "integer", "Of the decoded body, as far as it was read."),
            Column("content_hash", "string", "BLAKE2b-128 of the decoded body, hexadecimal.", optional=True),
            Column("title", "string", "Text of the title element.", optional=True),
            Column("canonical", "string", "What its link rel=canonical names, if it is another URL.", optional=True),
            Column("depth", "integer", "Links from a seed."),
            Column("found_on", "string", "The page that linked to it first; none for a seed.", optional=True),
            Column("left_out", "string", "Why an excluded page does not belong to the crawl.", optional=True),
            Column("links", "integer", "Distinct links on it that may be followed."),
            Column("nofollow_links", "integer", "Links on it that the site does not want to be followed."),
            Column("dropped_links", "integer", "Links on it above scope.maxLinksPerPage."),
            Column("noindex", "boolean", "Whether it does not want to be found by searching."),
            Column("retries", "integer", "Attempts that were followed by another."),
            Column("finished", "time", "When its result was stored.", optional=True),
            Column("duration_ms", "integer", "Of the last attempt, its turns included.", optional=True),
            Column("waited_ms", "integer", "Of that, until its turns at the host.", optional=True),
            Column("parse_ms", "integer", "Reading the body.", optional=True),
            Column("error", "string", "The cause of a failure, the line of a robots.txt.", optional=True),
        ),
        _pages,
    ),
    "links": Table(
        (
            Column("source", "string", "The page that has the link, or was redirected to where it stands."),
            Column("target", "string", "The canonical URL that it leads to."),
            Column("fragment", "string", "What stands behind the #.", optional=True),
            Column(
                "text", "string", "Of the link, at most 100 characters; of an image its alternative.", optional=True
            ),
            Column("rel", "string", "Lower case, separated by spaces.", optional=True),
            Column("position", "integer", "Counts the references of the page from 0."),
        ),
        _links,
    ),
}


_FORMULA = frozenset(
    "=+-@\t\r\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}"
)


def jsonl(table: Table, connection: sqlite3.Connection) -> Iterator[str]:
    """An object for each row, every column in each; times as milliseconds."""
    names = [column.name for column in table.columns]
    for row in table.rows(connection):
        yield json_text(dict(zip(names, row, strict=True)), separators=(",", ":")) + "\n"


def comma_separated(table: Table, connection: sqlite3.Connection) -> Iterator[str]:
    """RFC 4180, with a header. Text that a spreadsheet would run as a formula has an apostrophe before it (OWASP, CSV
    Injection): whoever needs it byte for byte takes JSON Lines.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow([column.name for column in table.columns])
    for row in table.rows(connection):
        writer.writerow([_cell(value) for value in row])
        if buffer.tell() > 65_536:
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        value = "\n".join(value)
    if isinstance(value, str):
        text = (
            printable(value.replace("\n", " ")) if "\n" not in value else "\n".join(map(printable, value.split("\n")))
        )
        return f"'{text}" if text[:1] in _FORMULA else text
    return value
