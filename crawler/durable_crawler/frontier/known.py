"""What the frontier remembers of the links that it stored last, so that a page's navigation costs a look-up in memory.

It may forget anything at any time: who asks for what it has forgotten asks the database.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from durable_crawler.frontier.edges import Wording

Key = TypeVar("Key")
Value = TypeVar("Value")

GENERATION = 16_384
"""Entries after which the older half is forgotten: some 10 MB of URLs and wordings."""


class Latest(Generic[Key, Value]):
    """A mapping that keeps the entries used last, between one and two generations of them."""

    def __init__(self, generation: int = GENERATION) -> None:
        self._generation = generation
        self._young: dict[Key, Value] = {}
        self._old: dict[Key, Value] = {}

    def get(self, key: Key) -> Value | None:
        """What is remembered, and is so for longer now."""
        value = self._young.get(key)
        if value is None and (value := self._old.get(key)) is not None:
            self.put(key, value)
        return value

    def put(self, key: Key, value: Value) -> None:
        """Remember, and forget what was not asked for in a whole generation."""
        if len(self._young) >= self._generation:
            self._old, self._young = self._young, {}
        self._young[key] = value


class Known:
    """Pages by their URL, wordings of links by what they say. Only what is committed, or belongs to the open flush."""

    def __init__(self, next_wording: int) -> None:
        self.pages: Latest[str, tuple[int, int]] = Latest()
        """Id, and the depth that is stored."""
        self.wordings: Latest[Wording, int] = Latest()
        self.next_wording = next_wording
        """Numbers of a flush that fails are not used again."""
