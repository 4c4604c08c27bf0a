"""Runs the test tiers in their order, each in a process of its own with a time limit, and says what ran.

`make test` calls this, and `.ci/run` calls `make test`. A tier that the machine cannot run is skipped with the reason
in its line at the end, never silently; with CI=true a skipped tier or test is a failure. What a tier needs and is not
there yet (Go programs, the cluster's images) is built in the background from the first second on.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.toolchain import binaries
from tests.support.toolchain.cache import Unavailable

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = [sys.executable, "-m", "tests.support.cluster"]
CANNOT = 77  # the harness's exit code for "this machine cannot", with one sentence on standard error
NO_TESTS = 5  # pytest's
BUILD_LIMIT_SECONDS = 5400
GRACE_SECONDS = 15


@dataclass(frozen=True)
class Tier:
    """One tier: how long it may take, and the programs that are built before its tests' own time limits run."""

    name: str
    limit_seconds: int
    programs: tuple[str, ...] = ()
    skips_itself: bool = False  # where the programs cannot be had, some of its tests skip, and the others run
    required: bool = True

    @property
    def folder(self) -> Path:
        """Where its tests are."""
        return ROOT / "tests" / self.name

    def exists(self) -> bool:
        """Whether it has tests; lint has none, only commands."""
        return self.name == "lint" or any(self.folder.rglob("test_*.py"))


# The order is that of cost. A tier that is not required may have no tests yet; a required one must.
TIERS = (
    Tier("lint", 600),
    Tier("unit", 1200),
    Tier("props", 900),
    Tier("conformance", 600),
    Tier("sim", 900),
    Tier("crash", 1800),
    Tier("api", 1800, ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "helm")),
    Tier("packaging", 900, ("helm", "helm-docs", "kubectl", "otelcol"), skips_itself=True),
    Tier("cluster", 3600),
)

LINTERS: Mapping[str, Sequence[str]] = {
    "ruff check": ("ruff", "check", "."),
    "ruff format": ("ruff", "format", "--check", "."),
    "mypy": ("mypy",),
    "mypy of tests and tools": ("mypy", "-p", "tests", "-p", "tools"),
}


