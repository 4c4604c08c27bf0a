"""The story of one URL: how it was found, what became of it and why, or why the crawl would take or refuse it.

Read from one snapshot. What only the spec knows (patterns, the page limit) is told where the spec is given.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from crawljob.spec import DEFAULT_USER_AGENT, CrawlJobSpec
from durable_crawler.results import reading
from durable_crawler.results.classify import Confidence, judge
from durable_crawler.results.fragments import is_missing
from durable_crawler.results.report.about import time
from durable_crawler.robots import Robots, product_token
from durable_crawler.scope import BY_PATTERN, LeftOut, Scope
from durable_crawler.traps import Trap, trap
from durable_crawler.urls import Refusal, canonical, origin, url_hash

STEPS_MAX = 50
"""Pages between a URL and its seed that are named."""
LINKS_NAMED = 10
"""Pages that link to it that are named."""

TOPICS = {
    "spelling": "it is written in another way than the crawl writes it",
    "refused": "it can be no page of a crawl",
    "found": "how the crawl came to it, step by step up to a seed",
    "unknown": "no page of the crawl links to it",
    "scope": "what the seeds and the patterns say of it",
    "budget": "the page limit",
    "robots": "what its host's robots.txt says",
    "state": "where it stands now",
    "waits": "what it waits for, and until when",
    "attempt": "an attempt that was followed by another",
    "result": "its last attempt",
    "redirect": "a step of the way that the last attempt was sent",
    "alias": "another URL of the crawl that leads here, or where this one leads",
    "links": "pages that link to it",
    "fragment": "whether the page has the place behind the #",
    "class": "what a report says of it",
}
"""What ``Part.about`` can be."""


@dataclass(frozen=True, slots=True)
class Part:
    """One sentence of the story."""

    about: str
    """A name of ``TOPICS``."""
    text: str
    url: str | None = None
    """A URL that it is about, besides the one that was asked for."""
    time_ms: int | None = None
    """When, milliseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Story:
    """What is known of a URL."""

    asked: str
    url: str
    """Canonical; as it was asked for where it is no URL of a crawl."""
    state: str | None
    """``None`` where the crawl does not know it."""
    confidence: Confidence | None
    parts: tuple[Part, ...]


def explain(connection: sqlite3.Connection, asked: str, spec: CrawlJobSpec | None, now_ms: int) -> Story:
    """The story of the URL ``asked``, in any spelling; ``now_ms`` tells what has passed from what is to come."""
    url = canonical(asked)
    if isinstance(url, Refusal):
        return Story(asked, asked, None, None, (Part("refused", _REFUSALS[url]),))
    spelling = [Part("spelling", "the crawl writes it like this; a fragment is no part of it", url)] * (url != asked)
    high, low = url_hash(url)
    row = connection.execute(
        "SELECT id FROM pages WHERE hash_high = ? AND hash_low = ? AND url = ?", (high, low, url)
    ).fetchone()
    page = None if row is None else reading.page(connection, row[0])
    teller = _Teller(connection, spec, now_ms)
    if page is None:
        return Story(asked, url, None, None, (*spelling, *teller.unknown(url)))
    parts = (*spelling, *teller.known(page), *teller.place(page, asked))
    return Story(asked, url, page.state, judge(page).confidence, parts)


