"""What the environment says about this process: OpenTelemetry's own variables, read without OpenTelemetry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote


def resource_attributes(environ: Mapping[str, str]) -> dict[str, str]:
    """The attributes of ``OTEL_RESOURCE_ATTRIBUTES``; what is no ``key=value`` is left out."""
    attributes = {}
    for pair in environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
        key, equals, value = pair.partition("=")
        if equals and key.strip():
            attributes[key.strip()] = unquote(value.strip())
    return attributes


def attempt_from(environ: Mapping[str, str]) -> int:
    """Which Pod of its CrawlJob this process is in, from 1, by its attribute ``crawljob.attempt``; else 1."""
    attempt = resource_attributes(environ).get("crawljob.attempt", "")
    return int(attempt) if attempt.isascii() and attempt.isdigit() and len(attempt) < 10 else 1


_HEADER = re.compile(r"[0-9A-Za-z_.-]+")
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"


def headers_problem(environ: Mapping[str, str]) -> str:
    """What is wrong with ``OTEL_EXPORTER_OTLP_HEADERS``, in one sentence without any value of it; empty if nothing is.

    The exporters leave out a header that they cannot read, or fail at each export.
    """
    pairs = [pair.strip() for pair in environ.get(HEADERS, "").split(",")]
    for number, pair in enumerate(pairs, 1):
        name, equals, value = pair.partition("=")
        if not pair:
            continue
        if not equals or not _HEADER.fullmatch(name.strip()):
            return f"{HEADERS}: header {number} is no key=value with a header's name as its key"
        decoded = unquote(value.strip())
        if not (value.isascii() and decoded.isascii() and decoded.isprintable()):
            return f"{HEADERS}: the value of header {number} must be one line of ASCII, percent-encoded"
    return ""
