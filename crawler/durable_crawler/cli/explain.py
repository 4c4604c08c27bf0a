"""``explain``: the story of one URL, read-only, also while the crawl runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from crawljob.manifest import load
from crawljob.problems import InvalidInputError
from durable_crawler.cli import options
from durable_crawler.cli.contract import refuse
from durable_crawler.cli.output import written

if TYPE_CHECKING:
    from durable_crawler.results.explain import Story


@click.command()
@click.argument("url")
@options.frontier
@options.crawljob
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def explain(url: str, db: Path, file: Path | None, form: str) -> None:
    """Tell the story of URL: how it was found, what became of it and why; or why the crawl would take or refuse it."""
    # Only now, as in `run`: `--help` shall not wait for a database.
    from durable_crawler.clock import SystemClock  # noqa: PLC0415
    from durable_crawler.frontier import FrontierError  # noqa: PLC0415
    from durable_crawler.frontier.reader import FrontierReader  # noqa: PLC0415
    from durable_crawler.results.explain import explain as told  # noqa: PLC0415
    from durable_crawler.results.report.about import json_text  # noqa: PLC0415

    try:
        spec = None if file is None else load(file).spec
    except InvalidInputError as error:
        refuse(error.problems)
        return
    try:
        with FrontierReader(db).results() as connection:
            story = told(connection, url, spec, SystemClock().wall_ms())
    except FrontierError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    text = json_text(document(story), indent=2) if form == "json" else _text(story)
    written([text, "\n"], None)


def document(story: Story) -> dict[str, Any]:
    """The story as JSON; docs/reference/explain.md describes it."""
    from durable_crawler.results.report.about import time  # noqa: PLC0415

    return {
        "asked": story.asked,
        "url": story.url,
        "state": story.state,
        "class": None if story.confidence is None else str(story.confidence),
        "story": [
            {
                "about": part.about,
                "text": part.text,
                "url": part.url,
                "time": None if part.time_ms is None else time(part.time_ms),
            }
            for part in story.parts
        ],
    }


def _text(story: Story) -> str:
    from durable_crawler.results.report.about import printable, time  # noqa: PLC0415

    width = max(len(part.about) for part in story.parts)
    lines = [printable(story.url)]
    for part in story.parts:
        words = [part.text, part.url, time(part.time_ms) if part.time_ms is not None else None]
        lines.append(f"  {part.about:<{width}}  {printable(' '.join(word for word in words if word))}")
    return "\n".join(lines)
