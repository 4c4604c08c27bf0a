"""What the Job does that reads a volume: copy the frontier into scratch space, then stay while somebody reads it.

A database that was not closed in order cannot be opened where nothing may be written beside it, and a crawl's volume is
mounted read-only here. Both programs are of the image that the crawl had.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from crawljob_operator.plugin.errors import PluginError

LOOK_SECONDS = 1.0


def copy(source: Path, target: Path) -> None:
    """Copy a database with its WAL; the index beside it (``-shm``) is made anew.

    Raises ``PluginError`` where there is none, a crawl has it open, or there is no room.
    """
    if not source.exists():
        raise PluginError(f"{source}: there is no frontier on the volume; nothing was crawled yet")
    with _unowned(source):
        for suffix in ("", "-wal"):
            part = source.with_name(source.name + suffix)
            try:
                if part.exists():
                    shutil.copyfile(part, target.with_name(target.name + suffix))
            except OSError as error:
                raise PluginError(f"{part}: cannot be copied ({error.strerror})") from error


@contextmanager
def _unowned(source: Path) -> Iterator[None]:
    """Hold the lock of the crawler (law L14), shared with other readers: what is copied stays as it is."""
    lock = source.with_name(source.name + ".lock")
    if not lock.exists():
        yield
        return
    with lock.open("rb") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PluginError(f"{source}: a crawl has it open again; ask its Pod") from None
        yield


def hold(
    idle_seconds: float,
    *,
    others: Callable[[], bool] | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return once no other program has run in the container for so long: whoever wanted to read is gone."""
    others = others or _others
    last = clock()
    while clock() - last < idle_seconds:
        sleep(LOOK_SECONDS)
        if others():
            last = clock()


def end_on_sigterm() -> None:
    """The first process of a container gets no signal that it has no handler for."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


def _others() -> bool:
    """Whether another process lives in the container; those that have ended and were left to us are collected."""
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass  # none are left
    own = str(os.getpid())
    return any(entry.name.isdigit() and entry.name != own for entry in Path("/proc").iterdir())
