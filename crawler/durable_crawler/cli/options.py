"""Options that several commands have, and that must mean the same in all of them."""

from __future__ import annotations

from pathlib import Path

import click

frontier = click.option(
    "--db",
    type=click.Path(path_type=Path, dir_okay=False),
    default="frontier.db",
    show_default=True,
    help="The frontier to read; it is not changed.",
)

output = click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write, whole or not at all; standard output without it.",
)

crawljob = click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path),
    help="The CrawlJob, to tell which of its patterns and limits decide.",
)
