"""``export``: pages or links as rows for other programs, read-only, also while the crawl runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from crawljob.exitcodes import ExitCode
from durable_crawler.cli import options
from durable_crawler.cli.output import apart, written, written_bytes

TABLES = ("pages", "links")
FORMATS = ("jsonl", "csv", "parquet")


@click.command()
@click.argument("table", type=click.Choice(TABLES))
@options.frontier
@click.option("--format", "form", type=click.Choice(FORMATS), default="jsonl", show_default=True)
@options.output
def export(table: str, db: Path, form: str, output: Path | None) -> None:
    """Write every page, or every link, as a row.

    Pages are in the order of discovery, links in the order in which their pages were finished.
    All rows are of one moment, also while the crawl runs; until the last is written its -wal file grows. In CSV,
    text that a spreadsheet would take for a formula has an apostrophe before it.
    """
    # Only now, as in `run`: `--help` shall not wait for a database.
    from durable_crawler.frontier import FrontierError  # noqa: PLC0415
    from durable_crawler.frontier.reader import FrontierReader  # noqa: PLC0415
    from durable_crawler.results import export as rows  # noqa: PLC0415

    apart(output, db)
    writers = {"jsonl": rows.jsonl, "csv": rows.comma_separated}
    try:
        with FrontierReader(db).results() as connection:
            if form == "parquet":
                written_bytes(partial(_parquet_to(output), rows.TABLES[table], connection), output)
            else:
                written(writers[form](rows.TABLES[table], connection), output)
    except FrontierError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)


def _parquet_to(output: Path | None) -> Callable[..., None]:
    """What writes Parquet, if it may and can."""
    try:
        from durable_crawler.results import parquet  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyarrow":
            raise
        click.echo("error: --format parquet needs pyarrow: pip install 'durable-crawler[parquet]'", err=True)
        sys.exit(ExitCode.INVALID)
    if output is None and sys.stdout is not None and sys.stdout.isatty():
        raise click.UsageError("--format parquet is not for a terminal: name a file with --output")

    return parquet.write
