"""The command line. Results go to standard output, errors to standard error in one sentence that says what to do.

Commands import what they need when they run, so that ``--help`` and ``validate`` answer at once.
"""

from __future__ import annotations

import sys

import click

from crawljob import __version__
from durable_crawler.cli.contract import crd, schema, validate
from durable_crawler.cli.demo import demo
from durable_crawler.cli.explain import explain
from durable_crawler.cli.export import export
from durable_crawler.cli.report import report
from durable_crawler.cli.run import run
from durable_crawler.cli.status import status


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="durable-crawler")
def cli() -> None:
    """A bounded, polite, crash-safe web crawl, from one file, with or without a cluster."""


for _command in (run, status, report, export, explain, validate, demo, crd, schema):
    cli.add_command(_command)


def main() -> None:
    """Entry point of the console script."""
    try:
        cli.main(prog_name="durable-crawler")
    except BrokenPipeError:  # `durable-crawler crd | head`
        sys.exit(1)