class _Teller:
    def __init__(self, connection: sqlite3.Connection, spec: CrawlJobSpec | None, now_ms: int) -> None:
        self._run = connection.execute
        self._connection = connection
        self._spec = spec
        self._now_ms = now_ms

    def unknown(self, url: str) -> Iterator[Part]:
        """What would become of a URL that was never seen."""
        yield Part("unknown", "no link to it was kept, and it is no seed")
        for name, words in _NOT_KEPT.items():
            query = "SELECT total FROM tallies WHERE kind = 'refused' AND name = ? AND total > 0"
            for (total,) in self._run(query, (name,)):
                yield Part("unknown", f"it may be among {total:,} links {words}")
        if isinstance(reason := trap(url), Trap):
            yield Part("refused", f"a link to it would not be followed: it looks like a trap ({reason})")
        yield from self._scope(url, 0)
        yield from self._robots(url)

    def known(self, page: reading.Page) -> Iterator[Part]:
        """What became of a page."""
        yield from self._found(page)
        if page.left_out is not None:
            yield from self._left_out(page)
        elif page.outcome is None:
            yield from self._budget(page)
        yield Part("state", _STATES.get(page.state, page.state))
        yield from self._attempts(page)
        if page.outcome is None:
            yield from self._waits(page)
            yield from self._robots(page.url)
        else:
            yield from self._result(page)
        yield from self._aliases(page)
        yield from self._links(page)
        verdict = judge(page)
        yield Part("class", f"{verdict.confidence}: {verdict.why}")

    def place(self, page: reading.Page, asked: str) -> Iterator[Part]:
        """What a report says of a link to a place in a page."""
        fragment = asked.partition("#")[2]
        row = self._run("SELECT hashes FROM fragments WHERE page_id = ?", (page.id,)).fetchone()
        if not fragment or page.outcome != "ok":
            return
        if row is None:
            yield Part("fragment", "the ids of this page are not known, so that no link to one is called missing")
        elif is_missing(fragment, row[0]):
            yield Part("fragment", f"no element has the id {fragment}: a report lists a link to it")
        else:
            yield Part("fragment", "nothing is missing there")

    def _found(self, page: reading.Page) -> Iterator[Part]:
        steps, now = 0, page
        while now.found_on is not None and steps < STEPS_MAX:
            yield Part("found", f"at depth {now.depth}, first linked on", now.found_on)
            ((parent,),) = self._run("SELECT found_on FROM pages WHERE id = ?", (now.id,))
            above = reading.page(self._connection, parent)
            assert above is not None
            now, steps = above, steps + 1
        yield (
            Part("found", "which is a seed" if steps else "it is a seed")
            if now.found_on is None
            else Part("found", f"and so on; more than {STEPS_MAX} steps from a seed")
        )

    def _scope(self, url: str, depth: int) -> Iterator[Part]:
        if self._spec is None:
            yield Part("scope", "say with -f which CrawlJob it is, and what its seeds and patterns say is told")
            return
        scope = Scope.of(self._spec)
        objection = scope.objection(url, depth)
        ruling = scope.ruling(url)
        if objection is None:
            yield Part("scope", f"covered{f' by {ruling.pattern}' if ruling.pattern else ''}")
        elif objection in BY_PATTERN and ruling.pattern is not None:
            yield Part("scope", f"left out by {ruling.pattern} of scope.exclude")
        else:
            yield Part("scope", _LEFT_OUT[objection])

    def _left_out(self, page: reading.Page) -> Iterator[Part]:
        assert page.left_out is not None
        yield Part("scope", f"left out: {_LEFT_OUT[LeftOut(page.left_out)]}")
        if self._spec is not None:
            yield from self._scope(page.url, page.depth)

    def _budget(self, page: reading.Page) -> Iterator[Part]:
        if self._spec is None or page.state != "pending":
            return
        ((counted, claimed),) = self._run(
            "SELECT counted, (SELECT counted FROM pages WHERE id = ?) FROM counters", (page.id,)
        )
        limit = self._spec.scope.max_pages
        if counted >= limit and not claimed:
            yield Part("budget", f"scope.maxPages ({limit:,}) is used up; it is not asked for unless that is raised")

    def _attempts(self, page: reading.Page) -> Iterator[Part]:
        query = (
            "SELECT outcome, status, error, duration_ms, due_ms, ended_ms FROM attempts WHERE page_id = ? ORDER BY id"
        )
        for outcome, status, error, duration_ms, due_ms, ended_ms in self._run(query, (page.id,)):
            what = _what(outcome, status, error)
            text = f"{what} after {duration_ms / 1000:.1f} s; to be tried again at {time(due_ms)}"
            yield Part("attempt", text, time_ms=ended_ms)

    def _result(self, page: reading.Page) -> Iterator[Part]:
        assert page.outcome is not None
        for hop in page.hops:
            yield Part("redirect", f"status {hop.status} leads to", hop.location)
        took = f" in {page.duration_ms / 1000:.1f} s" if page.duration_ms else ""
        waited = f", {page.waited_ms / 1000:.1f} s of it for its turn" if page.waited_ms else ""
        about = "robots" if page.outcome.startswith("robots_") else "result"
        yield Part(about, f"{_what(page.outcome, page.status, page.error)}{took}{waited}", time_ms=page.finished_ms)

    def _waits(self, page: reading.Page) -> Iterator[Part]:
        query = (
            "SELECT due_ms, lease_until_ms, attempts, closed_until_ms, gap_ms, failures, openings "
            "FROM pages JOIN hosts ON hosts.id = host_id WHERE pages.id = ?"
        )
        ((due, lease, claims, closed, gap, failures, openings),) = self._run(query, (page.id,))
        if due is not None:
            yield Part("waits", "tried again after", time_ms=due)
        if lease is not None:
            yield Part("waits", f"a crawler works on it (claim {claims}); its lease runs out", time_ms=lease)
        if closed > self._now_ms:
            yield Part("waits", f"{page.authority} is left alone until", time_ms=closed)
        if gap:
            yield Part("waits", f"{page.authority} has been slowed down to a request in {gap / 1000:g} s")
        if failures or openings:
            yield Part("waits", f"{page.authority} could not be connected to {failures} times in a row")

    def _robots(self, url: str) -> Iterator[Part]:
        where = origin(url)
        query = "SELECT body, failures, expires_ms FROM robots WHERE origin = ?"
        row = self._run(query, (where,)).fetchone()
        if row is None:
            yield Part("robots", f"{where}/robots.txt has not been asked for")
            return
        body, failures, expires = row
        if failures:
            text = f"{where}/robots.txt could not be fetched {failures} times, and so forbids all; asked for again"
            yield Part("robots", text, time_ms=expires)
            return
        agent = self._spec.fetch.user_agent if self._spec else DEFAULT_USER_AGENT
        robots = Robots(body, product_token(agent))
        if robots.allows(url):
            delay = robots.crawl_delay
            yield Part("robots", "allowed" + (f", one request in {delay:g} s (Crawl-delay)" if delay else ""))
        else:
            yield Part("robots", f"disallowed by line {robots.denying_line(url)}")

    def _aliases(self, page: reading.Page) -> Iterator[Part]:
        if page.final_url is not None:
            yield Part("alias", "what it gave came from", page.final_url)
        if page.canonical is not None:
            yield Part("alias", "it names another URL as its canonical one", page.canonical)
        query = "SELECT url FROM results JOIN pages ON pages.id = page_id WHERE final_url = ? ORDER BY page_id LIMIT ?"
        for (url,) in self._run(query, (page.url, LINKS_NAMED)):
            yield Part("alias", "it is where another one is redirected to", url)

    def _links(self, page: reading.Page) -> Iterator[Part]:
        wordings: set[int] = set()
        found: list[int] = []
        count = 0
        for source, first, edges in reading.edges(self._connection):
            wordings.update(number for number, said in enumerate(edges.wordings, first) if said.target == page.id)
            if wordings and any(number in wordings for number, _ in edges.links):
                count += 1
                if len(found) < LINKS_NAMED:
                    found.append(source)
        if not count:
            return
        yield Part("links", f"{count:,} page(s) link to it")
        for source in found:
            ((url,),) = self._run("SELECT url FROM pages WHERE id = ?", (source,))
            yield Part("links", "one of them", url)


