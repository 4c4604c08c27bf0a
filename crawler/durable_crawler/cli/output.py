"""Where results go: standard output, or a file that is whole or not there."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

import click

from crawljob.exitcodes import ExitCode


def written(parts: Iterable[str], output: Path | None) -> None:
    """Write text as it is made, as UTF-8. A file that cannot be written ends the program with one sentence."""

    def write(sink: BinaryIO) -> None:
        sink.writelines(part.encode("utf-8", "replace") for part in parts)

    written_bytes(write, output)


def written_bytes(write: Callable[[BinaryIO], None], output: Path | None) -> None:
    """Have ``write`` write. The other half of a file never replaces a whole one."""
    if output is None:
        write(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    try:
        _replace(write, output)
    except OSError as error:
        click.echo(f"error: {output}: cannot be written ({error.strerror}); nothing was changed", err=True)
        sys.exit(ExitCode.INFRASTRUCTURE)


def _replace(write: Callable[[BinaryIO], None], output: Path) -> None:
    draft = output.with_name(f".{output.name}.{secrets.token_hex(4)}.part")
    try:
        with draft.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(output)
    finally:
        draft.unlink(missing_ok=True)
