"""What each command of the plugin does, once the cluster is known. Each returns the exit code."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from crawljob_operator.kube import CRAWLJOBS, Kube, NotFoundError
from crawljob_operator.observed import Job
from crawljob_operator.plugin import output, remote, story, volume
from crawljob_operator.plugin.errors import FailedError, PluginError
from crawljob_operator.plugin.remote import Place

PROGRAM = "durable-crawler"
FRONTIER_MAX_BYTES = 4 * 1024 * 1024
"""``status`` is a page; what answers with more is not it."""

FOUND = 3
"""The exit code of ``--fail-on`` that has found what it looks for: the result is whole."""

_CLEAR = "\x1b[H\x1b[2J"


@dataclass(frozen=True, slots=True)
class Reading:
    """What is asked of ``durable-crawler``, and how the volume is read where no crawl runs."""

    before: Sequence[str]
    """Its words before ``--db``, and those after it."""
    after: Sequence[str]
    path: Path | None
    image: str | None
    wait_seconds: float
    with_spec: bool = False
    """Whether it is asked with the crawler's file as well."""


async def read(kube: Kube, namespace: str, name: str, reading: Reading) -> int:
    """Run it where the results are, and hand on what it prints.

    Raises ``FailedError`` where it fails, ``PluginError`` where it cannot be run.
    """
    job = await volume.crawljob(kube, namespace, name)
    opened = volume.results(kube, job, image=reading.image, wait_seconds=reading.wait_seconds, tell=_tell)
    with output.opened(reading.path) as write:  # first, so that a mistake in it costs no Job
        async with opened as place:
            spec = ["--file", place.spec] if reading.with_spec and place.spec else []
            command = [PROGRAM, *reading.before, "--db", place.database, *spec, *reading.after]
            code = await remote.run(kube, place, command, write, output.said)
        if code not in (0, FOUND):
            raise FailedError(code)  # past the file that was begun
    return code


async def status(kube: Kube, namespace: str, name: str, form: str, *, watch: bool, interval: float) -> int:
    """Print how it stands; with ``watch`` again and again, until it is over."""
    before = ""
    while True:
        job = await volume.crawljob(kube, namespace, name)
        text = await _status(kube, job, form, compact=watch)
        if text != before:
            clear = _CLEAR if watch and form == "table" and sys.stdout.isatty() else ""
            output.printed(f"{clear}{text}\n".encode(errors="replace"))
            before = text
        if not watch or story.over(job):
            return 0
        await asyncio.sleep(interval)


async def _status(kube: Kube, job: Job, form: str, *, compact: bool) -> str:
    place = volume.in_pod(job, await volume.pod_of(kube, job))
    text = ""
    if place is None and job.status.phase == "Running":
        _tell("no Pod of it runs: this is what an operator saw last")
    if job.generation > job.status.observed_generation:
        _tell("no operator has seen it as it is now")
    if place is not None:
        try:
            text = await _asked(kube, place, form)
        except PluginError as error:
            _tell(f"only what the CrawlJob says: {error}")
    if form == "json":
        found: Any = json.loads(text) if text else None
        return json.dumps(story.document(job, found), indent=None if compact else 2)
    return "\n".join([*story.lines(job), *(["", text.rstrip()] if text else [])])


async def _asked(kube: Kube, place: Place, form: str) -> str:
    said: list[bytes] = []
    wrong: list[bytes] = []
    room = FRONTIER_MAX_BYTES

    def take(data: bytes) -> None:
        nonlocal room
        room -= len(data)
        if room < 0:
            raise PluginError(f"Pod {place.pod} answers with more than a status.")
        said.append(data)

    command = [PROGRAM, "status", "--db", place.database, "--format", form]
    code = await remote.run(kube, place, command, take, lambda data: wrong.append(data[:500]))
    if code:
        words = b"".join(wrong).decode(errors="replace")[:500].removeprefix("error: ").strip()
        raise PluginError(story.printable(words or f"{PROGRAM} status ended with {code}"))
    text = b"".join(said).decode(errors="replace")
    if form == "json":
        try:
            json.loads(text)
        except ValueError:
            raise PluginError(f"Pod {place.pod} answers with something else than a status.") from None
    return text


async def change(kube: Kube, namespace: str, name: str, spec: dict[str, Any], done: str) -> int:
    """One merge patch of the spec."""
    try:
        patched = await kube.patch(CRAWLJOBS, namespace, name, {"spec": spec})
    except NotFoundError:
        await volume.crawljob(kube, namespace, name)
        raise
    output.printed(f"crawljob.durable-crawler.io/{name} {done}\n".encode())
    phase = (patched.get("status") or {}).get("phase")
    if "suspend" in spec and phase in story.OVER:
        _tell(f"it is {phase}, and nothing runs: that counts once it is restarted")
    elif "suspend" not in spec and (patched.get("spec") or {}).get("suspend"):
        _tell(f"it is suspended, and begins once it is resumed: kubectl crawl resume {name}")
    return 0


def _tell(words: str) -> None:
    click.echo(story.printable(words), err=True)
