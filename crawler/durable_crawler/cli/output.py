"""Where results go: standard output, or a file that is whole or not there."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import click

from crawljob.exitcodes import ExitCode


def written(parts: Iterable[str], output: Path | None) -> None:
    """Write text as it is made. A file that cannot be written ends the program with one sentence."""
    if output is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # a report says which encoding it has, whatever the terminal's is
        for part in parts:
            sys.stdout.write(part)
        sys.stdout.flush()
        return
    try:
        _replace(parts, output)
    except OSError as error:
        click.echo(f"error: {output}: cannot be written ({error.strerror}); nothing was changed", err=True)
        sys.exit(ExitCode.INFRASTRUCTURE)


def _replace(parts: Iterable[str], output: Path) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{output.name}-", dir=output.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)  # as any other file that this user makes
        Path(name).replace(output)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
        raise
