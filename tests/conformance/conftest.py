"""Rows of peers' and standards' suites, one test each, from the folder that ``CONFORMANCE_CASES`` names.

A row that is deliberately answered otherwise stands in ``deviations*.toml`` with our answer and the reason; a deviation
that no row has, or that has become the expected answer, fails.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest


class Judge:
    """Compares an answer with a row's, or with the deviation that is on record for it."""

    def __init__(self) -> None:
        self.deviations: dict[str, dict[str, Any]] = {}
        for file in sorted(Path(__file__).parent.glob("deviations*.toml")):
            self.deviations |= tomllib.loads(file.read_text("utf-8"))

    def __call__(self, row: dict[str, Any], answer: object, *accepted: object) -> None:
        """``accepted`` are the answers that the row allows; the first is the one that it expects."""
        deviation = self.deviations.get(row["id"])
        if deviation is None:
            assert answer in accepted, f"{row['id']}: {answer!r} is none of {accepted!r} ({row.get('note', '')})"
        else:
            assert answer not in accepted, f"{row['id']} is no deviation any more"
            assert answer == deviation["answer"], f"{row['id']}: not the answer on record: {deviation['reason']}"


@pytest.fixture(scope="session")
def judge() -> Judge:
    """What a test of a row calls with its answer."""
    return Judge()
