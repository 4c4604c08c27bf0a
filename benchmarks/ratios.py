"""From the runs of a benchmark to what they say: ratios within a round, medians, spread, noise, targets. Pure.

Only runs of the same round are compared: a machine's speed changes by the minute, the others' do with it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.calibration import Calibration

NOISE_LIMIT = 0.2
"""How much the same work may differ within a round, as a share of the fastest, before its ratios are doubted."""

OURS, CEILING = "ours", "fetch-parse"


@dataclass(frozen=True, slots=True)
class Run:
    """One crawl of a site by one subject."""

    subject: str
    round: int
    position: int
    """Its place in the round, from 0."""
    pages: int
    """HTML pages that the server gave to it, each once."""
    missing: int
    """Pages of the site that it did not get."""
    extra: int
    """Pages that no link of the site leads to."""
    again: int
    """Requests for a page beyond its first."""
    requests: int
    own_pages: int | None
    """How many pages it counted itself, where it tells."""
    start_seconds: float
    """From the start of the process to the first answer."""
    crawl_seconds: float
    """From the first answer to the last, by the server's log."""
    end_seconds: float
    """From the last answer to the end of the process."""
    cpu_seconds: float
    peak_bytes: int
    disk_bytes: int
    telemetry_bytes: int | None
    """What the Collector wrote of it; None without one."""
    exit_code: int
    timed_out: bool
    fine: bool
    """Whether the program ended as after a crawl that went well."""

    @property
    def rate(self) -> float:
        """Pages per second while it crawled."""
        return self.pages / self.crawl_seconds if self.crawl_seconds > 0 else 0.0

    @property
    def whole_rate(self) -> float:
        """Pages per second from the start of the process to its end."""
        whole = self.start_seconds + self.crawl_seconds + self.end_seconds
        return self.pages / whole if whole > 0 else 0.0

    @property
    def cpu_per_1000(self) -> float | None:
        """Processor seconds per 1,000 pages."""
        return self.cpu_seconds / self.pages * 1000 if self.pages else None

    def problems(self) -> list[str]:
        """Why its figures are not those of a whole crawl of the site; empty where they are."""
        found = []
        if self.timed_out:
            found.append("stopped at the limit of time")
        elif not self.fine:
            found.append(f"ended with exit code {self.exit_code}")
        if self.missing:
            found.append(f"{self.missing} pages not found")
        if self.extra:
            found.append(f"{self.extra} pages that the site does not link to")
        counted = range(self.pages, self.pages + self.again + 1)  # it may count a page again as well
        if self.own_pages is not None and self.own_pages not in counted and not self.timed_out:
            found.append(f"says {self.own_pages} pages, the server {self.pages}")
        if self.telemetry_bytes == 0:
            found.append("the Collector got nothing")
        return found

    @property
    def told(self) -> list[str]:
        """What is not wrong, but to be known."""
        return [f"{self.again} pages asked for again"] if self.again else []


class Spread(NamedTuple):
    """The median of some figures, and the lowest and the highest of them."""

    median: float
    low: float
    high: float


def spread(figures: Iterable[float]) -> Spread | None:
    """None without figures."""
    found = list(figures)
    return Spread(statistics.median(found), min(found), max(found)) if found else None


def ratio(runs: Iterable[Run], subject: str, other: str, rate: Callable[[Run], float] | None = None) -> Spread | None:
    """How many times as fast as ``other`` the subject was, of each round in which both got pages."""
    rate = rate or (lambda run: run.rate)
    by_round: dict[int, dict[str, float]] = {}
    for run in runs:
        by_round.setdefault(run.round, {})[run.subject] = rate(run)
    pairs = [(found.get(subject, 0.0), found.get(other, 0.0)) for found in by_round.values()]
    return spread(mine / theirs for mine, theirs in pairs if mine and theirs)


def noise(calibrations: Mapping[int, Sequence[Calibration]]) -> list[str]:
    """One sentence for each round, and each kind of fixed work, whose times differ too much."""
    said = []
    for number, measured in sorted(calibrations.items()):
        for kind in ("cpu_ms", "fetch_ms"):
            times = [getattr(one, kind) for one in measured]
            if not times or max(times) <= min(times) * (1 + NOISE_LIMIT):
                continue
            said.append(
                f"round {number + 1} was noisy: the same work ({kind.removesuffix('_ms')}) took "
                f"{min(times):.0f} to {max(times):.0f} ms; do not trust its ratios"
            )
    return said


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target, and what was measured of it."""

    what: str
    wanted: str
    measured: Spread | None
    whole: Spread | None
    """The same ratio with starts and ends, where it is a ratio."""
    reached: bool | None
    """By the median; None where it was not measured."""


SYNTHETIC = frozenset({"synthetic"})
RUST = frozenset({"rust-doc"})
_RATIOS = (
    (SYNTHETIC, CEILING, 0.95),
    (SYNTHETIC, "scrapy", 3.0),
    (SYNTHETIC, "scrapy-jobdir", 3.0),
    (SYNTHETIC, "crawlee", 4.0),
    (SYNTHETIC, "crawlee-sql", 4.0),
    (SYNTHETIC, "colly", 3.0),
    (SYNTHETIC, "wget", 1.2),
    (SYNTHETIC, "wget2", 0.8),
    (RUST, "wget-spider", 1.5),
    (SYNTHETIC, "ours-quiet", 0.95),
    (SYNTHETIC, "ours-nosync", 0.9),
)
PEAK_MB = 120.0
START_SECONDS = 0.6


def verdicts(runs: Sequence[Run], site: str) -> list[Verdict]:
    """Each target of the site, with what the runs say about it."""
    runs = [run for run in runs if run.subject != OURS or not run.problems()]  # half a crawl reaches nothing
    found = []
    for sites, other, wanted in _RATIOS:
        if site in sites:
            measured = ratio(runs, OURS, other)
            whole = ratio(runs, OURS, other, lambda run: run.whole_rate)
            reached = measured.median >= wanted if measured else None
            found.append(Verdict(f"{OURS} / {other}", f"at least {wanted:g}", measured, whole, reached))
    ours = [run for run in runs if run.subject == OURS]
    limits = [("start to first answer, s", START_SECONDS, [run.start_seconds for run in ours])]
    if site in RUST:  # the one site with 20,000 pages
        limits.append(("peak memory, MB", PEAK_MB, [run.peak_bytes / 1e6 for run in ours]))
    for what, most, figures in limits:
        measured = spread(figures)
        reached = measured.median <= most if measured else None
        found.append(Verdict(what, f"at most {most:g}", measured, None, reached))
    return found
