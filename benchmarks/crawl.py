"""Whole crawls of the same site by this crawler, by its peers and by two ceilings, in turns. ``make bench`` runs it.

A machine's speed changes by the minute, so each round runs every subject once, beginning with another one each time,
and only runs of the same round are compared: read the ratios. nginx's log says which pages a subject got, when the
first and when the last; a fixed piece of work between the runs tells a noisy machine. Raw figures are kept, one line of
JSON each. benchmarks/README.md says how to read the tables.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from tests.support.toolchain import binaries
from tests.support.toolchain.cache import Unavailable

from benchmarks import measured, nginx, tables
from benchmarks.calibration import calibrate
from benchmarks.collector import TELEMETRY, collector
from benchmarks.isolated import isolate
from benchmarks.kept import Keeper, Session, read
from benchmarks.ratios import Run
from benchmarks.sites import SITES, Served, fetch, serve
from benchmarks.subjects import COLLY, ROOT, SUBJECTS, Job, Subject, environment, locked

ROUNDS = {"synthetic": 5, "python3-doc": 5, "rust-doc": 3}
LIMIT_SECONDS = 600
RESULTS = Path(__file__).parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 2 when asked for what is not known, 1 when a site cannot be served."""
    options = _options(arguments)
    console = Console(width=max(Console().width, 150))
    if options.show is not None:
        tables.show(console, options.show)
        return 0
    stamp = datetime.datetime.now(tz=datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    try:
        sites = options.site or list(SITES)
        subjects, left_out = prepared(options.only or list(SUBJECTS))
        nginx.install()
        for site in sites:
            fetch(site)
        if not isolate():  # from here on nothing is installed
            print("only root can keep the crawlers from all but loopback; they are told to stay there", file=sys.stderr)
        for site in sites:
            results = Path(options.results) / f"crawl-{site}-{stamp}.jsonl"
            tables.show(console, _measure(site, subjects, left_out, options, results))
            console.print(f"Raw figures: {results}\n", soft_wrap=True)
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crawl", description=__doc__)
    parser.add_argument("--site", action="append", choices=SITES, help="may be repeated (all)")
    parser.add_argument("--rounds", type=_positive, help="how often each subject runs (3 or 5, by the site)")
    parser.add_argument("--only", type=_names, help=f"subjects, separated by commas, of: {', '.join(SUBJECTS)}")
    parser.add_argument("--pages", type=_positive, default=1000, help="of each of the synthetic site's 4 hosts")
    parser.add_argument("--limit", type=_positive, default=LIMIT_SECONDS, help="seconds for one run (%(default)s)")
    parser.add_argument(
        "--folder", type=_folder, help="where sites and crawls are for a while; a real disk (the temporary folder)"
    )
    parser.add_argument("--show", type=_shown, metavar="FILE", help="print the tables of a file of raw figures again")
    parser.add_argument("--results", default=RESULTS, help="the folder of the raw figures (%(default)s)")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return int(text)


def _folder(text: str) -> str:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is not a folder; make it first")
    return text


def _shown(text: str) -> Session:
    try:
        return read(Path(text).read_text().splitlines())
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text} cannot be shown: {error}") from None


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in SUBJECTS]
    if unknown or not names:
        raise argparse.ArgumentTypeError(f"unknown {', '.join(unknown) or 'subject'}; known are {', '.join(SUBJECTS)}")
    return list(dict.fromkeys(names))


def prepared(names: Sequence[str]) -> tuple[list[Subject], dict[str, str]]:
    """The named subjects that this machine can run, installed; and of the others, why it cannot."""
    able: list[Subject] = []
    left_out: dict[str, str] = {}
    failed: dict[Callable[[], object], Unavailable] = {}
    for name in names:
        subject = SUBJECTS[name]
        try:
            if subject.prepare in failed:  # another one of the same installation
                raise failed[subject.prepare]
            subject.prepare()
            if subject.telemetry:
                binaries.ensure("otelcol")
        except Unavailable as error:
            failed[subject.prepare] = error
            left_out[name] = str(error)
            print(f"{name} is left out: {error}", file=sys.stderr)
        else:
            able.append(subject)
    return able, left_out


