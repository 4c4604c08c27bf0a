"""What the operator counts, as plain numbers: written by the event loop's thread, read as copies by others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import get_args

from crawljob.status import Phase
from crawljob_telemetry.metrics import Histogram

SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

PHASES: tuple[str, ...] = get_args(Phase)
RESULTS = ("success", "error")
OTHER = "Other"

RESTART_REASONS = (
    # The operator's own words.
    "Error",
    "NodeShutdown",
    "PodConflict",
    "PodDeleted",
    "RestartRequested",
    "SpecChanged",
    "Suspended",
    # Those for the crawler's exit codes, and the crawler's, from its summary.
    "DatabaseFailed",
    "FrontierOwned",
    "FrontierUnusable",
    "Interrupted",
    "InvalidConfiguration",
    "ListenerFailed",
    "OutOfDisk",
    "UnusableFrontier",
    # The kubelet's and the container runtime's.
    "ContainerCannotRun",
    "DeadlineExceeded",
    "Evicted",
    "OOMKilled",
    "StartError",
    # Those of a disruption.
    "DeletionByPodGC",
    "DeletionByTaintManager",
    "EvictionByEvictionAPI",
    "PreemptionByScheduler",
    "TerminationByKubelet",
    OTHER,
)
"""All values of the label: a reason may be anybody's word, and a series is kept for ever."""


CODES = frozenset({200, 201, 403, 404, 409, 422, 429, 500, 503})
"""Statuses of the API server that have a series of their own; any other counts as the first of its class."""


class Stats:
    """Counters of this process, and the gauges of the last full listing."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._heard: dict[str, float] = {}
        self.queue_depth: Callable[[], int] = lambda: 0
        """Asked from any thread."""
        self.reconcile_seconds = {result: Histogram(SECONDS) for result in RESULTS}
        self.queue_seconds = Histogram(SECONDS)
        self.api_seconds: dict[tuple[str, str], Histogram] = {}
        """By the method and the answer's code."""
        self.jobs: dict[str, int] = {}
        """By phase; empty until the first listing."""
        self.restarts = dict.fromkeys(RESTART_REASONS, 0)
        self.drift = 0
        self.spans = {"sent": 0, "failed": 0, "dropped": 0}
        self.metric_exports = {"sent": 0, "failed": 0}

    def called(self, verb: str, code: str, seconds: float) -> None:
        """Count a request to the API server; ``code`` is a status, or a word where no answer came."""
        if code.isdigit() and int(code) not in CODES:
            code = f"{code[0]}00" if code[0] in "2345" else "500"
        histogram = self.api_seconds.get((verb, code))
        if histogram is None:
            histogram = self.api_seconds[verb, code] = Histogram(SECONDS)
        histogram.observe(seconds)

    def restarted(self, reason: str) -> None:
        """Count a Pod that ended before its crawl did."""
        self.restarts[reason if reason in self.restarts else OTHER] += 1

    def heard(self, resource: str) -> None:
        """A watch is alive."""
        self._heard[resource] = self._monotonic()

    def watch_ages(self) -> dict[str, float]:
        """Seconds since each watch was heard."""
        now = self._monotonic()
        return {resource: max(now - since, 0.0) for resource, since in dict(self._heard).items()}
