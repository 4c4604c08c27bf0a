"""``crawljob-operator``: options from flags or the environment, and the composition of everything that runs."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal

import click
from pydantic import ValidationError

from crawljob import __version__
from crawljob.problems import InvalidInputError
from crawljob.telemetry import Telemetry as TelemetrySpec
from crawljob_operator import check, logs, names, netsettings
from crawljob_operator.handlers import Watches
from crawljob_operator.health import CannotListenError, HealthServer
from crawljob_operator.kube import NETWORK_ERRORS, ApiError, Kube, NoClusterError
from crawljob_operator.netsettings import NetworkSettings
from crawljob_operator.progress import ProgressReader
from crawljob_operator.reconcile import Reconciler
from crawljob_operator.telemetry import Telemetry
from crawljob_operator.trouble import Reporting
from crawljob_operator.watchdog import Resync, missing, watch_over
from crawljob_operator.workqueue import WorkQueue
from crawljob_telemetry.environment import headers_problem

log = logging.getLogger(__name__)

STOP_SECONDS = 2.0
"""How long what was cancelled may take to end."""


@dataclass(frozen=True, slots=True)
class Options:
    """What one operator process does. Without namespaces it serves the whole cluster."""

    crawler_image: str
    namespaces: tuple[str, ...] = ()
    host: str = "0.0.0.0"  # noqa: S104 - the kubelet asks from outside the Pod
    port: int = 8080
    resync: float = names.DEFAULT_RESYNC_SECONDS
    progress_interval: float = names.DEFAULT_PROGRESS_SECONDS
    network: NetworkSettings = field(default_factory=NetworkSettings)
    telemetry: TelemetrySpec = field(default_factory=TelemetrySpec)
    crawls_telemetry: bool = True
    """Whether crawls that name no collector send to ours."""


async def operate(options: Options) -> int:
    """Run until SIGTERM or SIGINT (0), or until it cannot do its work any more (1)."""
    stop = asyncio.Event()
    _on_signals(stop)
    async with (
        Telemetry(options.telemetry, os.environ) as telemetry,
        HealthServer(options.host, options.port, telemetry.text) as health,
        await Kube.connect(telemetry) as kube,
        ProgressReader(options.progress_interval) as progress,
    ):
        reconciler = Reconciler(
            kube,
            progress,
            options.crawler_image,
            options.network,
            collector=options.telemetry if options.crawls_telemetry else None,
            observer=telemetry,
        )
        handler = Reporting(kube, reconciler.reconcile)
        queue = WorkQueue(handler, observer=telemetry, ordinary=(ApiError, *NETWORK_ERRORS))
        telemetry.stats.queue_depth = queue.depth
        resync = Resync(kube, options.namespaces, options.resync, queue.wake, telemetry)
        if not await _unless(stop, resync.first()):
            return 0
        watches = Watches(kube, options.namespaces, queue.wake, telemetry)
        await watches.start()
        telemetry.start()
        _on_signals(stop)  # kopf has set its own
        expected = watches.expected_tasks()
        health.ready = lambda: not missing(expected)
        log.info("watching", extra={"namespaces": options.namespaces or "all", "version": __version__})
        parts = {
            "watches": watches.run(),
            "reconciling": queue.run(),
            "resync": resync.run(),
            "watchdog": watch_over(expected),
            "stop": stop.wait(),
        }
        tasks = [asyncio.create_task(part, name=name) for name, part in parts.items()]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        failed = [task for task in tasks if task.done() and task.get_name() != "stop"]
        health.dead = bool(failed)
        for task in failed:
            log.error("%s ended: %s", task.get_name(), task.exception() if not task.cancelled() else "cancelled")
        watches.stop()
        for task in tasks:
            if task.get_name() != "watches":
                task.cancel()
        # A watch may hang in a handshake; the process ends all the same.
        await asyncio.wait(tasks, timeout=5)
        return 1 if failed and not stop.is_set() else 0


async def _to_the_end(options: Options) -> int:
    """Operate, and then end the process whatever still runs in it.

    A watch of kopf's that waits between two attempts swallows its cancellation and goes on for ever: who waited for it
    would have a process that lives and hears nothing.
    """
    try:
        code = await operate(options)
    except NoClusterError as error:
        raise click.UsageError(str(error)) from None
    except CannotListenError as error:
        raise click.ClickException(f"{names.FLAG_LISTEN}: {error}") from None
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        _, left = await asyncio.wait(left, timeout=STOP_SECONDS)
    if left:
        log.warning("ending in spite of %s", ", ".join(sorted(task.get_name() for task in left)))
        logging.shutdown()
        os._exit(code)
    return code


def _on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Do the work; ``False`` when the stop came first."""
    tasks = {asyncio.create_task(work), asyncio.create_task(stop.wait())}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    return not stop.is_set()


def _address(_: click.Context, __: click.Parameter, value: str) -> tuple[str, int]:
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise click.BadParameter(f"{value!r} is not ADDRESS:PORT, for example {names.DEFAULT_LISTEN}")
    return host.strip("[]"), int(port)


