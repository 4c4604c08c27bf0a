"""Logs as JSON lines on standard output."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One record as one line; ``extra`` fields become members."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        extra = {key: value for key, value in record.__dict__.items() if key not in _STANDARD and key[:1] != "_"}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps({**extra, **line}, default=str, ensure_ascii=False)


def configure(level: str) -> None:
    """Log to standard output from now on."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
