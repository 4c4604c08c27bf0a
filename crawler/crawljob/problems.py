"""Bad input as data: every problem with its path, so that one answer names all of them.

Raised by ``manifest`` and shown by the command line (exit 2) and by the operator (``Stalled``/``InvalidSpec``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

_WORDING = {
    "extra_forbidden": "unknown field",
    "missing": "required",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "model_type": "must be a mapping",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
}

_EXAMPLES = {
    "seeds": "must be an absolute http or https URL such as https://docs.example.org/",
    "allowCIDRs": "must be a range such as 10.0.0.0/8 or fd00::/8; one address is a range too, such as 127.0.0.1/32",
    "address": "must be an IP address such as 127.0.0.1 or ::1 (a name is none)",
}
"""What to write, for fields whose syntax says nothing to people."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with the input: ``path`` as in ``spec.seeds[1]``, ``message`` without a full stop."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class InvalidInputError(ValueError):
    """The input cannot be used; ``problems`` holds every reason, in the order of the fields."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))


def from_validation(error: ValidationError, root: str) -> tuple[Problem, ...]:
    """Translate pydantic's error list into paths and words that a user of YAML knows."""
    items = error.errors(include_url=False)
    return tuple(
        Problem(_path(root, item["loc"]), _message(item))
        for item in items
        # A list whose every item is wrong is not too short as well.
        if not (item["type"] == "too_short" and any(_is_below(other["loc"], item["loc"]) for other in items))
    )


def _is_below(location: tuple[int | str, ...], parent: tuple[int | str, ...]) -> bool:
    return len(location) > len(parent) and location[: len(parent)] == parent


def _path(root: str, location: tuple[int | str, ...]) -> str:
    path = root
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _message(item: Any) -> str:
    wording = _WORDING.get(item["type"])
    if item["type"] in ("string_too_short", "string_pattern_mismatch"):
        wording = next((words for field, words in _EXAMPLES.items() if field in item["loc"]), None)
    if wording is None:
        wording = item["msg"].removeprefix("Value error, ")
        wording = wording[:1].lower() + wording[1:]
    if item["type"] in ("too_short", "too_long"):
        limit = item["ctx"].get("min_length", item["ctx"].get("max_length"))
        return f"must have at {'least' if item['type'] == 'too_short' else 'most'} {limit} item(s)"
    value = item.get("input")
    quotable = item["type"] not in ("missing", "extra_forbidden") and "credentials" not in wording
    if quotable and isinstance(value, str | int | float):
        wording += f", got {value!r}" if len(repr(value)) <= 100 else f", got {repr(value)[:97]}..."
    return wording
