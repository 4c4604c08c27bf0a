"""The project's own image and the Collector's: wheels fetched with their hashes, then built without a network."""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
from pathlib import Path

from tests.support.cluster import archive
from tests.support.cluster.process import run
from tests.support.toolchain import binaries, cache, debian
from tests.support.toolchain.cache import Unavailable

REPOSITORY = Path(__file__).parents[3]
WHEELS = REPOSITORY / "dist" / "wheels"
LOCK = REPOSITORY / "requirements" / "runtime.lock"
CRAWLER = "durable-crawler:test"
COLLECTOR = "otel-collector:test"
# Debian's Python stands in for python:3.x-slim where no registry of images can be reached.
BOX_BASE, BOX_PYTHON = "durable-crawler/python:bookworm", "3.11"
DOCKER_BASE, DOCKER_PYTHON = "python:3.13-slim", "3.13"
PROCESSOR = {"amd64": "x86_64", "arm64": "aarch64"}.get(archive.ARCHITECTURE, archive.ARCHITECTURE)
PLATFORMS = [f"{kind}_{PROCESSOR}" for kind in ("manylinux_2_28", "manylinux_2_17", "manylinux2014", "linux")]
BASE_PACKAGES = ["python3", "python3-venv", "ca-certificates"]


def crawler() -> str:
    """The tag of the image under test; CRAWLER_IMAGE names another one that the engine has already."""
    return os.environ.get("CRAWLER_IMAGE") or CRAWLER


def base() -> Path:
    """The root filesystem of the box's Python base image."""
    return debian.rootfs("python", BASE_PACKAGES)


def wheels(python: str) -> None:
    """Fill dist/wheels with the locked dependencies for that Python and a fresh wheel of the project."""
    if not LOCK.is_file():
        raise Unavailable("requirements/runtime.lock is missing, so the image cannot be built.")
    locked = cache.publish(f"wheels/{python}-{cache.digest(LOCK.read_bytes())}", lambda to: _download(python, to))
    shutil.rmtree(WHEELS, ignore_errors=True)
    WHEELS.mkdir(parents=True)
    for wheel in locked.glob("*.whl"):
        shutil.copy(wheel, WHEELS)
    offline = ("--no-index", "--find-links", str(_build_backend()))
    _pip("wheel", "--no-deps", *offline, "--wheel-dir", str(WHEELS), str(REPOSITORY))


def build(base_image: str, log: Path) -> None:
    """Build the project's image with the Docker engine; unchanged layers come from its cache.

    The build stage gets a tag of its own: untagged, it would be the first thing that a prune removes.
    """
    if crawler() != CRAWLER:
        return
    command = ("docker", "build", "--build-arg", f"BASE={base_image}", REPOSITORY)
    run(*command, "--target", "build", "--tag", f"{CRAWLER}-build", timeout=600, log=log)
    run(*command, "--tag", CRAWLER, timeout=600, log=log)


def collector_archive(folder: Path) -> Path:
    """The Collector's image, nothing but its static binary, as a docker-archive in `folder`."""
    target = folder / "collector.tar"
    archive.write(binaries.ensure("otelcol")["otelcol"], COLLECTOR, target)
    return target


def _download(python: str, folder: Path) -> None:
    cache.say(f"fetching the locked wheels for Python {python}")
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    target = ["--only-binary=:all:", "--python-version", python, "--implementation", "cp", *platforms]
    _pip("download", "--no-deps", "--require-hashes", "-r", str(LOCK), "--dest", str(folder), *target)


def _build_backend() -> Path:
    """The wheels of the build backend, fetched once: a warm run must not need the network."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    requires: list[str] = project["build-system"]["requires"]
    key = cache.digest(sys.version, *requires)
    return cache.publish(
        f"wheels/build-{key}", lambda to: _pip("download", "--only-binary=:all:", "--dest", str(to), *requires)
    )


def _pip(*arguments: str) -> None:
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments, timeout=600)
