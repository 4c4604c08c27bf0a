"""What went wrong, as the one sentence that the user reads."""

from __future__ import annotations


class PluginError(Exception):
    """One sentence that says what is wrong and, where that is not obvious, what to do."""


class FailedError(Exception):
    """The program in the Pod has said what is wrong, and ended with ``code``."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


class CutOffError(PluginError):
    """The program in the Pod was ended before it was done, by whoever."""
