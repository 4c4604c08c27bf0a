"""One page through its stages: may I? → fetch → parse → settle → record → finish (or wait, or be left).

``engine`` starts ``Work.page`` for each claimed page and cancels it when the lease is lost or time is up. What one page
learns about its host (its robots.txt, its pace) goes to the board, and from there to the frontier.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from crawljob.spec import CrawlJobSpec
from crawljob.units import seconds
from durable_crawler.background import Background
from durable_crawler.board import Board, Wait
from durable_crawler.clock import Clock
from durable_crawler.frontier import Attempt, Deferral, Frontier, HostState, Lease, Link, Result, Verdict
from durable_crawler.latest import Latest
from durable_crawler.outcomes import Fetched, Outcome, PageRecord, Stage
from durable_crawler.parse import Memo, Parsed, parse
from durable_crawler.robots import product_token
from durable_crawler.robots_gate import PROXY_WAIT_MS, Allowed, Disallowed, RobotsGate, Unreachable
from durable_crawler.scope import BY_PATTERN, Scope
from durable_crawler.settle import Done, RetryLater, effect_on_host, settle
from durable_crawler.together import Together
from durable_crawler.urls import authority, origin

BIG_BODY_BYTES = 256 * 1024
"""Bodies above are parsed in a thread: they would hold up the event loop, and a thread hop costs little beside them."""

MANY_COMPARISONS = 20_000
"""Links of a page times patterns of the spec; more take longer than some 10 ms, and are made in a thread as well."""

PARSERS = 1
"""Large pages that are read at once: more would only take turns on the interpreter's lock, and their trees, each forty
times as large as its page, would add up."""

MayFollow = Callable[[str], Awaitable[Outcome | None]]
"""Asked before each hop of a redirect: ``None``, or the outcome that forbids it."""

TakeTurn = Callable[[], Awaitable[None] | None]
"""Called before each request: ``None`` where the host may be asked now, or what to wait for."""

ReadPage = tuple[Parsed, Sequence[Link]]
"""What a page says, and its links, those outside of the spec too: the frontier keeps them until an edit admits them."""


class Fetcher(Protocol):
    """What the work needs of ``fetch``."""

    async def fetch(self, url: str, may_follow: MayFollow, take_turn: TakeTurn) -> Fetched:
        """One attempt at a URL; never raises for what the network or the server does."""
        ...


class Records(Protocol):
    """Where records of settled pages go."""

    def page_settled(self, record: PageRecord) -> None:
        """The work on a claim has ended."""
        ...

    def leases(self, *, expired: int = 0, lost: int = 0, recovered: int = 0) -> None:
        """Leases that ran out, or were found to be somebody else's."""
        ...


class _LeftAloneError(Exception):
    """The host asked to be left alone after the page was claimed, and before a request of it was sent."""


@dataclass(slots=True, eq=False)
class Job:
    """A page that is being worked on."""

    lease: Lease
    trusted_until: float
    """Monotonic seconds, moved on by each renewal."""
    task: asyncio.Task[None] | None = None
    lost: bool = False
    stages: list[Stage] = field(default_factory=list)
    fetched: Fetched | None = None
    sent: float = 0.0
    """When its last request was (monotonic seconds)."""
    links: int = 0
    refused: Outcome | None = None
    """What robots.txt closes it with."""
    hop_due_ms: int | None = None
    """When the robots.txt of a redirect's target may be asked for again, where it could not be fetched."""
    hop_error: str = ""
    let_go: Callable[[], None] = lambda: None
    """To be called once, when all that is left to do is to store what came of it: its worker and slot are free."""


