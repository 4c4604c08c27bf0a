"""The rows that every process has: its memory and its processor time, by the names of the semantic conventions."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from crawljob_telemetry.metrics import Metric, Series

_STATM = Path("/proc/self/statm")


def _resident(_: Any) -> Series:
    try:
        pages = int(_STATM.read_bytes().split()[1])
    except (OSError, IndexError, ValueError):
        return {}  # no Linux: then nobody says what it is now without another library
    return {(): pages * os.sysconf("SC_PAGE_SIZE")}


PROCESS: tuple[Metric[Any], ...] = (
    Metric("process.memory.usage", "gauge", "By", "Memory of this process that is resident.", _resident),
    Metric(
        "process.cpu.time",
        "counter",
        "s",
        "Processor time of this process, its own and the system's for it.",
        lambda _: {(): time.process_time()},
    ),
)
