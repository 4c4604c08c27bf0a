"""Pages and links as rows, streamed from one snapshot of the frontier in the order of their discovery.

Every reader of results gets them here, so that a report, an export and a live page cannot disagree. Nothing of the
frontier is held in memory but one batch of rows and, for links, the wordings that were used last.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from durable_crawler.frontier.edges import unpack
from durable_crawler.outcomes import Hop

_WORDINGS = 50_000
"""Rows of ``anchors`` that are kept while links are read: some 15 MB."""


@dataclass(frozen=True, slots=True)
class Page:
    """A URL that the crawl knows, and its result where it is done. Times are milliseconds since the epoch."""

    id: int
    url: str
    authority: str
    state: str
    """``pending``, ``leased``, ``deferred``, ``done``, ``quarantined`` or ``excluded``."""
    depth: int
    found_on: str | None
    """URL of the page that linked here first; ``None`` for a seed."""
    left_out: str | None
    """Why an excluded page does not belong to the crawl (``scope.LeftOut``)."""
    retries: int
    outcome: str | None
    status: int | None
    final_url: str | None
    """Where it differs from ``url``."""
    content_type: str
    bytes: int
    title: str
    links: int
    dropped_links: int
    hops: tuple[Hop, ...]
    error: str
    finished_ms: int | None
    duration_ms: int | None
    """Of the last attempt, ``waited_ms`` for its turn included."""
    waited_ms: int | None
    parse_ms: int | None
    content_hash: str | None
    """Hexadecimal."""
    canonical: str | None
    noindex: bool
    nofollow: int
    """Links that the site did not want to be followed."""


@dataclass(frozen=True, slots=True)
class Link:
    """One link on one page."""

    source_id: int
    source: str
    target_id: int
    target: str
    fragment: str
    """Without the ``#``; empty where there is none."""
    text: str
    rel: str
    position: int
    """Counts the references of the page from 0."""


_PAGES = """
SELECT pages.id, pages.url, hosts.authority, pages.state, pages.depth, parent.url, pages.left_out, pages.retries,
       outcome, status, final_url, coalesce(content_type, ''), coalesce(bytes, 0), coalesce(title, ''),
       coalesce(links, 0), coalesce(dropped_links, 0), hops, coalesce(error, ''), finished_ms, duration_ms, waited_ms,
       parse_ms, lower(hex(content_hash)), canonical, coalesce(noindex, 0), coalesce(nofollow, 0)
  FROM pages
  JOIN hosts ON hosts.id = pages.host_id
  LEFT JOIN pages AS parent ON parent.id = pages.found_on
  LEFT JOIN results ON results.page_id = pages.id
"""


def pages(connection: sqlite3.Connection) -> Iterator[Page]:
    """Every page, in the order of discovery."""
    return map(_page, connection.execute(f"{_PAGES} ORDER BY pages.id"))


def page(connection: sqlite3.Connection, page_id: int) -> Page | None:
    """One page; ``None`` where there is none with this id."""
    row = connection.execute(f"{_PAGES} WHERE pages.id = ?", (page_id,)).fetchone()
    return None if row is None else _page(row)


def links(connection: sqlite3.Connection) -> Iterator[Link]:
    """Every link of every page, by page and position."""

    @lru_cache(maxsize=_WORDINGS)
    def wording(anchor_id: int) -> tuple[int, str, str, str, str]:
        query = (
            "SELECT target, url, fragment, text, rel FROM anchors JOIN pages ON pages.id = target WHERE anchors.id = ?"
        )
        row: tuple[int, str, str, str, str] = connection.execute(query, (anchor_id,)).fetchone()
        return row

    query = "SELECT page_id, url, packed FROM edges JOIN pages ON pages.id = page_id ORDER BY page_id"
    for source_id, source, packed in connection.execute(query):
        for anchor_id, position in unpack(packed):
            yield Link(source_id, source, *wording(anchor_id), position)


def _page(row: tuple[Any, ...]) -> Page:
    values = list(row)
    values[16] = tuple(Hop(*hop) for hop in json.loads(values[16] or "[]"))
    values[22] = values[22] or None
    values[24] = bool(values[24])
    return Page(*values)
