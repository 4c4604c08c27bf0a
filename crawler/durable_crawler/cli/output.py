"""Where results go: standard output, or a file that is whole or not there."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import BinaryIO

import click

from crawljob.exitcodes import ExitCode
from crawljob.wholefile import whole_file

_COMPANIONS = ("", "-wal", "-shm", "-journal", ".lock")
"""What SQLite and the crawler append to the name of a frontier, for files of their own."""

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def apart(output: Path | None, db: Path) -> None:
    """Refuse to write over the frontier that is read, or what belongs to it. Raises ``click.BadParameter``."""
    if output is not None and os.path.realpath(output) in {f"{os.path.realpath(db)}{more}" for more in _COMPANIONS}:
        raise click.BadParameter(f"{output} belongs to the frontier; name another file", param_hint="--output")


def written(parts: Iterable[str], output: Path | None) -> None:
    """Write text as it is made, as UTF-8. What cannot be written ends the program with one sentence."""

    def write(sink: BinaryIO) -> None:
        sink.writelines(part.encode("utf-8", "replace") for part in parts)

    written_bytes(write, output)


def written_bytes(write: Callable[[BinaryIO], None], output: Path | None) -> None:
    """Have ``write`` write. The other half of a file never replaces a whole one."""
    if output is None:
        _printed(write)
        return
    try:
        with _ending_tidily(), whole_file(output) as file:
            write(file)
    except OSError as error:
        _end(f"{output}: cannot be written ({error.strerror}); nothing was changed")


@contextmanager
def _ending_tidily() -> Iterator[None]:
    """Signals that end the program at once leave it to take away what it has begun. Only in the main thread."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in _ENDS}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:  # nohup
            signal.signal(number, _exit)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


def _printed(write: Callable[[BinaryIO], None]) -> None:
    if sys.stdout is None:
        _end("standard output is closed; open it, or name a file")
    try:
        write(sys.stdout.buffer)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        with suppress(OSError):  # else the interpreter tries once more, and says so
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _end(f"standard output cannot be written ({error.strerror})")


def _end(sentence: str) -> None:
    click.echo(f"error: {sentence}", err=True)
    sys.exit(ExitCode.INFRASTRUCTURE)