@dataclass
class Result:
    """What one tier came to. `skipped_because` is a whole tier's reason, `failed_because` one that no test names."""

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0
    skipped_because: str = ""
    failed_because: str = ""
    may_skip: bool = False
    problems: list[str] = field(default_factory=list)

    def line(self) -> str:
        """The tier's line in the summary."""
        if self.skipped_because:
            return f"{self.name:<12} skipped: {self.skipped_because}"
        counts = f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped, {self.seconds:.0f} s"
        return f"{self.name:<12} ran: {counts}" + (f"; {self.failed_because}" if self.failed_because else "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; 0 when nothing failed and, in CI, nothing was skipped."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.tiers", description=__doc__)
    parser.add_argument("--tiers", default="", help=f"comma-separated; default all: {','.join(t.name for t in TIERS)}")
    asked = [name for name in parser.parse_args(arguments).tiers.split(",") if name]
    known = {tier.name: tier for tier in TIERS}
    if unknown := [name for name in asked if name not in known]:
        parser.error(f"unknown tier {', '.join(unknown)}; known are {', '.join(known)}")
    if empty := [name for name in asked if not known[name].exists()]:
        parser.error(f"no tests in {', '.join(f'tests/{name}' for name in empty)}")
    chosen = [tier for tier in TIERS if tier.name in asked or not asked]
    ci = os.environ.get("CI") == "true"

    with _building(chosen) as build:
        results = [_run_tier(tier, build) for tier in chosen]
    return _report(results, ci=ci)


def _run_tier(tier: Tier, build: Build) -> Result:
    result = Result(tier.name)
    print(f"\n== {tier.name} ==", flush=True)
    started = time.monotonic()
    try:
        _run_into(result, tier, build)
    except Unavailable as error:
        result.skipped_because = str(error)
    if result.skipped_because:
        print(f"skipped: {result.skipped_because}", flush=True)
    result.seconds = time.monotonic() - started
    return result


def _run_into(result: Result, tier: Tier, build: Build) -> None:
    if not tier.exists():
        if tier.required:
            result.failed_because = f"there are no tests in tests/{tier.name}"
        else:
            result.skipped_because, result.may_skip = f"tests/{tier.name} has no tests yet", True
        return
    if tier.name == "conformance" and not Path(os.environ.get("CONFORMANCE_CASES") or "/nowhere").is_dir():
        result.skipped_because, result.may_skip = "CONFORMANCE_CASES names no folder", True
        return
    if tier.name == "lint":
        _lint(result, tier)
        return
    try:
        binaries.ensure(*tier.programs)
    except Unavailable:
        if not tier.skips_itself:
            raise
    command = []
    if tier.name == "cluster":
        build.wait()
        command = [*CLUSTER, "exec", "--"]
    with tempfile.TemporaryDirectory(prefix="durable-crawler-tiers-") as scratch:
        report = Path(scratch) / "report.xml"
        pytest = [sys.executable, "-m", "pytest", f"tests/{tier.name}", f"--junitxml={report}"]
        code, last_words = _run([*command, *pytest], tier.limit_seconds)
        if code == CANNOT and command:
            raise Unavailable(last_words or "the machine cannot run a cluster")
        _count(result, report)
    if code is None:
        result.failed_because = f"stopped after its limit of {tier.limit_seconds} s"
    elif code == NO_TESTS:
        result.failed_because = "no test was collected"
    elif code != 0 and not result.failed:
        result.failed_because = f"ended with exit code {code}"


def _lint(result: Result, tier: Tier) -> None:
    for name, (program, *rest) in LINTERS.items():
        print(f"-- {name}", flush=True)
        code, _ = _run([str(Path(sys.executable).parent / program), *rest], tier.limit_seconds)
        result.passed += code == 0
        result.failed += code != 0


def _count(result: Result, report: Path) -> None:
    """Take the counts from pytest's own report; a run that was killed has none."""
    if not report.exists():
        return
    for suite in ET.parse(report).getroot().iter("testsuite"):
        number = {key: int(suite.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")}
        failed = number["failures"] + number["errors"]
        result.failed += failed
        result.skipped += number["skipped"]
        result.passed += max(0, number["tests"] - failed - number["skipped"])


def _report(results: Sequence[Result], *, ci: bool) -> int:
    """Print one line per tier and the sums; a tier's own failure or skip counts as one."""
    refused = [
        f"{result.name} skipped: nothing may be skipped in CI"
        for result in results
        if ci and not result.may_skip and (result.skipped or result.skipped_because)
    ]
    passed = sum(result.passed for result in results)
    failed = sum(result.failed + bool(result.failed_because) for result in results)
    skipped = sum(result.skipped + bool(result.skipped_because) for result in results)
    print("\n== summary ==")
    print(*(result.line() for result in results), *refused, sep="\n")
    print(f"{passed} passed, {failed + len(refused)} failed, {skipped} skipped", flush=True)
    return 1 if failed or refused else 0


def _run(command: Sequence[str], limit_seconds: float) -> tuple[int | None, str]:
    """Run a command in its own process group; its exit code (None: not within its time) and last line of errors."""
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    last_words = ""

    def forward() -> None:
        nonlocal last_words
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                sys.stderr.write(line)
                sys.stderr.flush()
                last_words = line.strip() or last_words

    reader = threading.Thread(target=forward, daemon=True)
    reader.start()
    try:
        code: int | None = process.wait(limit_seconds)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        # Also after a normal end: what a test left behind must not disturb the next tier.
        _end(process)
    reader.join(GRACE_SECONDS)
    return code, last_words


def _end(process: subprocess.Popen[str]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(GRACE_SECONDS if number == signal.SIGTERM else None)
        except subprocess.TimeoutExpired:
            continue


class Build:
    """The background build of everything that the cluster needs; `wait` returns at once where there is none."""

    def __init__(self, process: subprocess.Popen[str] | None, log: Path) -> None:
        self._process = process
        self._log = log

    def wait(self) -> None:
        """Return when the build has ended; a failed one is told by the tier that needs it, which tries again."""
        if self._process is None:
            return
        if self._process.poll() is None:
            print(f"waiting for the cluster's programs and images (once; see {self._log})", flush=True)
        try:
            code = self._process.wait(BUILD_LIMIT_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"The cluster's build did not end within {BUILD_LIMIT_SECONDS} s.") from error
        if code:
            print(self._log.read_text(errors="replace")[-4000:], file=sys.stderr, flush=True)


@contextmanager
def _building(chosen: Sequence[Tier]) -> Iterator[Build]:
    """Build for the tiers with a real API server while the others run, at a lower priority than their tests."""
    with tempfile.TemporaryDirectory(prefix="durable-crawler-build-") as scratch:
        log = Path(scratch) / "build.log"
        if not {"api", "cluster"} & {tier.name for tier in chosen if tier.exists()}:
            yield Build(None, log)
            return
        with log.open("w") as sink:
            process = subprocess.Popen(
                ["nice", "-n", "15", *CLUSTER, "build"],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, text=True, start_new_session=True,
            )  # fmt: skip
        try:
            yield Build(process, log)
        finally:
            _end(process)


def _ends_like_ctrl_c(*_: object) -> None:
    """On SIGTERM too, what was started is ended before this process is."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _ends_like_ctrl_c)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
