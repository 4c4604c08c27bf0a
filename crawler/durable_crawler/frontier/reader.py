"""A read-only look at a frontier, also while a crawl runs: for ``status``, the demo, and whoever wants to see results.

Never takes the lock, and never writes into the file. SQLite makes two beside it, ``-wal`` and ``-shm``, and only a
writer takes them away. Reads are short, so that they do not hold up the writer's checkpoints.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from durable_crawler.frontier.model import FrontierBrokenError, FrontierError, FrontierUnusableError, Snapshot
from durable_crawler.frontier.opening import damaged, explain, printable, refuse_foreign, refuse_newer
from durable_crawler.frontier.overview import (
    HOSTS,
    QUARANTINED,
    Overview,
    Phase,
    QuarantinedPage,
    RobotsState,
    WaitingHost,
)
from durable_crawler.frontier.sets import as_json
from durable_crawler.frontier.statements import SCHEMA_VERSION, STATEMENTS

_NOT_WRITABLE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
"""What SQLite says where it cannot make the files that it needs beside a database to read it."""

_IMPOSSIBLE = (ValueError, TypeError, LookupError, ArithmeticError, AssertionError)
"""What is raised by who reads rows that cannot be: values of another kind or too large, rows that lack."""


class FrontierReader:
    """Reads one frontier file. Every method raises ``FrontierError`` with one sentence."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def snapshot(self) -> Snapshot:
        """The counts of the latest commit."""
        with self._connection() as connection:
            return Snapshot(*connection.execute(STATEMENTS["snapshot"]).fetchone())

    def standing(self, now_ms: int) -> tuple[Phase, Snapshot]:
        """The phase and the counts, from one snapshot: what may be asked for every other second."""
        with self._connection() as connection:
            connection.execute("BEGIN")
            return _standing(connection, now_ms)

    def outcomes(self) -> dict[str, int]:
        """Finished pages by outcome, the most frequent first."""
        with self._connection() as connection:
            return _tallies(connection, "outcome")

    def refused(self) -> dict[str, int]:
        """References that were not followed, by reason."""
        with self._connection() as connection:
            return _tallies(connection, "refused")

    def overview(self, now_ms: int) -> Overview:
        """The crawl as a whole, from one snapshot. ``now_ms`` tells leases that are held from those that ran out.

        Everything but the table of hosts is a look-up, however large the frontier is.
        """
        with self._connection() as connection:
            connection.execute("BEGIN")
            phase, counts = _standing(connection, now_ms)
            hosts = connection.execute(STATEMENTS["waiting_hosts"], {"limit": HOSTS}).fetchall()
            return Overview(
                phase=phase,
                counts=counts,
                outcomes=_tallies(connection, "outcome"),
                left_out=_tallies(connection, "left_out"),
                refused=_tallies(connection, "refused"),
                asks=_tallies(connection, "asks"),
                spent_ms=_tallies(connection, "spent"),
                hosts=_hosts(connection, hosts),
                waiting_hosts=hosts[0][-1] if hosts else 0,
                quarantined=[
                    QuarantinedPage(*row)
                    for row in connection.execute(STATEMENTS["quarantined"], {"limit": QUARANTINED})
                ],
            )

    def finished_lately(self, limit: int) -> list[tuple[str, int, int, int, int]]:
        """Authority, ``finished_ms``, ``duration_ms``, ``waited_ms`` and ``parse_ms`` of the pages that were finished
        last; a look-up, however large the frontier is.
        """
        with self._connection() as connection:
            return connection.execute(STATEMENTS["finished_lately"], {"limit": limit}).fetchall()

    def failed_lately(self, limit: int) -> list[tuple[str, str, int | None, str, int]]:
        """URL, outcome, status, error and ``finished_ms`` of the pages that failed last, the latest first."""
        with self._connection() as connection:
            return connection.execute(STATEMENTS["failed_lately"], {"limit": limit}).fetchall()

    def robots_bodies(self, authorities: Sequence[str]) -> dict[str, list[bytes]]:
        """The robots.txt that are known of each host, of http and https."""
        origins = {f"{scheme}://{host}": host for host in authorities for scheme in ("http", "https")}
        found: dict[str, list[bytes]] = {}
        with self._connection() as connection:
            for origin, body in connection.execute(STATEMENTS["robots_bodies"], {"origins": as_json(list(origins))}):
                found.setdefault(origins[origin], []).append(body)
        return found

    def finished_urls(self) -> set[str]:
        """The URLs of all pages that have a result."""
        with self._connection() as connection:
            return {url for (url,) in connection.execute(STATEMENTS["finished_urls"])}

    @contextmanager
    def results(self) -> Iterator[sqlite3.Connection]:
        """A connection in one snapshot, for ``durable_crawler.results``; as long as it is open, the WAL grows."""
        with self._connection() as connection:
            connection.execute("BEGIN")
            yield connection

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
            connection = self._opened()
            try:
                self._check_version(connection)
                yield connection
            except _IMPOSSIBLE as error:
                what = printable(f"{type(error).__name__}: {error}")
                raise damaged(self._path, f"it holds what no crawler writes: {what}") from error
            finally:
                connection.close()
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
                # Who only reads can fill nothing but the temporary file in which a report is sorted.
                raise FrontierError("the folder for temporary files is full; name another one in TMPDIR") from error
            raise explain(self._path, error) from error

    def _opened(self) -> sqlite3.Connection:
        """A connection that can read, also in a folder where one may not write."""
        try:
            return self._connected("mode=ro")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in _NOT_WRITABLE:
                raise
            path = self._path.resolve()
            if path.with_name(f"{path.name}-wal").exists():
                raise FrontierBrokenError(
                    f"{self._path}: cannot be read without writing beside it ({error}), as it was not closed in order; "
                    f"copy it together with {path.name}-wal into a folder of your own, and read the copy"
                ) from None
        # Whoever writes has a WAL: what is in the file is all there is, and stays as it is for as long as this takes.
        return self._connected("mode=ro&immutable=1")

    def _connected(self, how: str) -> sqlite3.Connection:
        connection = sqlite3.connect(f"file:{quote(str(self._path))}?{how}", uri=True, timeout=2, isolation_level=None)
        try:
            connection.execute("PRAGMA schema_version").fetchone()  # the first that reads the file
        except BaseException:  # whatever it was, an open connection would outlive it
            connection.close()
            raise
        return connection

    def _check_version(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        refuse_newer(self._path, version)
        if version == 0:  # somebody's `touch`
            raise FrontierUnusableError(f"{self._path}: is empty; no crawl has begun with it")
        if version < SCHEMA_VERSION:
            raise FrontierUnusableError(
                f"{self._path}: has schema version {version}, this program reads {SCHEMA_VERSION}; "
                "`durable-crawler run` brings it up to date"
            )


def _tallies(connection: sqlite3.Connection, kind: str) -> dict[str, int]:
    """Sums by name, the largest first."""
    return dict(connection.execute(STATEMENTS["tallies"], {"kind": kind}).fetchall())


def _standing(connection: sqlite3.Connection, now_ms: int) -> tuple[Phase, Snapshot]:
    counts = Snapshot(*connection.execute(STATEMENTS["snapshot"]).fetchone())
    clean, leased_until_ms = connection.execute(STATEMENTS["liveness"]).fetchone()
    return _phase(counts, closed=bool(clean), held=(leased_until_ms or 0) > now_ms), counts


def _phase(counts: Snapshot, *, closed: bool, held: bool) -> Phase:
    if counts.pending == counts.leased == counts.deferred == 0:
        return Phase.FINISHED
    if closed:
        return Phase.STOPPED
    return Phase.RUNNING if held else Phase.UNCLOSED


def _hosts(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> list[WaitingHost]:
    """The rows of ``waiting_hosts``, each with its robots.txt: http and https of a host are two origins."""
    origins = {f"{scheme}://{row[0]}": row[0] for row in rows for scheme in ("http", "https")}
    robots: dict[str, list[RobotsState]] = {row[0]: [] for row in rows}
    for origin, *state in connection.execute(STATEMENTS["robots_states"], {"origins": as_json(list(origins))}):
        robots[origins[origin]].append(RobotsState(origin, *state))
    return [WaitingHost(row[0], robots[row[0]], *row[1:-1]) for row in rows]
