"""``kubectl crawl``: the commands. The Kubernetes client is loaded when a command needs it, and never inside a Job."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from crawljob import __version__
from crawljob.reports import FORMATS, form_for
from crawljob_operator.names import PLUGIN
from crawljob_operator.plugin.errors import FailedError, PluginError

if TYPE_CHECKING:
    from crawljob_operator.kube import Kube

START_SECONDS = 120.0
WATCH_SECONDS = 5.0

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""RFC 1123, as of all objects: anything else would be a path to something else."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Cluster:
    """Which cluster and namespace; ``None``: what the kubeconfig's context says."""

    namespace: str | None
    context: str | None
    kubeconfig: str | None


def _name(_: click.Context, __: click.Parameter, value: str) -> str:
    if not _NAME.fullmatch(value):
        raise click.BadParameter(f"{value!r} is no name of a CrawlJob; see `kubectl get crawljobs`")
    return value


def _space(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value and not _NAME.fullmatch(value):
        raise click.BadParameter(f"{value!r} is no name of a namespace; see `kubectl get namespaces`")
    return value


def _where(command: F) -> F:
    """The options that say where the CrawlJob is, as kubectl has them."""
    for option in (
        click.option("--kubeconfig", type=click.Path(dir_okay=False), help="Kubeconfig to use."),
        click.option("--context", help="Context of the kubeconfig to use."),
        click.option(
            "-n",
            "--namespace",
            callback=_space,
            help="Namespace of the CrawlJob; that of the context without it.",
        ),
        click.argument("name", callback=_name),
    ):
        command = option(command)
    return command


def _reading(command: F) -> F:
    """The options for results that are read from the volume."""
    for option in (
        click.option(
            "--start-timeout",
            "wait_seconds",
            type=click.FloatRange(min=1),
            default=START_SECONDS,
            show_default=True,
            help="Seconds to wait for the Job that reads the volume.",
        ),
        click.option("--image", help="Image of that Job; the crawl's own without it."),
        click.option(
            "--output",
            "path",
            type=click.Path(path_type=Path, dir_okay=False),
            help="File to write; it is there whole or not at all. Standard output without it.",
        ),
    ):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="kubectl crawl")
def plugin() -> None:
    """Look at a CrawlJob, read what it found, and stop, resume or restart it.

    Results come from the crawl's Pod while it runs, else from its volume, through a Job that is removed afterwards.
    """


