"""Whether the last pages of a large crawl cost what the first ones do, in bounded memory. ``make bench-large`` runs it.

200,000 pages over 64 hosts are read; ten times as many are known when the page limit ends the crawl. The crawler runs
as it is, durable, with robots.txt obeyed and links stored, and is killed when its resident memory exceeds the limit
(mapped files included, of which a container's limit would reclaim the larger part). Read the CPU time per page: the
rate is that of a machine with other work. Raw figures go to ``benchmarks/results/large.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from benchmarks.large_site import address
from durable_crawler.frontier.reader import FrontierReader

PAGES = 200_000
HOSTS = 64
LIMIT_MIB = 256
FLAT = 0.9
"""What the last tenth's rate, by CPU time, must be of the first's at least."""

PARTS = 10
SAMPLE_SECONDS = 0.25
STILL_SECONDS = 60
RESULTS = Path(__file__).parent / "results" / "large.json"


@dataclass(frozen=True, slots=True)
class Sample:
    """The crawler at one moment: seconds since its start, pages done, CPU seconds used, memory in MiB."""

    at: float
    done: int
    cpu: float
    loop_cpu: float
    """Of it the event loop's thread; the rest is the database's."""
    rss: float
    rss_of_files: float


class Crawler:
    """A crawl that is under way, seen from outside."""

    def __init__(self, command: Sequence[str], port: int, log: Path) -> None:
        self._port = port
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)  # noqa: S603 - ours
        self._started = time.perf_counter()
        self._done = 0

    def sample(self) -> Sample | None:
        """How it is now; ``None`` once it has ended."""
        proc = Path("/proc") / str(self.process.pid)
        try:
            cpu, loop_cpu = (_cpu(stat) for stat in (proc / "stat", proc / "task" / proc.name / "stat"))
            status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
            rss, rss_of_files = (int(status[name].split()[0]) / 1024 for name in ("VmRSS", "RssFile"))
        except (OSError, KeyError):
            return None
        return Sample(time.perf_counter() - self._started, self._progress(), cpu, loop_cpu, rss, rss_of_files)

    def _progress(self) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/progress", timeout=5) as answer:
                self._done = json.load(answer)["done"]
        except OSError:
            pass  # not yet, or not any more
        return self._done


def _cpu(stat: Path) -> float:
    """Seconds, in user mode and in the kernel."""
    fields = stat.read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Measure; 1 when the crawl did not end well, grew too large or slowed down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=PAGES)
    parser.add_argument("--hosts", type=int, default=HOSTS)
    parser.add_argument("--limit", type=int, default=LIMIT_MIB, help="resident memory in MiB")
    parser.add_argument("--keep", type=Path, help="a folder for the frontier and the log, to look at afterwards")
    options = parser.parse_args()
    console = Console(width=110)
    with tempfile.TemporaryDirectory(prefix="bench-large-") as name:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        port = _free_port()
        with _site(options.hosts, port):
            samples, code = _crawl(folder, options, port)
        if code != 0:
            console.print(f"the crawl ended with {code}: {(folder / 'log').read_text()[-800:]}", markup=False)
            return 1
        counts = FrontierReader(folder / "frontier.db").snapshot()
        size = (folder / "frontier.db").stat().st_size
    known = counts.done + counts.pending + counts.excluded
    parts = list(_parts(samples, options.pages))
    ratio = parts[0]["cpu_ms_per_page"] / parts[-1]["cpu_ms_per_page"]
    _show(console, parts)
    peak = max(sample.rss for sample in samples)
    console.print(f"known {known:,} URLs, done {counts.done:,}")
    console.print(f"frontier {size / 2**20:.0f} MiB, {size / known:.0f} bytes a URL")
    console.print(f"last tenth at {ratio:.2f} of the first (at least {FLAT}); peak {peak:.0f} MiB of {options.limit}")
    RESULTS.parent.mkdir(exist_ok=True)
    kept = {"pages": options.pages, "known": known, "bytes": size, "peak_mib": peak, "ratio": ratio, "tenths": parts}
    RESULTS.write_text(json.dumps({**kept, "samples": [asdict(sample) for sample in samples]}) + "\n")
    return 0 if ratio >= FLAT else 1


def _crawl(folder: Path, options: argparse.Namespace, port: int) -> tuple[list[Sample], int]:
    spec = {
        "seeds": [f"http://{address(host)}:{port}/" for host in range(options.hosts)],
        "scope": {"maxPages": options.pages, "maxDepth": 100},
        "fetch": {"workers": 16, "perHost": 2},
        "network": {"allowCIDRs": ["127.0.0.0/8"]},
    }
    body = {
        "apiVersion": "durable-crawler.io/v1alpha1",
        "kind": "CrawlJob",
        "metadata": {"name": "large"},
        "spec": spec,
    }
    file = folder / "crawljob.yaml"
    file.write_text(yaml.safe_dump(body))
    listen = _free_port()
    flags = ("-f", str(file), "--db", str(folder / "frontier.db"), "--metrics", str(listen))
    crawler = Crawler([sys.executable, "-m", "durable_crawler", "run", *flags], listen, folder / "log")
    samples: list[Sample] = []
    told = moved = time.monotonic()
    try:
        while (code := crawler.process.poll()) is None:
            sample = crawler.sample()
            if sample is not None:
                if not samples or sample.done > samples[-1].done:
                    moved = time.monotonic()
                samples.append(sample)
                if sample.rss > options.limit:
                    raise SystemExit(f"{sample.rss:.0f} MiB after {sample.done} pages: more than {options.limit} MiB")
            if time.monotonic() - moved > STILL_SECONDS:
                raise SystemExit(f"nothing was done for {STILL_SECONDS} s, after {samples[-1].done} pages")
            if time.monotonic() - told > 30 and samples:
                told = time.monotonic()
                last = samples[-1]
                print(
                    f"{last.done:,} pages, {last.cpu / max(last.done, 1) * 1000:.2f} ms CPU a page, {last.rss:.0f} MiB",
                    file=sys.stderr,
                )
            time.sleep(SAMPLE_SECONDS)
    finally:
        if crawler.process.poll() is None:
            crawler.process.kill()
        crawler.process.wait(10)
    return samples, code


def _parts(samples: Sequence[Sample], pages: int) -> Iterator[dict[str, float]]:
    """What each tenth of the pages took. What lies between two samples is interpolated."""
    before = _when(samples, 1)
    for part in range(1, PARTS + 1):
        first, last = pages * (part - 1) // PARTS, pages * part // PARTS
        after = _when(samples, last)
        within = [sample for sample in samples if first <= sample.done <= last] or [samples[-1]]
        yield {
            "pages_per_second": (last - first) / (after.at - before.at),
            "cpu_ms_per_page": (after.cpu - before.cpu) / (last - first) * 1000,
            "loop_cpu_ms_per_page": (after.loop_cpu - before.loop_cpu) / (last - first) * 1000,
            "rss_mib": max(sample.rss for sample in within),
            "anonymous_mib": max(sample.rss - sample.rss_of_files for sample in within),
        }
        before = after


def _when(samples: Sequence[Sample], done: int) -> Sample:
    """How it was when so many pages were done."""
    after = next((sample for sample in samples if sample.done >= done), samples[-1])
    before = next((sample for sample in reversed(samples) if sample.done < done), after)
    share = min((done - before.done) / (after.done - before.done), 1.0) if after.done > before.done else 0.0
    values = {
        field.name: getattr(before, field.name) + share * (getattr(after, field.name) - getattr(before, field.name))
        for field in fields(Sample)
    }
    return Sample(**values)


def _show(console: Console, parts: Sequence[dict[str, float]]) -> None:
    table = Table("tenth", "pages/s", "CPU ms a page", "of it loop", "of the first", "RSS MiB", "of it no file")
    for number, part in enumerate(parts, 1):
        table.add_row(
            str(number),
            f"{part['pages_per_second']:.0f}",
            f"{part['cpu_ms_per_page']:.3f}",
            f"{part['loop_cpu_ms_per_page']:.3f}",
            f"{parts[0]['cpu_ms_per_page'] / part['cpu_ms_per_page']:.2f}",
            f"{part['rss_mib']:.0f}",
            f"{part['anonymous_mib']:.0f}",
        )
    console.print(table)


@contextmanager
def _site(hosts: int, port: int) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.large_site", str(hosts), str(port)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)  # noqa: S603 - ours
    try:
        assert process.stdout is not None
        if process.stdout.readline() != b"serving\n":
            raise SystemExit("the site did not start")
        yield
    finally:
        process.kill()
        process.wait(10)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
