"""A read-only look at a frontier, also while a crawl runs: for the demo, and for whoever wants to see results.

Never takes the lock and never writes. Reads are short, so that they do not hold up the writer's checkpoints.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from durable_crawler.frontier.model import FrontierError, Snapshot
from durable_crawler.frontier.opening import explain, refuse_foreign
from durable_crawler.frontier.statements import STATEMENTS


class FrontierReader:
    """Reads one frontier file. Every method raises ``FrontierError`` with one sentence."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def snapshot(self) -> Snapshot:
        """The counts of the latest commit."""
        with self._connection() as connection:
            return Snapshot(*connection.execute(STATEMENTS["snapshot"]).fetchone())

    def outcomes(self) -> dict[str, int]:
        """Finished pages by outcome, the most frequent first."""
        with self._connection() as connection:
            return dict(connection.execute(STATEMENTS["outcomes"]).fetchall())

    def refused(self) -> dict[str, int]:
        """References that were not followed, by reason."""
        with self._connection() as connection:
            return dict(connection.execute(STATEMENTS["refused"]).fetchall())

    def finished_urls(self) -> set[str]:
        """The URLs of all pages that have a result."""
        with self._connection() as connection:
            return {url for (url,) in connection.execute(STATEMENTS["finished_urls"])}

    def broken_invariants(self) -> list[str]:
        """Names of what ought to hold and does not; empty for a sound frontier."""
        with self._connection() as connection:
            (integrity,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            found = [] if integrity == "ok" else [f"integrity: {integrity}"]
            return found + [name for (name,) in connection.execute(STATEMENTS["broken_invariants"])]

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        refuse_foreign(self._path)
        if not self._path.exists():
            raise FrontierError(f"{self._path}: no such frontier")
        try:
            connection = sqlite3.connect(f"file:{quote(str(self._path))}?mode=ro", uri=True, timeout=2)
            try:
                yield connection
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise explain(self._path, error) from error
