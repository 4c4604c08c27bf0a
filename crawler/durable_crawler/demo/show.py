"""The course of the demonstration. Called by ``durable-crawler demo``; returns whether everything that it claims is so.

The crawler is the real program in a process of its own, so that SIGKILL really kills it. Judged are the frontier's file
and the site's own log, not what the crawler says of itself.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from crawljob.manifest import parse, render
from durable_crawler.demo.site import Site
from durable_crawler.frontier.model import FrontierError, Snapshot
from durable_crawler.frontier.reader import FrontierReader
from durable_crawler.results.findings import collect

WORKERS = 8
POLL_SECONDS = 0.05
PROBLEMS_SHOWN = 12
LIMIT_SECONDS = 120.0
"""For each of the two runs; a demonstration that hangs has failed."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that the demonstration shows, with the figure that shows it."""

    sentence: str
    figure: str
    holds: bool


async def show(console: Console) -> bool:
    """Run the demonstration and print it; whether every claim holds."""
    site = Site()
    await site.start()
    try:
        with tempfile.TemporaryDirectory(prefix="durable-crawler-demo-") as folder:
            return await _show(console, site, Path(folder))
    finally:
        await site.aclose()


@dataclass(frozen=True, slots=True)
class _AtTheKill:
    """What stood where when the crawler was killed."""

    counts: Snapshot
    finished: set[str]
    asked: Counter[str]


async def _show(console: Console, site: Site, folder: Path) -> bool:
    expected = site.expected()
    job, database = folder / "crawljob.yaml", folder / "frontier.db"
    spec = {
        "seeds": [site.url],
        "fetch": {"workers": WORKERS, "perHost": WORKERS},
        "network": {"allowCIDRs": ["127.0.0.0/8"]},  # the site is on loopback, which is refused otherwise
    }
    job.write_text(render("demo", parse(spec)), encoding="utf-8")
    reader = FrontierReader(database)

    console.print(f"A site of {len(expected)} URLs is served on {site.url}, with broken links, redirects and hiccups.")
    console.print(f"[bold]durable-crawler run -f {job.name} --db {database.name}[/bold]")
    half = len(expected) // 2
    with _bar(console, "crawling", len(expected)) as bar:
        # With pages in flight, or that only they are repeated would prove nothing.
        await _crawl(folder, job, database, lambda: _done(reader, bar) >= half and reader.snapshot().leased > 0)
    kill = _AtTheKill(reader.snapshot(), reader.finished_urls(), Counter(site.requests))
    console.print(
        f"[red]SIGKILL[/red] with {kill.counts.done} pages done, {kill.counts.leased} being worked on, "
        f"{kill.counts.pending} waiting."
    )
    console.print("The same command again:")
    with _bar(console, "resuming", len(expected)) as bar:
        code = await _crawl(folder, job, database, lambda: _done(reader, bar) > len(expected))
        _done(reader, bar)

    claims = _judge(site, reader, code, kill)
    table = Table("what was promised", "what was seen", "", title="The proof, from the database and the site's own log")
    for claim in claims:
        table.add_row(claim.sentence, claim.figure, "[green]yes[/green]" if claim.holds else "[red]NO[/red]")
    console.print(table)
    outcomes = Table("outcome", "pages", title="What the crawl found")
    for outcome, count in reader.outcomes().items():
        outcomes.add_row(outcome, str(count))
    console.print(outcomes)
    console.print(_report(site, reader))
    return all(claim.holds for claim in claims)


def _report(site: Site, reader: FrontierReader) -> Table:
    """The beginning of what `durable-crawler report` tells: links with a problem, and where they stand."""
    table = Table("class", "target", "why", "linked on", title="Links with a problem (durable-crawler report)")
    with reader.results() as connection, collect(connection) as findings:
        for target, sources in islice(findings.targets(), PROBLEMS_SHOWN):
            on = ", ".join(f"/{source.url.removeprefix(site.url)}" for source in sources)
            where = f"/{target.url.removeprefix(site.url)}"
            table.add_row(target.confidence, *map(escape, (where, target.why, on)))
    return table


def _judge(site: Site, reader: FrontierReader, code: int | None, kill: _AtTheKill) -> list[Claim]:
    """Compare the frontier and the site's log with what the site is known to hold."""
    expected = site.expected()
    finished = reader.finished_urls()
    broken = reader.broken_invariants()
    outcomes = Counter(map(str, expected.values()))
    again = [url for url in kill.finished if site.asked(url) > kill.asked["/" + url.removeprefix(site.url)]]
    repeated = [url for url in expected if site.asked(url) > site.needed(url)]
    return [
        Claim("the resumed run ends by itself", f"exit code {code}", code == 0),
        Claim("the database is sound", ", ".join(broken) or "integrity ok, counters exact", not broken),
        Claim("every URL has exactly one result", f"{len(finished)} of {len(expected)}", finished == expected.keys()),
        Claim("and the right one", f"{len(outcomes)} kinds of outcome", reader.outcomes() == outcomes),
        Claim("nothing committed was lost", f"{len(kill.finished)} pages kept", kill.finished <= finished),
        Claim("nothing finished was fetched again", f"{len(again)} URLs", not again),
        Claim(
            "only what was in flight was repeated",
            f"{len(repeated)} URLs, {kill.counts.leased} in flight",
            len(repeated) <= kill.counts.leased,
        ),
    ]


async def _crawl(folder: Path, job: Path, database: Path, enough: Callable[[], bool]) -> int | None:
    """Run the crawler; SIGKILL it as soon as ``enough``. Its exit code, negative for a signal."""
    command = ["-m", "durable_crawler", "run", "-f", str(job), "--db", str(database), "--metrics", str(_free_port())]
    with (folder / "crawl.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                while process.returncode is None and not enough():  # noqa: ASYNC110 - a file has no event
                    await asyncio.sleep(POLL_SECONDS)
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
            await process.wait()
    return process.returncode


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _done(reader: FrontierReader, bar: Callable[[int], None]) -> int:
    try:
        done = reader.snapshot().done
    except FrontierError:
        return 0  # the crawler has not made its file yet
    bar(done)
    return done


@contextmanager
def _bar(console: Console, title: str, total: int) -> Iterator[Callable[[int], None]]:
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TextColumn("pages"))
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done: progress.update(task, completed=done)
