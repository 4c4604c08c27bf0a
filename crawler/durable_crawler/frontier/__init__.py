"""The durable frontier: what is known, who works on it, and what came of it. The only door to SQLite.

``model`` has the port that the engine sees, ``sqlite`` the implementation, ``opening`` what happens before the first
claim, ``reader`` a read-only view for other processes. The SQL stands in ``migrations/`` and ``statements.sql``.
"""

from durable_crawler.frontier.model import (
    Attempt,
    Claimed,
    Deferral,
    Frontier,
    FrontierBrokenError,
    FrontierError,
    FrontierFullError,
    FrontierOwnedError,
    FrontierUnusableError,
    Host,
    HostState,
    Lease,
    Link,
    Result,
    Snapshot,
    Verdict,
)
from durable_crawler.frontier.sqlite import SqliteFrontier

__all__ = [
    "Attempt",
    "Claimed",
    "Deferral",
    "Frontier",
    "FrontierBrokenError",
    "FrontierError",
    "FrontierFullError",
    "FrontierOwnedError",
    "FrontierUnusableError",
    "Host",
    "HostState",
    "Lease",
    "Link",
    "Result",
    "Snapshot",
    "SqliteFrontier",
    "Verdict",
]
