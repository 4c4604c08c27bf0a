"""Which addresses are connected to, as the cases have them: the resolver is theirs, nothing is dialled for real."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import pytest
from tests.conformance.cases import Row, rows
from tests.support.misbehaving import Names

from crawljob.spec import Fetch
from durable_crawler.clock import SystemClock
from durable_crawler.fetch import Fetcher
from durable_crawler.outcomes import Outcome
from durable_crawler.urls import Refusal, canonical

if TYPE_CHECKING:
    from tests.conformance.conftest import Judge

LOCAL = {name: [["127.0.0.1", "::1"]] for name in ("localhost", "localhost.")}
BLOCKED, REACHED = "blocked", "reached"


def answers(row: Row) -> dict[str, list[list[str]]]:
    """What is said for each name, the first time and later."""
    said: dict[str, Any] = {
        host: [one] if isinstance(one, str) else one for host, one in (row["resolver"] or {}).items()
    }
    return {host: one if isinstance(one[0], list) else [one] for host, one in said.items()}


@rows("http/ssrf.jsonl")
async def test_address(row: Row, judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    dialled: list[str] = []

    async def sock_connect(_: socket.socket, address: tuple[Any, ...]) -> None:
        dialled.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", sock_connect)
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9/")
    names = answers(row)
    url = canonical(row["url"])
    if not isinstance(url, Refusal):
        async with Fetcher(Fetch(), SystemClock()) as client:
            monkeypatch.setattr(client._session.connector, "_resolver", Names({**LOCAL, **names}))
            monkeypatch.setattr(client._session.connector, "_use_dns_cache", False)
            for _ in range(max(map(len, names.values()), default=1)):
                before = len(dialled)
                fetched = await client.fetch(url)
                assert fetched.outcome is (Outcome.ADDRESS_REFUSED if len(dialled) == before else Outcome.CONNECT_ERROR)
    said = {address for one in names.values() for addresses in one for address in addresses}
    public = {address for address in said if ip_address(address).is_global}
    assert not said or set(dialled) <= public
    # Where some of a host's addresses are public, these may be used.
    either = [REACHED] if public and public < said else []
    judge(row, REACHED if dialled else BLOCKED, BLOCKED if row["blocked"] else REACHED, *either)
