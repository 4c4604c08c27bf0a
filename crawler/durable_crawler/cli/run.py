"""``run``: the crawl itself, from a file, from flags, or from a file with single fields overridden."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from crawljob.exitcodes import ExitCode
from crawljob.manifest import CrawlJobFile, load, parse
from crawljob.problems import InvalidInputError, Problem
from durable_crawler import access_telemetry
from durable_crawler.access import read
from durable_crawler.cli.contract import refuse

_FLAGS = {
    "seed": ("seeds",),
    "workers": ("fetch", "workers"),
    "per_host": ("fetch", "perHost"),
    "retries": ("fetch", "retries"),
    "allow_cidr": ("network", "allowCIDRs"),
}
"""Where each flag stands in the spec."""


@click.command()
@click.option("-f", "--file", type=click.Path(path_type=Path), help="A crawljob.yaml; flags override single fields.")
@click.option("--seed", multiple=True, metavar="URL", help="Start here and stay on this authority. Repeatable.")
@click.option("--workers", type=int, metavar="N", help="Pages being worked on at once.  [default: 16]")
@click.option("--per-host", type=int, metavar="N", help="Pages being worked on at once of one host.  [default: 2]")
@click.option("--retries", type=int, metavar="N", help="Retries after a first attempt that failed.  [default: 3]")
@click.option(
    "--allow-cidr",
    multiple=True,
    metavar="CIDR",
    help="A range that may be connected to although it is not public, such as 127.0.0.0/8. Repeatable.",
)
@click.option(
    "--db",
    type=click.Path(path_type=Path, dir_okay=False),
    default="frontier.db",
    show_default=True,
    help="The frontier: what is known and done. A crawl goes on where this file says.",
)
@click.option(
    "--secret-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where the values of fetch.headers and telemetry.headers are: DIR/SECRET/KEY.",
)
@click.option(
    "--ca-bundle",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="PEM certificates of authorities that are trusted besides the system's.",
)
@click.option(
    "--telemetry-ca",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="PEM certificates of authorities that the OTLP endpoint's is verified by, instead of the system's.",
)
@click.option(
    "--metrics",
    metavar="[ADDRESS:]PORT",
    help="Serve /healthz, /readyz, /metrics and /progress here.  [default: 127.0.0.1:9090]",
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "json", "text"]),
    default="auto",
    show_default=True,
    help="auto: a progress bar on a terminal, JSON lines otherwise.",
)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def run(
    file: Path | None,
    db: Path,
    *,
    secret_dir: Path | None,
    ca_bundle: Path | None,
    telemetry_ca: Path | None,
    metrics: str | None,
    log_format: str,
    log_level: str,
    **flags: Any,
) -> None:
    """Crawl, and go on where an earlier run with the same --db ended.

    \b
    Exit codes: 0 finished · 1 infrastructure failed · 2 invalid configuration · 12 disk full
    14 frontier in use · 15 frontier unusable · 130/143 interrupted with work left
    """
    try:
        job = _job(file, flags, metrics)
        ranges = job.spec.network.ranges
        telemetry = access_telemetry.addressed(job.spec.telemetry, os.environ)
        job = replace(job, spec=job.spec.model_copy(update={"telemetry": telemetry}))
        access = replace(
            read(job.spec.fetch, allowed=ranges, secret_dir=secret_dir, ca_bundle=ca_bundle),
            telemetry=access_telemetry.read(telemetry, secret_dir=secret_dir, ca=telemetry_ca),
        )
    except InvalidInputError as error:
        refuse(error.problems)
        return
    # Only now: the HTTP client, the parser and the database take a third of a second to import.
    from durable_crawler.run import execute  # noqa: PLC0415

    summary = execute(job, db, access, log_format=log_format, log_level=log_level)
    if summary.exit_code not in (ExitCode.FINISHED, ExitCode.SIGINT, ExitCode.SIGTERM):
        click.echo(f"error: {summary.message}", err=True)
    sys.exit(summary.exit_code)


def _job(file: Path | None, flags: dict[str, Any], metrics: str | None) -> CrawlJobFile:
    given = {name: value for name, value in flags.items() if value not in (None, ())}
    if file is None and "seed" not in given:
        raise InvalidInputError([Problem("--seed", "required unless a file is given with -f")])
    job = load(file) if file is not None else None
    body = job.spec.model_dump(mode="json", by_alias=True, exclude_none=True) if job else {}
    for name, value in given.items():
        *parents, last = _FLAGS[name]
        target = body
        for parent in parents:
            target = target.setdefault(parent, {})
        target[last] = list(value) if isinstance(value, tuple) else value
    if metrics is not None:
        body["listen"] = {**body.get("listen", {}), **_listen(metrics)}
    try:
        return CrawlJobFile(job.name if job else "crawl", parse(body))
    except InvalidInputError as error:
        raise InvalidInputError(_in_flags(problem, given, metrics) for problem in error.problems) from None


def _listen(metrics: str) -> dict[str, Any]:
    address, separator, port = metrics.rpartition(":")
    if not port.isascii() or not port.isdigit():
        raise InvalidInputError([Problem("--metrics", f"must be PORT or ADDRESS:PORT, got {metrics!r}")])
    return {"port": int(port), **({"address": address.strip("[]")} if separator else {})}


def _in_flags(problem: Problem, given: dict[str, Any], metrics: str | None) -> Problem:
    """Name the flag rather than the field, where it was a flag that said so."""
    if metrics is not None and problem.path.startswith("spec.listen."):
        hint = "; write PORT or ADDRESS:PORT, such as 127.0.0.1:9095" if problem.path.endswith("address") else ""
        return Problem("--metrics", problem.message + hint)
    for name in given:
        path = "spec." + ".".join(_FLAGS[name])
        if problem.path == path or problem.path.startswith(f"{path}["):
            return Problem(f"--{name.replace('_', '-')}", problem.message)
    return problem
