"""A disk that can lose its power: SQLite's writes are kept in a journal, and a cut leaves only what was synced.

It hangs below SQLite as a VFS of apsw, which brings an SQLite of its own (newer than the standard library's, with which
the product runs): what is shown is that the product's statements, pragmas and order of work are durable on SQLite's
file protocol, not that one build of SQLite is without bugs. What a cut leaves is read by the standard library's.

The model: a sync makes everything durable that was written to that file before. Of the writes since, any subset may
have reached the disk, each of them whole or only in its first sectors. The wal-index (``-shm``) is memory.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pytest

SECTOR = 512


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a file: ``write``, ``truncate``, ``sync``, ``delete``, or ``rename`` to ``target``."""

    kind: str
    file: str
    offset: int = 0
    data: bytes = b""
    target: str = ""


@dataclass
class Disk:
    """The journal of one folder, by file names."""

    events: list[Event] = field(default_factory=list)

    def note(self, kind: str, path: str, offset: int = 0, data: bytes = b"", target: str = "") -> None:
        """Add an event."""
        if path and not path.endswith("-shm"):  # without a name: a temporary file
            names = (os.path.basename(path), os.path.basename(target))  # noqa: PTH119 - strings from SQLite
            self.events.append(Event(kind, names[0], offset, data, names[1]))

    def after_cut(self, moment: int, chance: random.Random) -> dict[str, bytes]:
        """What the files hold when the power went before event number ``moment``."""
        durable: dict[str, bytearray] = {}
        pending: dict[str, list[Event]] = defaultdict(list)
        for event in self.events[:moment]:
            match event.kind:
                case "sync":
                    content = durable.setdefault(event.file, bytearray())
                    for write in pending.pop(event.file, []):
                        _apply(content, write)
                case "rename":
                    if event.file in durable:
                        durable[event.target] = durable.pop(event.file)
                    pending[event.target] = pending.pop(event.file, [])
                case "delete":
                    # Durable at once: SQLite syncs the directory with it.
                    durable.pop(event.file, None)
                    pending.pop(event.file, None)
                case _:
                    pending[event.file].append(event)
        for name, writes in pending.items():
            for write in writes:
                if chance.random() < 0.5:
                    _apply(durable.setdefault(name, bytearray()), _torn(write, chance))
        return {name: bytes(content) for name, content in durable.items()}


def _apply(content: bytearray, event: Event) -> None:
    if event.kind == "truncate":
        if event.offset <= len(content):
            del content[event.offset :]
        return
    if len(content) < event.offset:
        content.extend(bytes(event.offset - len(content)))
    content[event.offset : event.offset + len(event.data)] = event.data


def _torn(event: Event, chance: random.Random) -> Event:
    """The event as it may have reached the disk: whole, or as a prefix that ends with a sector."""
    if event.kind != "write" or chance.random() < 0.5:
        return event
    sectors = (event.offset + len(event.data)) // SECTOR - event.offset // SECTOR
    end = (event.offset // SECTOR + chance.randint(0, sectors)) * SECTOR - event.offset
    return Event("write", event.file, event.offset, event.data[: max(0, end)])


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, filename: Any, flags: list[int]) -> None:
        self._disk = disk
        self._path = filename.filename() if isinstance(filename, apsw.URIFilename) else (filename or "")
        super().__init__("", filename, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.note("write", self._path, offset, bytes(data))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._disk.note("truncate", self._path, size)
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self._disk.note("sync", self._path)


class _Vfs(apsw.VFS):
    def __init__(self, name: str, disk: Disk) -> None:
        self._disk = disk
        super().__init__(name, "")

    def xOpen(self, filename: Any, flags: list[int]) -> _File:  # noqa: N802
        return _File(self._disk, filename, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        self._disk.note("delete", filename)
        super().xDelete(filename, syncdir)


class Connection:
    """apsw in the clothes of ``sqlite3``, as far as the product's opening and flushes wear them."""

    def __init__(self, path: Path, vfs: str, synchronous: str | None) -> None:
        self._connection = apsw.Connection(str(path), vfs=vfs)
        self._connection.set_busy_timeout(1500)
        self._synchronous = synchronous

    def execute(self, sql: str, parameters: Mapping[str, Any] | None = None) -> _Rows:
        """Run one statement to its end."""
        if self._synchronous is not None and sql.startswith("PRAGMA synchronous"):
            sql = f"PRAGMA synchronous = {self._synchronous}"
        return _Rows(list(self._connection.execute(sql, dict(parameters or {}))))

    def executescript(self, script: str) -> None:
        """Run several statements."""
        for _ in self._connection.execute(script):
            pass

    def create_function(self, name: str, arguments: int, function: Callable[..., Any], *, deterministic: bool) -> None:
        """Let statements call a function of ours."""
        self._connection.create_scalar_function(name, function, arguments, deterministic=deterministic)

    def close(self) -> None:
        """As an orderly end."""
        self._connection.close()


class _Rows:
    def __init__(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self._rows = iter(rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(self._rows, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self._rows)


@contextmanager
def powered(monkeypatch: pytest.MonkeyPatch, synchronous: str | None = None) -> Iterator[Disk]:
    """Let ``opening`` work on a disk that is recorded. ``synchronous`` replaces the product's own, to see it matter."""
    disk = Disk()
    name = f"powered-{id(disk)}"
    vfs = _Vfs(name, disk)
    rename, unlink = Path.rename, Path.unlink

    def connect(path: Path, **_: Any) -> Connection:
        return Connection(path, name, synchronous)

    def renamed(self: Path, target: Path) -> Path:
        disk.note("rename", str(self), target=str(target))
        return rename(self, target)

    def unlinked(self: Path, missing_ok: bool = False) -> None:
        disk.note("delete", str(self))
        unlink(self, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", connect)
        patch.setattr(Path, "rename", renamed)
        patch.setattr(Path, "unlink", unlinked)
        yield disk
    vfs.unregister()
