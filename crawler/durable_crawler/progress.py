"""The progress bar of a terminal: pages, rate, what is left and for how long, failures. Nowhere else anything of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from durable_crawler.results.eta import span
from durable_crawler.telemetry import Stats

REFRESH_SECONDS = 0.25


@asynccontextmanager
async def show_progress(stats: Stats) -> AsyncIterator[None]:
    """Show a bar on standard error while the body runs."""
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.completed:,} done"),
        BarColumn(),
        TextColumn(
            "{task.fields[left]:,} left{task.fields[eta]} · {task.fields[failed]:,} failed · "
            "{task.fields[rate]:.0f} pages/s"
        ),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        refresh_per_second=1 / REFRESH_SECONDS,
    )
    with bar:
        task = bar.add_task("crawl", total=None, left=0, failed=0, rate=0.0, eta="")
        refreshing = asyncio.create_task(_refresh(bar, task, stats), name="progress bar")
        try:
            yield
        finally:
            refreshing.cancel()
            await asyncio.gather(refreshing, return_exceptions=True)
            _update(bar, task, stats)


async def _refresh(bar: Progress, task: TaskID, stats: Stats) -> None:
    while True:
        _update(bar, task, stats)
        await asyncio.sleep(REFRESH_SECONDS)


def _update(bar: Progress, task: TaskID, stats: Stats) -> None:
    now = stats.progress()
    left = now.pending + now.leased + now.deferred
    # At the present rate; `durable-crawler status` names the host that takes longer.
    eta = f" for {span(left / now.rate)}" if left and now.rate else ""
    bar.update(task, completed=now.done, total=now.done + left, left=left, failed=now.failed, rate=now.rate, eta=eta)
