"""``status``: what a frontier says about its crawl, read-only, also while the crawl runs.

``document`` is what ``--format json`` prints; its keys are described in docs/reference/status.md and stay.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from durable_crawler.cli import options
from durable_crawler.cli.output import written
from durable_crawler.results.eta import span

if TYPE_CHECKING:
    from durable_crawler.frontier.overview import Overview, RobotsState, WaitingHost
    from durable_crawler.frontier.reader import FrontierReader

_PHASES = {
    "running": "pages are being worked on",
    "finished": "nothing is left to do",
    "stopped": "closed with pages left: interrupted, or at scope.maxPages",
    "unclosed": "no page in hand: it runs and waits for its hosts, or was killed",
}
_REASONS = {
    "authority": "on another host than the seeds",
    "depth": "deeper than scope.maxDepth",
    "excluded": "matched by scope.exclude",
    "not_included": "not matched by scope.include",
    "nofollow": "not to be followed, says the site",
    "above_max_links": "above scope.maxLinksPerPage",
}
_SPENT = {"waiting": "waiting for its turn", "server": "the server's", "parsing": "parsing"}
_LOST = {
    "delay": "politeness.delay",
    "crawl_delay": "Crawl-delay",
    "backoff": "backoff",
    "circuit": "circuit breaker",
    "robots": "robots.txt out of reach",
    "proxy": "proxy out of reach",
    "earlier_run": "what an earlier run was told",
    "parsing": "parsing",
    "database": "database",
}
_RECENT = 1000
"""Pages that were finished last, from which speed is told."""
_ROBOTS = {"none": "no robots.txt", "rules": "rules", "unreachable": "unreachable"}


@click.command()
@options.frontier
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def status(db: Path, form: str) -> None:
    """Show how a crawl stands, also while it runs: pages, outcomes, hosts that wait, what was not followed.

    Takes no lock, and three short looks, longer only for what is pending: the table of hosts counts it. SQLite
    leaves two files beside the frontier, -wal and -shm, until the next crawl ends.
    """
    # Only now, as in `run`: `--help` shall not wait for a database.
    from durable_crawler.clock import SystemClock  # noqa: PLC0415
    from durable_crawler.frontier import FrontierError  # noqa: PLC0415
    from durable_crawler.frontier.reader import FrontierReader  # noqa: PLC0415

    now_ms = SystemClock().wall_ms()
    try:
        reader = FrontierReader(db)
        overview = reader.overview(now_ms)
        speed = _speed(reader, overview, now_ms)
    except FrontierError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    found = {**document(db, overview, now_ms), **speed}
    text = json.dumps(found, indent=2) if form == "json" else "\n".join(_lines(found, now_ms))
    written([text, "\n"], None)


def document(db: Path, overview: Overview, now_ms: int) -> dict[str, Any]:
    """The overview as JSON: camelCase keys, times as RFC 3339 or null where there is none (or it has passed)."""
    counts = overview.counts
    return {
        "frontier": str(db),
        "time": _time(now_ms),
        "phase": str(overview.phase),
        "pages": {
            "done": counts.done,
            "failed": counts.failed,
            "pending": counts.pending,
            "leased": counts.leased,
            "deferred": counts.deferred,
            "quarantined": counts.quarantined,
            "leftOut": counts.excluded,
            "requested": counts.counted,
        },
        "bytes": counts.bytes,
        "nextRetry": _time(counts.next_due_ms),
        "outcomes": dict(overview.outcomes),
        "leftOut": dict(overview.left_out),
        "refusedLinks": dict(overview.refused),
        "timeLost": {cause: ms / 1000 for cause, ms in overview.spent_ms.items()},
        "noindexPages": overview.asks.get("noindex", 0),
        "waitingHosts": overview.waiting_hosts,
        "hosts": [_host(host, now_ms) for host in overview.hosts],
        "quarantined": [{"url": page.url, "claims": page.claims} for page in overview.quarantined],
    }


def _speed(reader: FrontierReader, overview: Overview, now_ms: int) -> dict[str, Any]:
    """How fast the crawl is, when it will be done, and what its time goes into."""
    from crawljob.spec import DEFAULT_USER_AGENT  # noqa: PLC0415
    from durable_crawler.results import eta  # noqa: PLC0415
    from durable_crawler.robots import Robots, product_token  # noqa: PLC0415

    token = product_token(DEFAULT_USER_AGENT)
    bodies = reader.robots_bodies([host.authority for host in overview.hosts])
    delays = {host: max((Robots(body, token).crawl_delay or 0.0) for body in found) for host, found in bodies.items()}
    hosts = [
        eta.Left(
            host.authority,
            host.pending + host.deferred + host.leased,
            delays.get(host.authority, 0.0),
            host.gap_ms / 1000,
            max(0, host.closed_until_ms - now_ms) / 1000,
        )
        for host in overview.hosts
    ]
    recent = [eta.Finished(*row) for row in reader.finished_lately(_RECENT)]
    counts = overview.counts
    found = eta.estimate(recent, hosts, counts.pending + counts.deferred + counts.leased, now_ms)
    going = overview.phase in ("running", "unclosed")
    parts = eta.shares(recent)
    return {
        "rate": None if found.rate is None or not going else round(found.rate, 3),
        "eta": {
            "seconds": None if found.seconds is None or not going else round(found.seconds),
            "text": found.text if going else "it does not run",
        },
        "timeSpent": None if parts is None else {name: round(share, 3) for name, share in parts.items()},
    }


def _host(host: WaitingHost, now_ms: int) -> dict[str, Any]:
    closed = host.closed_until_ms > now_ms
    return {
        "host": host.authority,
        "pending": host.pending,
        "deferred": host.deferred,
        "leased": host.leased,
        "nextRetry": _time(host.next_due_ms),
        "closedUntil": _time(host.closed_until_ms) if closed else None,
        "gapSeconds": host.gap_ms / 1000,
        "connectionFailures": host.failures,
        "circuit": "closed" if not host.openings else "open" if closed else "probing",
        "circuitOpenings": host.openings,
        "robots": [_robots(robots) for robots in host.robots],
    }


def _robots(robots: RobotsState) -> dict[str, Any]:
    return {
        "origin": robots.origin,
        "state": "unreachable" if robots.failures else "rules" if robots.size else "none",
        "bytes": robots.size,
        "failures": robots.failures,
        "askedAgain": _time(robots.expires_ms),
        "answered": _time(robots.answered_ms),
    }


def _time(ms: int | None) -> str | None:
    if not ms:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _lines(found: Mapping[str, Any], now_ms: int) -> list[str]:
    """The document for people. URLs and hosts are canonical, and so have no character that a terminal obeys."""
    pages, phase = found["pages"], found["phase"]
    lines = [f"{found['frontier']}: {phase} ({_PHASES[phase]})"]
    if phase in ("running", "unclosed"):
        rate = "" if found["rate"] is None else f"{found['rate']:.1f} pages a second; "
        lines.append(f"{rate}done in {found['eta']['text']}" if found["eta"]["seconds"] else found["eta"]["text"])
    if found["timeSpent"]:
        spent = ", ".join(f"{share:.0%} {_SPENT[name]}" for name, share in found["timeSpent"].items())
        lines.append(f"time of the pages that were finished last: {spent}")
    lost = [
        f"{span(seconds)} {_LOST.get(cause, cause)}" for cause, seconds in found["timeLost"].items() if seconds >= 0.5
    ]
    if lost:
        lines.append(f"time lost so far, added up over hosts: {', '.join(lost)}")
    lines.append("")
    waits = _until(found["nextRetry"], now_ms)
    lines += _table(
        ["PAGES", ""],
        [
            ["done", f"{pages['done']:,}", f"{pages['failed']:,} of them failed, {found['bytes']:,} bytes"],
            ["pending", f"{pages['pending']:,}"],
            ["being worked on", f"{pages['leased']:,}"],
            ["waiting for a retry", f"{pages['deferred']:,}", f"the first {waits}" if waits else ""],
            ["quarantined", f"{pages['quarantined']:,}"],
            ["left out", f"{pages['leftOut']:,}"],
        ],
    )
    lines += _sums("OUTCOMES", found["outcomes"])
    lines += _sums("PAGES LEFT OUT", found["leftOut"])
    lines += _sums("LINKS NOT FOLLOWED", found["refusedLinks"])
    if found["noindexPages"]:
        lines += ["", f"{found['noindexPages']:,} page(s) ask not to be indexed"]
    if found["hosts"]:
        head = ["HOST", "PENDING", "DEFERRED", "IN HAND", "NEXT RETRY", "STATE", "ROBOTS.TXT"]
        lines += ["", *_table(head, [_row(host, now_ms) for host in found["hosts"]])]
        if more := found["waitingHosts"] - len(found["hosts"]):
            lines.append(f"and {more:,} more host(s)")
    if found["quarantined"]:
        lines += ["", *_table(["QUARANTINED", ""], [[page["url"], ""] for page in found["quarantined"]])]
        if more := pages["quarantined"] - len(found["quarantined"]):
            lines.append(f"and {more:,} more page(s)")
    return lines


def _sums(title: str, sums: Mapping[str, int]) -> list[str]:
    rows = [[name, f"{total:,}", _REASONS.get(name, "")] for name, total in sums.items()]
    return ["", *_table([title, ""], rows)] if rows else []


def _row(host: Mapping[str, Any], now_ms: int) -> list[str]:
    state = [f"circuit {host['circuit']}"] if host["circuit"] != "closed" else []
    if host["closedUntil"]:
        state.append(f"opens {_until(host['closedUntil'], now_ms)}")
    if host["gapSeconds"]:
        state.append(f"slowed to one request in {host['gapSeconds']:g} s")
    robots = dict.fromkeys(_ROBOTS[robots["state"]] for robots in host["robots"])
    return [
        host["host"],
        *(f"{host[count]:,}" for count in ("pending", "deferred", "leased")),
        _until(host["nextRetry"], now_ms) or "-",
        ", ".join(state) or "open",
        ", ".join(robots) or "not asked",
    ]


def _until(time: str | None, now_ms: int) -> str:
    """``in 12 s``; nothing where there is no time."""
    if time is None:
        return ""
    left = round(datetime.fromisoformat(time).timestamp() - now_ms / 1000)
    if left <= 0:
        return "now"
    return f"in {left} s" if left < 120 else f"in {left // 60} min"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell, numbers to the right."""
    columns = max(map(len, rows))
    cells = [[*row, *[""] * (columns - len(row))] for row in [head, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(columns)]
    numbers = {column for column in range(columns) if cells[1][column].replace(",", "").isdigit()}
    lines = []
    for row in cells:
        aligned = (
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(aligned).rstrip())
    return lines
