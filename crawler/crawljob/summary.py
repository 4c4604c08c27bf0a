"""What a run says while it runs (``/progress``) and at its end (the termination log).

Written by the crawler, read by the operator.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

MAX_BYTES = 4096
"""The kubelet keeps this much of a termination message."""

COUNT_MAX = 2**53
"""What every reader of JSON holds exactly; the API server refuses a status with more than an int64."""

Outcome = Literal["finished", "interrupted", "failed"]


class _Wire(BaseModel):
    """JSON with camelCase keys; a newer crawler's additional keys do not break an older operator."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", frozen=True, validate_by_name=True)


class Progress(_Wire):
    """Counts of one database snapshot. ``failed`` is the part of ``done`` that ended without a usable page."""

    done: int = Field(0, ge=0, le=COUNT_MAX, description="Pages with a result.")
    pending: int = Field(0, ge=0, le=COUNT_MAX, description="Pages that can be claimed.")
    leased: int = Field(0, ge=0, le=COUNT_MAX, description="Pages being worked on.")
    deferred: int = Field(0, ge=0, le=COUNT_MAX, description="Pages that wait for a retry.")
    failed: int = Field(0, ge=0, le=COUNT_MAX, description="The part of done that ended without a usable page.")
    quarantined: int = Field(0, ge=0, le=COUNT_MAX, description="Pages set aside after killing the process repeatedly.")
    bytes: int = Field(0, ge=0, le=COUNT_MAX, description="Decoded bytes of all bodies.")
    rate: float = Field(0.0, ge=0, allow_inf_nan=False, description="Pages per second lately.")


class RunSummary(_Wire):
    """The last word of a run, at most ``MAX_BYTES`` long as JSON."""

    outcome: Outcome
    reason: str = Field(max_length=64, pattern="^[A-Za-z]+$", description="CamelCase, as in a condition.")
    message: str = Field("", description="One sentence for people.")
    exit_code: int = Field(ge=0, le=255)
    progress: Progress | None = Field(
        None, description="What the frontier held at the end; none where it could not be opened."
    )
    version: str = ""

    def to_json(self) -> str:
        """Compact JSON; a long message is cut so that the whole stays under ``MAX_BYTES``."""
        text = self.model_dump_json(by_alias=True, exclude_none=True)
        excess = len(text.encode()) - (MAX_BYTES - 1)
        if excess <= 0:
            return text
        # JSON escapes can make six bytes of one character: cut by what is over, in characters, until it fits.
        kept = self.message
        while excess > 0 and kept:
            kept = kept[: max(0, len(kept) - max(excess // 6, 1))]
            text = self.model_copy(update={"message": kept}).model_dump_json(by_alias=True, exclude_none=True)
            excess = len(text.encode()) - (MAX_BYTES - 1)
        return text


def parse_summary(text: str | None) -> RunSummary | None:
    """Read a termination message; ``None`` for anything that is not a summary (a log tail, nothing at all)."""
    if not text:
        return None
    try:
        return RunSummary.model_validate_json(text)
    except ValidationError:
        return None
