"""Everything that happens to a frontier's file before the first claim: whose it is, what it is, and what a crash left.

Called by ``sqlite`` in a thread of its own, with plain ``sqlite3``: it runs once, in order, and each step that fails
ends in one sentence. A file that is not ours is recognised by its header, before anything is written beside it.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import os
import resource
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from durable_crawler.frontier.model import (
    QUARANTINE_AFTER,
    FrontierBrokenError,
    FrontierError,
    FrontierFullError,
    FrontierOwnedError,
    FrontierUnusableError,
    Host,
)
from durable_crawler.frontier.sets import as_json
from durable_crawler.frontier.statements import MIGRATIONS, SCHEMA_VERSION, STATEMENTS
from durable_crawler.politeness import OPEN_MAX, Pace
from durable_crawler.scope import Scope
from durable_crawler.urls import url_hash

APPLICATION_ID = 0x44435246  # "DCRF", in the header of the file (SQLite file format, offset 68)

CANONICALISATION = 1
"""Version of the rules of ``urls.canonical``; URLs of another version would not be recognised as the same."""

LONGEST_WAIT_MS = round(OPEN_MAX * 1000)
"""No circuit is open for longer; a Retry-After may be, where the spec allows it."""

WAL_KEPT_BYTES = 4 * 1024 * 1024
"""What is kept of the WAL's file when it begins anew. Less than makes a checkpoint due: its size says what is in it."""

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ROOM_BYTES = 64 * 1024  # with less on its volume SQLite may fail as if the disk were broken: its index has 32 KiB
_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class Opened:
    """What the opening found: our epoch, the approved hosts, those with pending pages, and what was recovered."""

    epoch: int
    hosts: tuple[Host, ...]
    stocked: frozenset[int]
    recovered: int
    again: int
    """Pages that failed or were quarantined and are tried again, because a restart was requested."""
    inode: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Admission:
    """What the spec admits: seeds with their authorities, the depth up to which pages belong to the crawl, patterns."""

    seeds: tuple[tuple[str, str], ...]
    max_depth: int
    longest_wait_ms: int = LONGEST_WAIT_MS
    """Times that are further ahead were stored under a clock that was ahead."""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    restart_request: str | None = None
    """Another one than the last makes failed and quarantined pages pending again."""

    @property
    def authorities(self) -> list[str]:
        """The approved authorities, each once."""
        return list(dict.fromkeys(authority for _, authority in self.seeds))

    @property
    def digest(self) -> str:
        """Changes exactly when other pages may belong to the crawl; its form, with the version that stores reasons."""
        seeds = sorted(url for url, _ in self.seeds) if self.include else ()
        what = [sorted(self.authorities), self.max_depth, sorted(self.include), sorted(self.exclude), seeds]
        return hashlib.sha256(as_json(what).encode()).hexdigest()

    @property
    def scope(self) -> Scope:
        """What is asked page by page."""
        return Scope((url for url, _ in self.seeds), self.max_depth, self.include, self.exclude)