def _measure(
    name: str, subjects: Sequence[Subject], left_out: dict[str, str], options: argparse.Namespace, results: Path
) -> Session:
    with tempfile.TemporaryDirectory(prefix="bench-crawl-", dir=options.folder) as folder, ExitStack() as stack:
        site = stack.enter_context(serve(name, Path(folder) / "site", options.pages))
        keeper = Keeper(results, Session(name, len(site.pages), left_out, machine()))
        turns(site, subjects, Path(folder), keeper, rounds=options.rounds or ROUNDS[name], limit=options.limit)
    return keeper.session


def turns(
    site: Served, subjects: Sequence[Subject], folder: Path, keeper: Keeper, *, rounds: int, limit: float
) -> None:
    """Run all subjects once in each round, and the fixed work before, between and after them."""
    too_slow: set[str] = set()
    for number in range(rounds):
        still = [subject for subject in subjects if subject.name not in too_slow]
        for position, subject in enumerate(rotated(still, number)):
            keeper.calibration(number, calibrate(site.seeds[0], folder))
            place = folder / f"{number}-{subject.name}"
            run = _one(site, subject, place, limit, number=number, position=position)
            shutil.rmtree(place)
            keeper.run(run)
            if run.timed_out:
                too_slow.add(subject.name)
            print(f"round {number + 1}, {subject.name}: {_line(run)}", file=sys.stderr, flush=True)
        keeper.calibration(number, calibrate(site.seeds[0], folder))


def rotated(subjects: Sequence[Subject], number: int) -> list[Subject]:
    """The order of a round: each round begins with the next one, so that none is always behind the same other."""
    first = number % len(subjects) if subjects else 0
    return [*subjects[first:], *subjects[:first]]


def _one(site: Served, subject: Subject, place: Path, limit: float, *, number: int, position: int) -> Run:
    job = Job(site, place / "left", place / "beside")
    for folder in (job.place, job.beside):
        folder.mkdir(parents=True)
    output = job.beside / "output"
    with ExitStack() as stack:
        if subject.telemetry:
            process, endpoint = stack.enter_context(collector(job.beside))
            stack.callback(_ended, process)
            job = dataclasses.replace(job, endpoint=endpoint)
        command = subject.command(job)
        site.nginx.forget()
        used = measured.run(command, environment(command), job.place, output, limit)
    seen = site.nginx.seen()
    run = Run(
        subject=subject.name,
        round=number,
        position=position,
        pages=len(seen.pages),
        missing=len(site.pages - seen.pages),
        extra=len(seen.pages - site.pages),
        again=seen.again,
        requests=seen.requests,
        own_pages=subject.own_count(job, output.read_text(errors="replace")),
        start_seconds=max(seen.first - used.started, 0.0) if seen.requests else used.wall_seconds,
        crawl_seconds=seen.last - seen.first,
        end_seconds=max(used.started + used.wall_seconds - seen.last, 0.0) if seen.requests else 0.0,
        cpu_seconds=used.cpu_seconds,
        peak_bytes=used.peak_bytes,
        telemetry_bytes=(job.beside / TELEMETRY).stat().st_size if subject.telemetry else None,
        disk_bytes=measured.bytes_left(job.place),
        exit_code=used.exit_code,
        timed_out=used.timed_out,
        fine=used.exit_code in subject.fine,
    )
    if not run.fine and not run.timed_out:
        print(f"{subject.name} said last: {output.read_text(errors='replace').strip()[-500:]}", file=sys.stderr)
    return run


def _ended(process: subprocess.Popen[bytes]) -> None:
    """The Collector, which writes all it has got before it ends."""
    process.terminate()
    process.wait(10)


def _line(run: Run) -> str:
    return "; ".join([f"{run.rate:.0f} pages/s", *run.problems(), *run.told])


def machine() -> dict[str, Any]:
    """What it was measured on and with."""
    return {
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "commit": _first_line("git", "-C", str(ROOT), "describe", "--always", "--dirty"),
        "python": platform.python_version(),
        "nginx": _first_line("nginx", "-v"),
        "wget": _first_line("wget", "--version"),
        "wget2": _first_line("wget2", "--version"),
        "peers": locked("scrapy", "crawlee"),
        "colly": COLLY.version(),
    }


def _first_line(*command: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - ours
            command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30
        )
    except OSError:
        return ""
    return (done.stdout or done.stderr).strip().partition("\n")[0]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what it has started is ended, and its files removed
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
