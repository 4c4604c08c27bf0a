"""Where results go: standard output, or a file that is there whole or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from crawljob.wholefile import whole_file
from crawljob_operator.plugin.errors import PluginError
from crawljob_operator.plugin.remote import Write


@contextmanager
def opened(path: Path | None) -> Iterator[Write]:
    """A function that takes bytes; without a path they are printed. Raises ``PluginError`` where they cannot go.

    A file takes its name when the block has ended well; else what was there before stays.
    """
    if path is None:
        yield printed
        return
    what = f"--output {path}:"
    stack = ExitStack()
    with _told(what):
        file = stack.enter_context(whole_file(path))

    def write(data: bytes) -> None:
        with _told(what):
            file.write(data)

    try:
        yield write
    except BaseException:
        with stack:
            raise
    with _told(what):
        stack.close()


def printed(data: bytes) -> None:
    """Print it at once. Raises ``BrokenPipeError`` where nobody reads any more, ``PluginError`` where it cannot go."""
    if sys.stdout is None:
        raise PluginError("Standard output is closed; open it, or name a file.")
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        with suppress(OSError):  # else the interpreter tries once more at its end, and says so
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise PluginError(f"Standard output cannot be written ({error.strerror}).") from error


def said(data: bytes) -> None:
    """What a program says besides its result."""
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Only of what is done with the file: errors of the network are of the same kind."""
    try:
        yield
    except OSError as error:
        raise PluginError(f"{what} cannot be written ({error.strerror}).") from error
