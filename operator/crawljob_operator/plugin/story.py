"""How a CrawlJob stands, in a few lines for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crawljob_operator.conditions import find
from crawljob_operator.observed import Job

OVER = frozenset({"Complete", "Failed"})
"""Phases after which nothing happens by itself."""


def lines(job: Job) -> list[str]:
    """What the CrawlJob's own status says."""
    status = job.status
    ready = find(status.conditions, "Ready")
    reason = f" ({ready.reason})" if ready else ""
    told = [f"crawljob {job.namespace}/{job.name}: {status.phase}{reason}"]
    if ready and ready.message:
        told.append(f"  {ready.message}")
    counts = [f"attempt {status.attempt}", f"{status.restarts} restarts"]
    if status.progress is not None:
        pages = status.progress
        counts += [f"{pages.done:,} pages done, {pages.failed:,} of them failed", f"{pages.pending:,} pending"]
        if pages.updated_at:
            counts.append(f"as of {pages.updated_at}")
    told.append(f"  {', '.join(counts)}")
    return [printable(line) for line in told]


def document(job: Job, frontier: Mapping[str, Any] | None) -> dict[str, Any]:
    """The same for programs: the CrawlJob's status, and what the frontier says where its crawl runs."""
    return {
        "namespace": job.namespace,
        "name": job.name,
        "status": job.status.model_dump(mode="json", by_alias=True, exclude_none=True),
        "frontier": frontier,
    }


def over(job: Job) -> bool:
    """Whether nothing more will happen by itself."""
    return job.status.phase in OVER


def printable(text: str) -> str:
    """Without what a terminal would obey: messages carry words of programs that we do not know."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
