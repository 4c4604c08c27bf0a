"""What a large frontier costs, with a tenth of the million of pages for which ``make bench-frontier`` measures it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from benchmarks.frontier import Cell, fill, measure, quantile

PENDING = 110_000
SMALL = 10_000
ROUNDS = 100

FILLER = """
import asyncio, json, pathlib, sys
from benchmarks.frontier import Cell, fill, rss_mb

folder, small, large = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
asyncio.run(fill(folder / f"{small}-1.db", Cell(small, 1)))
before = rss_mb()
asyncio.run(fill(folder / f"{large}-1.db", Cell(large, 1)))
print(json.dumps(rss_mb() - before))
"""


@dataclass(frozen=True)
class Filled:
    """Two frontiers over one host, of ``SMALL`` and of ``PENDING`` pages."""

    folder: Path
    growth_mb: float
    """Resident memory that the process gained as it filled the large one."""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    folder = tmp_path_factory.mktemp("frontiers")
    command = [sys.executable, "-c", FILLER, str(folder), str(SMALL), str(PENDING)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    return Filled(folder, json.loads(done.stdout))


def test_scenario_06_memory_does_not_grow_with_the_frontier(filled: Filled) -> None:
    """150 MB for a million pages would be 16 for these; a set of what was seen would take more than that."""
    assert filled.growth_mb < 150 * PENDING / 1_000_000


async def test_scenario_07_a_hundred_thousand_pages_are_one_small_database(tmp_path: Path) -> None:
    """While it is open: its WAL and its lock count, too."""
    path = tmp_path / "frontier.db"
    filling = asyncio.create_task(fill(path, Cell(PENDING, 1)))
    most_files, most_bytes = 0, 0
    while not filling.done():
        await asyncio.wait({filling}, timeout=0.05)
        sizes = [file.stat().st_size for file in tmp_path.iterdir()]
        most_files, most_bytes = max(most_files, len(sizes)), max(most_bytes, sum(sizes))
    await filling
    assert path.stat().st_size > PENDING * 50, "they are all in it"
    assert most_files <= 4
    assert most_bytes < 150_000_000


async def test_scenario_17_a_claim_costs_the_same_however_many_pages_wait(filled: Filled) -> None:
    """By the median: the 99th percentile, which the benchmark takes, is also that of a machine's other work."""
    cells = [Cell(SMALL, 1), Cell(PENDING, 1)]
    await measure(filled.folder, cells, ROUNDS)
    small, large = (quantile(cell.claims, 0.5) for cell in cells)
    assert large <= 2 * small
