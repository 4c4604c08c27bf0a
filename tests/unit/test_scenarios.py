"""Complaints about other crawlers, turned into whole crawls, by number: those that no other file is about."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.support.crawler import crawl, crawling, judge, rows
from tests.support.misbehaving import Answer, Names, dripping, hang, site, to
from tests.support.misbehaving import page as raw_page
from tests.support.website import Website, page
from tests.unit.test_addresses import REFUSED

from crawljob.manifest import parse
from crawljob.spec import Fetch
from durable_crawler.clock import SystemClock
from durable_crawler.fetch import Fetcher
from durable_crawler.frontier.reader import FrontierReader
from durable_crawler.outcomes import Outcome
from durable_crawler.urls import Refusal, canonical

MAX_DEPTH = 16
"""Unless the spec says otherwise."""


def manifest(folder: Path, *seeds: str, **spec: Any) -> Path:
    file = folder / "crawljob.json"  # YAML is a superset
    envelope = {"apiVersion": "durable-crawler.io/v1alpha1", "kind": "CrawlJob", "metadata": {"name": "scenario"}}
    file.write_text(json.dumps({**envelope, "spec": {"seeds": seeds, **spec}}))
    return file


# 11: work that waits is work


async def test_scenario_11_a_crawl_whose_pages_all_wait_for_a_retry_is_not_finished(tmp_path: Path) -> None:
    down = True

    async def answer(request: web.Request) -> web.StreamResponse:
        return await page(status=500)(request) if down else await page()(request)

    async with Website({"/": answer}) as website:
        db = tmp_path / "frontier.db"
        file = manifest(tmp_path, website.url, fetch={"retries": 9})
        async with crawling("-f", file, "--db", db, cwd=tmp_path) as run:
            assert await run.until(lambda: website.requests["/"] >= 2, website.asked), "it did not end after the first"
            run.kill(signal.SIGTERM)
            assert await run.end() == 143, run.errors
        assert run.summary["outcome"] == "interrupted"
        assert run.summary["progress"]["done"] == 0
        down = False
        code, run = await crawl("-f", file, "--db", db, cwd=tmp_path)
        assert (code, run.summary["reason"], run.summary["progress"]["done"]) == (0, "CrawlFinished", 1)
        judge(db)


# 20: what the user wrote is what is asked for

SEEDS = ("/a%20b", "/a%2Fb", "/%E4?%e4", "/[x]?[y]", "/a|b?c|d", "/ä b?ü'", "/%7Euser/")


async def test_scenario_20_seeds_are_asked_for_byte_by_byte(tmp_path: Path) -> None:
    async with site() as here:
        targets = [canonical(here.url(path)).removeprefix(here.url().rstrip("/")) for path in SEEDS]
        assert targets == ["/a%20b", "/a%2Fb", "/%E4?%e4", "/[x]?[y]", "/a|b?c|d", "/%C3%A4%20b?%C3%BC%27", "/%7Euser/"]
        here.answers |= {"/robots.txt": raw_page(b"", status="404 Not Found"), **dict.fromkeys(targets, raw_page())}
        file = manifest(tmp_path, *map(here.url, SEEDS))
        code, run = await crawl("-f", file, cwd=tmp_path)
        assert code == 0, run.errors
        assert run.summary["progress"] | {"failed": 0, "done": len(SEEDS)} == run.summary["progress"]
        assert sorted(here.targets) == sorted(["/robots.txt", *targets])


async def test_scenario_20_a_seed_in_another_script_is_asked_for_by_its_name_in_dns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        site({"/stra%C3%9Fe": raw_page()}) as here,
        Fetcher(Fetch(), SystemClock(), allowed=[ip_network("127.0.0.0/8")]) as client,
    ):
        monkeypatch.setattr(client._session.connector, "_resolver", Names({"xn--bcher-kva.example": [["127.0.0.1"]]}))
        (seed,) = parse({"seeds": [f"http://Bücher.example:{here.port}/straße"]}).seeds
        url = canonical(seed)
        assert not isinstance(url, Refusal)
        assert (await client.fetch(url)).outcome is Outcome.OK
        assert f"\r\nHost: xn--bcher-kva.example:{here.port}\r\n" in here.heads[0]


# 21: sites without end


async def test_scenario_21_traps_end_and_every_real_page_is_crawled(tmp_path: Path) -> None:
    """A calendar ends with the depth; paths that nest below themselves are told by their shape, and are counted."""
    real = [f"/real/{number}" for number in range(200)]

    async def calendar(request: web.Request) -> web.StreamResponse:
        year, month = map(int, request.path.split("/")[2:])
        after = year * 12 + month
        return await page(f"/cal/{after // 12}/{after % 12 + 1}", "/real/0")(request)

    async def nesting(request: web.Request) -> web.StreamResponse:
        return await page("a/b/", "/real/1")(request)

    class Endless(dict[str, Any]):
        def get(self, path: str, default: Any = None) -> Any:
            if path.startswith("/cal/"):
                return calendar
            return nesting if path.startswith("/a/b/") else super().get(path, default)

    answers = Endless({"/": page(*real, "/cal/2024/1", "/a/b/"), **{path: page("/") for path in real}})
    async with Website(answers) as website:
        db = tmp_path / "frontier.db"
        code, run = await crawl("--seed", website.url, "--db", db, cwd=tmp_path)
        assert code == 0, run.errors
        assert run.summary["reason"] == "CrawlFinished"
        assert {path: website.requests[path] for path in real} == dict.fromkeys(real, 1)
        asked = [path for path in website.requests if path not in ("/", *real)]
        assert len([path for path in asked if path.startswith("/cal/")]) == MAX_DEPTH
        assert sorted(path for path in asked if not path.startswith("/cal/")) == ["/a/b/", "/a/b/a/b/"]
        assert FrontierReader(db).refused() == {"repeating_segments": 1}
        left = rows(db, "SELECT url, left_out FROM pages WHERE state = 'excluded'")
        assert left == [(f"{website.url}cal/2025/5", "depth")]


# 32: addresses that nobody on the web may name


async def test_scenario_32_no_socket_is_opened_to_what_is_not_public(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(REFUSED) >= 40
    opened: list[Any] = []

    async def sock_connect(_: socket.socket, address: Any) -> None:
        opened.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", sock_connect)
    rebinding = [["10.0.0.1"], ["127.0.0.1"], ["169.254.169.254"], ["::ffff:10.0.0.1"]]
    names = {f"host-{number}.example": [[address]] for number, address in enumerate(REFUSED)}
    async with Fetcher(Fetch(), SystemClock()) as client:
        monkeypatch.setattr(client._session.connector, "_resolver", Names({**names, "rebinding.example": rebinding}))
        monkeypatch.setattr(client._session.connector, "_use_dns_cache", False)
        urls = [f"http://{host}/" for host in (*names, *["rebinding.example"] * len(rebinding))]
        literals = [f"[{address}]" if ":" in address else address for address in REFUSED]
        urls += [url for literal in literals if not isinstance(url := canonical(f"http://{literal}/"), Refusal)]
        assert len(urls) == 2 * len(REFUSED) + len(rebinding) - 1, "all but the one with a zone are literals, too"
        for url in urls:
            assert (await client.fetch(url)).outcome is Outcome.ADDRESS_REFUSED, url
    assert opened == []


async def test_scenario_32_a_redirect_to_a_metadata_service_is_not_followed() -> None:
    metadata = "http://169.254.169.254/latest/meta-data/"
    allowed = [ip_network("127.0.0.0/8")]
    async with site({"/": to(metadata)}) as here, Fetcher(Fetch(), SystemClock(), allowed=allowed) as client:
        for fetch, outcome in (
            (client.fetch, Outcome.REDIRECT_OUT_OF_SCOPE),
            (client.fetch_robots, Outcome.REDIRECT_INVALID),  # which may lead to another robots.txt only
        ):
            assert (await fetch(here.url())).outcome is outcome


# 38: servers that never come to an end

TOTAL = 1.0


async def test_scenario_38_a_server_that_never_ends_costs_its_deadline_and_the_crawl_ends(tmp_path: Path) -> None:
    links = b"".join(b"<a href=/%b>x</a>" % name for name in (b"silent", b"head", b"body", b"good"))
    answers: dict[str, Answer] = {
        "/robots.txt": raw_page(b"", status="404 Not Found"),
        "/": raw_page(links),
        "/silent": hang,
        "/head": dripping(b"HTTP/1.1 200 OK\r\nX: ", 0.2),
        "/body": dripping(raw_page(b"", length=1000), 0.2),
        "/good": raw_page(),
    }
    async with site(answers) as here:
        db = tmp_path / "frontier.db"
        fetch = {"retries": 0, "perHost": 1, "totalTimeout": f"{TOTAL:g}s", "headerTimeout": "600ms"}
        code, run = await crawl("-f", manifest(tmp_path, here.url(), fetch=fetch), "--db", db, cwd=tmp_path)
    assert code == 0, run.errors
    assert run.summary["reason"] == "CrawlFinished"
    found = rows(db, "SELECT url, outcome, duration_ms FROM pages JOIN results ON page_id = id")
    assert {url.removeprefix(here.url()): outcome for url, outcome, _ in found} == {
        "": "ok",
        "good": "ok",
        "silent": "header_timeout",
        "head": "header_timeout",
        "body": "total_timeout",
    }
    assert max(duration for *_, duration in found) <= (TOTAL + 0.5) * 1000