class Lock:
    """The frontier is ours for this process's life (law L14), by whatever name others call its file."""

    def __init__(self, *descriptors: int) -> None:
        self._descriptors = descriptors

    def release(self) -> None:
        """Let go; only once the database is closed, because closing a file drops SQLite's own locks on it."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = ()


def lock(path: Path, now_ms: int) -> tuple[Path, Lock]:
    """Take the frontier, and make its file where there is none; with the path that links lead to.

    ``<path>.lock`` is locked, and the file itself, which may have other names (hard links). Raises
    ``FrontierUnusableError`` for a file that is not a frontier, before anything is made beside it.
    """
    path = path.resolve()  # a link names the frontier, it is not replaced by one
    refuse_foreign(path)
    try:
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700, parents=True)
        by_name = _locked(path, f"{path}.lock", os.O_RDWR | os.O_CREAT)
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise explain(path, error) from None
        raise FrontierBrokenError(f"{path}: cannot be opened for writing ({error.strerror})") from None
    try:
        with _one_sentence(path):
            _create_if_absent(path, now_ms)
            return path, Lock(by_name, _locked(path, str(path), os.O_RDONLY))
    except BaseException:  # whatever it was, cancellation too: the lock must not outlive the failure
        os.close(by_name)
        raise


def _locked(path: Path, name: str, flags: int) -> int:
    descriptor = os.open(name, flags | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise FrontierOwnedError(f"{path}: another process is crawling with this frontier") from None
    return descriptor


def prepare(path: Path, admission: Admission, now_ms: int) -> Opened:
    """Check the file, begin a new epoch, take back what older ones leased, admit the spec."""
    with _one_sentence(path):
        refuse_newer(path, _version_in_header(path))
        connection = connect(path)
        try:
            _migrate(connection, path)
            _check(connection, path)
            return _admit(connection, path, admission, now_ms)
        finally:
            connection.close()


def connect(path: Path) -> sqlite3.Connection:
    """A writer's connection: explicit transactions, WAL, every commit on disk before it is acknowledged (law L13)."""
    connection = sqlite3.connect(path, timeout=1.5, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    # Checkpoints are the flusher's business: one inside a commit would count against that commit's deadline.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}")
    return connection


def explain(path: Path, error: sqlite3.Error | OSError) -> FrontierError:
    """The one sentence for a failure of the database or its file."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else printable(str(error))
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    lacking = code == sqlite3.SQLITE_ERROR and text.startswith("no such")  # a table or column that the schema has
    # The last is said by Python's module, of text that is none.
    if lacking or code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or text.startswith("Could not decode"):
        return damaged(path, text)
    full = code == sqlite3.SQLITE_FULL or (isinstance(error, OSError) and error.errno in _NO_SPACE)
    if full or (code == sqlite3.SQLITE_IOERR and _no_room(path)):
        return FrontierFullError(f"{path}: the volume is full; enlarge it and run again, nothing committed is lost")
    return FrontierBrokenError(f"{path}: the database failed ({text})")


def printable(text: str) -> str:
    """Words about a damaged file, which may hold any of its bytes, as one line of at most 200 characters."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)[:200]


def _no_room(path: Path) -> bool:
    """Whether the file cannot grow: its volume is full, or it is as large as a file of this process may be."""
    try:
        volume = os.statvfs(path.parent)
        largest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        sizes = [file.stat().st_size for file in path.parent.glob(f"{glob.escape(path.name)}*")]
    except OSError:
        return False
    limited = largest != resource.RLIM_INFINITY and max(sizes, default=0) + _ROOM_BYTES > largest
    return limited or volume.f_bavail * volume.f_frsize < _ROOM_BYTES


def refuse_foreign(path: Path) -> None:
    """Raise ``FrontierUnusableError`` for a file whose header says that it is something else; touches nothing."""
    try:
        # Looked at before it is opened: a pipe would wait for its other end, and a device is nobody's frontier.
        if not stat.S_ISREG(path.stat().st_mode):
            raise FrontierUnusableError(f"{path}: is not a file; name another one with --db")
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        return
    except OSError as error:
        raise FrontierBrokenError(f"{path}: cannot be opened ({error.strerror})") from None
    if not header:
        return  # somebody's `touch`: nothing to lose
    ours = header[:16] == _MAGIC and int.from_bytes(header[68:72]) == APPLICATION_ID
    if not ours:
        raise FrontierUnusableError(f"{path}: is not a frontier of durable-crawler; name another file with --db")


def damaged(path: Path, what: str) -> FrontierUnusableError:
    """The one sentence for a file that cannot be trusted."""
    what = " ".join(what.split())  # SQLite's verdicts have several lines, an error of ours has one
    return FrontierUnusableError(f"{path}: the frontier is damaged ({what}); restore it from a copy or begin anew")


def _version_in_header(path: Path) -> int:
    with path.open("rb") as file:
        return int.from_bytes(file.read(_HEADER_BYTES)[60:64])


def refuse_newer(path: Path, version: int) -> None:
    """Raise ``FrontierUnusableError`` for a schema that a later program made."""
    if version > SCHEMA_VERSION:
        raise FrontierUnusableError(
            f"{path}: has schema version {version}, this program reads up to {SCHEMA_VERSION}; use a newer program"
        )


def _create_if_absent(path: Path, now_ms: int) -> None:
    if not path.exists() or path.stat().st_size == 0:
        _create(path, now_ms)


def _create(path: Path, now_ms: int) -> None:
    """Make the file aside and rename it, so that a crash leaves none or a whole one."""
    draft = path.with_name(f"{path.name}.creating")
    for leftover in (draft, draft.with_name(f"{draft.name}-journal")):
        leftover.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(draft, isolation_level=None)
    try:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        _migrate(connection, draft)
        connection.execute(STATEMENTS["create"], {"canonicalisation": CANONICALISATION, "now": now_ms})
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()
    draft.rename(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the schema up to date, each version in one transaction; killed in between, it goes on where it was."""
    # The header may lag behind the WAL, hence asked again.
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    refuse_newer(path, version)
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        connection.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {number}; COMMIT;")


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """After an unclean end, look at the whole file before anything is built on it."""
    _, _, clean = connection.execute(STATEMENTS["identity"]).fetchone()
    if not clean:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise damaged(path, verdict)


def _admit(connection: sqlite3.Connection, path: Path, admission: Admission, now_ms: int) -> Opened:
    run = connection.execute
    run("PRAGMA foreign_keys = ON")  # only now: a migration makes tables anew
    run(STATEMENTS["begin"])
    canonicalisation, spec, _ = run(STATEMENTS["identity"]).fetchone()
    if canonicalisation != CANONICALISATION:
        raise FrontierUnusableError(
            f"{path}: its URLs follow canonicalisation {canonicalisation}, this program's {CANONICALISATION}; "
            "use the version that made it"
        )
    (epoch,) = run(STATEMENTS["new_epoch"], {"spec": admission.digest}).fetchone()
    recovered = len(run(STATEMENTS["recover"], {"limit": QUARANTINE_AFTER}).fetchall())
    again = _try_again(connection, admission.restart_request)
    latest = {"latest": now_ms + admission.longest_wait_ms}
    run(STATEMENTS["clamp_due"], latest)
    run(STATEMENTS["clamp_closed"], latest)
    run(STATEMENTS["put_back_external"])
    covered = {"authorities": as_json(admission.authorities)}
    run(STATEMENTS["add_hosts"], covered)
    hosts = {host.authority: host for host, _ in _hosts(connection, covered)}
    seeds = [[*url_hash(url), url, hosts[authority].id, 0, None] for url, authority in admission.seeds]
    run(STATEMENTS["add_pages"], {"pages": as_json(seeds)})
    if spec != admission.digest or again:
        # Asks of every page that is not done, some microseconds each; only after an edit or a request.
        connection.create_function("objection", 2, admission.scope.objection, deterministic=True)
        run(STATEMENTS["forget_verified"])
        run(STATEMENTS["read_verified"])
        run(STATEMENTS["readmit"])
        run(STATEMENTS["exclude"])
    stocked = frozenset(host.id for host, stocked in _hosts(connection, covered) if stocked)
    run(STATEMENTS["commit"])
    status = path.stat()
    inode = (status.st_dev, status.st_ino)
    return Opened(epoch, tuple(hosts.values()), stocked, recovered, again, inode)


def _try_again(connection: sqlite3.Connection, request: str | None) -> int:
    """Follow a restart request that is not the last one; how many pages it makes pending."""
    run = connection.execute
    (last,) = run(STATEMENTS["restart_request"]).fetchone()
    if request in (None, last):
        return 0
    run(STATEMENTS["keep_restart_request"], {"request": request})
    run(STATEMENTS["take_failures_away"])
    run(STATEMENTS["forgive_hosts"])
    run(STATEMENTS["forgive_robots"])
    return sum(1 for _ in run(STATEMENTS["try_again"]))


def _hosts(connection: sqlite3.Connection, covered: Mapping[str, object]) -> list[tuple[Host, bool]]:
    """The approved hosts, each with whether it has pending pages."""
    rows = connection.execute(STATEMENTS["hosts"], covered)
    return [
        (Host(host_id, authority, closed, Pace(gap_ms / 1000, 0, failures, openings)), bool(stocked))
        for host_id, authority, closed, gap_ms, failures, openings, stocked in rows
    ]


@contextmanager
def _one_sentence(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise explain(path, error) from error