def _what(outcome: str, status: int | None, error: str) -> str:
    text = outcome if status is None else f"{outcome}, status {status}"
    return f"{text} ({error})" if error else text


_REFUSALS = {
    Refusal.INVALID: "it is no URL",
    Refusal.SCHEME: "it is neither http nor https",
    Refusal.CREDENTIALS: "it has a user name or a password in it",
    Refusal.EMPTY_HOST: "it names no host",
    Refusal.TOO_LONG: "it has more than 2,048 characters",
}
_NOT_KEPT = {
    "nofollow": "that the site does not want to be followed",
    "above_max_links": "above scope.maxLinksPerPage",
}
_LEFT_OUT = {
    LeftOut.AUTHORITY: "no seed is on its host",
    LeftOut.DEPTH: "it is deeper than scope.maxDepth",
    LeftOut.EXCLUDED: "a pattern of scope.exclude matches it",
    LeftOut.NOT_INCLUDED: "no pattern of scope.include matches it",
}
_STATES = {
    "pending": "pending: it waits for its turn",
    "leased": "leased: it is being worked on",
    "deferred": "deferred: it is tried again later",
    "done": "done",
    "quarantined": "quarantined: three claims of it had no outcome; it may be what ended the crawler",
    "excluded": "excluded: it is known, and no page of the crawl",
}
