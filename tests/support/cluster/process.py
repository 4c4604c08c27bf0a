"""Runs the harness's own commands, always with a time limit; a failure is one sentence and the end of the output."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from tests.support.toolchain.cache import Failed

__all__ = ["Failed", "on_path", "run", "start", "wait_until"]

T = TypeVar("T")


def run(
    *command: str | Path,
    timeout: float = 60,
    check: bool = True,
    input: str | None = None,  # noqa: A002 - the same name as in subprocess
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    log: Path | None = None,
) -> str:
    """Run a command and return its standard output; with `log` both streams are appended to that file instead."""
    words = [str(word) for word in command]
    shown = " ".join(words[:4])
    sink = log.open("a") if log else None
    try:
        done = subprocess.run(
            words,
            check=False,
            stdin=subprocess.DEVNULL if input is None else None,
            input=input,
            stdout=sink or subprocess.PIPE,
            stderr=subprocess.STDOUT if sink else subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=timeout,
            env=env,
            cwd=cwd,
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"`{shown}` did not end within {timeout:.0f} s{_see(log)}.") from error
    except FileNotFoundError as error:
        raise Failed(f"`{words[0]}` is not installed.") from error
    finally:
        if sink:
            sink.close()
    if check and done.returncode:
        detail = (done.stderr or done.stdout or "").strip()[-1500:]
        raise Failed(f"`{shown}` ended with {done.returncode}{_see(log)}: {detail}")
    return done.stdout or ""


def start(log: Path, *command: str | Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a daemon of the harness, away from the terminal's Ctrl-C, which is the command's to handle."""
    with log.open("ab") as sink:
        return subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )


def wait_until(
    predicate: Callable[[], T], timeout: float = 60, describe: str = "the condition", interval: float = 0.2
) -> T:
    """Poll until `predicate` returns something true, and return it; a Failed from it counts as not yet."""
    deadline = time.monotonic() + timeout
    last = ""
    while True:
        try:
            if result := predicate():
                return result
        except Failed as error:
            last = f" ({error})"
        if time.monotonic() >= deadline:
            raise Failed(f"Waited {timeout:.0f} s for {describe} in vain{last}.")
        time.sleep(interval)


def on_path(folder: Path) -> dict[str, str]:
    """This process's environment with `folder` first on PATH."""
    return {**os.environ, "PATH": f"{folder}:{os.environ.get('PATH', '')}"}


def _see(log: Path | None) -> str:
    return f" (see {log.name} in the logs)" if log else ""
