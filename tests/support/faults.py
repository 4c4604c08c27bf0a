"""Volumes that are full, read-only or broken: small file systems of their own, which need root."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class Volume:
    """A small file system that is mounted at ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def resize(self, mebibytes: int) -> None:
        """Make it larger, as the operator of a cluster would."""
        _run("mount", "-o", f"remount,size={mebibytes}m", self.path)

    def read_only(self) -> None:
        """Refuse every write from now on; nothing may be open for writing."""
        _run("mount", "-o", "remount,ro", self.path)

    def fail(self) -> None:
        """As the kernel does after an I/O error on ext4: read-only at once, whatever is open."""
        _run("mount", "-o", "remount,abort", self.path)

    def fill(self, leave_bytes: int = 0) -> Path:
        """Take what is free, in one go, but for ``leave_bytes``; the file to remove afterwards."""
        filler = self.path / "filler"
        with filler.open("wb") as file:
            while True:
                volume = os.statvfs(self.path)
                try:
                    os.posix_fallocate(file.fileno(), 0, volume.f_bavail * volume.f_frsize - leave_bytes)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise  # else somebody else took a part of it meanwhile
                else:
                    return filler


@contextmanager
def small_volume(path: Path, mebibytes: int) -> Iterator[Volume]:
    """A tmpfs."""
    path.mkdir()
    _needed("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=0700", "tmpfs", path)
    try:
        yield Volume(path)
    finally:
        _run("umount", "--lazy", path)


@contextmanager
def ext4_volume(path: Path, image: Path, mebibytes: int = 32) -> Iterator[Volume]:
    """An ext4 in a file; ``image`` is made where it is not there, and can be mounted again."""
    path.mkdir(exist_ok=True)
    if not image.exists():
        with image.open("wb") as file:
            file.truncate(mebibytes << 20)
        _needed("mkfs.ext4", "-q", image)
    _needed("mount", "-o", "loop", image, path)
    try:
        yield Volume(path)
    finally:
        _run("umount", path)


def _needed(*command: str | Path) -> None:
    """Run what not every machine can do; where it cannot, the test is skipped with the reason."""
    try:
        _run(*command)
    except (OSError, subprocess.CalledProcessError) as error:
        words = getattr(error, "stderr", None) or str(error)
        reason = f"this machine cannot `{' '.join(map(str, command[:4]))} ...`: {words.strip()}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


def _run(*command: str | Path) -> None:
    subprocess.run([*map(str, command)], check=True, capture_output=True, text=True, timeout=30)
