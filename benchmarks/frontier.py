"""What the frontier costs as it grows: claims, finishes, bytes, memory, opening. ``make bench-frontier`` runs it.

Frontiers of different size are measured in turns, round by round in one run, since a machine's speed changes by the
minute: read the ratios, not the milliseconds. Raw figures go to ``benchmarks/results/frontier.json``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.resume import resume_seconds
from durable_crawler.clock import SystemClock
from durable_crawler.frontier import Lease, Link, Result, SqliteFrontier
from durable_crawler.frontier.opening import Admission
from durable_crawler.outcomes import Outcome

SIZES = (10_000, 100_000, 1_000_000)
HOSTS = (1, 64, 10_000)
ROUNDS = 150
WORKERS = 16
LINKS_PER_PAGE = 1000
RESULTS = Path(__file__).parent / "results" / "frontier.json"


@dataclass(slots=True)
class Cell:
    """One size of frontier over one number of hosts; times in milliseconds."""

    pending: int
    hosts: int
    claims: list[float] = field(default_factory=list)
    finishes: list[float] = field(default_factory=list)
    bytes_per_url: float = 0
    megabytes: float = 0
    open_ms: float = 0
    reopen_rss_growth_mb: float = 0


def admission(hosts: int) -> Admission:
    """Seeds on ``hosts`` authorities."""
    return Admission(tuple((f"https://h{n}.example/", f"h{n}.example") for n in range(hosts)), 16)


async def fill(path: Path, cell: Cell) -> None:
    """Make a frontier with ``cell.pending`` pending pages, by the product's own operations."""
    frontier = await SqliteFrontier.open(path, admission(cell.hosts), max_pages=10**9, clock=SystemClock())
    try:
        hosts = list(frontier.hosts.values())
        number = 0
        while (missing := cell.pending - frontier.snapshot.pending) > 0:
            (lease,) = (await frontier.claim({hosts[number % len(hosts)].id: 1}, 1)).leases
            links = []
            for _ in range(min(LINKS_PER_PAGE, missing + 1)):
                host = hosts[number % len(hosts)]
                url = f"https://{host.authority}/docs/chapter-{number // 100}/section-{number}.html"
                links.append(Link(url, host.authority, host.id, 1))
                number += 1
            await frontier.finish(lease, Result(Outcome.OK, 200, bytes=10_000), links)
    finally:
        await frontier.close()


async def measure(folder: Path, cells: Sequence[Cell], rounds: int) -> None:
    """Open all frontiers and claim from them in turns."""
    clock = SystemClock()
    chance = random.Random(1)  # noqa: S311 - a benchmark repeats itself
    opened: list[tuple[Cell, SqliteFrontier]] = []
    for cell in cells:
        path = folder / f"{cell.pending}-{cell.hosts}.db"
        cell.megabytes = path.stat().st_size / 2**20
        cell.bytes_per_url = path.stat().st_size / cell.pending
        before, started = rss_mb(), time.perf_counter()
        frontier = await SqliteFrontier.open(path, admission(cell.hosts), max_pages=10**9, clock=clock)
        cell.open_ms = (time.perf_counter() - started) * 1000
        cell.reopen_rss_growth_mb = rss_mb() - before
        opened.append((cell, frontier))
    try:
        for _ in range(rounds):
            for cell, frontier in opened:
                await one_round(cell, frontier, chance)
    finally:
        for _, frontier in opened:
            await frontier.close()


async def one_round(cell: Cell, frontier: SqliteFrontier, chance: random.Random) -> None:
    """A claim for all workers, and a finish of what was claimed."""
    hosts = list(frontier.hosts)
    chosen = chance.sample(hosts, min(WORKERS, len(hosts)))
    wants = dict.fromkeys(chosen, WORKERS // len(chosen))
    started = time.perf_counter()
    leases = (await frontier.claim(wants, WORKERS)).leases
    cell.claims.append((time.perf_counter() - started) * 1000)
    started = time.perf_counter()
    await asyncio.gather(*(frontier.finish(lease, Result(Outcome.OK, 200), links(frontier, lease)) for lease in leases))
    cell.finishes.append((time.perf_counter() - started) * 1000)


def links(frontier: SqliteFrontier, lease: Lease) -> list[Link]:
    """Thirty links of a page: most of them are known, as on a real site."""
    host = frontier.hosts[lease.host_id]
    known = [f"https://{host.authority}/docs/chapter-0/section-{n}.html" for n in range(29)]
    return [Link(url, host.authority, host.id, 2) for url in (*known, f"{lease.url}?next")]


def rss_mb() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of all are."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def show(console: Console, cells: Sequence[Cell]) -> None:
    """Print the table; ratios are against the smallest frontier over as many hosts."""
    table = Table(
        "pending", "hosts", "claim p50 ms", "p99 ms", "p99 ratio", "finish p50 ms", "bytes/URL", "MiB", "open ms"
    )
    for cell in cells:
        smallest = next(other for other in cells if other.hosts == cell.hosts)
        ratio = quantile(cell.claims, 0.99) / quantile(smallest.claims, 0.99)
        table.add_row(
            f"{cell.pending:,}",
            f"{cell.hosts:,}",
            f"{quantile(cell.claims, 0.5):.2f}",
            f"{quantile(cell.claims, 0.99):.2f}",
            f"{ratio:.2f}",
            f"{quantile(cell.finishes, 0.5):.2f}",
            f"{cell.bytes_per_url:.0f}",
            f"{cell.megabytes:.0f}",
            f"{cell.open_ms:.0f}",
        )
    console.print(table)


def main() -> None:
    """Fill, measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--hosts", type=int, nargs="+", default=list(HOSTS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    console = Console()
    cells = [Cell(size, hosts) for hosts in arguments.hosts for size in arguments.sizes]
    with tempfile.TemporaryDirectory(prefix="bench-frontier-") as name:
        folder = Path(name)
        for cell in cells:
            # In a process of its own: what filling needs must not count as what the frontier needs.
            command = [
                sys.executable,
                "-m",
                "benchmarks.frontier_fill",
                str(folder),
                str(cell.pending),
                str(cell.hosts),
            ]
            subprocess.run(command, check=True)  # noqa: S603 - our own module
            console.print(f"filled {cell.pending:,} over {cell.hosts:,} hosts")
        asyncio.run(measure(folder, cells, arguments.rounds))
    show(console, cells)
    resumed = asyncio.run(resume_seconds())
    console.print(f"killed and started again: {quantile(resumed, 0.5):.2f} s to the first request (median)")
    growth = max(cell.reopen_rss_growth_mb for cell in cells)
    console.print(f"memory: opening the largest frontier added {growth:.0f} MiB")
    RESULTS.parent.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version, "cpus": os.cpu_count()}
    RESULTS.write_text(
        json.dumps({"machine": machine, "cells": [asdict(cell) for cell in cells], "resumed": resumed}),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
