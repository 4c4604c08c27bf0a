"""Whether a page has the place that a link's fragment names. Pure."""

from __future__ import annotations

from urllib.parse import unquote

from durable_crawler.frontier.edges import has_id

_DIRECTIVE = ":~:"


def is_missing(fragment: str, ids: bytes | None) -> bool:
    """Whether a page with these packed ids lacks what ``fragment`` names (WHATWG HTML, "the indicated part").

    ``None`` are ids that nobody has noted: then nothing is missing. Nor is it with an empty fragment, ``top``, or what
    is no id: a text directive, a path or a call of a script's (``#!/a``, ``#/a``), and what looks like parameters.
    """
    name = fragment.partition(_DIRECTIVE)[0]
    if ids is None or not name or name.lower() == "top" or name[0] in "!/" or "=" in name:
        return False
    return not (has_id(ids, name) or has_id(ids, unquote(name, errors="replace")))
