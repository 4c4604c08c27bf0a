"""What the environment says about this process: OpenTelemetry's own variables, read without OpenTelemetry."""

from __future__ import annotations

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
