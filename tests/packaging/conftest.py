"""What the packaging tests share: helm and promtool where they can be had, and the wheel, built once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.toolchain import debian, prometheus
from tests.support.toolchain.cache import Unavailable
from tools import generate


@pytest.fixture(scope="session")
def helm() -> Path:
    """Helm 4."""
    try:
        return generate.find_helm()
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Prometheus's own judge of rules and queries."""
    try:
        return prometheus.ensure()["promtool"]
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def chromium() -> Path:
    """The machine's Chromium, or Debian's."""
    try:
        if shutil.which("chromium") is None:
            debian.packages("chromium")
    except Unavailable as error:
        pytest.skip(str(error))
    found = shutil.which("chromium")
    assert found is not None
    return Path(found)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout by the locked backend, without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
        cwd=generate.ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built
