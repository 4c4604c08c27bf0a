"""Logs on standard output, one line an event: JSON for machines, text for people.

``configure`` is called once by the command line. What a page contains (URLs, header values, causes) is hostile: control
characters never reach a terminal and no line is long. Modules log through ``logging`` and ``Limited``; nothing is
logged per page above debug.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Literal, TextIO

from crawljob_telemetry.limited import NOISY, Limited

MESSAGE_MAX = 2000
"""Characters of a message, and of each extra field."""

TRACEBACK_MAX = 8000
DEPTH_MAX = 3
ITEMS_MAX = 32

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_SECRET_KEY = re.compile(r"authorization|cookie|password|passwd|secret|token|api[-_]?key|credential", re.IGNORECASE)
_USERINFO = re.compile(r"(://)[^/\s?#@]+@")


def configure(
    level: str = "INFO",
    format: Literal["json", "text"] = "json",  # noqa: A002  the name of the command line's option
    *,
    context: Mapping[str, str] | None = None,
    stream: TextIO | None = None,
) -> None:
    """Send the root logger to standard output (or ``stream``); a second call replaces the first.

    ``context`` is added to every line, for example ``trace_id`` and ``span_id`` of the run.
    """
    handler = logging.StreamHandler(sys.stdout if stream is None else stream)
    handler.setFormatter(_Json(dict(context or {})) if format == "json" else _Text())
    # At the handler: a filter on a parent logger is not asked about its children's records.
    handler.addFilter(_without_noise)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def add_context(**context: str) -> None:
    """Add fields to every JSON line from now on, for what is known only later."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, _Json):
            handler.formatter.context.update(context)


def _without_noise(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] not in NOISY or logging.getLogger().level <= logging.DEBUG


class _Json(logging.Formatter):
    """One JSON object: ts (RFC 3339, milliseconds, UTC), level, logger, message, context, extra fields, exception."""

    def __init__(self, context: dict[str, str]) -> None:
        super().__init__()
        self.context = context

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            **self.context,
        }
        line.update((key, value) for key, value in _extra(record).items() if key not in line)
        if trace := _traceback(self, record):
            line["exception"] = trace
        # ASCII only: escapes direction marks and lone surrogates along with control characters.
        return json.dumps(line, ensure_ascii=True, separators=(",", ":"))


class _Text(logging.Formatter):
    """``time LEVEL logger: message key=value``; everything that is not printable is escaped."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {key}={value}" for key, value in _extra(record).items())
        line = _printable(f"{_timestamp(record)} {record.levelname} {record.name}: {_message(record)}{fields}")
        if trace := _traceback(self, record):
            line += "\n" + "\n".join(_printable(part) for part in trace.splitlines())
        return line


def _timestamp(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(record: logging.LogRecord) -> str:
    return _cut(record.getMessage(), MESSAGE_MAX)


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that the caller added."""
    return {
        key: _field(key, value, 0)
        for key, value in record.__dict__.items()
        if key not in _STANDARD and not key.startswith("_")
    }


def _field(key: str, value: object, depth: int) -> Any:
    """A value as JSON has it; bounded, and left out where its name says that it is a secret."""
    return "[redacted]" if _SECRET_KEY.search(key) else _plain(value, depth)


def _plain(value: object, depth: int) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):  # JSON has neither NaN nor infinity
        return value
    if depth < DEPTH_MAX and isinstance(value, Mapping):
        return {_cut(str(k), 100): _field(str(k), v, depth + 1) for k, v in islice(value.items(), ITEMS_MAX)}
    if depth < DEPTH_MAX and isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value[:ITEMS_MAX]]
    return _cut(str(value), MESSAGE_MAX)


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if not record.exc_info:
        return ""
    text = _USERINFO.sub(r"\1[redacted]@", formatter.formatException(record.exc_info))
    return text if len(text) <= TRACEBACK_MAX else "…" + text[-TRACEBACK_MAX:]  # the end names the cause


def _cut(text: str, limit: int) -> str:
    text = _USERINFO.sub(r"\1[redacted]@", text)
    return text if len(text) <= limit else text[:limit] + "…"


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


__all__ = ["Limited", "add_context", "configure"]
