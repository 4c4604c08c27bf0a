"""How an exchange ends early: raised by the parts of the fetcher, an outcome outside of it."""

from __future__ import annotations

from durable_crawler.outcomes import Outcome


class Failure(Exception):  # noqa: N818 - not an error of the program: it becomes an outcome within the fetcher
    """How an exchange ended early."""

    def __init__(self, outcome: Outcome, detail: str, *, stale: bool = False) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail
        self.stale = stale
        """Whether a kept connection was already closed by the server: the request may simply be sent again."""
