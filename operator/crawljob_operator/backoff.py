"""How long to wait before a restart: initialSeconds × multiplier^n, at most maxSeconds, then ±10 %.

The jitter follows from the CrawlJob and the attempt: a reconcile that is repeated after a crash decides the same.
"""

from __future__ import annotations

from datetime import timedelta

from crawljob.lifecycle import Backoff, RestartPolicy
from crawljob.status import Termination
from crawljob_operator import times
from crawljob_operator.identity import fraction

REQUESTED = frozenset({"SpecChanged", "RestartRequested", "Suspended"})
"""Reasons of ends that we asked for: neither counted nor waited for."""

JITTER = 0.1


def delay(policy: Backoff, streak: int, uid: str, attempt: int) -> timedelta:
    """The wait after the ``streak``-th unhealthy end in a row (from 1)."""
    wait = policy.initial_seconds
    for _ in range(streak - 1):
        if wait >= policy.max_seconds or policy.multiplier == 1:
            break
        wait *= policy.multiplier
    factor = 1 - JITTER + 2 * JITTER * fraction("jitter", uid, str(attempt))
    return timedelta(seconds=min(wait, policy.max_seconds) * factor)


def longest(policy: Backoff) -> timedelta:
    """No wait is longer than this."""
    return timedelta(seconds=policy.max_seconds * (1 + JITTER))


def healthy(end: Termination, policy: RestartPolicy) -> bool:
    """Whether the Pod ran for ``resetAfterSeconds``."""
    started, finished = times.parse(end.started_at), times.parse(end.finished_at)
    if started is None or finished is None:
        return False
    return finished - started >= timedelta(seconds=policy.reset_after_seconds)
