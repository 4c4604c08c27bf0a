"""What `make kind` decides before it does anything: which engine, and where its programs come from."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.support.toolchain import binaries
from tests.support.toolchain.cache import Failed, Unavailable

PROGRAMS = ("kind", "kubectl", "helm")


def engine(*, docker_answers: bool, why_no_box: str) -> str:
    """ "docker" or "box"; raises ``Unavailable`` with one sentence where neither works.

    ``why_no_box`` is empty where the tests' harness can make an engine of its own.
    """
    if docker_answers:
        return "docker"
    if why_no_box:
        raise Unavailable(f"{why_no_box.rstrip('.')}: start Docker, or run this on Linux as root.")
    return "box"


def programs(
    find: Callable[[str], str | None] = shutil.which,
    build: Callable[..., dict[str, Path]] = binaries.ensure,
) -> dict[str, Path]:
    """Those of kind, kubectl and helm that are not on PATH, built from source or taken from the user's cache.

    Raises ``Unavailable`` naming what to install where they cannot be built.
    """
    missing = [name for name in PROGRAMS if find(name) is None]
    if not missing:
        return {}
    try:
        return build(*missing)
    except Failed:
        raise
    except Unavailable as reason:
        wanted = " and ".join(missing)
        raise Unavailable(f"Install {wanted}, which are not on PATH and cannot be built here ({reason})") from reason
