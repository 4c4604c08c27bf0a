"""What a page says to crawlers about itself, in X-Robots-Tag and in meta elements. Pure; called by ``parse``.

There is no standard but what search engines document: directives apply to all crawlers, or to the one whose product
token stands before them (in the header) or is the element's name; all that apply are added up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_TOKEN = re.compile(r"\*|[A-Za-z_-][A-Za-z0-9_.-]*")

# Directives with a value: what stands before their colon is no product token.
_WITH_VALUE = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})


def directives(tags: Sequence[str], metas: Iterable[tuple[str, str]], product: str) -> frozenset[str]:
    """``noindex`` and ``nofollow``, as far as they are asked of ``product`` or of everybody.

    ``tags`` are the lines of an X-Robots-Tag header, ``metas`` the names and contents of a page's meta elements.
    """
    ours = {"robots", product.lower()}
    words = {word for tag in tags for word in _of_header(tag, product)}
    for name, content in metas:
        if name.strip().lower() in ours:
            words.update(_words(content))
    if "none" in words:
        words |= {"noindex", "nofollow"}
    return frozenset(words & {"noindex", "nofollow"})


def _of_header(value: str, product: str) -> Iterable[str]:
    """The directives of a line that concern us. A token holds for all that follows it, up to the next one."""
    ours = True
    for part in value.split(","):
        head, colon, rest = part.strip().partition(":")
        head = head.strip()
        if colon and head.lower() not in _WITH_VALUE and _TOKEN.fullmatch(head):
            ours = head.lower() in ("*", "robots", product.lower())
            part = rest  # noqa: PLW2901
        if ours:
            yield from _words(part)


def _words(text: str) -> Iterable[str]:
    return (word.strip().lower() for word in text.split(","))
