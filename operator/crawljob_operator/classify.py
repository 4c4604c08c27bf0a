"""How a Pod ended, and what follows: finished, failed for good, or a restart that is counted or not.

Judged by the crawler's own container, its exit code and its summary, and by DisruptionTarget; a Pod's reason alone
decides nothing, because kubelets use the same word for a drained node and for a Pod that overran its own limits.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

from crawljob.exitcodes import NOT_COUNTED, NOT_RETRIABLE, ExitCode
from crawljob.lifecycle import PodFailurePolicy
from crawljob.status import MESSAGE_MAX, PodRef, Termination
from crawljob.summary import Progress, RunSummary, parse_summary
from crawljob_operator import times
from crawljob_operator.failurepolicy import Verdict, judge
from crawljob_operator.observed import Pod, Terminated


class Outcome(Enum):
    """What a Pod's end means for the job."""

    FINISHED = auto()
    FATAL = auto()
    RESTART = auto()


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of one Pod."""

    outcome: Outcome
    termination: Termination
    progress: Progress | None = None
    verdict: Verdict | None = None
    """The user's rule that decided, if one did."""


_SIGNALS = 128  # a shell's and a container runtime's exit code of a process killed by signal n is 128 + n
_LAST_SIGNAL = 31

_WORDS = {
    ExitCode.INVALID: "InvalidConfiguration",
    ExitCode.UNUSABLE_FRONTIER: "UnusableFrontier",
    ExitCode.OUT_OF_DISK: "OutOfDisk",
    ExitCode.OWNED: "FrontierOwned",
    ExitCode.SIGINT: "Interrupted",
    ExitCode.SIGTERM: "Interrupted",
}

NO_RULES = PodFailurePolicy()

# Graceful node shutdown of kubelets that set no DisruptionTarget.
_SHUTDOWN = frozenset({"NodeShutdown", "Terminated", "Shutdown"})

# The kubelet ended it by its activeDeadlineSeconds: whether the job's own time is used up, the time itself tells.
_OVERTIME = "DeadlineExceeded"


def classify(pod: Pod, requested: str, now: datetime, policy: PodFailurePolicy = NO_RULES) -> Ending:
    """Judge a Pod that has ended. ``requested`` is the reason for which we asked it to stop, if we did.

    The user's rules are for what is not finished and not asked for by us.
    """
    end = pod.terminated or Terminated(exit_code=None)
    code = end.exit_code
    if code is None and pod.phase == "Succeeded":
        code = 0  # the kubelet says that every container exited with 0
    summary = parse_summary(end.message)
    disturbed = _disturbance(pod, requested)

    counted = False
    verdict: Verdict | None = None
    if code == ExitCode.FINISHED and _finished(summary, disturbed):
        outcome = Outcome.FINISHED
        reason = summary.reason if summary else "CrawlFinished"
    elif not requested and (verdict := judge(policy, pod, code)) is not None:
        outcome = Outcome.FATAL if verdict.action == "FailJob" else Outcome.RESTART
        counted = verdict.action == "Count"
        reason = _restart_reason(end, code, summary, disturbed, pod)
    elif code in NOT_RETRIABLE:
        outcome = Outcome.FATAL
        reason = summary.reason if summary else _WORDS[ExitCode(code)]
    else:
        outcome = Outcome.RESTART
        interrupted = code == ExitCode.FINISHED and summary is not None and summary.outcome == "interrupted"
        counted = not (disturbed or code in NOT_COUNTED or interrupted)
        reason = _restart_reason(end, code, summary, disturbed, pod)
    return Ending(
        outcome,
        Termination(
            pod_uid=pod.uid,
            exit_code=code,
            signal=_signal(end, code),
            reason=reason[:64],
            message=_message(pod, end, summary, reason),
            counted=counted,
            started_at=_text(
                end.started_at or pod.running_since or (pod.created_at if disturbed == _OVERTIME else None)
            ),
            finished_at=times.text(min(end.finished_at or now, now)),
        ),
        summary.progress if summary else None,
        verdict,
    )


def vanished(pod: PodRef, requested: str, now: datetime, *, disowned: bool = False) -> Ending:
    """A Pod that we had recorded is gone and nobody saw how it ended, nor when: it is taken to have run until now.

    Or it is there and not ours any more (``disowned``): somebody has changed its ownerReferences.
    """
    reason, message = "PodDeleted", "The Pod was deleted before its end was seen."
    if disowned:
        reason, message = "PodConflict", "The Pod's ownerReferences do not name this CrawlJob any more."
    elif requested:
        reason, message = requested, "The Pod was stopped by the operator."
    termination = Termination(
        pod_uid=pod.uid,
        reason=reason,
        message=message,
        started_at=pod.started_at,
        finished_at=times.text(now),
    )
    return Ending(Outcome.RESTART, termination)


def _finished(summary: RunSummary | None, disturbed: str) -> bool:
    # Without a summary an evicted Pod whose process ended well looks the same as one whose crawl is done.
    return summary.outcome == "finished" if summary else not disturbed


def _disturbance(pod: Pod, requested: str) -> str:
    """Why the Pod was taken down from outside; empty when it ended by itself."""
    if pod.disruption is not None:
        evicted = pod.own is not None and pod.own.reason == "Evicted"
        return "Evicted" if evicted else pod.disruption.reason
    if pod.deleting:
        return requested or "PodDeleted"
    if pod.own is not None and pod.own.reason in _SHUTDOWN:
        return "NodeShutdown"
    if pod.own is not None and pod.own.reason == _OVERTIME:
        return _OVERTIME
    return ""


def _restart_reason(end: Terminated, code: int | None, summary: RunSummary | None, disturbed: str, pod: Pod) -> str:
    # A Pod that was rejected or evicted before its container had an end has a reason of its own.
    rejected = pod.own.reason if pod.own and pod.terminated is None else ""
    container = end.reason if end.reason != "Completed" else ""
    candidates = (
        disturbed,
        "OOMKilled" if end.reason == "OOMKilled" else "",
        _WORDS[ExitCode(code)] if code in NOT_COUNTED or code == ExitCode.OUT_OF_DISK else "",
        summary.reason if summary else "",
        "Interrupted" if code == ExitCode.FINISHED else "",
        rejected,
        container,
    )
    return next(filter(None, candidates), "Error")


def _signal(end: Terminated, code: int | None) -> int | None:
    if end.signal:
        return end.signal
    if code is not None and _SIGNALS < code <= _SIGNALS + _LAST_SIGNAL:
        return code - _SIGNALS
    return None


def _message(pod: Pod, end: Terminated, summary: RunSummary | None, reason: str) -> str:
    if reason == "OOMKilled":
        limit = f" of {pod.memory_limit}" if pod.memory_limit else ""
        return f"The crawler needed more memory than its limit{limit}."
    if summary is not None:
        return summary.message[:MESSAGE_MAX]
    parts = [pod.own.message if pod.own else "", pod.disruption.message if pod.disruption else "", end.message]
    said = next((part for part in parts if part.strip()), "").strip()
    return _last_words(said)[-MESSAGE_MAX:]  # of a log, the end says most


def _last_words(text: str) -> str:
    """Of a killed crawler the kubelet has only the tail of its log: the last line's message, where that is JSON."""
    try:
        line = json.loads(text.splitlines()[-1])
    except (ValueError, IndexError, RecursionError):
        return text
    message = line.get("message") if isinstance(line, dict) else None
    return f"The log ended with: {message}" if isinstance(message, str) else text


def _text(time: datetime | None) -> str | None:
    return None if time is None else times.text(time)
