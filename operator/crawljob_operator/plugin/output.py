"""Where results go: standard output, or a file that is there whole or not at all."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from crawljob_operator.plugin.errors import PluginError
from crawljob_operator.plugin.remote import Write


@contextmanager
def opened(path: Path | None) -> Iterator[Write]:
    """A function that takes bytes; without a path they are printed.

    A file takes its name when the block has ended well; else what was there before stays.
    """
    if path is None:
        yield _printed
        return
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        file = draft.open("xb")
    except OSError as error:
        raise PluginError(f"--output {path}: cannot be written ({error.strerror}).") from error
    try:
        with file:

            def write(data: bytes) -> None:
                try:
                    file.write(data)
                except OSError as error:
                    raise PluginError(f"--output {path}: cannot be written ({error.strerror}).") from error

            yield write
            write(b"")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()


def _printed(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def said(data: bytes) -> None:
    """What a program says besides its result."""
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()
