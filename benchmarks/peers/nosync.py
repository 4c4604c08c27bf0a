"""This crawler without the sync at each commit, only to measure what that sync costs: ``nosync.py run -f ...``.

A crash of the machine may lose what it has committed, so there is no option for it.
"""

from __future__ import annotations

import sqlite3
import sys
from functools import partial
from typing import Any

from durable_crawler.__main__ import main

_FULL, _OFF = "PRAGMA synchronous = FULL", "PRAGMA synchronous = OFF"
_taken: list[str] = []


class Unsynced(sqlite3.Connection):
    """Where the crawler asks for a sync at each commit, it gets none."""

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        """As ever, but for that one statement."""
        if sql == _FULL:
            _taken.append(sql)
            sql = _OFF
        return super().execute(sql, *parameters)


if __name__ == "__main__":
    sqlite3.connect = partial(sqlite3.connect, factory=Unsynced)  # type: ignore[assignment]
    try:
        main()
    finally:
        if not _taken:
            sys.exit("the crawler did not ask for synchronous = FULL, so this measured nothing else than the crawler")
