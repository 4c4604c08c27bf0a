"""The listener: what each path answers, what it refuses, and how it says that it cannot listen."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import socket
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from crawljob.summary import Progress
from durable_crawler.listener import CONNECTIONS_MAX, Listener, ListenerError
from durable_crawler.outcomes import PageRecord
from durable_crawler.telemetry import Stats


class HandClock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0

    def wall_ns(self) -> int:
        return 0


@contextlib.asynccontextmanager
async def serving(stats: Stats | None = None, ready: Callable[[], bool] = lambda: True) -> AsyncIterator[str]:
    listener = Listener("127.0.0.1", 0, stats or Stats(Progress), ready)
    await listener.start()
    try:
        yield f"http://127.0.0.1:{listener.port}"
    finally:
        await listener.aclose()


async def answer(url: str, method: str = "GET") -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.request(method, url) as response:
        return response.status, response.headers.get("Content-Type", ""), await response.text()


async def test_health_and_readiness() -> None:
    ready = False
    async with serving(ready=lambda: ready) as base:
        assert (await answer(base + "/healthz"))[0] == 200
        assert (await answer(base + "/readyz"))[0] == 503
        ready = True
        assert (await answer(base + "/readyz"))[0] == 200


async def test_metrics_are_the_text_format() -> None:
    async with serving(Stats(lambda: Progress(done=5))) as base:
        status, content_type, text = await answer(base + "/metrics")
    assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    values = {s.name: s.value for family in text_string_to_metric_families(text) for s in family.samples}
    assert values["crawler_pages_done"] == 5


async def test_progress_is_what_the_operator_reads() -> None:
    clock = HandClock()
    stats = Stats(lambda: Progress(done=5, pending=4, failed=1, bytes=9), clock)
    for _ in range(20):
        stats.page_settled(PageRecord("http://h/", "h", 0, 1, "done", None, ()))
    clock.now = 10
    async with serving(stats) as base:
        status, content_type, text = await answer(base + "/progress")
    assert (status, content_type) == (200, "application/json; charset=utf-8")
    assert Progress.model_validate_json(text) == Progress(done=5, pending=4, failed=1, bytes=9, rate=2.0)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("HEAD", "/healthz", 200), ("POST", "/progress", 405), ("DELETE", "/metrics", 405), ("GET", "/", 404)],
)
async def test_only_reading_and_only_the_four_paths(method: str, path: str, status: int) -> None:
    async with serving() as base:
        assert (await answer(base + path, method))[0] == status


async def test_idle_clients_cannot_shut_out_the_kubelet() -> None:
    async with serving() as base:
        port = int(base.rpartition(":")[2])
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX + 10)]
        assert (await answer(base + "/healthz"))[0] == 200
        reader, _ = idle[0]
        assert await reader.read() == b""  # the oldest made room
        for _, writer in idle:
            writer.close()


async def test_a_port_in_use_is_said_in_one_sentence() -> None:
    async with serving() as base:
        port = int(base.rpartition(":")[2])
        second = Listener("127.0.0.1", port, Stats(Progress), lambda: True)
        message = f"listen.address 127.0.0.1: cannot listen on 127.0.0.1:{port} (Address already in use)"
        message += "; choose another port with --metrics ADDRESS:PORT or listen.port"
        with pytest.raises(ListenerError, match=f"^{re.escape(message)}$"):
            await second.start()
        await second.aclose()


@pytest.mark.parametrize("address", ["192.0.2.1", "999.1.1.1", "1:2"])
async def test_an_address_that_is_not_ours_or_none_at_all_is_refused(address: str) -> None:
    with pytest.raises(ListenerError, match=rf"^listen\.address {re.escape(address)}: "):
        await Listener(address, 0, Stats(Progress), lambda: True).start()


async def test_it_listens_on_ipv6() -> None:
    listener = Listener("::1", 0, Stats(Progress), lambda: True)
    try:
        await listener.start()
    except ListenerError as error:
        if getattr(error.__cause__, "errno", None) in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            pytest.skip("this machine has no IPv6 loopback")
        raise
    assert (await answer(f"http://[::1]:{listener.port}/healthz"))[0] == 200
    await listener.aclose()


async def test_closing_frees_the_port_and_may_be_repeated() -> None:
    listener = Listener("127.0.0.1", 0, Stats(Progress), lambda: True)
    await listener.aclose()
    await listener.start()
    port = listener.port
    await listener.aclose()
    await listener.aclose()
    with socket.create_server(("127.0.0.1", port)):
        pass
