"""A mapping that may forget: what it holds is bounded, and what is used often stays. Pure.

For what can be found out again at any time, only more slowly.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

GENERATION = 16_384
"""Entries after which the older half is forgotten: with URLs, some 5 MB."""


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
