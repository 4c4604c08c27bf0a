"""The user's cache folder: where it is, how one process at a time fills it, and how a half-made thing is never seen."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

# Longer than the slowest build and the longest run of the cluster tests.
LOCK_LIMIT_SECONDS = 3 * 3600


class Unavailable(Exception):  # noqa: N818 - a statement about the machine, not an error of the program
    """This machine cannot do what is asked; the message is one sentence that a person can act on."""


class Failed(Unavailable):
    """It should have worked here and did not: a build, a download or a command ended badly. Never a reason to skip."""


def root() -> Path:
    """The cache folder of this project, made if it is missing."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "durable-crawler"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def say(line: str) -> None:
    """Tell the person at the terminal what takes time; standard output belongs to the command that is run."""
    print(f"cluster: {line}", file=sys.stderr, flush=True)


def digest(*parts: str | bytes) -> str:
    """A short key that changes with any of its parts."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "big") + data)
    return total.hexdigest()[:12]


@contextmanager
def lock(name: str) -> Iterator[int]:
    """Hold the lock file `name` of the cache; the kernel drops it when the process ends, however it ends.

    Gives its descriptor: a child that inherits that holds the lock too, until the last of both has ended.
    """
    folder = root() / "locks"
    folder.mkdir(exist_ok=True)
    with (folder / name).open("w") as handle:
        if not _taken(handle):
            say(f"waiting for another process that works on {name}")
            deadline = time.monotonic() + LOCK_LIMIT_SECONDS
            while not _taken(handle):
                if time.monotonic() > deadline:
                    raise Unavailable(f"Another process has worked on {name} for {LOCK_LIMIT_SECONDS} s; end it first.")
                time.sleep(0.2)
        yield handle.fileno()


def _taken(handle: IO[str]) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def publish(relative: str, make: Callable[[Path], None]) -> Path:
    """Return the cached folder `relative`; when it is missing, `make` fills a fresh one that is renamed into place.

    A reader sees all of it or nothing, also when the process that makes it is killed.
    """
    target = root() / relative
    if target.is_dir():
        return target
    with lock(relative.replace("/", "-")):
        if target.is_dir():
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target)
        scratch = Path(tempfile.mkdtemp(prefix=f"{target.name}.part-", dir=target.parent))
        scratch.chmod(0o755)
        try:
            make(scratch)
            scratch.rename(target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return target


def _sweep(target: Path) -> None:
    """Remove what a killed build of the same thing left; its lock is ours, so nobody works in there."""
    for leftover in target.parent.glob(f"{target.name}.part-*"):
        shutil.rmtree(leftover, ignore_errors=True)
