"""The composition root of ``durable-crawler run``: builds the parts, runs the engine, says how it ended.

Called by the command line. Everything that ends a run becomes a ``RunSummary`` here: its exit code, its reason, one
sentence.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from crawljob import __version__
from crawljob.exitcodes import ExitCode
from crawljob.manifest import CrawlJobFile
from crawljob.spec import CrawlJobSpec
from crawljob.summary import Progress, RunSummary
from crawljob.units import seconds
from crawljob_telemetry.environment import attempt_from
from durable_crawler import ending, external, logs
from durable_crawler.access import Access
from durable_crawler.board import Wait
from durable_crawler.clock import SystemClock
from durable_crawler.engine import Engine
from durable_crawler.external import MakeEngine
from durable_crawler.fetch import Fetcher
from durable_crawler.frontier import FrontierError, SqliteFrontier
from durable_crawler.frontier.opening import LONGEST_WAIT_MS, Admission
from durable_crawler.listener import Listener, ListenerError
from durable_crawler.memory import fewer_collections, one_heap
from durable_crawler.outcomes import Fetched, PageRecord
from durable_crawler.page.door import Door
from durable_crawler.robots import product_token
from durable_crawler.robots_gate import RobotsGate
from durable_crawler.stop import Stop
from durable_crawler.telemetry import Stats, Telemetry
from durable_crawler.urls import Refusal, authority, canonical

TERMINATION_LOG = Path("/dev/termination-log")
"""Where the kubelet looks for a container's last word."""

_log = logging.getLogger(__name__)


def execute(
    job: CrawlJobFile, db: Path, access: Access, *, log_format: str = "auto", log_level: str = "info"
) -> RunSummary:
    """Crawl in an event loop of its own and return the summary, which has been logged and written by then."""
    one_heap()
    fewer_collections()
    os.umask(0o077)  # the frontier holds what a private site says
    terminal = log_format == "auto" and sys.stderr.isatty()
    logs.configure("warning" if terminal else log_level, "text" if terminal or log_format == "text" else "json")
    summary = _run_loop(_crawl(job, db, access, show_bar=terminal))
    _log.info(summary.message, extra={"summary": summary.model_dump(mode="json", by_alias=True, exclude_none=True)})
    if terminal:
        sys.stdout.write(f"{summary.message}\n")
    if TERMINATION_LOG.exists():
        TERMINATION_LOG.write_text(summary.to_json(), encoding="utf-8")
    return summary


def _run_loop(main: Coroutine[Any, Any, RunSummary]) -> RunSummary:
    try:
        import uvloop  # noqa: PLC0415 - where there is none, asyncio's own loop does
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


async def _crawl(job: CrawlJobFile, db: Path, access: Access, *, show_bar: bool) -> RunSummary:
    """Open the frontier, crawl, close it; every way to end becomes a summary."""
    clock = SystemClock()
    stop = Stop()
    stop.install(asyncio.get_running_loop())
    try:
        frontier = await SqliteFrontier.open(db, _admission(job.spec), max_pages=job.spec.scope.max_pages, clock=clock)
    except FrontierError as error:
        return _failed(error.exit_code, _REASONS[error.exit_code], str(error), None)
    try:
        try:
            return await _crawl_with(job, access, frontier, stop, clock, show_bar=show_bar)
        finally:
            await frontier.close()
    except ListenerError as error:
        return _failed(ExitCode.INFRASTRUCTURE, "ListenerFailed", str(error), frontier.snapshot.progress())
    except FrontierError as error:
        return _failed(error.exit_code, _REASONS[error.exit_code], str(error), frontier.snapshot.progress())
    except Exception as error:  # noqa: BLE001 - see _bug
        return _bug(error, frontier)


