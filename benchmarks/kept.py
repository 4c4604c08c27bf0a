"""The raw figures of ``benchmarks.crawl``: a file of JSON lines that is complete after every run, and read again.

Its first line tells the site and the machine, every other one a run or a calibration.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.calibration import Calibration
from benchmarks.ratios import Run


@dataclass(slots=True)
class Session:
    """All that was measured of one site."""

    site: str
    pages: int
    """That the site has."""
    left_out: dict[str, str]
    """Subjects that this machine cannot run, and why."""
    about: dict[str, Any]
    """What it was measured on and with."""
    runs: list[Run] = field(default_factory=list)
    calibrations: dict[int, list[Calibration]] = field(default_factory=dict)
    """Of each round, counted from 0."""


class Keeper:
    """Adds to a session, and at once to its file."""

    def __init__(self, path: Path, session: Session) -> None:
        self.path = path
        self.session = session
        path.parent.mkdir(parents=True, exist_ok=True)
        head = {"site": session.site, "pages": session.pages, "left_out": session.left_out, "about": session.about}
        self._write("session", head)

    def run(self, run: Run) -> None:
        """Keep a run."""
        self.session.runs.append(run)
        self._write("run", dataclasses.asdict(run))

    def calibration(self, number: int, found: Calibration) -> None:
        """Keep the fixed work of a round."""
        self.session.calibrations.setdefault(number, []).append(found)
        self._write("calibration", {"round": number, **dataclasses.asdict(found)})

    def _write(self, kind: str, figures: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({"kind": kind, **figures}) + "\n")


def read(lines: Iterable[str]) -> Session:
    """What such a file has. Raises ``ValueError`` for another one."""
    session = None
    for line in lines:
        try:
            figures = json.loads(line)
            kind = figures.pop("kind")
            if kind == "session":
                session = Session(**figures)
            elif session is not None and kind == "run":
                session.runs.append(Run(**figures))
            elif session is not None and kind == "calibration":
                session.calibrations.setdefault(figures.pop("round"), []).append(Calibration(**figures))
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"not a line of raw figures: {line.strip()[:80]}") from error
    if session is None:
        raise ValueError("no raw figures of a benchmark")
    return session
