"""Fills one frontier for ``benchmarks.frontier``, in a process of its own."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from benchmarks.frontier import Cell, fill

if __name__ == "__main__":
    folder, pending, hosts = sys.argv[1:]
    asyncio.run(fill(Path(folder) / f"{pending}-{hosts}.db", Cell(int(pending), int(hosts))))
