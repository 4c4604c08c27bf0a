"""The operator's benchmark, with few jobs: it runs, keeps its figures, and its targets hold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.operator import Figures
from tests.support.apiserver import die_with_parent

ROOT = Path(__file__).parents[2]


GOOD: dict[str, Any] = {"phases": {"Complete": 9}, "beside_phases": {"Complete": 3}}


@pytest.mark.parametrize(
    ("measured", "named"),
    [
        ({}, ""),
        ({"phases": {"Complete": 8, "Running": 1}}, "burst"),
        ({"beside_phases": {"Pending": 3}}, "beside"),
        ({"peak_mb": 201.0}, "memory: 201 MiB"),
        ({"idle_peak_mb": 230.0}, "memory: 230 MiB"),
        ({"refused_per_minute": 91}, "91 calls"),
        ({"idle_writes": {"patch crawljobs/status": 1}}, "patch crawljobs/status"),
    ],
)
def test_a_missed_target_is_named(measured: dict[str, Any], named: str) -> None:
    """Which makes the command fail."""
    missed = Figures(9, 3, **{**GOOD, **measured}).missed()
    assert len(missed) == bool(named)
    assert named in "".join(missed)


@pytest.mark.usefixtures("server")  # skips where the programs cannot be had
def test_the_operators_benchmark_still_measures(tmp_path: Path) -> None:
    """All jobs complete with every step of a life, nothing is written while idle, and the command says so."""
    results = tmp_path / "operator.json"
    flags = ("--jobs", "20", "--resync", "1", "--resyncs", "3", "--results", str(results))
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.operator", *flags],
        check=False, cwd=ROOT, capture_output=True, text=True, timeout=100, preexec_fn=die_with_parent,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    kept = json.loads(results.read_text())
    figures, calls = kept["figures"], kept["figures"]["calls"]
    assert kept["missed"] == []
    assert figures["phases"] == {"Complete": 20}
    assert calls["create pods"] == 22, "one in ten fails once"
    assert len(figures["burst_reactions"]) == 20 * 3 + 2 * 2, "each life had every step"
    assert len(figures["reconciles"]) >= 20 * 3
    assert figures["idle_reads"] >= 3 * 26, "the listings did look at the jobs"
    assert figures["refused_per_minute"] > 0
    assert min(figures["peak_mb"], figures["rest_mb"], figures["idle_peak_mb"]) > 10
