"""URLs as they may be shown to others: without what would let somebody in (the conventions on ``url.full``).

Used by ``spans`` for attributes, and for texts that may have a URL in them.
"""

from __future__ import annotations

import re

SENSITIVE = (
    "AWSAccessKeyId",
    "Signature",
    "X-Amz-Credential",
    "X-Amz-Security-Token",
    "X-Amz-Signature",
    "X-Goog-Signature",
    "sig",
)
"""Keys of a query whose values the conventions name; case matters."""

_VALUE = re.compile(rf"([?&](?:{'|'.join(map(re.escape, SENSITIVE))})=)[^&#\s]*")
_USER = re.compile(r"(https?://)[^/?#@\s]*@", re.IGNORECASE)


def redacted(text: str) -> str:
    """``text`` with each of their values, and the credentials of each URL, replaced by ``REDACTED``."""
    return _USER.sub(r"\1REDACTED:REDACTED@", _VALUE.sub(r"\1REDACTED", text))
