"""Programs in containers, over a real WebSocket on loopback: what comes through, and how much is held meanwhile."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from kubernetes.aio import client
from tests.support.apiserver import free_ports
from tests.support.plugin_cluster import SUCCESS, Cluster

from crawljob_operator.kube import EXEC_PROTOCOL, PODS, Kube
from crawljob_operator.plugin import remote
from crawljob_operator.plugin.errors import CutOffError, PluginError
from crawljob_operator.plugin.remote import Place

PLACE = Place("crawls", "docs-1", "crawler", "/data/frontier.db")
CHUNK = b"x" * 32 * 1024

Serve = Callable[[web.WebSocketResponse], Awaitable[None]]


def nothing(_: bytes) -> None:
    """Take it."""


@asynccontextmanager
async def server(
    serve: Serve, *, refusal: int = 0, total_seconds: float | None = None, world: Cluster | None = None
) -> AsyncIterator[Kube]:
    """An API server of which only ``exec`` is real, and a client that has read an object from it."""
    asked: list[web.Request] = []

    async def execute(request: web.Request) -> web.StreamResponse:
        asked.append(request)
        if refusal:
            return web.json_response({"message": "no"}, status=refusal)
        stream = web.WebSocketResponse(protocols=[EXEC_PROTOCOL])
        await stream.prepare(request)
        await serve(stream)
        return stream

    async def read(request: web.Request) -> web.Response:
        key = (request.match_info["plural"], request.match_info["name"])
        found = {"metadata": {"name": key[1]}} if world is None else world.objects.get(key)
        return web.json_response(found or {"message": "not found"}, status=200 if found else 404)

    app = web.Application()
    app.router.add_get("/api/v1/namespaces/crawls/pods/{name}/exec", execute)
    app.router.add_get("/{api:apis?/.*}/namespaces/crawls/{plural}/{name}", read)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    (port,) = free_ports(1)
    await web.TCPSite(runner, "127.0.0.1", port).start()
    configuration = client.Configuration(host=f"http://127.0.0.1:{port}")
    configuration.api_key["BearerToken"] = "Bearer secret"
    if total_seconds is not None:
        configuration.client_session_kwargs = {"timeout": aiohttp.ClientTimeout(total=total_seconds)}
    try:
        async with Kube(configuration) as kube:
            assert world is not None or await kube.get(PODS, "crawls", "docs-1")
            yield kube
            for request in asked:
                assert request.headers["Authorization"] == "Bearer secret"
                assert request.query["container"] == "crawler"
                if world is None:
                    assert request.query.getall("command") == ["durable-crawler", "explain", "http://a/?q=1&r=ü"]
    finally:
        await runner.cleanup()


async def run(kube: Kube, out: Callable[[bytes], object] = nothing, err: Callable[[bytes], object] = nothing) -> int:
    return await remote.run(kube, PLACE, ["durable-crawler", "explain", "http://a/?q=1&r=ü"], out, err)


async def finish(stream: web.WebSocketResponse) -> None:
    await stream.send_bytes(b"\x03" + json.dumps(SUCCESS).encode())
    await stream.close()


async def test_what_a_program_prints_comes_through_in_order_by_channel() -> None:
    async def serve(stream: web.WebSocketResponse) -> None:
        for message in (b"\x01one ", b"\x02careful", b"\x01", b"\x01two\x00\xff"):
            await stream.send_bytes(message)
        await finish(stream)

    out, err = bytearray(), bytearray()
    async with server(serve) as kube:
        assert await run(kube, out.extend, err.extend) == 0
    assert (bytes(out), bytes(err)) == (b"one two\x00\xff", b"careful")


async def test_what_nobody_takes_is_not_fetched(tmp_path: Path) -> None:
    """A pager that stops reading stops the program in the Pod: the plugin holds little, whatever the result's size."""
    total, sent = 4000, 0  # of 32 KiB: 125 MiB

    async def serve(stream: web.WebSocketResponse) -> None:
        nonlocal sent
        for _ in range(total):
            await stream.send_bytes(b"\x01" + CHUNK)
            sent += 1
        await finish(stream)

    world = Cluster()
    world.pod(world.crawljob(), {"running": {"startedAt": "2031-05-06T07:08:09Z"}})
    async with server(serve, world=world) as kube:
        config = kubeconfig(tmp_path, (await kube.connection()).server)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "crawljob_operator.plugin.cli", "export", "docs", "pages", "-n", "crawls"),
            *("--kubeconfig", str(config)),
            stdout=asyncio.subprocess.PIPE,
            limit=len(CHUNK),
        )
        assert process.stdout is not None
        seen, still = -1, 0
        while still < 5:  # half a second without a word
            await asyncio.sleep(0.1)
            still = still + 1 if 0 < sent == seen else 0
            seen = sent
        assert sent * len(CHUNK) < 32 * 1024 * 1024, "what is on its way is what sockets and pipes hold"
        taken = 0
        while data := await process.stdout.read(1024 * 1024):
            taken += len(data)
            held = peak_bytes(process.pid) if taken < total * len(CHUNK) // 2 else 0  # it may have ended
            assert held < 150 * 1024 * 1024
        assert (await process.wait(), taken) == (0, total * len(CHUNK))


def peak_bytes(pid: int) -> int:
    """The most memory that a process has had."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def kubeconfig(folder: Path, url: str) -> Path:
    """A file that names this server."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "test", "user": {"token": "secret"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(content))
    return path


async def test_a_long_stream_outlives_the_limit_of_a_call() -> None:
    async def serve(stream: web.WebSocketResponse) -> None:
        await asyncio.sleep(0.6)  # past the session's limit, which is for calls that are answered in one piece
        await stream.send_bytes(b"\x01late")
        await finish(stream)

    out = bytearray()
    async with server(serve, total_seconds=0.3) as kube:
        assert await run(kube, out.extend) == 0
    assert bytes(out) == b"late"


async def test_a_connection_that_breaks_off_is_no_end() -> None:
    async def serve(stream: web.WebSocketResponse) -> None:
        await stream.send_bytes(b"\x01half")
        await stream.close()

    async with server(serve) as kube:
        with pytest.raises(CutOffError, match="ended before all was read"):
            await run(kube)


@pytest.mark.parametrize(
    ("status", "words"),
    [(403, "get and create on pods/exec"), (404, "is gone"), (500, "can be run in Pod docs-1 now")],
)
async def test_a_refusal_is_a_sentence(status: int, words: str) -> None:
    async def serve(_: web.WebSocketResponse) -> None:
        raise AssertionError("nothing is served")

    async with server(serve, refusal=status) as kube:
        with pytest.raises(PluginError, match=words):
            await run(kube)