class Work:
    """Works on pages; holds nothing of one when it is done. ``robots`` is ``None`` where the spec ignores them."""

    def __init__(
        self,
        spec: CrawlJobSpec,
        frontier: Frontier,
        board: Board,
        *,
        fetcher: Fetcher,
        robots: RobotsGate | None,
        records: Records,
        clock: Clock,
        random: Callable[[], float],
        verifying: bool = False,
    ) -> None:
        self._spec = spec
        self._frontier = frontier
        self._board = board
        self._robots = robots
        self._records = records
        self._clock = clock
        self._random = random
        self._fetcher = fetcher
        self._scope_holds = not verifying
        self._max_retry_after = seconds(spec.politeness.max_retry_after)
        self._background = Background(PARSERS, "parser")
        self._together = Together()
        self._product = product_token(spec.fetch.user_agent)
        self._scope = Scope.of(spec)
        self._patterns = len(spec.scope.include) + len(spec.scope.exclude)
        self._memo: Memo = Latest()
        self._approved = {host.authority: host.id for host in frontier.hosts.values()}

    async def page(self, job: Job) -> None:
        """Everything that happens to one claimed page. Raises ``FrontierError``, and whatever a bug raises."""
        settled = "released"
        try:
            settled = await self._page(job)
        except _LeftAloneError:
            await self._frontier.release([job.lease])
        finally:
            if job.lost:
                settled = "lost"
                self._records.leases(lost=1)
            self._record(job, settled)

    async def _page(self, job: Job) -> str:
        refused = await self._refused(job.lease)
        if isinstance(refused, Unreachable):
            assert refused.retry_ms is not None
            proxy = refused.outcome is Outcome.PROXY_UNREACHABLE
            return await self._leave(job, refused.retry_ms, Wait.PROXY if proxy else Wait.ROBOTS)
        if refused is not None:
            job.refused = refused.outcome
            return await self._finish(job, refused, (), self._state(job.lease.host_id))
        fetched = await self._fetch(job)
        due: int | None = self._clock.wall_ms() + PROXY_WAIT_MS
        why = Wait.PROXY
        if fetched.outcome is Outcome.ROBOTS_UNREACHABLE:
            due, why = job.hop_due_ms, Wait.ROBOTS  # a redirect's target waits as the page itself would
        if fetched.outcome in (Outcome.PROXY_UNREACHABLE, Outcome.ROBOTS_UNREACHABLE) and due is not None:
            return await self._leave(job, due, why)  # neither the page's fault nor its host's
        parsed, links = await self._read(job, fetched)
        decision = settle(
            fetched,
            job.lease.retries,
            self._spec.fetch.retries,
            self._random,
            max_retry_after=self._max_retry_after,
        )
        host = self._effect(job, fetched, decision.close_host_for)
        if self._clock.monotonic() >= job.trusted_until:
            job.lost = True  # how the host is stays true in any case; nothing else of it is kept
            return "lost"
        match decision:
            case RetryLater():
                due_ms = self._clock.wall_ms() + round(decision.delay * 1000)
                return await self._defer(job, Deferral(due_ms, host, _attempt(job, fetched)))
            case Done():
                result = self._result(job, fetched, decision.outcome, parsed, links)
                return await self._finish(job, result, links, host)

    async def _refused(self, lease: Lease) -> Result | Unreachable | None:
        """What robots.txt has against the page."""
        if self._robots is None:
            return None
        verdict = await self._robots.verdict(lease.url)
        match verdict:
            case Allowed():
                self._board.asked(lease.host_id, self._clock.monotonic(), verdict.crawl_delay)
                return None
            case Disallowed():
                self._board.asked(lease.host_id, self._clock.monotonic(), verdict.crawl_delay)
                return Result(Outcome.ROBOTS_DISALLOWED, error=verdict.line)
            case Unreachable(retry_ms=None, cause=cause):
                self._board.asked(lease.host_id, self._clock.monotonic(), None)
                return Result(Outcome.ROBOTS_UNREACHABLE, error=_unknown(lease.url, cause))
            case Unreachable():
                return verdict

    async def _may_follow(self, job: Job, url: str) -> Outcome | None:
        if self._scope_holds and not self._scope.ruling(url).admitted:
            return Outcome.REDIRECT_EXCLUDED
        if self._robots is None:
            return None
        match await self._robots.verdict(url):
            case Allowed():
                return None
            case Disallowed():
                return Outcome.ROBOTS_DISALLOWED
            case Unreachable(retry_ms=due, cause=cause, outcome=outcome):
                job.hop_due_ms, job.hop_error = due, _unknown(url, cause)
                return outcome

    def _turn(self, job: Job) -> Awaitable[None] | None:
        wait = self._take_turn(job)
        return self._wait_for_turn(job, wait) if wait > 0 else None

    async def _wait_for_turn(self, job: Job, wait: float) -> None:
        while wait > 0:
            await asyncio.sleep(wait)
            wait = self._take_turn(job)

    def _take_turn(self, job: Job) -> float:
        """Seconds to wait. Raises ``_LeftAloneError``: a host that must wait holds no worker (law L7)."""
        host, job.sent = job.lease.host_id, self._clock.monotonic()
        if self._board.left_alone(host, job.sent):
            raise _LeftAloneError
        return self._board.turn(host, job.sent)

    async def _leave(self, job: Job, until_ms: int, why: Wait) -> str:
        """Give the page back uncharged; its host is left alone until then."""
        wait = max(0, until_ms - self._clock.wall_ms()) / 1000
        self._board.close(job.lease.host_id, self._clock.monotonic() + wait, why)
        await self._frontier.release([job.lease])
        return "released"

    async def _fetch(self, job: Job) -> Fetched:
        started = self._clock.wall_ns()
        job.sent = self._clock.monotonic()
        fetched = await self._fetcher.fetch(job.lease.url, partial(self._may_follow, job), partial(self._turn, job))
        if fetched.outcome is Outcome.REDIRECT_EXCLUDED:
            pattern = self._scope.ruling(fetched.hops[-1].location).pattern
            why = "matches no pattern of scope.include" if pattern is None else f"is excluded by {pattern}"
            fetched = replace(fetched, error=f"the redirect's target {why}"[:200])
        elif fetched.outcome is Outcome.ROBOTS_UNREACHABLE:
            fetched = replace(fetched, error=job.hop_error)
        job.fetched = fetched
        job.stages.append(Stage("fetch", started, self._clock.wall_ns()))
        return fetched

    async def _read(self, job: Job, fetched: Fetched) -> tuple[Parsed | None, Sequence[Link]]:
        """What the page says, and its links. What takes long is done beside the loop, which has deadlines to keep."""
        if fetched.outcome is Outcome.REDIRECT_EXCLUDED:
            return None, [self._link(fetched.hops[-1].location, job.lease.depth)]
        if fetched.body is None:
            return None, ()
        started = self._clock.wall_ns()
        call = partial(
            parse,
            fetched.body,
            fetched.content_type,
            fetched.final_url,
            self._spec.scope.max_links_per_page,
            robots_tags=fetched.robots_tags,
            product=self._product,
            follow=self._spec.scope.follow,
            references=self._spec.results.edges,
            ids=self._spec.audit.fragments and not fetched.place_given,
        )
        depth = job.lease.depth + 1
        if len(fetched.body) > BIG_BODY_BYTES:
            parsed, links = await self._beside(lambda: self._judged(call(), depth))
        else:
            parsed = await self._together.run(partial(call, memo=self._memo))
            judge = partial(self._judged, parsed, depth)
            many = len(self._wanted(parsed)) * self._patterns > MANY_COMPARISONS
            _, links = await self._beside(judge) if many else judge()
        job.stages.append(Stage("parse", started, self._clock.wall_ns()))
        job.links = len(parsed.links)
        return parsed, links

    async def _beside(self, call: Callable[[], ReadPage]) -> ReadPage:
        """What ``call`` gives, which needs nothing that changes: from a thread, or from here if none is to be had."""
        try:
            return await self._background.run(call)
        except OSError:
            return call()

    def _effect(self, job: Job, fetched: Fetched, close_for: float | None) -> HostState | None:
        """Tell the board how the host behaved; what the frontier must remember of it, if there is anything."""
        lease = job.lease
        now, effect = self._clock.monotonic(), effect_on_host(fetched, lease.retries)
        changed = effect is not None and self._board.behaved(
            lease.host_id,
            effect,
            now,
            close_for,
            started=job.sent,
            retry_after=min(fetched.retry_after or 0.0, self._max_retry_after),
        )
        return self._state(lease.host_id, changed=changed)

    def _state(self, host: int, *, changed: bool = False) -> HostState | None:
        """What the frontier must remember of ``host``: a gate that is still closed, above all.

        The claim stored a gate as well, but knew neither of a Crawl-delay that this page learned nor of when its
        request was sent.
        """
        closed_for = max(0.0, self._board.closed_until(host) - self._clock.monotonic())
        if not (changed or closed_for):
            return None
        return HostState(self._board.pace(host).kept, self._clock.wall_ms() + round(closed_for * 1000))

    async def _defer(self, job: Job, deferral: Deferral) -> str:
        started = self._clock.wall_ns()
        job.let_go()
        verdict = await self._frontier.defer(job.lease, deferral)
        return self._committed(job, started, verdict, "deferred")

    async def _finish(self, job: Job, result: Result, links: Sequence[Link], host: HostState | None = None) -> str:
        started = self._clock.wall_ns()
        job.let_go()
        verdict = await self._frontier.finish(job.lease, result, links, host)
        return self._committed(job, started, verdict, "done")

    def _committed(self, job: Job, started_ns: int, verdict: Verdict, settled: str) -> str:
        job.stages.append(Stage("commit", started_ns, self._clock.wall_ns()))
        job.lost = verdict is Verdict.LOST
        return settled

    def _judged(self, parsed: Parsed, depth: int) -> ReadPage:
        return parsed, [self._link(url, depth) for url in self._wanted(parsed)]

    def _wanted(self, parsed: Parsed) -> Sequence[str]:
        # Who asks for robots to be ignored is told all links; otherwise nofollow means what it says.
        return parsed.links if self._robots is not None else (*parsed.links, *parsed.nofollow_links)

    def _link(self, url: str, depth: int) -> Link:
        where = authority(url)
        objection = self._scope.objection(url, depth, where)
        return Link(url, where, self._approved[where] if objection is None else None, depth, objection)

    def _result(
        self, job: Job, fetched: Fetched, outcome: Outcome, parsed: Parsed | None, links: Sequence[Link]
    ) -> Result:
        refused = Counter[str](link.left_out for link in links if link.left_out in BY_PATTERN)
        if parsed is None:
            parsed = _NOTHING
        references = parsed.references
        if parsed.nofollow_links and self._robots is not None:  # of these, none is followed
            followed = frozenset(parsed.links)
            references = tuple(reference for reference in references if reference.url in followed)
        refused.update({str(reason): count for reason, count in parsed.refused.items()})
        return Result(
            outcome=outcome,
            status=fetched.status,
            final_url=fetched.final_url if fetched.final_url != job.lease.url else None,
            content_type=fetched.content_type,
            bytes=fetched.body_bytes,
            title=parsed.title,
            links=len(parsed.links),
            dropped_links=parsed.truncated_links,
            hops=fetched.hops,
            error=_CUT if parsed.cut else fetched.error,
            duration_ms=_milliseconds(job, "fetch"),
            refused=refused,
            nofollow=len(parsed.nofollow_links),
            noindex=parsed.noindex,
            waited_ms=_waited_ms(fetched),
            parse_ms=_milliseconds(job, "parse"),
            content_hash=parsed.content_hash,
            canonical=parsed.canonical if parsed.canonical != fetched.final_url else "",
            references=references,
            ids=parsed.ids,
        )

    def _record(self, job: Job, settled: str) -> None:
        lease = job.lease
        self._records.page_settled(
            PageRecord(
                url=lease.url,
                authority=self._frontier.hosts[lease.host_id].authority,
                depth=lease.depth,
                attempt=lease.retries + lease.attempt,
                settled=settled,
                fetched=job.fetched,
                stages=tuple(job.stages),
                links=job.links,
                refused=job.refused,
            )
        )


def _unknown(url: str, cause: str) -> str:
    error = f"{origin(url)}/robots.txt could not be fetched, and so forbids all"
    return f"{error}: {cause}"[:200] if cause else error[:200]


_NOTHING = Parsed(links=(), truncated_links=0, refused={}, title="", charset="")
"""What a page says that was not read."""

_CUT = "the end of the page was not read: it would have taken the parser too long"


def _attempt(job: Job, fetched: Fetched) -> Attempt:
    return Attempt(fetched.outcome, fetched.status, fetched.error, _milliseconds(job, "fetch"))


def _milliseconds(job: Job, stage: str) -> int:
    return sum(each.ended_ns - each.started_ns for each in job.stages if each.name == stage) // 1_000_000


def _waited_ms(fetched: Fetched) -> int:
    return sum(exchange.waited_ns for exchange in fetched.exchanges) // 1_000_000
