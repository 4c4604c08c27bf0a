"""A crawl by Crawlee for Python that stores no results. Its queue is in memory, or with variant ``sql`` in SQLite."""

from __future__ import annotations

import json
import logging
import re
import sys
import warnings
from pathlib import Path

import uvloop
from crawlee import ConcurrencySettings
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.storage_clients import MemoryStorageClient, SqlStorageClient, StorageClient

job = json.loads(Path(sys.argv[1]).read_text())
hosts = re.compile("http://(?:" + "|".join(map(re.escape, job["hosts"])) + ")/")


def storage() -> StorageClient:
    """Where the queue is."""
    if job["variant"] == "sql":
        return SqlStorageClient(connection_string="sqlite+aiosqlite:///crawlee.db")
    return MemoryStorageClient()


async def crawl() -> int:
    """Crawl all; the number of pages."""
    got = 0
    crawler = ParselCrawler(
        storage_client=storage(),
        concurrency_settings=ConcurrencySettings(
            min_concurrency=job["workers"], desired_concurrency=job["workers"], max_concurrency=job["workers"]
        ),
        max_request_retries=3,
        respect_robots_txt_file=True,
        configure_logging=False,
    )

    @crawler.router.default_handler
    async def handle(context: ParselCrawlingContext) -> None:
        nonlocal got
        got += context.http_response.headers.get("content-type", "").startswith("text/html")
        await context.enqueue_links(strategy="all", include=[hosts])

    await crawler.run(job["seeds"])
    return got


warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
print(json.dumps({"pages": uvloop.run(crawl())}))
