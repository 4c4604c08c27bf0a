"""What the operator's parts tell about their work. This one listens and does nothing; ``telemetry`` counts and traces.

Nothing here may raise or wait: telemetry never changes an outcome.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from crawljob.status import CrawlJobStatus
from crawljob_operator.observed import Job


class Observer:
    """Told by the door to the API server, the queue, the reconciler, the watches and the resync."""

    def called(self, verb: str, code: str, seconds: float) -> None:
        """The API server answered a request, or did not (code ``error``)."""

    def taken(self, waited: float) -> None:
        """A key was taken from the queue after so many seconds."""

    def reconciled(self, result: str, seconds: float) -> None:
        """One reconcile ended: ``success`` or ``error``."""

    def written(self, job: Job, status: CrawlJobStatus) -> None:
        """This process, and no other, has just put ``status`` in the place of ``job.status``."""

    def heard(self, resource: str, key: tuple[str, str] | None = None, version: str = "") -> None:
        """A watch told of an object; of a CrawlJob with its key and resourceVersion, which is empty when it is gone."""

    def listing(self) -> None:
        """A full listing begins; one that fails never ends."""

    def listed(self, raw: Mapping[str, Any]) -> None:
        """The listing has this CrawlJob."""

    def listing_ended(self, closed: Collection[str] = ()) -> None:
        """The listing was complete, but for namespaces that may not be listed, of which it says nothing."""
