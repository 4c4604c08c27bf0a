"""Conditions as kstatus, ``kubectl wait`` and people read them: one place that keeps their transition times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from crawljob.status import CONDITION_MESSAGE_MAX, Condition, ConditionType
from crawljob_operator import times
from crawljob_operator.observed import Note

Truth = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a condition shall say."""

    status: Truth
    note: Note


# What a condition says that was once reported and does not hold any more.
_OTHERWISE: dict[ConditionType, Note] = {
    "Ready": Note("Pending"),
    "StorageReady": Note("Pending"),
    "Suspended": Note("Resumed"),
    "Restarting": Note("NotRestarting"),
    "Complete": Note("NotComplete"),
    "Failed": Note("NotFailed"),
    "Stalled": Note("Progressing"),
}

_NOT_CAMEL = re.compile("[^A-Za-z]")


def merged(
    old: Iterable[Condition], wanted: Mapping[ConditionType, Wanted], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """The new list: wanted ones, and ``False`` for those that were reported before and are not wanted now."""
    before = {condition.type: condition for condition in old}
    result = []
    for kind in get_args(ConditionType):
        want = wanted.get(kind)
        if want is None:
            if kind not in before:
                continue
            want = Wanted("False", _OTHERWISE[kind])
        last = before.get(kind)
        changed = last is None or last.status != want.status
        result.append(
            Condition(
                type=kind,
                status=want.status,
                reason=word(want.note.reason),
                message=want.note.message[:CONDITION_MESSAGE_MAX],
                last_transition_time=times.text(now) if last is None or changed else last.last_transition_time,
                observed_generation=generation,
            )
        )
    return tuple(result)


def find(conditions: Iterable[Condition], kind: ConditionType) -> Condition | None:
    """The condition of one type."""
    return next((condition for condition in conditions if condition.type == kind), None)


def holds(conditions: Iterable[Condition], kind: ConditionType) -> bool:
    """Whether the condition is reported as True."""
    condition = find(conditions, kind)
    return condition is not None and condition.status == "True"


def word(reason: str) -> str:
    """Somebody else's reason as a condition's reason, which has letters only."""
    return _NOT_CAMEL.sub("", reason)[:64] or "Unknown"
