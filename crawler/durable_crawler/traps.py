"""Links that a site makes up without end, told from their shape alone. Pure; called for every link and redirect.

Whoever refuses a link for it says so by its name. Calendars and the like have no such shape: depth and page limits end
those. What is too long is refused with the URL itself (``urls.MAX_LENGTH``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

MAX_SEGMENTS = 20
MAX_REPETITIONS = 3
"""So often may a run of segments not stand in a row: two are found on honest sites (``/2011/11/11``)."""
MAX_PARAMETERS = 10
MAX_SAME_PARAMETER = 5


class Trap(StrEnum):
    """Why a canonical URL is not followed."""

    SEGMENTS = "too_many_segments"
    """The path has more than ``MAX_SEGMENTS``."""
    REPETITION = "repeating_segments"
    """A segment, or a run of them, stands ``MAX_REPETITIONS`` times in a row, as relative links nest by mistake."""
    PARAMETERS = "too_many_parameters"
    """The query has more than ``MAX_PARAMETERS``: filters that are combined at will."""
    SAME_PARAMETER = "repeating_parameter"
    """One name stands more than ``MAX_SAME_PARAMETER`` times in the query."""


def trap(url: str) -> Trap | None:
    """What kind of trap a canonical URL looks like; ``None`` for most."""
    place, _, query = url.partition("?")
    parts = place.split("/")  # scheme, nothing, host, segments
    if len(parts) >= 3 + MAX_REPETITIONS:
        if len(parts) > 3 + MAX_SEGMENTS:
            return Trap.SEGMENTS
        # Most paths have no segment twice, which is told sooner.
        if len(set(parts)) <= len(parts) - MAX_REPETITIONS + 1 and _repeats(parts[3:]):
            return Trap.REPETITION
    if query.count("&") >= MAX_SAME_PARAMETER:
        names = [parameter.partition("=")[0] for parameter in query.split("&") if parameter]
        if len(names) > MAX_PARAMETERS:
            return Trap.PARAMETERS
        if names and max(Counter(names).values()) > MAX_SAME_PARAMETER:
            return Trap.SAME_PARAMETER
    return None


def _repeats(segments: Sequence[str]) -> bool:
    for period in range(1, len(segments) // MAX_REPETITIONS + 1):
        in_a_row = 0
        for before, after in zip(segments, segments[period:], strict=False):
            in_a_row = in_a_row + 1 if before == after else 0
            if in_a_row == period * (MAX_REPETITIONS - 1):
                return True
    return False
