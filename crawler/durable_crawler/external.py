"""The second part of a crawl, where the spec asks for it: whether links to other hosts lead to something.

It begins when the crawl's own pages are done, and takes some hosts at a time, each with an engine of its own: a foreign
site has approved nothing, and there may be thousands of them. A kill in between is no loss: what was verified is, and
the rest is left out again until the next process comes here. Called by ``run``.
"""

from __future__ import annotations

from collections.abc import Callable

from crawljob.spec import CrawlJobSpec
from crawljob.units import seconds
from durable_crawler.engine import Engine
from durable_crawler.fetch import Fetcher
from durable_crawler.frontier import SqliteFrontier
from durable_crawler.outcomes import Fetched
from durable_crawler.stop import Stop
from durable_crawler.work import MayFollow, TakeTurn

HOSTS_AT_A_TIME = 500
DELAY = "1s"
"""Between two requests to one foreign host, unless the spec wants more."""


class Checker:
    """A fetcher that only asks whether there is something."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    async def fetch(self, url: str, may_follow: MayFollow, take_turn: TakeTurn) -> Fetched:
        """One attempt, as ``work`` wants it."""
        return await self._fetcher.check(url, may_follow, take_turn)


MakeEngine = Callable[[CrawlJobSpec], Engine]
"""An engine that verifies the pages that are pending, as politely as this spec says."""


async def verify(spec: CrawlJobSpec, frontier: SqliteFrontier, make_engine: MakeEngine, stop: Stop) -> bool:
    """Verify what is left to verify; whether that was finished. Raises what ``Engine.run`` does."""
    gentle = foreign(spec)
    while await frontier.admit_external(HOSTS_AT_A_TIME, spec.audit.max_external_links):
        if not await make_engine(gentle).run(stop):
            return False
    return True


def foreign(spec: CrawlJobSpec) -> CrawlJobSpec:
    """The spec as it is for hosts that nobody has approved: one page at a time, and a delay."""
    delay = spec.politeness.delay if seconds(spec.politeness.delay) > seconds(DELAY) else DELAY
    politeness = spec.politeness.model_copy(update={"delay": delay})
    return spec.model_copy(update={"politeness": politeness, "fetch": spec.fetch.model_copy(update={"per_host": 1})})
