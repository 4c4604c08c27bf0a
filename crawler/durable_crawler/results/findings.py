"""What a report tells, collected once from a snapshot of the frontier, and then streamed by any writer.

Links with a problem are sorted by their target in a temporary database: neither their number nor the crawl's is a
question of memory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from durable_crawler.outcomes import Hop
from durable_crawler.results import reading
from durable_crawler.results.classify import PROBLEMS, Confidence, Verdict, insecure, judge
from durable_crawler.results.fragments import is_missing
from durable_crawler.urls import origin, url_hash

TOP = 20
"""Pages of each list of the slowest, largest and deepest."""
LISTED = 10_000
"""Rows of each list that is as long as the crawl is large: orphans, duplicates, disallowed, unfinished."""

_CACHED = 20_000
_BATCH = 1000

_BY_URL = "SELECT id FROM pages WHERE hash_high = ? AND hash_low = ?"

_SPILL = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -16000;
CREATE TABLE targets (id INTEGER PRIMARY KEY, rank INTEGER, page INTEGER, fragment TEXT, why TEXT, links INTEGER);
CREATE TABLE found (target INTEGER, source INTEGER, position INTEGER, text TEXT, rel TEXT);
CREATE TABLE linked (page INTEGER PRIMARY KEY);
"""


@dataclass(frozen=True, slots=True)
class Source:
    """A page that links to a target."""

    url: str
    text: str
    rel: str
    position: int
    """Counts the references of the page from 0."""


@dataclass(frozen=True, slots=True)
class Target:
    """Something that is linked to, and what is wrong with it. ``fragment`` is empty but for ``Confidence.FRAGMENT``."""

    confidence: Confidence
    why: str
    url: str
    fragment: str
    status: int | None
    outcome: str | None
    hops: tuple[Hop, ...]
    first_linked: str | None
    """The page on which it was found first; ``None`` for a seed."""
    links: int
    """How many ``sources`` there are: 0 for a seed, and where links are not stored."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A row of one of the lists of pages."""

    url: str
    value: str
    """What the list is about: a time, a size, a reason."""
    number: int | None = None
    """What it is sorted by, where it is not its words."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The crawl in numbers."""

    pages: Mapping[str, int]
    """By state."""
    outcomes: Mapping[str, int]
    classes: Mapping[Confidence, int]
    """Targets by class; what only some links make of a target (``fragment``, ``insecure``) comes on top."""
    links: int
    refused: Mapping[str, int]
    """References that were not followed, by reason."""
    first_ms: int | None
    last_ms: int | None
    """When the first and the last page were finished, milliseconds since the epoch."""


