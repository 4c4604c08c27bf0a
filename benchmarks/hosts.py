"""What it costs to decide whose turn it is, with a hundred hosts and with ten thousand. ``make bench-hosts``.

The real engine, frontier, parser and robots.txt rules over hosts that answer at once, without a network: one page at a
time of each, and a delay. The delay grows with the number of hosts, so that as many pages fall due in a second, flushes
are as large and the sizes can be compared; every page of the measured part finds its host's gate closed before. Sizes
take turns, round by round: read the ratios. Raw figures go to ``benchmarks/results/hosts.json``.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

from crawljob.manifest import parse
from crawljob.spec import CrawlJobSpec
from durable_crawler.board import Wait
from durable_crawler.clock import SystemClock
from durable_crawler.engine import Engine
from durable_crawler.frontier import SqliteFrontier
from durable_crawler.frontier.opening import Admission
from durable_crawler.outcomes import Fetched, Outcome, PageRecord
from durable_crawler.robots_gate import RobotsGate
from durable_crawler.stop import Stop
from durable_crawler.urls import authority
from durable_crawler.work import MayFollow, TakeTurn

SIZES = (100, 1000, 10_000)
PAGES = 6000
ROUNDS = 3
DUE_PER_SECOND = 400
FLAT = 1.3
"""What a page may cost at most with the most hosts, against the fewest."""
RESULTS = Path(__file__).parent / "results" / "hosts.json"
_ROBOTS = b"User-agent: *\nDisallow: /private/\n"


@dataclass(frozen=True, slots=True)
class Run:
    """CPU milliseconds for each page: of the whole process, and of the event loop's thread, which decides."""

    hosts: int
    process: float
    loop: float
    pages_per_second: float


class Web:
    """Every page leads to two further ones of its host. Implements what the engine needs of a fetcher."""

    async def fetch(self, url: str, may_follow: MayFollow, take_turn: TakeTurn) -> Fetched:
        """The page, at once."""
        if (turn := take_turn()) is not None:
            await turn
        number = int(url.rpartition("/")[2] or 0)
        body = "".join(f'<a href="/{2 * number + step}">on</a>' for step in (1, 2)).encode()
        return Fetched(url, url, Outcome.OK, 200, "text/html", body, len(body))

    async def robots(self, url: str) -> Fetched:
        """A robots.txt."""
        return Fetched(url, url, Outcome.OK, 200, "text/plain", _ROBOTS, len(_ROBOTS))


class Meter:
    """Measures from the first page after those that ask for each host's robots.txt. Implements ``Observer``."""

    def __init__(self, hosts: int, pages: int, stop: Stop) -> None:
        self._first = hosts
        self._last = hosts + pages
        self._stop = stop
        self._settled = 0
        self._began = (0.0, 0.0, 0.0)
        self.run: Run | None = None
        self._hosts = hosts

    def page_settled(self, record: PageRecord) -> None:
        """Count it."""
        self._settled += record.settled == "done"
        if self._settled == self._first:
            self._began = _times()
        if self._settled == self._last and self.run is None:
            process, loop, wall = (now - then for now, then in zip(_times(), self._began, strict=True))
            pages = self._last - self._first
            self.run = Run(self._hosts, process / pages * 1000, loop / pages * 1000, pages / wall)
            self._stop.request(signal.SIGTERM)

    def leases(self, *, expired: int = 0, lost: int = 0, recovered: int = 0) -> None:
        """Nothing."""

    def working(self, pages: int) -> None:
        """Nothing."""

    def waiting(self, hosts: Mapping[int, tuple[Wait, float] | None]) -> None:
        """Nothing."""


def _times() -> tuple[float, float, float]:
    return time.process_time(), time.thread_time(), time.perf_counter()


def crawl_spec(hosts: int, delay: str) -> CrawlJobSpec:
    """A crawl of so many hosts, more than one CrawlJob may name."""
    seeds = tuple(f"https://h{number}.example/" for number in range(hosts))
    scope, fetch = {"maxDepth": 1000, "maxPages": 10_000_000}, {"workers": 16, "perHost": 1}
    spec = parse({"seeds": seeds[:1], "scope": scope, "fetch": fetch, "politeness": {"delay": delay}})
    return spec.model_copy(update={"seeds": seeds})


async def measure(hosts: int, pages: int, folder: Path) -> Run:
    """One crawl of ``hosts`` hosts."""
    spec = crawl_spec(hosts, f"{hosts * 1000 // DUE_PER_SECOND}ms")
    clock, stop, web = SystemClock(), Stop(), Web()
    admission = Admission(tuple((seed, authority(seed)) for seed in spec.seeds), spec.scope.max_depth)
    frontier = await SqliteFrontier.open(folder / "frontier.db", admission, max_pages=spec.scope.max_pages, clock=clock)
    meter = Meter(hosts, pages, stop)
    try:
        engine = Engine(
            spec,
            frontier,
            fetcher=web,
            robots=RobotsGate(web.robots, frontier, "durable-crawler", clock),
            observer=meter,
            clock=clock,
            random=random.random,
        )
        await engine.run(stop)
    finally:
        await frontier.close()
    assert meter.run is not None
    return meter.run


def main() -> int:
    """Measure; 1 when a page costs more with more hosts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--pages", type=int, default=PAGES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    runs = []
    for number in range(options.rounds):
        for hosts in options.sizes:
            with tempfile.TemporaryDirectory(prefix="bench-hosts-") as name:
                run = uvloop.run(measure(hosts, options.pages, Path(name)))
            runs.append(run)
            print(f"round {number + 1}, {hosts:,} hosts: {run.process:.2f} ms CPU a page", file=sys.stderr)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([asdict(run) for run in runs], indent=1) + "\n")
    table = Table("hosts", "CPU ms a page", "of it loop", "of the fewest hosts'", "pages/s")
    costs = {}
    for hosts in options.sizes:
        mine = [run for run in runs if run.hosts == hosts]
        costs[hosts] = statistics.median(run.process for run in mine)
        table.add_row(
            f"{hosts:,}",
            f"{costs[hosts]:.2f}",
            f"{statistics.median(run.loop for run in mine):.2f}",
            f"{costs[hosts] / costs[options.sizes[0]]:.2f}",
            f"{statistics.median(run.pages_per_second for run in mine):.0f}",
        )
    Console(width=100).print(table)
    return 0 if costs[options.sizes[-1]] <= FLAT * costs[options.sizes[0]] else 1


if __name__ == "__main__":
    sys.exit(main())
