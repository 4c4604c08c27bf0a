"""Which CrawlJobs the watch has kept silent about: what one listing shows, the watch must have told by the next.

A listing and a watch are never at the same point in time, so that one comparison says nothing; a CrawlJob that was
listed in a state which the watch had not told, and of which it told nothing until the next listing, was missed.
"""

from __future__ import annotations

from collections.abc import Collection

Key = tuple[str, str]


class Drift:
    """Compares resourceVersions, by equality only. Keeps one for each CrawlJob that exists."""

    def __init__(self) -> None:
        self._told: dict[Key, str] = {}
        self._listed: dict[Key, str] = {}
        self._told_since: set[Key] = set()
        """Since the last listing began."""
        self._suspects: set[Key] = set()

    def heard(self, key: Key, version: str) -> None:
        """The watch told of a CrawlJob; without a version: that it is gone."""
        if version:
            self._told[key] = version
        else:
            self._told.pop(key, None)
        self._told_since.add(key)
        self._suspects.discard(key)

    def began(self) -> None:
        """A listing begins."""
        self._listed, self._told_since = {}, set()

    def listed(self, key: Key, version: str) -> None:
        """The listing has it."""
        self._listed[key] = version

    def ended(self, closed: Collection[str] = ()) -> int:
        """How many CrawlJobs the listing before this one had shown, and the watch has not.

        What was known of the ``closed`` namespaces is forgotten: neither of the two tells of them.
        """
        self._told = {key: version for key, version in self._told.items() if key[0] not in closed}
        missed = {key for key in self._suspects if key[0] not in closed}
        for ghost in missed - self._listed.keys():
            self._told.pop(ghost, None)  # its deletion will never be told
        differing = {key for key in self._listed.keys() | self._told if self._listed.get(key) != self._told.get(key)}
        self._suspects = {key for key in differing - self._told_since if key[0] not in closed}
        return len(missed)
