"""A file of results that is there whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_NAME_MAX = 50
"""Characters of its name that a draft has too: with four bytes each, and its own, within the 255 of a file system."""


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Write ``path``: it takes its name when the block has ended well, else what was there before stays.

    A device or a pipe (``/dev/stdout``) is written to as it is, since a file that takes its name would remove it; of a
    symbolic link the target is replaced. Raises ``OSError``.
    """
    if _is_special(path):
        with path.open("wb") as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    draft = target.with_name(f".{target.name[:_NAME_MAX]}.{secrets.token_hex(4)}.part")
    try:
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    """Whether something is there that is no file."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False
