"""What an http or https URL of the spec must be."""

from __future__ import annotations

import ada_url

URL_MAX_LENGTH = 2048
"""Characters of a URL in its canonical form (law L10)."""


def web_address(given: str) -> str:
    """The URL as it was given. Raises ``ValueError`` that says what it must be."""
    try:
        url = ada_url.URL(given)
    except ValueError:
        raise ValueError("must be an absolute http or https URL") from None
    if url.protocol not in ("http:", "https:") or not url.hostname:
        raise ValueError("must be an absolute http or https URL")
    if url.username or url.password:
        raise ValueError("must not contain credentials")
    if len(url.href) > URL_MAX_LENGTH:
        raise ValueError(f"must have at most {URL_MAX_LENGTH} characters once it is escaped")
    return given
