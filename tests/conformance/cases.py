"""The folder of cases that ``CONFORMANCE_CASES`` names; without it whoever imports this is skipped, visibly."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

CASES = Path(os.environ.get("CONFORMANCE_CASES") or "/nowhere")
if not CASES.is_dir():
    pytest.skip("CONFORMANCE_CASES names no folder with conformance cases", allow_module_level=True)

Row = dict[str, Any]
Script = Callable[[], Awaitable[str | None]]


def read(name: str) -> list[Row]:
    """The rows of a file, none where it is missing: a folder may hold a part of the cases."""
    file = CASES / name
    return [json.loads(line) for line in file.read_text("utf-8").split("\n") if line] if file.is_file() else []


def rows(name: str, where: Callable[[Row], bool] = lambda _: True) -> pytest.MarkDecorator:
    """One test for each row of a file."""
    chosen = [row for row in read(name) if where(row)]
    return pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in chosen])


def published(name: str, where: Callable[[Row], bool] = lambda _: True) -> pytest.MarkDecorator:
    """One test for each row of a suite as it is published: an array, with comments between rows that have no ids."""
    file = CASES / name
    found = json.loads(file.read_text("utf-8")) if file.is_file() else []
    chosen = [{**row, "id": f"{file.stem}-{number:04}"} for number, row in enumerate(found) if isinstance(row, dict)]
    return pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in chosen if where(row)])


NOT_OF_A_HEADER = {"redir-044", "redir-048"}
"""Rows of redirects about what is done with a target that is known already, and about a body."""
AS_EXPECTED = "as expected"


class Scripts:
    """Rows in words are scripts by their id; one that nobody wrote is skipped with its words.

    A script asserts what the row expects. Where we answer otherwise, it returns our answer in words.
    """

    def __init__(self) -> None:
        self._scripts: dict[str, Script] = {}

    @property
    def ids(self) -> frozenset[str]:
        """The rows that have a script."""
        return frozenset(self._scripts)

    def __call__(self, *ids: str) -> Callable[[Script], Script]:
        """Registers a script for rows."""

        def register(script: Script) -> Script:
            self._scripts |= dict.fromkeys(ids, script)
            return script

        return register

    async def play(self, row: Row, words: str) -> str:
        """Runs the row's script; what came of it."""
        script = self._scripts.get(row["id"])
        if script is None:
            pytest.skip(f"no script for: {words}")
        return await script() or AS_EXPECTED
