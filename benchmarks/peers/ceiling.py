"""The ceiling: what fetching alone, or fetching and parsing, costs in Python when nothing else is done.

Without a frontier: it is told every URL. Variant ``fetch`` reads each body; ``parse`` also gives it to Lexbor and makes
every link canonical, one by one, and keeps none. No robots.txt, no retries, no results.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import ada_url
import aiohttp
import uvloop
import yarl
from selectolax.lexbor import LexborHTMLParser


async def crawl(job: dict[str, Any], urls: list[str]) -> dict[str, int]:
    """Get every page once; how many, and how many links they had."""
    queues: dict[str, list[str]] = defaultdict(list)
    for url in urls:
        queues[url.split("/", 3)[2]].append(url)
    counts = {"pages": 0, "links": 0}
    connector = aiohttp.TCPConnector(limit=job["workers"])
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def work(queue: list[str]) -> None:
            while queue:
                url = queue.pop()
                async with session.get(yarl.URL(url, encoded=True), allow_redirects=False) as response:
                    body = await response.read()
                counts["pages"] += response.status == 200
                if job["variant"] == "parse":
                    counts["links"] += len(links(body, url))

        workers = [work(queue) for queue in queues.values() for _ in range(job["per_host"])]
        await asyncio.gather(*workers)
    return counts


def links(body: bytes, url: str) -> list[str]:
    """The canonical form of every link."""
    found = []
    for node in LexborHTMLParser(body).css("a[href]"):
        try:
            found.append(ada_url.join_url(url, node.attributes["href"] or ""))
        except ValueError:
            continue
    return found


if __name__ == "__main__":
    told = json.loads(Path(sys.argv[1]).read_text())
    print(json.dumps(uvloop.run(crawl(told, Path(told["urls"]).read_text().splitlines()))))
