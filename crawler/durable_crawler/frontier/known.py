"""What the frontier remembers of the links that it stored last, so that a page's navigation costs a look-up in memory.

It may forget anything at any time: who asks for what it has forgotten asks the database.
"""

from __future__ import annotations

from durable_crawler.latest import Latest


class Known:
    """Pages by their URL, wordings of links by what they say. Only what is committed, or belongs to the open flush."""

    def __init__(self, next_wording: int) -> None:
        self.pages: Latest[str, tuple[int, int]] = Latest()
        """Id, and the depth that is stored."""
        self.wordings: Latest[tuple[str, str, str, str], int] = Latest()
        """By URL, fragment, text and rel of a reference."""
        self.next_wording = next_wording
        """Numbers of a flush that fails are not used again."""
