"""``demo``: the main promise, shown on this machine in a few seconds."""

from __future__ import annotations

import asyncio
import sys

import click

from crawljob.exitcodes import ExitCode


@click.command()
def demo() -> None:
    """Crawl a small bundled site, kill the crawler half-way with SIGKILL, resume, and prove that nothing was lost."""
    from rich.console import Console  # noqa: PLC0415 - as below

    from durable_crawler.demo.show import show  # noqa: PLC0415 - imports a web server

    sys.exit(ExitCode.FINISHED if asyncio.run(show(Console())) else ExitCode.INFRASTRUCTURE)
