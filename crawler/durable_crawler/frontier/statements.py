"""Loads the named statements of ``statements.sql``; a name that is not there is an error at import, not at run time."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def _load(text: str) -> dict[str, str]:
    parts = _NAME.split(text)[1:]
    return {name: _without_comments(body) for name, body in zip(parts[::2], parts[1::2], strict=True)}


def _without_comments(body: str) -> str:
    lines = (line for line in body.splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(lines).strip().removesuffix(";")


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _migrations() -> tuple[str, ...]:
    folder = files(__package__).joinpath("migrations")
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith(".sql"))
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1)), "migrations are numbered from 1"
    return tuple(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


MIGRATIONS: Final = _migrations()
"""The script that leads to each schema version, from 1; forward only. A new frontier runs them all."""

SCHEMA_VERSION: Final = len(MIGRATIONS)
STATEMENTS: Final = _load(_resource("statements.sql"))
