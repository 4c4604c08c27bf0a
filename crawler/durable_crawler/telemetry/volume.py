"""How large the frontier is, and how much room its volume has.

Read when somebody asks for metrics, in a thread beside the event loop: a file system may hang.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Volume:
    """Bytes."""

    database: int
    """The database and its WAL."""
    size: int
    """The file system."""
    free: int
    """What of it a process without privileges may still fill."""


def measure(database: Path) -> Volume | None:
    """As it is now; ``None`` where the file cannot be looked at, which the frontier itself reports."""
    try:
        size = database.stat().st_size
        with suppress(FileNotFoundError):  # between a close and the next write
            size += database.with_name(f"{database.name}-wal").stat().st_size
        room = os.statvfs(database.parent)
    except OSError:
        return None
    return Volume(size, room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize)
