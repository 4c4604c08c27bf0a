"""What finished pages found, as rows: results, the pages that are linked to, the links, the ids. Part of a flush.

Called by ``group`` for pages whose leases were kept, after they have become ``done`` in the same transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from durable_crawler.frontier.edges import Edges, Wording, pack, pack_ids
from durable_crawler.frontier.known import Known
from durable_crawler.frontier.model import Link, Result
from durable_crawler.frontier.sets import Run, as_json, parts
from durable_crawler.parse import Reference
from durable_crawler.urls import url_hash


@dataclass(frozen=True, slots=True)
class Found:
    """A page that is done, and what is to be stored of it."""

    id: int
    result: Result
    links: Sequence[Link]


async def store(run: Run, found: Sequence[Found], known: Known, now_ms: int) -> frozenset[int]:
    """Store all of it; the hosts that have pending pages now."""
    results = [_result(page.id, page.result) for page in found]
    _number_hashes(results, found)
    hashes = b"".join(page.result.content_hash for page in found)
    await run("record", {"results": as_json(results), "now": now_ms, "hashes": hashes})
    ids, stocked = await _add_links(run, found, known)
    await _add_edges(run, [page for page in found if page.result.references], known, ids)
    packed = [([page.id], pack_ids(page.result.ids)) for page in found if page.result.ids is not None]
    await _add_packed(run, "add_fragments", packed)
    return stocked


async def _add_links(run: Run, found: Sequence[Found], known: Known) -> tuple[Mapping[str, int], frozenset[int]]:
    """Store the pages that are linked to; their ids, and the hosts that have pending pages now.

    One that is remembered, and to which this way is not shorter, is in the database as it shall be.
    """
    ids: dict[str, int] = {}
    stocked: set[int] = set()
    links: list[list[Any]] = []
    outside: list[list[Any]] = []
    for page in found:
        for link in page.links:
            seen = known.pages.get(link.url)
            if seen is not None and seen[1] <= link.depth:
                ids[link.url] = seen[0]
                continue
            target, where = (outside, link.authority) if link.host_id is None else (links, link.host_id)
            target.append([*url_hash(link.url), link.url, where, link.depth, page.id, link.left_out])
    for part in parts(links):
        stocked.update(host_id for (host_id,) in await run("add_pages", {"pages": as_json(part)}))
    if outside:
        await run("add_hosts", {"authorities": as_json(list({where for _, _, _, where, *_ in outside}))})
    for part in parts(outside):
        await run("leave_out", {"pages": as_json(part)})
    for part in parts([*links, *outside]):
        for place, page_id, depth in await run("page_ids", {"links": as_json([row[:2] for row in part])}):
            url = part[place][2]
            ids[url] = page_id
            known.pages.put(url, (page_id, depth))
    return ids, frozenset(stocked)


async def _add_edges(run: Run, found: Sequence[Found], known: Known, ids: Mapping[str, int]) -> None:
    rows: list[tuple[list[int], bytes]] = []
    for page in found:
        first = known.next_wording
        edges = _edges(page.result.references, first, known, ids)
        rows.append(([first, page.id], pack(first, edges)))
        known.next_wording += max(1, len(edges.wordings))  # one is used up in any case: the row's id
    await _add_packed(run, "add_edges", rows)


def _edges(references: Sequence[Reference], first: int, known: Known, ids: Mapping[str, int]) -> Edges:
    wordings: list[Wording] = []
    links: list[tuple[int, int]] = []
    for reference in references:
        said = reference[:4]
        number = known.wordings.get(said)
        if number is None:
            number = first + len(wordings)
            url, *words = said
            wordings.append(Wording(ids[url], *words))
            known.wordings.put(said, number)
        links.append((number, reference.position))
    return Edges(wordings, links)


async def _add_packed(run: Run, statement: str, rows: Sequence[tuple[list[int], bytes]]) -> None:
    """JSON has no bytes: the values of all rows are one, of which each row names its part."""
    pages: list[list[int]] = []
    begin = 1
    for row, packed in rows:
        pages.append([*row, begin, len(packed)])
        begin += len(packed)
    if pages:
        await run(statement, {"pages": as_json(pages), "packed": b"".join(packed for _, packed in rows)})


def _result(page_id: int, result: Result) -> dict[str, Any]:
    return {
        "page": page_id,
        "outcome": result.outcome,
        "status": result.status,
        "final_url": result.final_url,
        "content_type": result.content_type,
        "bytes": result.bytes,
        "title": result.title,
        "links": result.links,
        "dropped_links": result.dropped_links,
        "hops": [[hop.url, hop.status, hop.location] for hop in result.hops] or None,
        "error": result.error,
        "failed": int(result.outcome.failed),
        "duration_ms": result.duration_ms,
        "refused": dict(result.refused) or None,
        "nofollow": result.nofollow or None,
        "noindex": int(result.noindex) or None,
        "waited_ms": result.waited_ms or None,
        "parse_ms": result.parse_ms or None,
        "canonical": result.canonical or None,
        "hash": None,
    }


def _number_hashes(results: Sequence[dict[str, Any]], found: Sequence[Found]) -> None:
    """Say where each hash begins in the one value that holds them all, counted from 1."""
    begin = 1
    for row, page in zip(results, found, strict=True):
        if page.result.content_hash:
            row["hash"] = begin
            begin += len(page.result.content_hash)
