"""The wheel holds the four packages, whole, and nothing else; what is installed from it runs."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from tools.generate import ROOT

SOURCES = {
    "crawljob": ROOT / "crawler/crawljob",
    "crawljob_telemetry": ROOT / "crawler/crawljob_telemetry",
    "durable_crawler": ROOT / "crawler/durable_crawler",
    "crawljob_operator": ROOT / "operator/crawljob_operator",
}
SCRIPTS = ("durable-crawler", "crawljob-operator", "kubectl-crawl")


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    expected = {
        f"{package}/{file.relative_to(folder)}"
        for package, folder in SOURCES.items()
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == expected
    assert {f"{package}/py.typed" for package in SOURCES} <= names
    assert any(name.startswith("durable_crawler/") and name.endswith(".sql") for name in names)


def test_the_packages_consist_of_code_sql_and_assets_only() -> None:
    """Tests, notes and databases that somebody left beside the code would be shipped with it."""
    allowed = {".py", ".sql", ".typed", ".html", ".css", ".js", ".svg"}
    strange = [
        str(file.relative_to(ROOT))
        for folder in SOURCES.values()
        for file in folder.rglob("*")
        if file.is_file()
        and "__pycache__" not in file.parts
        and ((file.suffix or "." + file.name) not in allowed or file.name.startswith(("test_", "conftest")))
        and file.name != "py.typed"
    ]
    assert not strange


def test_the_operators_folder_is_no_package() -> None:
    """A package called `operator` shadows the standard library's wherever the folder above it is on the path."""
    for folder in ("operator", "crawler"):
        assert not list((ROOT / folder).glob("*.py"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, installed into a folder of its own."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-compile", "--target", folder, wheel], check=True, timeout=100, capture_output=True)
    return folder


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_console_script_of_the_installed_wheel_explains_itself(script: str, installed: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(installed)}  # before the checkout's own entry on the path
    done = subprocess.run(
        [sys.executable, installed / "bin" / script, "--help"],
        env=environment,
        cwd=installed,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage" in done.stdout


@pytest.mark.parametrize("package", sorted(SOURCES))
def test_the_installed_package_is_the_wheels(package: str, installed: Path) -> None:
    code = f"import {package}; print({package}.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(installed)},
        cwd=installed,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert Path(done.stdout.strip()).is_relative_to(installed)


def test_the_version_is_said_once() -> None:
    from crawljob import __version__  # noqa: PLC0415 - the one under test

    assert metadata.version("durable-crawler") == __version__
    chart = (ROOT / "charts/durable-crawler/Chart.yaml").read_text()
    assert f"\nversion: {__version__}\n" in chart
    assert f"\nappVersion: {__version__}\n" in chart
