"""What telemetry costs a crawl, with the Collector there, and in every state of being away. ``make bench-telemetry``.

The same site is crawled in turns, round by round, since a machine's speed changes by the minute: read the ratios. Pages
per second are from the site's first answer to its last; what a start and a bounded end cost besides stands apart. Each
crawl must end with exit code 0 and every page, whatever the Collector does. Raw figures go to
``benchmarks/results/telemetry.json``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from benchmarks.collector import collector, free_port, serving
from benchmarks.site import Shape, Site
from durable_crawler.frontier.reader import FrontierReader

ROUNDS = 5
RESULTS = Path(__file__).parent / "results" / "telemetry.json"
CRAWL_LIMIT_SECONDS = 300
_REFUSING = """\
import http.server, sys
class Refusing(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(503); self.send_header("Content-Length", "0"); self.end_headers()
    def log_message(self, *arguments): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Refusing).serve_forever()
"""


def main() -> int:
    """Measure; 1 when a crawl was not complete."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--pages", type=int, default=1000, help="pages of each of the four hosts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-telemetry-") as name:
        folder = Path(name)
        (folder / "site").mkdir()
        with Site(Shape(pages=options.pages), folder / "site") as site:
            runs = _measured(site, folder, options.rounds)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(runs, indent=1) + "\n")
    return _shown(runs)


def _measured(site: Site, folder: Path, rounds: int) -> list[dict[str, Any]]:
    runs = []
    for number in range(rounds):
        for state, endpoints in _STATES.items():
            place = folder / f"{number}-{state}"
            place.mkdir()
            with endpoints(place) as endpoint:
                run = _crawl(site, place, endpoint)
            run |= {"round": number, "collector": state}
            runs.append(run)
            print(f"round {number + 1}, collector {state}: {run['pages_per_second']:.0f} pages/s", file=sys.stderr)
    return runs


def _crawl(site: Site, place: Path, endpoint: str | None) -> dict[str, Any]:
    """One crawl of the whole site by a process of its own."""
    telemetry = {"telemetry": {"endpoint": endpoint, "protocol": "http/protobuf"}} if endpoint else {}
    spec = {
        "seeds": site.seeds,
        "scope": {"maxPages": 1_000_000, "maxDepth": 100},
        "fetch": {"workers": 16, "perHost": 4},
        "network": {"allowCIDRs": ["127.0.0.0/8"]},
        **telemetry,
    }
    body = {"apiVersion": "durable-crawler.io/v1alpha1", "kind": "CrawlJob", "metadata": {"name": "b"}, "spec": spec}
    (place / "crawljob.yaml").write_text(yaml.safe_dump(body))
    database = place / "frontier.db"
    flags = ("-f", str(place / "crawljob.yaml"), "--db", str(database), "--metrics", str(free_port()))
    site.forget()
    started = time.perf_counter()
    with (place / "log").open("wb") as log:
        done = subprocess.run(  # noqa: S603 - ours
            [sys.executable, "-m", "durable_crawler", "run", *flags],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            timeout=CRAWL_LIMIT_SECONDS,
            check=False,
        )
    whole = time.perf_counter() - started
    if not database.exists():
        raise RuntimeError(f"the crawl did not begin: {(place / 'log').read_text()[-500:]}")
    found = set(FrontierReader(database).finished_urls())
    crawling = site.seconds()
    return {
        "exit_code": done.returncode,
        "complete": found == site.urls,
        "pages": len(found),
        "pages_per_second": len(found) / crawling,
        "start_and_end_seconds": whole - crawling,
    }


@contextlib.contextmanager
def _none(_place: Path) -> Iterator[str | None]:
    yield None


@contextlib.contextmanager
def _stopped(_place: Path) -> Iterator[str | None]:
    yield f"http://127.0.0.1:{free_port()}"


@contextlib.contextmanager
def _running(place: Path) -> Iterator[str | None]:
    with collector(place) as (_, endpoint):
        yield endpoint


@contextlib.contextmanager
def _frozen(place: Path) -> Iterator[str | None]:
    with collector(place) as (process, endpoint):
        process.send_signal(signal.SIGSTOP)
        yield endpoint


@contextlib.contextmanager
def _refusing(_place: Path) -> Iterator[str | None]:
    port = free_port()
    with serving([sys.executable, "-c", _REFUSING, str(port)], port):
        yield f"http://127.0.0.1:{port}"


_STATES: dict[str, Callable[[Path], AbstractContextManager[str | None]]] = {
    "none": _none,
    "running": _running,
    "stopped": _stopped,
    "frozen": _frozen,
    "refusing": _refusing,
}


def _shown(runs: list[dict[str, Any]]) -> int:
    """The table: medians, and the ratio to the same round's crawl without telemetry."""
    table = Table(
        "collector", "pages/s (median)", "ratio to none (median)", "lowest", "highest", "start + end, s", "exit codes"
    )
    alone = {run["round"]: run["pages_per_second"] for run in runs if run["collector"] == "none"}
    for state in _STATES:
        mine = [run for run in runs if run["collector"] == state]
        ratios = [run["pages_per_second"] / alone[run["round"]] for run in mine]
        table.add_row(
            state,
            f"{statistics.median(run['pages_per_second'] for run in mine):.0f}",
            f"{statistics.median(ratios):.3f}",
            f"{min(ratios):.3f}",
            f"{max(ratios):.3f}",
            f"{statistics.median(run['start_and_end_seconds'] for run in mine):.1f}",
            ", ".join(sorted({str(run["exit_code"]) for run in mine})),
        )
    Console(width=100).print(table)
    failed = [run for run in runs if run["exit_code"] or not run["complete"]]
    for run in failed:
        print(f"round {run['round'] + 1}, collector {run['collector']}: not complete", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
