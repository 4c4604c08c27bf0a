"""Prometheus and promtool: the machine's own, or Debian's, unpacked into the cache and not installed."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.toolchain import debian
from tests.support.toolchain.cache import Unavailable

PROGRAMS = ("prometheus", "promtool")


def ensure() -> dict[str, Path]:
    """The path of each program. Raises Unavailable with one sentence where they cannot be had."""
    found = {name: path for name in PROGRAMS if (path := shutil.which(name))}
    if len(found) == len(PROGRAMS):
        return {name: Path(path) for name, path in found.items()}
    if shutil.which("apt-get") is None:
        raise Unavailable("Prometheus and promtool are not on PATH, and only Debian's package is fetched by itself.")
    folder = debian.unpacked("prometheus") / "usr/bin"
    return {name: folder / name for name in PROGRAMS}
