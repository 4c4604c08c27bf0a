"""Servers of loopback that a benchmark starts beside what it measures: above all a real OpenTelemetry Collector."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import yaml
from tests.support.toolchain import binaries

START_LIMIT_SECONDS = 30
TELEMETRY = "telemetry.jsonl"
"""The Collector's file."""


@contextlib.contextmanager
def collector(place: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A Collector that writes what it gets into a file of ``place``: its process and its OTLP/HTTP endpoint.

    Raises ``tests.support.toolchain.cache.Unavailable`` where it cannot be built.
    """
    port = free_port()
    config = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
        "processors": {"batch": {}},
        "exporters": {"file": {"path": str(place / TELEMETRY)}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {
                kind: {"receivers": ["otlp"], "processors": ["batch"], "exporters": ["file"]}
                for kind in ("traces", "metrics")
            },
        },
    }
    (place / "collector.yaml").write_text(yaml.safe_dump(config))
    program = str(binaries.ensure("otelcol")["otelcol"])
    with serving([program, f"--config={place / 'collector.yaml'}"], port) as process:
        yield process, f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def serving(command: list[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A server on loopback, killed at the end, whatever state it is in by then."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)  # noqa: S603 - ours
    try:
        limit = time.monotonic() + START_LIMIT_SECONDS
        while not answers("127.0.0.1", port):
            if process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError(f"{command[0]} does not listen on port {port}")
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait(10)


def answers(address: str, port: int) -> bool:
    """Whether something listens there."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((address, port)) == 0


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
