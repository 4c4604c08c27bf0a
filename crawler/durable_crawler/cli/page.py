"""``page``: a page about a crawl for a browser on this machine, read-only, also while the crawl runs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from crawljob.exitcodes import ExitCode
from crawljob.manifest import load
from crawljob.problems import InvalidInputError
from durable_crawler.cli import options
from durable_crawler.cli.contract import refuse

if TYPE_CHECKING:
    from crawljob.spec import CrawlJobSpec


IDLE_SECONDS = 60.0
LOOK_SECONDS = 1.0
SPEC_MAX_BYTES = 4 << 20


@click.command()
@options.frontier
@options.crawljob
@click.option(
    "--port", type=click.IntRange(0, 65535), default=9091, show_default=True, help="TCP port; 0: any that is free."
)
@click.option("--inherited", type=int, hidden=True, help="A listening socket, from the crawl; see page/door.py.")
def page(db: Path, file: Path | None, port: int, inherited: int | None) -> None:
    """Serve a page about the crawl on 127.0.0.1 until Ctrl-C: progress, hosts, failures, explanations, the report.

    Whoever can connect to this machine's loopback can read it. A crawl that runs serves it by itself, at the port after
    that of its metrics: in a cluster, reach it by `kubectl port-forward`.
    """
    if inherited is not None:
        sys.exit(asyncio.run(_serve_inherited(db, inherited)))
    try:
        spec = None if file is None else load(file).spec
    except InvalidInputError as error:
        refuse(error.problems)
        return
    sys.exit(asyncio.run(_serve(db, spec, port)))


async def _serve_inherited(db: Path, listening: int) -> int:
    """Serve on the crawl's socket until it ends, or nobody has come for a while: then the crawl listens again."""
    from crawljob.manifest import parse  # noqa: PLC0415 - as below
    from durable_crawler.clock import SystemClock  # noqa: PLC0415
    from durable_crawler.page.server import PageServer  # noqa: PLC0415

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)  # Ctrl-C is the crawl's, which ends this
    told = asyncio.StreamReader(limit=SPEC_MAX_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(told), sys.stdin)
    server = PageServer(db, parse(json.loads(await told.readline())), SystemClock())
    await server.start_on(socket.socket(fileno=listening))
    crawl_ends = asyncio.create_task(told.read())
    crawl_ends.add_done_callback(lambda _: stop.set())
    while not stop.is_set() and server.idle_seconds < IDLE_SECONDS:
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), LOOK_SECONDS)
    await server.aclose()
    return ExitCode.FINISHED


async def _serve(db: Path, spec: CrawlJobSpec | None, port: int) -> int:
    # Only now, as in `run`: `--help` shall not wait for a database and a web server.
    from durable_crawler.clock import SystemClock  # noqa: PLC0415
    from durable_crawler.frontier import FrontierError  # noqa: PLC0415
    from durable_crawler.frontier.reader import FrontierReader  # noqa: PLC0415
    from durable_crawler.page.server import PageServer  # noqa: PLC0415

    clock = SystemClock()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = PageServer(db, spec, clock)
    try:
        FrontierReader(db).snapshot()  # a mistake in --db is told here, and not in the browser
        bound = await server.start(port)
    except FrontierError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    except OSError as error:
        await server.aclose()
        cause = os.strerror(error.errno) if error.errno else str(error)
        click.echo(f"error: --port {port}: cannot listen on 127.0.0.1 ({cause}); choose another one", err=True)
        return ExitCode.INFRASTRUCTURE
    click.echo(f"http://127.0.0.1:{bound}/ (Ctrl-C ends it)")
    await stop.wait()
    await server.aclose()
    return ExitCode.FINISHED
