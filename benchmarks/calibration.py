"""How fast the machine itself is just now: a fixed piece of work, done between the runs of a benchmark.

Others on the same machine, a hot processor or a busy disk show here first. It says nothing about a crawler.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import time
from dataclasses import dataclass
from pathlib import Path

_DIGESTS = 250_000
_FETCHES = 1000
_COMMITS = 20


@dataclass(frozen=True, slots=True)
class Calibration:
    """Milliseconds for each piece of work."""

    cpu_ms: float
    fetch_ms: float
    """One connection, one page at a time, from the same nginx."""
    fsync_ms: float
    """For one small write that is on the disk. Disks differ from one moment to the next: shown, never judged."""


def calibrate(url: str, folder: Path) -> Calibration:
    """Measure now. ``url`` is a page of the site, ``folder`` is where the crawlers write."""
    return Calibration(_cpu(), _fetch(url), _fsync(folder / "calibration"))


def _cpu() -> float:
    started = time.perf_counter()
    digest = b""
    for number in range(_DIGESTS):
        digest = hashlib.blake2b(digest + str(number).encode()).digest()
    return (time.perf_counter() - started) * 1000


def _fetch(url: str) -> float:
    _, _, authority, path = url.split("/", 3)
    connection = http.client.HTTPConnection(authority, timeout=10)
    try:
        started = time.perf_counter()
        for _ in range(_FETCHES):
            connection.request("GET", f"/{path}")
            connection.getresponse().read()
        return (time.perf_counter() - started) * 1000
    finally:
        connection.close()


def _fsync(file: Path) -> float:
    with file.open("wb") as target:
        started = time.perf_counter()
        for _ in range(_COMMITS):
            target.write(bytes(4096))
            target.flush()
            os.fsync(target.fileno())
        found = (time.perf_counter() - started) * 1000 / _COMMITS
    file.unlink()
    return found
