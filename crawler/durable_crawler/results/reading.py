"""Pages and links as rows, streamed from one snapshot of the frontier in the order of their discovery.

Every reader of results gets them here, so that a report, an export and a live page cannot disagree. Nothing of the
frontier is held in memory but one batch of rows and, for links, the wordings that were used last.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from durable_crawler.frontier.edges import DamagedError, Edges, Wording, unpack
from durable_crawler.latest import Latest
from durable_crawler.outcomes import Hop

_WORDINGS = 50_000
"""What links say, of which up to twice as many are kept while links are read: some 30 MB. More than the crawler itself
keeps, which names no other wording by its number.
"""
_URLS = 50_000


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


def edges(connection: sqlite3.Connection) -> Iterator[tuple[int, int, Edges]]:
    """Of each page with links its id, the number of its first new wording, and the links.

    In the order in which they were stored: what a link repeats has been read before.
    """
    for first, page_id, packed in connection.execute("SELECT id, page_id, packed FROM edges ORDER BY id"):
        yield page_id, first, unpack(first, packed)


class Wordings:
    """What links say, by number. Remembers those that were used last, and looks up the others."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._latest: Latest[int, Wording] = Latest(_WORDINGS)

    def add(self, first: int, wordings: Sequence[Wording]) -> None:
        """Remember those of a page."""
        for number, wording in enumerate(wordings, first):
            self._latest.put(number, wording)

    def __getitem__(self, number: int) -> Wording:
        found = self._latest.get(number)
        if found is None:
            query = "SELECT id, packed FROM edges WHERE id <= ? ORDER BY id DESC LIMIT 1"
            ((first, packed),) = self._connection.execute(query, (number,))
            self.add(first, unpack(first, packed).wordings)
            found = self._latest.get(number)
            if found is None:
                raise DamagedError(f"no page has the wording {number}")
        return found


def links(connection: sqlite3.Connection) -> Iterator[Link]:
    """Every link of every page: pages in the order in which they were finished, links by position."""

    @lru_cache(maxsize=_URLS)
    def url(page_id: int) -> str:
        ((found,),) = connection.execute("SELECT url FROM pages WHERE id = ?", (page_id,))
        return str(found)

    wordings = Wordings(connection)
    for source_id, first, found in edges(connection):
        wordings.add(first, found.wordings)
        source = url(source_id)
        for number, position in found.links:
            said = wordings[number]
            target = url(said.target)
            yield Link(source_id, source, said.target, target, said.fragment, said.text, said.rel, position)


def _page(row: tuple[Any, ...]) -> Page:
    values = list(row)
    values[16] = tuple(Hop(*hop) for hop in json.loads(values[16] or "[]"))
    values[22] = values[22] or None
    values[24] = bool(values[24])
    return Page(*values)
