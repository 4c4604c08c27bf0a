"""The tables of ``benchmarks.crawl``: who was how fast against whom, what it cost, which target is reached."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.calibration import Calibration
from benchmarks.kept import Session
from benchmarks.ratios import CEILING, OURS, Run, Spread, noise, ratio, spread, verdicts


def show(console: Console, session: Session) -> None:
    """Print everything that the runs of one site say."""
    runs, calibrations = session.runs, session.calibrations
    rounds = 1 + max((run.round for run in runs), default=-1)
    console.rule(f"{session.site}: {session.pages} pages, {rounds} round{'s' if rounds != 1 else ''}")
    console.print(comparison(runs))
    left_out = [f"{name}: left out. {why}" for name, why in session.left_out.items()]
    for line in [*remarks(runs), *left_out]:
        console.print(line, markup=False, soft_wrap=True)
    console.print(targets(runs, session.site))
    quiet = ["The same fixed work took about the same time between all runs of each round."]
    for line in [*(noise(calibrations) or quiet), _calibrated(calibrations)]:
        console.print(line, markup=False, soft_wrap=True)
    about = "; ".join(f"{what}: {value}" for what, value in session.about.items())
    console.print(about, markup=False, soft_wrap=True)


def comparison(runs: Sequence[Run]) -> Table:
    """One row for each subject, the fastest first: medians, and of the ratios the lowest and highest of a round."""
    table = Table(
        "", "pages/s", "to ours", "to ceiling", "with start and end, to ours", "CPU s per\n1,000 pages", "peak MB",
        "disk MB", "start s", "end s", title=f"Ratios: {OURS} is 1, the ceiling is {CEILING}; median (lowest-highest)",
    )  # fmt: skip
    by_subject: dict[str, list[Run]] = {}
    for run in runs:
        by_subject.setdefault(run.subject, []).append(run)
    order = sorted(by_subject, key=lambda name: -statistics.median(run.rate for run in by_subject[name]))
    for name in order:
        mine = by_subject[name]
        table.add_row(
            name + ("" if not any(run.problems() for run in mine) else " *"),
            _median(mine, lambda run: run.rate, 0),
            shown(ratio(runs, name, OURS)),
            shown(ratio(runs, name, CEILING)),
            shown(ratio(runs, name, OURS, lambda run: run.whole_rate)),
            _median(mine, lambda run: run.cpu_per_1000, 2),
            _median(mine, lambda run: run.peak_bytes / 1e6, 0),
            _median(mine, lambda run: run.disk_bytes / 1e6, 1),
            _median(mine, lambda run: run.start_seconds, 2),
            _median(mine, lambda run: run.end_seconds, 2),
            style="bold" if name == OURS else "",
        )
    return table


def remarks(runs: Sequence[Run]) -> list[str]:
    """Once for each subject and kind: what keeps a run from being a whole crawl, and what else is to be known."""
    said: dict[str, list[int]] = {}
    for run in runs:
        for mark, lines in (("* ", run.problems()), ("", run.told)):
            for line in lines:
                said.setdefault(f"{mark}{run.subject}: {line}", []).append(run.round + 1)
    return [f"{line} (round {', '.join(map(str, rounds))})" for line, rounds in said.items()]


def targets(runs: Sequence[Run], site: str) -> Table:
    """Each target of the site and whether the median reaches it."""
    table = Table("target", "wanted", "measured", "with start and end", "", title="Targets")
    words = {True: "reached", False: "not reached", None: "not measured"}
    for verdict in verdicts(runs, site):
        whole = shown(verdict.whole) if verdict.whole else ""
        table.add_row(verdict.what, verdict.wanted, shown(verdict.measured), whole, words[verdict.reached])
    return table


def shown(figures: Spread | None) -> str:
    """``0.95 (0.93-0.99)``; a dash where there is nothing."""
    if figures is None:
        return "-"
    digits = 2 if figures.median < 10 else 1 if figures.median < 100 else 0
    median, low, high = (f"{figure:.{digits}f}" for figure in figures)
    return median if low == high else f"{median} ({low}-{high})"


def _median(runs: Sequence[Run], figure: Callable[[Run], float | None], digits: int) -> str:
    found = spread(value for run in runs if (value := figure(run)) is not None)
    return f"{found.median:.{digits}f}" if found else "-"


def _calibrated(calibrations: Mapping[int, Sequence[Calibration]]) -> str:
    everything = [one for measured in calibrations.values() for one in measured]
    parts = []
    for kind, what in (("cpu_ms", "processor"), ("fetch_ms", "1,000 fetches"), ("fsync_ms", "one write to disk")):
        figures = spread(getattr(one, kind) for one in everything)
        parts.append(f"{what} {shown(figures)} ms")
    return f"Fixed work: {', '.join(parts)}."
