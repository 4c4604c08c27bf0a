"""The import contracts of pyproject.toml hold, and each of them would notice its violation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tools.generate import ROOT

# What somebody might add in a hurry: the module, and the import that its contract forbids.
VIOLATIONS = [
    ("crawler/crawljob/spec.py", "import durable_crawler"),
    ("crawler/crawljob/status.py", "import crawljob_telemetry"),
    ("crawler/crawljob_telemetry/sink.py", "import durable_crawler"),
    ("crawler/crawljob_telemetry/metrics.py", "import crawljob_operator"),
    ("crawler/durable_crawler/outcomes.py", "import crawljob_operator"),
    ("operator/crawljob_operator/times.py", "import durable_crawler"),
    ("crawler/durable_crawler/engine.py", "import sqlite3"),
    ("crawler/durable_crawler/heartbeat.py", "import aiosqlite"),
    ("crawler/durable_crawler/engine.py", "import aiohttp"),
    ("crawler/durable_crawler/urls.py", "import asyncio"),
    ("crawler/durable_crawler/parse.py", "import socket"),
    ("crawler/durable_crawler/settle.py", "import time"),
    ("crawler/crawljob/status.py", "import kubernetes"),
    ("operator/crawljob_operator/decide.py", "import kopf"),
    ("operator/crawljob_operator/decide.py", "import kubernetes"),
    ("operator/crawljob_operator/classify.py", "import time"),
    ("operator/crawljob_operator/names.py", "import kopf"),
    ("operator/crawljob_operator/reconcile.py", "import opentelemetry"),
    ("operator/crawljob_operator/telemetry/ends.py", "import time"),
]


def _lint(root: Path) -> subprocess.CompletedProcess[str]:
    """Run the contracts over the packages below `root`, not over the installed ones."""
    code = "from importlinter.cli import lint_imports_command as lint; lint()"
    return subprocess.run(
        [sys.executable, "-c", code, "--no-cache"],
        cwd=root,
        env={**os.environ, "COLUMNS": "1000", "PYTHONPATH": f"{root / 'crawler'}{os.pathsep}{root / 'operator'}"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The packages and their contracts, to be broken."""
    for folder in ("crawler", "operator"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_contracts_hold() -> None:
    done = _lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("module", "line"), VIOLATIONS, ids=lambda value: value.rsplit("/", 1)[-1])
def test_a_violation_is_noticed(module: str, line: str, copy: Path) -> None:
    path = copy / module
    path.write_text(f"{path.read_text()}\n{line}\n")
    done = _lint(copy)
    assert done.returncode == 1, done.stdout + done.stderr
    dotted = ".".join(Path(module).with_suffix("").parts[1:])
    assert f"{dotted} -> {line.split()[1]} " in done.stdout
