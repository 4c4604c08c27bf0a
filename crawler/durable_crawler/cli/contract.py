"""``validate``, ``crd`` and ``schema``: what is derived from the contract alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import click
import yaml

from crawljob.exitcodes import ExitCode
from crawljob.manifest import load
from crawljob.problems import InvalidInputError, Problem


def refuse(problems: Iterable[Problem]) -> None:
    """Name every problem on standard error and end with ``ExitCode.INVALID``."""
    for problem in problems:
        click.echo(f"error: {problem}", err=True)
    sys.exit(ExitCode.INVALID)


@click.command()
@click.option("-f", "--file", required=True, type=click.Path(path_type=Path), help="The CrawlJob to check.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def validate(file: Path, form: str) -> None:
    """Check a crawljob.yaml and name all its problems with their paths (exit code 2)."""
    problems: tuple[Problem, ...] = ()
    try:
        job = load(file)
    except InvalidInputError as error:
        problems = error.problems
    if form == "json":
        click.echo(json.dumps({"valid": not problems, "problems": [vars_of(problem) for problem in problems]}))
        sys.exit(ExitCode.INVALID if problems else ExitCode.FINISHED)
    if problems:
        refuse(problems)
    click.echo(f"{file}: CrawlJob {job.name} is valid: {len(job.spec.seeds)} seed(s)")


def vars_of(problem: Problem) -> dict[str, str]:
    """A problem for JSON."""
    return {"path": problem.path, "message": problem.message}


@click.command()
def crd() -> None:
    """Print the CustomResourceDefinition."""
    from crawljob import crd as definition  # noqa: PLC0415 - a run need not wait for what a status looks like

    click.echo(yaml.safe_dump(definition.crd(), sort_keys=False, width=120), nl=False)


@click.command()
def schema() -> None:
    """Print the JSON Schema of a crawljob.yaml, for editors."""
    from crawljob import crd as definition  # noqa: PLC0415 - as above

    click.echo(json.dumps(definition.json_schema(), indent=2))
