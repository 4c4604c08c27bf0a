"""A crawl by Scrapy that yields no items. Variant ``jobdir`` keeps its queue on disk."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import HtmlResponse, Response

job = json.loads(Path(sys.argv[1]).read_text())
settings: dict[str, Any] = {
    "ASYNCIO_EVENT_LOOP": "uvloop.Loop",
    "CONCURRENT_REQUESTS": job["workers"],
    "CONCURRENT_REQUESTS_PER_DOMAIN": job["per_host"],
    "COOKIES_ENABLED": False,
    "DOWNLOAD_DELAY": 0,
    "LOG_ENABLED": False,
    "RETRY_TIMES": 3,
    "ROBOTSTXT_OBEY": True,
    "TELNETCONSOLE_ENABLED": False,
}
if job["variant"] == "jobdir":
    settings["JOBDIR"] = "state"


class Pages(scrapy.Spider):
    """Follows every link of the hosts."""

    name = "pages"
    allowed_domains = [host.split(":")[0] for host in job["hosts"]]  # noqa: RUF012 - Scrapy's way
    got = 0

    async def start(self) -> AsyncIterator[scrapy.Request]:
        """The seeds, each but once, also when a page leads to it: Scrapy's own way asks for them again."""
        for seed in job["seeds"]:
            yield scrapy.Request(seed)

    def parse(self, response: Response) -> Iterator[scrapy.Request]:
        """Count the page, and ask for what it leads to."""
        if not isinstance(response, HtmlResponse):
            return
        Pages.got += 1
        for href in response.xpath("//a/@href | //area/@href").getall():
            try:
                url = response.urljoin(href)
                if url.startswith("http"):
                    yield scrapy.Request(url)
            except ValueError:
                continue


process = CrawlerProcess(settings)
process.crawl(Pages)
process.start()
print(json.dumps({"pages": Pages.got}))
