"""Where the time of a page goes, part by part. ``make bench-parts`` runs it.

The event loop's thread decides how many pages a second there can be: it is one, and what it does is Python. So its time
is taken apart: what the same pages cost when they are only parsed, step by step (the fastest of several times), what
they cost a program that only fetches them with the same client, and what is left, which is all that makes a crawl of
it. The rounds take turns; read shares, not microseconds. Raw figures go to ``benchmarks/results/parts.json``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from selectolax.lexbor import LexborHTMLParser
from tests.support.toolchain.cache import Unavailable

from benchmarks import nginx
from benchmarks.isolated import isolate
from benchmarks.sites import SITES, Served, fetch, serve
from benchmarks.subjects import SUBJECTS, Job, environment
from durable_crawler.charsets import decode
from durable_crawler.latest import Latest
from durable_crawler.parse import Memo, Parsed, parse
from durable_crawler.parse_guard import harmless

ROUNDS = 3
SAMPLE = 200
"""Pages that are parsed."""
RESULTS = Path(__file__).parent / "results" / "parts.json"
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Crawl:
    """CPU microseconds for each page of one crawl."""

    loop: float
    others: float
    """All other threads: the frontier's, and those that pages above 256 KiB are parsed in."""
    only_fetched: float
    """By the program that only fetches, all of it."""
    wall: float
    """From start to end, interpreter included."""


def steps(pages: Mapping[str, bytes]) -> dict[str, float]:
    """CPU microseconds for each page, by step of ``parse``; the last is all of it."""
    kept: Memo = Latest()
    texts = {url: decode(body, "text/html")[0] for url, body in pages.items()}

    def whole(*, references: bool) -> Callable[[], list[Parsed]]:
        return lambda: [
            parse(body, "text/html", url, 10_000, references=references, ids=references, memo=kept)
            for url, body in pages.items()
        ]

    taken = {
        "character encoding": lambda: [decode(body, "text/html") for body in pages.values()],
        "guard": lambda: [harmless(text) for text in texts.values()],
        "Lexbor's tree, made and freed": lambda: [LexborHTMLParser(text) for text in texts.values()],
        "content hash": lambda: [hashlib.blake2b(body, digest_size=16).digest() for body in pages.values()],
        "links": whole(references=False),
        "their texts, and ids": whole(references=True),
    }
    found = {
        name: min(timeit.repeat(call, number=1, repeat=9, timer=time.process_time)) / len(pages) * 1e6
        for name, call in taken.items()
    }
    everything, without = found["their texts, and ids"], found["links"]
    found["their texts, and ids"] = everything - without
    found["links"] = without - sum(list(found.values())[:4])
    return found | {"all": everything}


def sample(site: Served) -> dict[str, bytes]:
    """Some of its pages, the same each time."""
    urls = sorted(site.pages)
    chosen = random.Random(1).sample(urls, min(SAMPLE, len(urls)))  # noqa: S311 - the same each time
    return {url: urllib.request.urlopen(url, timeout=10).read() for url in chosen}  # noqa: S310 - from loopback


def crawl(site: Served, folder: Path) -> Crawl:
    """Crawl once, and fetch the same pages once by the program that does nothing else."""
    began = time.perf_counter()
    threads = ticks(_start(site, "ours-quiet", folder / "ours"))
    wall = time.perf_counter() - began
    loop = threads.pop(min(threads))  # the thread that the process began with
    only = sum(ticks(_start(site, "fetch-only", folder / "only")).values())
    per_page = 1e6 / _TICKS_PER_SECOND / len(site.pages)
    return Crawl(loop * per_page, sum(threads.values()) * per_page, only * per_page, wall * 1e6 / len(site.pages))


def _start(site: Served, name: str, folder: Path) -> subprocess.Popen[bytes]:
    job = Job(site, folder / "left", folder / "beside")
    for place in (job.place, job.beside):
        place.mkdir(parents=True)
    command = SUBJECTS[name].command(job)
    return subprocess.Popen(  # noqa: S603 - ours
        command, cwd=job.place, env=environment(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def ticks(process: subprocess.Popen[bytes]) -> dict[int, int]:
    """Clock ticks, user and system, of each of its threads, by a look twenty times a second until it ends."""
    seen: dict[int, int] = {}
    try:
        while process.poll() is None:
            for task in Path(f"/proc/{process.pid}/task").glob("*/stat"):
                try:
                    fields = task.read_text().rpartition(")")[2].split()
                except OSError:  # it has ended meanwhile
                    continue
                seen[int(task.parent.name)] = int(fields[11]) + int(fields[12])
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        raise SystemExit(f"a crawl ended with exit code {process.returncode}")
    return seen


def show(crawls: Sequence[Crawl], parsed: Sequence[Mapping[str, float]]) -> Table:
    """The medians."""
    loop = statistics.median(each.loop for each in crawls)
    fetched = statistics.median(each.only_fetched for each in crawls)
    parts = {name: statistics.median(each[name] for each in parsed) for name in parsed[0]}
    table = Table("part", "µs of CPU a page", "of the event loop's", title="Where the time of a page goes")
    rows = [
        ("event loop's thread, start included", loop),
        *((f"  parse: {name}", cost) for name, cost in parts.items()),
        ("  fetching, by a program that does nothing else", fetched),
        ("  the rest: claims, robots.txt, turns, results, start", loop - parts["all"] - fetched),
        ("other threads: frontier, pages above 256 KiB", statistics.median(each.others for each in crawls)),
        ("as it passes (not CPU)", statistics.median(each.wall for each in crawls)),
    ]
    for name, cost in rows:
        table.add_row(name, f"{cost:.0f}", f"{cost / loop:.2f}")
    return table


def measure(name: str, pages: int, rounds: int) -> tuple[list[Crawl], list[dict[str, float]]]:
    """Both, in turns."""
    crawls, parsed = [], []
    with tempfile.TemporaryDirectory(prefix="bench-parts-") as folder, serve(name, Path(folder) / "s", pages) as site:
        some = sample(site)
        for number in range(rounds):
            crawls.append(crawl(site, Path(folder) / str(number)))
            parsed.append(steps(some))
    return crawls, parsed


def main() -> int:
    """Measure and print; 1 where the site cannot be served."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parts", description=__doc__)
    parser.add_argument("--site", choices=SITES, default="synthetic")
    parser.add_argument("--rounds", type=int, choices=range(1, 100), metavar="ROUNDS", default=ROUNDS)
    parser.add_argument("--pages", type=int, choices=range(100, 10_000), metavar="PAGES", default=1000)
    options = parser.parse_args()
    try:
        nginx.install()
        fetch(options.site)
        isolate()
        crawls, parsed = measure(options.site, options.pages, options.rounds)
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"crawls": [asdict(each) for each in crawls], "steps": parsed}, indent=1) + "\n")
    Console(width=110).print(show(crawls, parsed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