@plugin.command()
@_where
@click.option("-w", "--watch", is_flag=True, help="Show it again and again, until the crawl is over.")
@click.option(
    "--interval",
    type=click.FloatRange(min=1),
    default=WATCH_SECONDS,
    show_default=True,
    help="Seconds between two looks of --watch.",
)
@click.option("-o", "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def status(name: str, form: str, *, watch: bool, interval: float, **where: str | None) -> None:
    """Show how the crawl stands: live from its Pod, else what its CrawlJob says."""
    from crawljob_operator.plugin import actions  # noqa: PLC0415

    _run(where, lambda kube, space: actions.status(kube, space, name, form, watch=watch, interval=interval))


@plugin.command()
@_where
@click.option(
    "-o",
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Without it by the suffix of --output; else HTML, and Markdown on a terminal.",
)
@click.option(
    "--fail-on",
    metavar="CLASS[,CLASS]",
    help="As of `durable-crawler report`: end with 3 when a target is of one of these classes.",
)
@_reading
def report(name: str, form: str | None, fail_on: str | None, **options: Any) -> None:
    """Write the report: what is broken, and which pages link to it."""
    form = form or form_for(options["path"], terminal=sys.stdout is not None and sys.stdout.isatty())
    _read(name, ["report"], ["--format", form, *(["--fail-on", fail_on] if fail_on else [])], options)


@plugin.command()
@_where
@click.argument("what", type=click.Choice(["pages", "links"]))
@click.option(
    "-o", "--format", "form", type=click.Choice(["jsonl", "csv", "parquet"]), default="jsonl", show_default=True
)
@_reading
def export(name: str, what: str, form: str, **options: Any) -> None:
    """Write all pages or all links as rows."""
    if form == "parquet" and options["path"] is None and sys.stdout is not None and sys.stdout.isatty():
        raise click.UsageError("Parquet is not for a terminal; name a file with --output.")
    _read(name, ["export"], [what, "--format", form], options)


@plugin.command()
@_where
@click.argument("url")
@click.option("-o", "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@_reading
def explain(name: str, url: str, form: str, **options: Any) -> None:
    """Tell the story of one URL: who linked it, every attempt, and what it waits for."""
    _read(name, ["explain"], ["--format", form, "--", url], options, with_spec=True)


@plugin.command()
@_where
def suspend(name: str, **where: str | None) -> None:
    """Stop the crawl gracefully; its volume stays."""
    _change(where, name, {"suspend": True}, "suspended")


@plugin.command()
@_where
def resume(name: str, **where: str | None) -> None:
    """Let a suspended crawl go on."""
    _change(where, name, {"suspend": False}, "resumed")


@plugin.command()
@_where
def restart(name: str, **where: str | None) -> None:
    """Run the crawl again, also a finished one; pages that failed are tried once more."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    _change(where, name, {"restartRequestedAt": now}, "asked to restart")


@plugin.group(hidden=True)
def inside() -> None:
    """What runs inside the Job that reads a volume."""


@inside.command("copy")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
def inside_copy(source: Path, target: Path) -> None:
    """Copy the frontier."""
    from crawljob_operator.plugin import inside as programs  # noqa: PLC0415

    programs.end_on_sigterm()
    try:
        programs.copy(source, target)
    except PluginError as error:
        raise click.ClickException(str(error)) from None


@inside.command("hold")
@click.argument("idle_seconds", type=click.FloatRange(min=1))
def inside_hold(idle_seconds: float) -> None:
    """Stay as long as somebody reads."""
    from crawljob_operator.plugin import inside as programs  # noqa: PLC0415

    programs.end_on_sigterm()
    programs.hold(idle_seconds)


def _read(name: str, words: list[str], tail: list[str], options: dict[str, Any], *, with_spec: bool = False) -> None:
    from crawljob_operator.plugin import actions  # noqa: PLC0415

    given = {key: options.pop(key) for key in ("path", "image", "wait_seconds")}
    reading = actions.Reading(words, tail, **given, with_spec=with_spec)
    _run(options, lambda kube, space: actions.read(kube, space, name, reading))


def _change(where: dict[str, Any], name: str, spec: dict[str, Any], done: str) -> None:
    from crawljob_operator.plugin import actions  # noqa: PLC0415

    _run(where, lambda kube, space: actions.change(kube, space, name, spec, done))


def _run(where: dict[str, Any], work: Callable[[Kube, str], Awaitable[int]]) -> None:
    """Do it with the user's cluster, and end the process; what goes wrong is one sentence on standard error."""
    from crawljob_operator.kube import NETWORK_ERRORS, ApiError, Kube, NoClusterError  # noqa: PLC0415

    cluster = Cluster(**where)
    logging.getLogger().addHandler(logging.NullHandler())  # the client's own lines would stand beside our sentence

    async def worked() -> int:
        connected = Kube.connect(manager=PLUGIN, kubeconfig=cluster.kubeconfig, context=cluster.context)
        async with await connected as kube:
            task = asyncio.current_task()
            assert task is not None
            for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C does: the Job that was made is removed
                if signal.getsignal(number) != signal.SIG_IGN:  # nohup
                    asyncio.get_running_loop().add_signal_handler(number, _end, task, number)
            return await work(kube, cluster.namespace or kube.namespace)

    try:
        code = asyncio.run(worked())
    except (PluginError, NoClusterError) as error:
        raise click.ClickException(str(error)) from None
    except FailedError as error:
        code = error.code
    except ApiError as error:
        raise click.ClickException(_refused(error)) from None
    except BrokenPipeError:  # `kubectl crawl export … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except NETWORK_ERRORS as error:
        raise click.ClickException(f"The API server gives no answer: {str(error) or type(error).__name__}") from None
    except asyncio.CancelledError as error:
        code = 128 + (error.args[0] if error.args else signal.SIGTERM)
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _end(task: asyncio.Task[Any], number: int) -> None:
    task.cancel(number)


def _refused(error: Any) -> str:
    match error.status:
        case 401:
            return f"The cluster does not know who you are: {error.message}"
        case 403:
            return f"You may not do that (docs/results.md lists the rights): {error.message}"
        case _:
            return f"The API server refuses that: {error.message or error}"


def main() -> None:
    """Entry point of the console script."""
    plugin.main(prog_name="kubectl crawl")


if __name__ == "__main__":
    main()
