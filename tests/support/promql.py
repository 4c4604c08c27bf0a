"""What a PromQL expression names: metrics, their selectors, labels. It reads words, and does not know the grammar."""

from __future__ import annotations

import re

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_DURATION = re.compile(r"\[[^\]]*\]")
_MATCHER = re.compile(r'([A-Za-z_]\w*)\s*(?:=~|!~|!=|=)\s*"')
_WORD = re.compile(rf"{_QUOTED}|\d[\w.]*|([A-Za-z_:][\w:]*)\s*(\{{(?:{_QUOTED}|[^}}\"])*\}})?\s*(\(?)")
_OPERATORS = {"and", "or", "unless", "bool", "offset"}


def selectors(expression: str) -> set[str]:
    """Every selector in it: a metric's name with its matchers, as they stand there, without a range."""
    plain = _DURATION.sub(" ", _GROUPING.sub(" ", expression))
    return {
        f"{name}{matchers or ''}"
        for name, matchers, call in (match.groups() for match in _WORD.finditer(plain))
        if name and not call and name not in _OPERATORS
    }


def metrics(expression: str) -> set[str]:
    """The names of the metrics in it."""
    return {selector.partition("{")[0] for selector in selectors(expression)}


def labels(expression: str) -> set[str]:
    """The labels that it matches or groups by."""
    grouped = {name.strip() for names in _GROUPING.findall(expression) for name in names.split(",")}
    return (grouped | set(_MATCHER.findall(expression))) - {""}
