"""Why a crawl is over, as a reason for a condition and a sentence for people."""

from __future__ import annotations

import json

from crawljob.spec import CrawlJobSpec
from durable_crawler.frontier import SqliteFrontier
from durable_crawler.outcomes import Outcome
from durable_crawler.stop import Stop

_SEEDS_NAMED = 3
_CAUSES = {
    Outcome.ROBOTS_DISALLOWED.value: " is disallowed by its robots.txt",
    Outcome.ROBOTS_UNREACHABLE.value: " has a robots.txt that cannot be fetched, which forbids all (RFC 9309)",
    Outcome.HOST_DEAD.value: " is on a host that could not be connected to",
}


async def explain(frontier: SqliteFrontier, spec: CrawlJobSpec) -> tuple[str, str]:
    """Reason and message of a crawl that is finished."""
    counts = frontier.snapshot
    if not await frontier.fetched_anything():
        rows = await frontier.seed_results(_SEEDS_NAMED)
        causes = "; ".join(_cause(*row) for row in rows)
        unreachable = bool(rows) and all(row[1] == Outcome.ROBOTS_UNREACHABLE for row in rows)
        reason = "RobotsUnreachable" if unreachable else "NothingFetched"
        return reason, f"no page was fetched: {causes}" if causes else "no page was fetched"
    what = f"{counts.done:,} pages done, {counts.failed:,} of them failed"
    if counts.quarantined:
        what += f", {counts.quarantined:,} quarantined"
    if counts.pending:
        limit = spec.scope.max_pages
        return "PageLimitReached", f"{what}; stopped at scope.maxPages ({limit:,}) with {counts.pending:,} pages left"
    return "CrawlFinished", what


def interrupted(stop: Stop) -> tuple[str, str]:
    """Reason and message of a crawl that was asked to stop."""
    name = stop.signal.name if stop.signal is not None else "a signal"
    return "Interrupted", f"stopped by {name} with work left; run again with the same frontier to go on"


def _cause(url: str, outcome: str, status: int | None, final_url: str | None, hops: str | None) -> str:
    if outcome == Outcome.REDIRECT_OUT_OF_SCOPE and hops:
        target = json.loads(hops)[-1][2]
        return f"{url} leads to {target}, which no seed approves (add it as a seed)"
    if outcome == Outcome.REDIRECT_EXCLUDED and hops:
        target = json.loads(hops)[-1][2]
        return f"{url} leads to {target}, which scope.include or scope.exclude leaves out"
    if outcome == Outcome.ADDRESS_REFUSED:
        return (
            f"{final_url or url} is at no public address (open its range with network.allowCIDRs, or --allow-cidr; "
            "what failed is tried again when restartRequestedAt is set)"
        )
    if outcome == Outcome.HTTP_ERROR:
        return f"{final_url or url} answered {status}"
    return url + _CAUSES.get(outcome, f": {outcome.replace('_', ' ')}")
