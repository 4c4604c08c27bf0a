"""One run of a program, measured from outside: time, processor, memory of the whole tree of processes, and disk."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SAMPLE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Usage:
    """What a program took."""

    started: float
    """Seconds since 1970, to compare with a log."""
    ended: float
    wall_seconds: float
    cpu_seconds: float
    """User and system, of the process and of every child that it waited for."""
    peak_bytes: int
    """Resident, of all its processes together, by a look twenty times a second; of a single one the kernel's figure."""
    exit_code: int
    timed_out: bool


def run(
    command: Sequence[str], environment: Mapping[str, str], place: Path, output: Path, limit_seconds: float
) -> Usage:
    """Run it in ``place``, with standard output and error in ``output``; kill it and its group at the limit."""
    with output.open("wb") as log:
        began, started = time.perf_counter(), time.time()
        process = subprocess.Popen(  # noqa: S603 - ours or a peer's
            command,
            cwd=place,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            peak, timed_out = _watch(process.pid, began + limit_seconds)
        except BaseException:
            _kill(process.pid)
            process.wait()
            raise
        if timed_out:
            _kill(process.pid)
        _, status, used = os.wait4(process.pid, 0)
        wall, ended = time.perf_counter() - began, time.time()
    process.returncode = os.waitstatus_to_exitcode(status)  # waited for here, for the sake of its figures
    _kill(process.pid)  # children that it has left
    cpu = used.ru_utime + used.ru_stime
    return Usage(started, ended, wall, cpu, peak, process.returncode, timed_out)


def _watch(pid: int, until: float) -> tuple[int, bool]:
    """Look at its memory until it ends or the time is over: the peak, and whether it was."""
    peak = 0
    end = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(end, select.POLLIN)
        while not poll.poll(SAMPLE_SECONDS * 1000 if peak else 5):
            peak = max(peak, _memory(pid))
            if time.perf_counter() > until:
                return peak, True
    finally:
        os.close(end)
    return peak, False


def _memory(pid: int) -> int:
    tree = _tree(pid)
    now = [_status(member) for member in tree]
    return max(sum(resident for resident, _ in now), max((most for _, most in now), default=0))


def _tree(pid: int) -> list[int]:
    found = [pid]
    for member in found:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            for task in Path(f"/proc/{member}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def _status(pid: int) -> tuple[int, int]:
    """Resident bytes now, and at most so far."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0, 0
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in text.splitlines() if line.endswith(" kB")}
    return sizes.get("VmRSS", 0), sizes.get("VmHWM", 0)


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def bytes_left(folder: Path) -> int:
    """What the files below it occupy on the disk."""
    return sum(file.lstat().st_blocks * 512 for file in folder.rglob("*") if not file.is_dir())
