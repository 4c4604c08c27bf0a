"""What the crawler's process says with its exit code, and what the operator may conclude from it."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of ``durable-crawler run``; the operator's classification reads them by these names."""

    FINISHED = 0
    """The frontier is drained or an exact bound is reached, decided in one database snapshot."""
    INFRASTRUCTURE = 1
    """The database, the listener or the program itself failed: restart, counted."""
    INVALID = 2
    """Configuration or usage is wrong; a restart would not help."""
    OUT_OF_DISK = 12
    """The volume is full or under its watermark: restart with backoff, it may have been enlarged by then."""
    OWNED = 14
    """Another process owns this frontier: restart, not counted."""
    UNUSABLE_FRONTIER = 15
    """The file is not a frontier, is corrupt, or was made by another version; a restart would not help."""
    SIGINT = 130
    """Interrupted with work left; leases released, no attempt charged."""
    SIGTERM = 143
    """As SIGINT: what a kubelet's graceful stop leads to."""


NOT_RETRIABLE = frozenset({ExitCode.INVALID, ExitCode.UNUSABLE_FRONTIER})
"""Codes after which the operator fails the job at once."""

NOT_COUNTED = frozenset({ExitCode.OWNED, ExitCode.SIGINT, ExitCode.SIGTERM})
"""Codes after which the operator restarts without counting a failure."""