async def _crawl_with(
    job: CrawlJobFile, access: Access, frontier: SqliteFrontier, stop: Stop, clock: SystemClock, *, show_bar: bool
) -> RunSummary:
    """Compose everything else around an open frontier. Raises ``ListenerError``."""
    spec = job.spec
    stats = Stats(
        lambda: frontier.snapshot.progress(),  # noqa: PLW0108 - a snapshot is replaced, not changed
        clock,
        attempt=attempt_from(os.environ),
        page_limit=spec.scope.max_pages,
        database=frontier.path,
    )
    stats.leases(recovered=frontier.recovered)
    frontier.on_flush = stats.flush
    frontier.waits = stats.host_waits.seconds
    telemetry = Telemetry(spec.telemetry, stats, clock, os.environ, credentials=access.telemetry)
    logs.add_context(trace_id=telemetry.trace_id, span_id=telemetry.span_id)
    async with AsyncExitStack() as stack:
        listener = Listener(spec.listen.address, spec.listen.port, stats, ready=lambda: not stop.requested.is_set())
        await listener.start()
        stack.push_async_callback(listener.aclose)
        door = Door(frontier.path, spec)
        stack.push_async_callback(door.aclose)
        door.open(listener.port + 1)
        fetcher = Fetcher(spec.fetch, clock, allowed=spec.network.ranges, access=access)
        stack.push_async_callback(fetcher.aclose)
        if show_bar:
            # Only now: what draws it takes a tenth of the time in which a crawl starts.
            from durable_crawler.progress import show_progress  # noqa: PLC0415

            await stack.enter_async_context(show_progress(stats))
        counts = frontier.snapshot
        _log.info(
            "crawl %s begins: %d done, %d to do, %d taken back from an earlier run, %d tried again",
            job.name,
            counts.done,
            counts.pending + counts.deferred,
            frontier.recovered,
            frontier.again,
            extra={"crawljob": job.name, "epoch": frontier.epoch},
        )
        observer = _Observer(stats, telemetry)
        token = product_token(spec.fetch.user_agent)
        obey = spec.politeness.robots == "obey"
        make_engine = partial(
            Engine,
            frontier=frontier,
            robots=RobotsGate(partial(_fetch_robots, fetcher, stats), frontier, token, clock) if obey else None,
            observer=observer,
            clock=clock,
            random=random.SystemRandom().random,
        )
        telemetry.start()
        crawling = partial(make_engine, fetcher=fetcher)
        verifying = partial(make_engine, fetcher=external.Checker(fetcher), verifying=True)
        summary = await _summarised(crawling, verifying, frontier, stop, spec)
        await telemetry.aclose(summary=summary)
        return summary


async def _fetch_robots(fetcher: Fetcher, stats: Stats, url: str) -> Fetched:
    """Fetch a robots.txt, and count its requests: it is no page, and has no record."""
    fetched = await fetcher.fetch_robots(url)
    stats.requested(fetched.exchanges)
    return fetched


async def _summarised(
    crawling: MakeEngine, verifying: MakeEngine, frontier: SqliteFrontier, stop: Stop, spec: CrawlJobSpec
) -> RunSummary:
    """Crawl, verify what leads elsewhere if that is wanted, close the frontier, say how it ended."""
    try:
        finished = await crawling(spec).run(stop)
        if finished and spec.audit.external_links == "check":
            finished = await external.verify(spec, frontier, verifying, stop)
        reason, message = await ending.explain(frontier, spec) if finished else ending.interrupted(stop)
        await frontier.close()
    except FrontierError as error:
        return _failed(error.exit_code, _REASONS[error.exit_code], str(error), frontier.snapshot.progress())
    except Exception as error:  # noqa: BLE001 - see _bug
        return _bug(error, frontier)
    return RunSummary(
        outcome="finished" if finished else "interrupted",
        reason=reason,
        message=message,
        exit_code=ExitCode.FINISHED if finished else stop.exit_code,
        progress=frontier.snapshot.progress(),
        version=__version__,
    )


@dataclass(frozen=True, slots=True)
class _Observer:
    """Joins what the engine says to the numbers and the traces."""

    stats: Stats
    telemetry: Telemetry

    def page_settled(self, record: PageRecord) -> None:
        self.telemetry.page_settled(record)

    def leases(self, *, expired: int = 0, lost: int = 0, recovered: int = 0) -> None:
        self.stats.leases(expired=expired, lost=lost, recovered=recovered)

    def working(self, pages: int) -> None:
        self.stats.in_flight = pages

    def waiting(self, hosts: Mapping[int, tuple[Wait, float] | None]) -> None:
        self.stats.host_waits.look(hosts)


def _admission(spec: CrawlJobSpec) -> Admission:
    urls = [canonical(seed) for seed in spec.seeds]
    seeds = [(url, authority(url)) for url in urls if not isinstance(url, Refusal)]
    assert len(seeds) == len(urls), "the contract admits no seed that has no canonical form"
    longest_wait_ms = max(LONGEST_WAIT_MS, round(seconds(spec.politeness.max_retry_after) * 1000))
    return Admission(
        tuple(seeds),
        spec.scope.max_depth,
        longest_wait_ms,
        include=spec.scope.include,
        exclude=spec.scope.exclude,
        restart_request=spec.restart_requested_at,
    )


_REASONS = {
    ExitCode.INFRASTRUCTURE: "DatabaseFailed",
    ExitCode.OUT_OF_DISK: "OutOfDisk",
    ExitCode.OWNED: "FrontierOwned",
    ExitCode.UNUSABLE_FRONTIER: "FrontierUnusable",
}


def _bug(error: Exception, frontier: SqliteFrontier) -> RunSummary:
    """The last line of defence: a bug ends in the one way that the operator understands, with its traceback for us."""
    _log.exception("the crawler failed", exc_info=error)
    text = f"the crawler failed ({type(error).__name__}: {error}); this is a bug, please report it with the log"
    return _failed(ExitCode.INFRASTRUCTURE, "Error", text, frontier.snapshot.progress())


def _failed(code: ExitCode, reason: str, message: str, progress: Progress | None) -> RunSummary:
    return RunSummary(
        outcome="failed", reason=reason, message=message, exit_code=code, progress=progress, version=__version__
    )
