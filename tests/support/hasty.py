"""The operator as a process in which time passes faster: its real limits of minutes are reached in seconds.

Nothing of the product knows of it. The event loop's timers, the monotonic clock and the clock of decisions run
``speed`` times as fast; the network and the processor do not, so a test's waits are bounded in real seconds. A fork
server that has imported everything makes a start cheap enough to kill the operator at every one of its calls.
"""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from kubernetes.aio.config import kube_config
from tests.support.apiserver import die_with_parent

from crawljob_operator import cli, reconcile
from crawljob_operator.decide import Decision, decide
from crawljob_operator.observed import Job
from crawljob_operator.reconcile import Reconciler

T = TypeVar("T")

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__])


class Clock:
    """Wall time that began at its making to run ``speed`` times as fast; ``skew`` seconds are added to it."""

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self.skew = 0.0
        self._epoch = time.time()

    def now(self) -> datetime:
        """The time there."""
        return datetime.fromtimestamp(self._epoch + (time.time() - self._epoch) * self.speed + self.skew, UTC)


class Child:
    """A started operator with the few methods of ``subprocess.Popen`` that the tests use."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], log: Path, clock: Clock, poison: str = ""
    ) -> None:
        """``poison`` is the name of a CrawlJob for which the operator has a defect."""
        self._process = _context.Process(target=_run, args=(arguments, environment, log, clock, poison))
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """Its exit code, once it has ended."""
        return self._process.exitcode

    def send_signal(self, sig: signal.Signals) -> None:
        """Send a signal, if it still lives."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; the exit code."""
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("operator", timeout or 0)
        return code


def _run(arguments: Sequence[str], environment: Mapping[str, str], log: Path, clock: Clock, poison: str) -> None:
    die_with_parent()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.environ.update(environment)
    kube_config.KUBE_CONFIG_DEFAULT_LOCATION = environment["KUBECONFIG"]  # the library read its environment long ago
    _hasten(clock)
    if poison:
        _poison(poison)
    cli.main(list(arguments), prog_name="crawljob-operator")


def _hasten(clock: Clock) -> None:
    """Change this process's clocks. The event loop takes its time from ``time.monotonic``."""
    real, begin = time.monotonic, time.monotonic()
    time.monotonic = lambda: begin + (real() - begin) * clock.speed

    class Selector(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            return list(super().select(timeout / clock.speed if timeout else timeout))

    def run(main: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(Selector())) as runner:
            return runner.run(main)

    asyncio.run = run  # type: ignore[assignment]
    setattr(cli, "Reconciler", functools.partial(Reconciler, clock=clock.now))  # noqa: B010 - not its declared type


def _poison(name: str) -> None:
    def broken(job: Job, *seen: Any) -> Decision:
        if job.name == name:
            raise RuntimeError("a defect of the operator, made by the test")
        return decide(job, *seen)

    setattr(reconcile, "decide", broken)  # noqa: B010 - not its declared type
