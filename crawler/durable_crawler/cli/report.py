"""``report``: what a crawl found, as a document, read-only, also while the crawl runs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from crawljob import __version__, reports
from crawljob.exitcodes import ExitCode
from durable_crawler.cli import options
from durable_crawler.cli.output import apart, written

FORMATS = reports.FORMATS
CLASSES = ("broken", "fragment", "unreachable", "blocked", "insecure", "redirected", "unchecked")
FOUND = 3
"""Exit code of a report with targets of a class that ``--fail-on`` names."""


def _classes(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
    names = tuple(name.strip() for name in (value or "").split(",") if name.strip())
    if unknown := [name for name in names if name not in CLASSES]:
        raise click.BadParameter(f"{', '.join(unknown)}: the classes are {', '.join(CLASSES)}")
    return names


@click.command()
@options.frontier
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Without it by the suffix of --output; else HTML, and Markdown on a terminal.",
)
@options.output
@click.option(
    "--fail-on",
    callback=_classes,
    metavar="CLASS[,CLASS]",
    help=f"End with exit code {FOUND} when a target is of one of these classes: {', '.join(CLASSES)}.",
)
def report(db: Path, form: str | None, output: Path | None, fail_on: tuple[str, ...]) -> None:
    """Tell what a crawl found: every target with a problem, with each page that links to it; orphans, duplicates, the
    slowest and largest pages, what robots.txt forbids, what is not finished.

    Takes no lock. A frontier without links (results.edges: false) names the page on which a target was found first.
    """
    # Only now, as in `run`: `--help` shall not wait for a database.
    from durable_crawler.clock import SystemClock  # noqa: PLC0415
    from durable_crawler.frontier import FrontierError  # noqa: PLC0415
    from durable_crawler.frontier.reader import FrontierReader  # noqa: PLC0415
    from durable_crawler.results import findings as found  # noqa: PLC0415
    from durable_crawler.results import report as formats  # noqa: PLC0415

    apart(output, db)
    form = form or reports.form_for(output, terminal=sys.stdout is not None and sys.stdout.isatty())
    about = formats.About(str(db), SystemClock().wall_ms(), __version__)
    try:
        with FrontierReader(db).results() as connection, found.collect(connection) as findings:
            written(formats.FORMATS[form](findings, about), output)
            totals = findings.totals.classes
    except FrontierError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    failures = {str(name): count for name, count in totals.items() if name in fail_on and count}
    if failures:
        said = ", ".join(f"{count:,} {name}" for name, count in failures.items())
        click.echo(f"error: --fail-on: the crawl found {said}", err=True)
        sys.exit(FOUND)
    sys.exit(ExitCode.FINISHED)