class Findings:
    """Made by ``collect``; every method streams."""

    def __init__(self, frontier: sqlite3.Connection, spill: sqlite3.Connection, totals: Totals) -> None:
        self._frontier = frontier
        self._spill = spill
        self.totals = totals

    def targets(self) -> Iterator[tuple[Target, Iterator[Source]]]:
        """Problems, the worst class first, those with most links first. Read the sources of one before the next."""
        query = "SELECT id, rank, page, fragment, why, links FROM targets ORDER BY rank, links DESC, id"
        for number, rank, page_id, fragment, why, links in self._spill.execute(query):
            page = reading.page(self._frontier, page_id)
            assert page is not None
            target = Target(
                PROBLEMS[rank], why, page.url, fragment, page.status, page.outcome, page.hops, page.found_on, links
            )
            yield target, self._sources(number)

    def _sources(self, number: int) -> Iterator[Source]:
        query = "SELECT source, text, rel, position FROM found WHERE target = ? ORDER BY source, position"
        for source, text, rel, position in self._spill.execute(query, (number,)):
            ((url,),) = self._frontier.execute("SELECT url FROM pages WHERE id = ?", (source,))
            yield Source(url, text, rel, position)

    def slowest(self) -> list[Listed]:
        """Pages by the time that their last request took, the time for its turn left out."""
        rows = self._top("duration_ms - coalesce(waited_ms, 0)")
        return [Listed(url, f"{ms / 1000:.1f} s", ms) for url, ms in rows]

    def largest(self) -> list[Listed]:
        """Pages by their decoded bytes."""
        return [Listed(url, f"{size:,} bytes", size) for url, size in self._top("bytes")]

    def deepest(self) -> list[Listed]:
        """Pages by the number of links from a seed."""
        return [Listed(url, f"{depth} link(s) from a seed", depth) for url, depth in self._top("depth")]

    def _top(self, what: str) -> list[tuple[str, int]]:
        """Of the crawl's own pages: what was only verified is another site's."""
        query = (
            f"SELECT url, {what} AS value FROM results JOIN pages ON pages.id = page_id "  # noqa: S608 - ours
            "WHERE value > 0 AND verified IS NULL ORDER BY value DESC, page_id LIMIT ?"
        )
        return self._frontier.execute(query, (TOP,)).fetchall()

    def orphans(self) -> Iterator[Listed]:
        """Pages that were read and to which no other leads, by a link or a redirect: seeds, above all. What itself only
        leads elsewhere is none, nor is where a host begins, which nobody needs a link to.
        """
        if not self.totals.links:
            return
        query = (
            "SELECT pages.id, url FROM pages JOIN results ON page_id = pages.id "
            "WHERE outcome = 'ok' AND final_url IS NULL AND verified IS NULL ORDER BY pages.id"
        )
        found = 0
        for page_id, url in self._frontier.execute(query):
            linked = self._spill.execute("SELECT 1 FROM linked WHERE page = ?", (page_id,)).fetchone()
            if linked is None and url != f"{origin(url)}/":
                found += 1
                if found > LISTED:
                    return
                yield Listed(url, "no page that was read links to it")

    def duplicates(self) -> Iterator[Sequence[str]]:
        """URLs with the same content, the largest groups first."""
        groups = (
            "SELECT content_hash FROM results WHERE content_hash IS NOT NULL AND final_url IS NULL "
            "GROUP BY content_hash HAVING count(*) > 1 ORDER BY count(*) DESC, min(page_id) LIMIT ?"
        )
        of = (
            "SELECT url FROM results JOIN pages ON pages.id = page_id WHERE content_hash = ? AND final_url IS NULL "
            "ORDER BY page_id LIMIT ?"
        )
        left = LISTED
        for (content_hash,) in self._frontier.execute(groups, (LISTED // 2,)).fetchall():
            urls = [url for (url,) in self._frontier.execute(of, (content_hash, left))]
            if len(urls) < 2:  # cut off
                return
            left -= len(urls)
            yield urls

    def disallowed(self) -> Iterator[Listed]:
        """Pages that a robots.txt forbids, with its line."""
        query = (
            "SELECT url, error FROM results JOIN pages ON pages.id = page_id WHERE outcome = 'robots_disallowed' "
            "ORDER BY page_id LIMIT ?"
        )
        for url, line in self._frontier.execute(query, (LISTED,)):
            yield Listed(url, line)

    def unfinished(self) -> Iterator[Listed]:
        """Pages that belong to the crawl and have no result."""
        query = (
            "SELECT url, state FROM pages WHERE state IN ('pending', 'leased', 'deferred', 'quarantined') "
            "ORDER BY state, id LIMIT ?"
        )
        for url, state in self._frontier.execute(query, (LISTED,)):
            yield Listed(url, state)


@contextmanager
def collect(frontier: sqlite3.Connection) -> Iterator[Findings]:
    """Read the whole snapshot once. The temporary database is in SQLite's temporary folder (``TMPDIR``), and goes away
    with its connection, however the process ends.
    """
    spill = sqlite3.connect("", isolation_level=None)
    try:
        spill.executescript(_SPILL)
        spill.execute("BEGIN")
        totals = _Collector(frontier, spill).totals()
        spill.execute("COMMIT")
        yield Findings(frontier, spill, totals)
    finally:
        spill.close()


class _Linked(NamedTuple):
    """A page that is linked to."""

    url: str
    problem: int | None
    """The number of the target that it is, where something is wrong with it."""
    is_there: bool


class _Collector:
    """One pass over pages, one over links."""

    def __init__(self, frontier: sqlite3.Connection, spill: sqlite3.Connection) -> None:
        self._frontier = frontier
        self._spill = spill
        self._targets = 0
        self._classes = dict.fromkeys(Confidence, 0)
        self._of_pages = 0
        self._found: list[tuple[int, int, int, str, str]] = []
        self._linked: list[tuple[int]] = []
        self._links = 0
        self._lacks = lru_cache(maxsize=_CACHED)(self._is_lacking)  # the ids of a page may take longer than all else

    def totals(self) -> Totals:
        """Collect all of it."""
        pages: dict[str, int] = {}
        for page in reading.pages(self._frontier):
            pages[page.state] = pages.get(page.state, 0) + 1
            verdict = judge(page)
            self._classes[verdict.confidence] += 1
            if verdict.confidence in PROBLEMS:
                self._add(page.id, "", verdict)
            if page.final_url is not None:
                self._linked.extend(self._frontier.execute(_BY_URL, url_hash(page.final_url)))
            self._flush_many()
        self._of_pages = self._targets
        self._spill.execute("CREATE INDEX targets_page ON targets (page, rank, fragment)")
        self._read_links()
        self._spill.execute("CREATE INDEX found_target ON found (target, source, position)")
        self._spill.execute("UPDATE targets SET links = (SELECT count(*) FROM found WHERE target = targets.id)")
        sums = dict(self._frontier.execute("SELECT outcome, count(*) FROM results GROUP BY outcome ORDER BY 2 DESC"))
        refused = dict(self._frontier.execute("SELECT name, total FROM tallies WHERE kind = 'refused' AND total > 0"))
        ((first, last),) = self._frontier.execute("SELECT min(finished_ms), max(finished_ms) FROM results")
        return Totals(pages, sums, self._classes, self._links, refused, first, last)

    def _add(self, page_id: int, fragment: str, verdict: Verdict) -> int:
        self._targets += 1
        row = (self._targets, PROBLEMS.index(verdict.confidence), page_id, fragment, verdict.why)
        self._spill.execute("INSERT INTO targets VALUES (?, ?, ?, ?, ?, 0)", row)
        return self._targets

    def _read_links(self) -> None:
        wordings = reading.Wordings(self._frontier)

        @lru_cache(maxsize=_CACHED)
        def target_of(page_id: int) -> _Linked:
            return self._linked_page(page_id)

        query = "SELECT url, final_url FROM pages JOIN results ON page_id = pages.id WHERE pages.id = ?"
        for source, first, edges in reading.edges(self._frontier):
            wordings.add(first, edges.wordings)
            ((url, final_url),) = self._frontier.execute(query, (source,))
            if final_url is not None and self._has_links_of_its_own(final_url):
                continue
            for wording, position in edges.links:
                target, fragment, text, rel = wordings[wording]
                page = target_of(target)
                self._links += 1
                if target != source:
                    self._linked.append((target,))
                if page.problem is not None:
                    self._found.append((page.problem, source, position, text, rel))
                elif page.is_there and insecure(url, page.url):
                    self._found.append((self._special(target, "", Confidence.INSECURE), source, position, text, rel))
                if page.is_there and fragment and self._lacks(target, fragment):
                    special = self._special(target, fragment, Confidence.FRAGMENT)
                    self._found.append((special, source, position, text, rel))
            self._flush_many()
        self._flush()

    def _has_links_of_its_own(self, url: str) -> bool:
        """Whether a redirect's target is a page of the crawl as well: then it is there that the links stand."""
        query = f"SELECT 1 FROM results WHERE page_id = ({_BY_URL}) AND outcome = 'ok'"  # noqa: S608 - ours
        return self._frontier.execute(query, url_hash(url)).fetchone() is not None

    def _linked_page(self, page_id: int) -> _Linked:
        query = "SELECT url, outcome FROM pages LEFT JOIN results ON page_id = pages.id WHERE pages.id = ?"
        ((url, outcome),) = self._frontier.execute(query, (page_id,))
        query = "SELECT id FROM targets WHERE page = ? AND id <= ?"
        row = self._spill.execute(query, (page_id, self._of_pages)).fetchone()
        return _Linked(url, row[0] if row else None, outcome in ("ok", "not_html", "too_large"))

    def _special(self, page_id: int, fragment: str, confidence: Confidence) -> int:
        """The number of what only some links make of a page."""
        rank = PROBLEMS.index(confidence)
        query = "SELECT id FROM targets WHERE page = ? AND fragment = ? AND rank = ?"
        row = self._spill.execute(query, (page_id, fragment, rank)).fetchone()
        if row is not None:
            return int(row[0])
        self._classes[confidence] += 1
        why = f"no element has the id {fragment}" if fragment else "an https page links to it"
        return self._add(page_id, fragment, Verdict(confidence, why))

    def _is_lacking(self, page_id: int, fragment: str) -> bool:
        row = self._frontier.execute("SELECT hashes FROM fragments WHERE page_id = ?", (page_id,)).fetchone()
        return is_missing(fragment, None if row is None else row[0])

    def _flush_many(self) -> None:
        if len(self._linked) + len(self._found) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        self._spill.executemany("INSERT INTO found VALUES (?, ?, ?, ?, ?)", self._found)
        self._spill.executemany("INSERT OR IGNORE INTO linked VALUES (?)", self._linked)
        self._found.clear()
        self._linked.clear()
