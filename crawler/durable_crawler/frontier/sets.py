"""What every flush is made of: statements over sets of rows, which travel as JSON. Pure but for ``Run``."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

ROWS_PER_STATEMENT = 5000
"""New pages that one statement inserts: some 50 ms on a slow machine, a fortieth of the deadline."""

Row = tuple[Any, ...]
Run = Callable[[str, Mapping[str, Any]], Awaitable[Sequence[Row]]]
"""Executes a statement with parameters within the database's deadline and returns its rows."""


def parts(rows: Sequence[list[Any]]) -> Iterator[Sequence[list[Any]]]:
    """Rows in statements of bounded size: however many links a page has, none comes near the deadline."""
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        yield rows[start : start + ROWS_PER_STATEMENT]


def as_json(value: object) -> str:
    """Compact JSON for ``json_each``; lone surrogates cannot be in it, the parser has replaced them."""
    return json.dumps(value, separators=(",", ":"))