def _web_address(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    try:
        return TelemetrySpec(endpoint=value).endpoint
    except ValidationError as error:
        why = error.errors()[0]["msg"].removeprefix("Value error, ")
        # Not the value: it may hold a password, and this goes to the log.
        raise click.BadParameter(f"{why}; for example http://otel-collector:4317") from None


def _namespaces(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    parts = [part.strip() for value in values for part in value.split(",")]
    return tuple(dict.fromkeys(part for part in parts if part))


def _network(_: click.Context, __: click.Parameter, value: str | None) -> NetworkSettings:
    if not value:
        return NetworkSettings()
    try:
        return netsettings.parse(value)
    except InvalidInputError as error:
        raise click.BadParameter(str(error)) from None


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="crawljob-operator")
@click.option(
    names.FLAG_CRAWLER_IMAGE,
    envvar=names.ENV_CRAWLER_IMAGE,
    help="Image of the crawler, for CrawlJobs that name none; required.",
)
@click.option(
    names.FLAG_NAMESPACE,
    "namespaces",
    multiple=True,
    envvar=names.ENV_NAMESPACES,
    callback=_namespaces,
    help="Namespace to serve; repeatable. The whole cluster without it.",
)
@click.option(
    names.FLAG_LISTEN,
    envvar=names.ENV_LISTEN,
    default=names.DEFAULT_LISTEN,
    show_default=True,
    callback=_address,
    help="Where /healthz, /readyz and /metrics are served.",
)
@click.option(
    names.FLAG_RESYNC,
    envvar=names.ENV_RESYNC,
    default=names.DEFAULT_RESYNC_SECONDS,
    show_default=True,
    type=click.FloatRange(min=1),
    help="Seconds between full listings, which find what a watch has missed.",
)
@click.option(
    names.FLAG_PROGRESS_INTERVAL,
    envvar=names.ENV_PROGRESS_INTERVAL,
    default=names.DEFAULT_PROGRESS_SECONDS,
    show_default=True,
    type=click.FloatRange(min=1),
    help="Seconds between two readings of a crawl's progress.",
)
@click.option(
    names.FLAG_NETWORK_POLICY,
    "network",
    envvar=names.ENV_NETWORK_POLICY,
    callback=_network,
    metavar="JSON",
    help="The chart's networkPolicy values: whether crawls get one, where DNS and the collector are, and limits.",
)
@click.option(
    names.FLAG_OTLP_ENDPOINT,
    envvar=names.ENV_OTLP_ENDPOINT,
    callback=_web_address,
    help="Collector that gets the operator's own metrics and the spans of attempts; nothing is sent without it. "
    "OpenTelemetry's variables for headers and certificates are obeyed.",
)
@click.option(
    names.FLAG_OTLP_PROTOCOL,
    envvar=names.ENV_OTLP_PROTOCOL,
    default="grpc",
    show_default=True,
    type=click.Choice(["grpc", "http/protobuf"]),
    help="OTLP's transport.",
)
@click.option(
    f"{names.FLAG_CRAWLS_TELEMETRY}/--no-{names.FLAG_CRAWLS_TELEMETRY.removeprefix('--')}",
    "crawls_telemetry",
    envvar=names.ENV_CRAWLS_TELEMETRY,
    default=True,
    show_default=True,
    help="Whether crawls whose spec names no collector send to the same one.",
)
@click.option(
    names.FLAG_LOG_LEVEL,
    envvar=names.ENV_LOG_LEVEL,
    default="info",
    show_default=True,
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
)
@click.pass_context
def main(
    context: click.Context,
    *,
    crawler_image: str | None,
    namespaces: tuple[str, ...],
    listen: tuple[str, int],
    resync: float,
    progress_interval: float,
    network: NetworkSettings,
    otlp_endpoint: str | None,
    otlp_protocol: Literal["grpc", "http/protobuf"],
    crawls_telemetry: bool,
    log_level: str,
) -> None:
    """Watch CrawlJobs and give each one a volume and exactly one crawler Pod, until its crawl is done."""
    if context.invoked_subcommand is not None:
        context.obj = namespaces
        return
    if not crawler_image:
        raise click.MissingParameter(ctx=context, param_hint=f"'{names.FLAG_CRAWLER_IMAGE}'", param_type="option")
    logs.configure(log_level)
    if otlp_endpoint and (problem := headers_problem(os.environ)):  # costs telemetry, and must not cost the operator
        log.warning("telemetry: %s; a collector that wants it takes nothing", problem)
    options = Options(
        crawler_image,
        namespaces,
        *listen,
        resync,
        progress_interval,
        network,
        TelemetrySpec(endpoint=otlp_endpoint, protocol=otlp_protocol),
        crawls_telemetry,
    )
    sys.exit(asyncio.run(_to_the_end(options)))


@main.group("check")
def check_() -> None:
    """Ask the cluster whether it is as the operator needs it; what is missing is named, and the exit code is 1."""


@check_.command("rights")
@click.argument("home", default="")
@click.pass_obj
def check_rights(namespaces: tuple[str, ...], home: str) -> None:
    """Every right that the operator uses, with the account that runs this, and none that it must not have.

    Those are asked about in the namespace HOME too, in which the operator runs.
    """
    _report(lambda kube: check.rights(kube, namespaces, home))


@check_.command("sample")
@click.argument("namespace")
def check_sample(namespace: str) -> None:
    """A dry run of a CrawlJob with every field, in NAMESPACE; needs the right to create CrawlJobs there."""
    _report(lambda kube: check.sample(kube, namespace))


def _report(ask: Callable[[Kube], AsyncIterator[check.Answer]]) -> None:
    """Print the answers as they come, and end the process: with 1 when one is no, or there is none."""

    async def asked() -> int:
        failed = 0
        async with await Kube.connect() as kube:
            async for answer in ask(kube):
                click.echo(str(answer))
                failed += not answer.passed
        return failed

    try:
        failed = asyncio.run(asked())
    except NoClusterError as error:
        raise click.ClickException(str(error)) from None
    except (ApiError, *NETWORK_ERRORS) as error:
        raise click.ClickException(f"the API server gives no answer: {str(error) or type(error).__name__}") from None
    if failed:
        raise click.ClickException(f"{failed} of these checks failed; each says what to do")


if __name__ == "__main__":
    main()
