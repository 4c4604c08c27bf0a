"""Forms of a report, and which one is meant where none is named: the same in both programs."""

from __future__ import annotations

from pathlib import Path

FORMATS = ("html", "markdown", "json", "junit")
_SUFFIXES = {".html": "html", ".htm": "html", ".md": "markdown", ".json": "json", ".xml": "junit"}


def form_for(output: Path | None, *, terminal: bool) -> str:
    """By the suffix of the file; without one that says it Markdown for a ``terminal``, to be read there, else HTML."""
    if output is not None and output.suffix.lower() in _SUFFIXES:
        return _SUFFIXES[output.suffix.lower()]
    return "markdown" if output is None and terminal else "html"
