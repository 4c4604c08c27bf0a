"""The tier runner counts what ran, says what did not, and lets nothing slip through in CI."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import tiers
from tests.support.tiers import Result, Tier
from tests.support.toolchain import binaries
from tests.support.toolchain.cache import Unavailable

FOLDER_OF_THE_TIERS = tiers.ROOT / "tests"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of its own, where `tests/unit` holds what a test writes there."""
    (tmp_path / "tests/unit").mkdir(parents=True)
    monkeypatch.setattr(tiers, "ROOT", tmp_path)
    monkeypatch.setattr(tiers, "TIERS", (Tier("unit", 60), Tier("later", 60, required=False)))
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


def _write(root: Path, text: str) -> None:
    (root / "tests/unit/test_it.py").write_text(text)


PASSES = "def test_a(): pass\n"
FAILS = "def test_b(): assert 0\n"
SKIPS = "import pytest\ndef test_c(): pytest.skip('not here')\n"
BREAKS = "import pytest\n@pytest.fixture\ndef x(): 1 / 0\ndef test_d(x): pass\n"


def test_passed_failed_skipped_and_broken_tests_are_counted(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _write(root, PASSES + FAILS + SKIPS + BREAKS)
    assert tiers.main([]) == 1
    output = capfd.readouterr().out
    assert "unit         ran: 1 passed, 2 failed, 1 skipped, " in output
    assert "later        skipped: tests/later has no tests yet" in output
    assert output.splitlines()[-1] == "1 passed, 2 failed, 2 skipped"


def test_a_green_run_ends_with_zero(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _write(root, PASSES + SKIPS)
    assert tiers.main(["--tiers", "unit"]) == 0
    assert capfd.readouterr().out.splitlines()[-1] == "1 passed, 0 failed, 1 skipped"


def test_ci_refuses_a_skipped_test_but_not_a_tier_to_come(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", "true")
    _write(root, PASSES)
    assert tiers.main([]) == 0
    _write(root, PASSES + SKIPS)
    assert tiers.main([]) == 1
    assert "unit skipped: nothing may be skipped in CI" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no test was collected"),
        ("import os\nos._exit(9)\n", "ended with exit code 9"),
        ("import nothing_of_that_name\n", ""),
    ],
)
def test_a_run_without_a_result_is_a_failure(
    text: str, reason: str, root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _write(root, text)
    assert tiers.main(["--tiers", "unit"]) == 1
    output = capfd.readouterr().out
    assert reason in output
    assert output.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


def test_a_tier_that_hangs_is_stopped_with_everything_that_it_started(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pid = root / "pid"
    _write(
        root,
        "import subprocess, pathlib\n"
        f"child = subprocess.Popen(['sleep', '1000']); pathlib.Path({str(pid)!r}).write_text(str(child.pid))\n"
        "child.wait()\n",
    )
    monkeypatch.setattr(tiers, "TIERS", (Tier("unit", 3),))
    assert tiers.main([]) == 1
    assert "stopped after its limit of 3 s" in capfd.readouterr().out
    status = Path("/proc") / pid.read_text() / "stat"
    assert not status.exists() or ") Z " in status.read_text()


def test_a_required_tier_without_tests_is_a_failure(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert tiers.main([]) == 1
    assert "there are no tests in tests/unit" in capfd.readouterr().out


@pytest.mark.parametrize("asked", ["unit", "nonsense", "later"])
def test_a_tier_that_cannot_be_asked_for_is_a_usage_error(asked: str, root: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        tiers.main(["--tiers", asked])
    assert ended.value.code == 2
    assert root.exists()


def test_a_machine_that_cannot_is_a_skipped_tier_with_the_machines_own_words(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    cannot = "import sys; sys.stderr.write('There is no engine here.\\n'); sys.exit(77)"
    monkeypatch.setattr(tiers, "CLUSTER", [sys.executable, "-c", cannot])
    monkeypatch.setattr(tiers, "TIERS", (Tier("cluster", 60),))
    (root / "tests/cluster").mkdir()
    (root / "tests/cluster/test_it.py").write_text(PASSES)
    assert tiers.main([]) == 0
    output = capfd.readouterr().out
    assert "cluster      skipped: There is no engine here." in output
    assert output.splitlines()[-1] == "0 passed, 0 failed, 1 skipped"
    monkeypatch.setenv("CI", "true")
    assert tiers.main([]) == 1


def test_programs_that_cannot_be_had_skip_the_tier_unless_its_tests_do_so(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def unavailable(*_: str) -> None:
        raise Unavailable("Go is not on PATH.")

    monkeypatch.setattr(binaries, "ensure", unavailable)
    _write(root, PASSES)
    monkeypatch.setattr(tiers, "TIERS", (Tier("unit", 60, ("etcd",)),))
    assert tiers.main([]) == 0
    assert "skipped: Go is not on PATH." in capfd.readouterr().out
    monkeypatch.setattr(tiers, "TIERS", (Tier("unit", 60, ("etcd",), skips_itself=True),))
    assert tiers.main([]) == 0
    assert "ran: 1 passed" in capfd.readouterr().out


def test_conformance_may_be_skipped_only_where_there_are_no_cases(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (root / "tests/conformance").mkdir()
    (root / "tests/conformance/test_it.py").write_text(SKIPS)
    monkeypatch.setattr(tiers, "TIERS", (Tier("conformance", 60),))
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("CONFORMANCE_CASES", str(root / "nowhere"))
    assert tiers.main([]) == 0
    assert "skipped: CONFORMANCE_CASES names no folder" in capfd.readouterr().out
    monkeypatch.setenv("CONFORMANCE_CASES", str(root))
    assert tiers.main([]) == 1


def test_every_folder_of_tests_belongs_to_a_tier() -> None:
    """A folder that no tier runs would rot unseen."""
    folders = {path.parent.relative_to(FOLDER_OF_THE_TIERS).parts[0] for path in FOLDER_OF_THE_TIERS.rglob("test_*.py")}
    assert folders <= {tier.name for tier in tiers.TIERS}


def test_the_lines_of_the_summary_are_aligned() -> None:
    assert Result("unit", passed=2, seconds=1.4).line() == "unit         ran: 2 passed, 0 failed, 0 skipped, 1 s"


def test_help_and_every_target_of_make_are_described() -> None:
    done = subprocess.run(
        ["make", "--no-print-directory"], cwd=FOLDER_OF_THE_TIERS.parent, capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    shown = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("  make ")}
    phony = {
        line.split(":")[1].strip()
        for line in (FOLDER_OF_THE_TIERS.parent / "Makefile").read_text().splitlines()
        if line.startswith(".PHONY:")
    }
    assert shown == phony
