"""The smallest JSON merge patch from one status to the next; nothing at all where nothing has changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crawljob.status import CrawlJobStatus

_OURS = frozenset(field.alias or name for name, field in CrawlJobStatus.model_fields.items())


def status_patch(old: Mapping[str, Any], new: CrawlJobStatus) -> dict[str, Any]:
    """What must be sent so that the stored status says ``new``; fields that we do not know are left alone."""
    known = {key: value for key, value in old.items() if key in _OURS}
    return merge_patch(known, new.model_dump(mode="json", by_alias=True, exclude_none=True))


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """RFC 7386: changed and new members, ``null`` for those that shall go; lists are replaced as a whole."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            inner = merge_patch(before, value)
            if inner:
                patch[key] = inner
        elif key not in old or before != value:
            patch[key] = value
    return patch
