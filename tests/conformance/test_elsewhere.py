"""Each row about what went wrong in other crawlers is played, or shown by tests of another tier, or waits visibly.

Where it is shown stands in ``elsewhere.toml``: ``test`` names tests, ``lacks`` beside it what of the row they do not
show, ``waits`` a feature to come, ``missing`` that nothing shows the row.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.conformance import test_bugs, test_bugs_polite
from tests.conformance.cases import read

FILE = Path(__file__).with_name("elsewhere.toml")
ROOT = Path(__file__).parents[2]
ENTRIES = tomllib.loads(FILE.read_text("utf-8"))
ROWS = {row["id"] for row in read("bugs.jsonl")}
PLAYED = test_bugs.script.ids | test_bugs_polite.script.ids


@cache
def named_in(file: Path) -> frozenset[str]:
    """The tests of a file as pytest names them, those of its classes included. Nothing is imported."""
    return frozenset(_names(ast.parse(file.read_text("utf-8")).body))


def _names(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test_"):
                yield prefix + name
            case ast.ClassDef(name=name):
                yield from _names(node.body, f"{prefix}{name}::")


@pytest.mark.parametrize("row", sorted(ROWS))
def test_a_row_is_played_or_shown_elsewhere(row: str) -> None:
    assert row in PLAYED or row in ENTRIES, "no script plays it and elsewhere.toml does not say where it is shown"


@pytest.mark.parametrize("row", ENTRIES)
def test_an_entry_is_a_test_or_a_reason(row: str) -> None:
    assert row not in PLAYED, "a script plays it: it is not shown elsewhere only"
    entry = dict(ENTRIES[row])
    names = entry.pop("test", [])
    assert entry.keys() <= ({"lacks"} if names else {"waits", "missing"})
    assert len(entry) == 1 or (names and not entry)
    for why in entry.values():
        assert why.endswith("."), "a sentence"
    for name in names:
        file, _, test = name.partition("::")
        assert (ROOT / file).is_file(), name
        assert test in named_in(ROOT / file), name


def test_entries_are_of_rows_that_exist() -> None:
    strange = sorted(ENTRIES.keys() - ROWS)
    if strange:
        pytest.skip(f"these cases have no rows for the entries {', '.join(strange)}")
