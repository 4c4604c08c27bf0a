"""Runs a program in a container through the API server, and hands on what it prints as it comes.

The stream is Kubernetes' remote command protocol ``v4.channel.k8s.io``: each message begins with the number of its
channel, 1 and 2 for what the program prints, 3 for how it ended, as a ``Status`` object.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import WSMsgType

from crawljob_operator.kube import ApiError, Kube
from crawljob_operator.plugin.errors import CutOffError, PluginError

STDOUT, STDERR, STATUS = 1, 2, 3

Write = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Place:
    """A container in which the crawl's database can be read."""

    namespace: str
    pod: str
    container: str
    database: str
    spec: str | None = None
    """The crawler's own file, where it is known."""


async def run(kube: Kube, place: Place, command: Sequence[str], out: Write, err: Write) -> int:
    """Run it to its end; returns its exit code. What was not taken by ``out`` yet is not read from the network.

    Raises ``CutOffError`` where it did not come to its end, ``PluginError`` where it cannot be started.
    """
    status = b""
    try:
        async with kube.exec(place.namespace, place.pod, place.container, command) as stream:
            async for message in stream:
                if message.type != WSMsgType.BINARY or not message.data:
                    continue
                channel, data = message.data[0], message.data[1:]
                if channel == STDOUT:
                    out(data)
                elif channel == STDERR:
                    err(data)
                elif channel == STATUS:
                    status += data
    except ApiError as error:
        raise PluginError(_refused(place, error)) from None
    if not status:
        raise CutOffError(f"The connection to Pod {place.pod} ended before all was read.")
    return ended(json.loads(status), place.pod)


def _refused(place: Place, error: ApiError) -> str:
    if error.status in (401, 403):
        return f"You may not run programs in Pod {place.pod}: that needs the verbs get and create on pods/exec."
    if error.status == 404:
        return f"Pod {place.pod} is gone; ask again in a moment."
    return f"Nothing can be run in Pod {place.pod} now ({error.status} {error.message}); ask again in a moment."


def ended(status: dict[str, Any], pod: str) -> int:
    """The exit code in a ``Status``. Raises ``PluginError`` where the program did not start or was killed."""
    if status.get("status") == "Success":
        return 0
    causes = (status.get("details") or {}).get("causes") or ()
    codes = [str(cause.get("message")) for cause in causes if cause.get("reason") == "ExitCode"]
    if not codes or not codes[0].isdigit():
        words = " ".join(str(status.get("message") or "no reason given").split())
        raise CutOffError(f"Pod {pod} did not run it: {words}")
    code = int(codes[0])
    if code in (137, 143):
        raise CutOffError(f"It was killed in Pod {pod} before it was done: the Pod ends, or its memory is too small.")
    return code
