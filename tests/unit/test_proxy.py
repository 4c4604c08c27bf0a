"""A crawl through a proxy, over real sockets: what the proxy gets to see, and whose failure a failure is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import uvloop
import yaml
from tests.support.crawler import crawl, crawling, free_port, rows
from tests.support.misbehaving import Authority, hang, page, site, then, to
from tests.support.relays import proxy

from crawljob.exitcodes import ExitCode
from crawljob.manifest import parse
from crawljob.problems import InvalidInputError
from crawljob.spec import Fetch
from durable_crawler.access import Access, OriginHeaders
from durable_crawler.clock import SystemClock
from durable_crawler.fetch import Fetcher
from durable_crawler.outcomes import Fetched, Outcome

LOOPBACK = (ip_network("127.0.0.0/8"),)
PROXY_ONLY = (ip_network("127.0.0.1/32"),)
SECRET = "s3cr3t-q7J-value"
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


@asynccontextmanager
async def client(
    url: str, *, access: Access | None = None, allowed: Any = LOOPBACK, **fields: Any
) -> AsyncIterator[Fetcher]:
    spec = Fetch.model_validate({"proxy": {"url": url, "proxyFiltersAddresses": True}, **fields})
    async with Fetcher(spec, SystemClock(), allowed=allowed, access=access) as made:
        yield made


def headers(origin: str) -> OriginHeaders:
    return OriginHeaders({origin: {"X-Api-Key": SECRET}})


# The way through


async def test_http_goes_in_absolute_form() -> None:
    """Byte for byte, and by name."""
    async with site({"/a?": page(b"x"), "/b": to("/a?")}) as here, proxy() as between:
        between.to = {"docs.example.org:80": here.port}
        async with client(between.url) as made:
            fetched = await made.fetch("http://docs.example.org/b")
            assert (fetched.outcome, fetched.body, fetched.final_url) == (
                Outcome.OK,
                b"x",
                "http://docs.example.org/a?",
            )
    assert between.connections == 1, "it is kept"
    assert between.heads[0].startswith("GET http://docs.example.org/b HTTP/1.1\r\n")
    assert "Host: docs.example.org\r\n" in here.heads[0]


async def test_an_empty_query_is_kept_in_absolute_form() -> None:
    async with site({"/a?": page(b"x")}) as here, proxy() as between:
        between.to = {"docs.example.org:80": here.port}
        async with client(between.url) as made:
            assert (await made.fetch("http://docs.example.org/a?")).body == b"x"
    assert between.heads[0].startswith("GET http://docs.example.org/a? HTTP/1.1\r\n")


async def test_https_goes_through_a_tunnel_that_sees_nothing(tmp_path: Path) -> None:
    """Neither the headers nor the path, and the certificate is the site's, for the name that was asked for."""
    authority = Authority(tmp_path)
    access = Access(headers("https://docs.example.org"), authority.trusting())
    async with (
        site({"/secret-path": page(b"x")}, ssl=authority.server("DNS:docs.example.org")) as here,
        proxy() as between,
    ):
        between.to = {"docs.example.org:443": here.port, "other.example.org:443": here.port}
        async with client(between.url, access=access) as made:
            for _ in range(2):
                assert (await made.fetch("https://docs.example.org/secret-path")).outcome is Outcome.OK
            assert (await made.fetch("https://other.example.org/")).outcome is Outcome.TLS_ERROR
        async with client(between.url) as trusting_nobody:
            assert (await trusting_nobody.fetch("https://docs.example.org/")).outcome is Outcome.TLS_ERROR
    expected = "CONNECT docs.example.org:443 HTTP/1.1\r\nHost: docs.example.org:443\r\n\r\n"
    assert between.heads == [expected, expected.replace("docs.", "other."), expected]
    assert [f"X-Api-Key: {SECRET}\r\n" in head for head in here.heads] == [True, True]


async def test_the_environments_proxies_are_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site({"/": page(b"x")}) as here, proxy() as between:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, between.url)
            monkeypatch.setenv(name.upper(), between.url)
        monkeypatch.setenv("no_proxy", "")
        async with Fetcher(Fetch(), SystemClock(), allowed=LOOPBACK) as made:
            assert (await made.fetch(here.url())).outcome is Outcome.OK
        assert between.connections == 0


# Addresses


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_an_address_in_a_url_is_judged_before_the_proxy_is_asked(scheme: str) -> None:
    async with proxy() as between, client(between.url, allowed=PROXY_ONLY) as made:
        for host in ("127.0.0.2", "[::1]", "[::ffff:10.0.0.1]", "169.254.169.254", "10.0.0.1"):
            fetched = await made.fetch(f"{scheme}://{host}:81/")
            assert (fetched.outcome, fetched.retryable) == (Outcome.ADDRESS_REFUSED, False)
            assert "allowCIDRs" in fetched.error
        assert between.connections == 0


async def test_the_proxys_own_address_is_judged_too() -> None:
    async with proxy() as between, client(between.url, allowed=()) as made:
        fetched = await made.fetch("http://docs.example.org/")
        assert (fetched.outcome, fetched.retryable, fetched.host_incident) == (Outcome.PROXY_REFUSED, False, False)
        assert fetched.error.startswith(f"the proxy {between.url}")
        assert "127.0.0.1 is loopback" in fetched.error
        assert between.connections == 0


# Failures


def answer(status: str) -> bytes:
    return page(b"go away", status=status)


@pytest.mark.parametrize(
    ("url", "said", "outcome", "again"),
    [
        ("https://a.example/", answer("403 Forbidden"), Outcome.PROXY_REFUSED, False),
        ("https://a.example/", answer("407 Proxy Authentication Required"), Outcome.PROXY_REFUSED, False),
        ("http://a.example/", answer("407 Proxy Authentication Required"), Outcome.PROXY_REFUSED, False),
        ("https://a.example/", answer("503 No such host"), Outcome.CONNECT_ERROR, True),
        ("https://a.example/", b"SSH-2.0\r\n\r\n", Outcome.PROTOCOL_ERROR, False),
        ("https://a.example/", b"HTTP/1.1 200 OK\r\n\r\nsurprise", Outcome.PROTOCOL_ERROR, False),
        ("https://a.example/", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 9000, Outcome.PROTOCOL_ERROR, False),
        ("https://a.example/", b"HTTP/1.1 200 OK\r\nX", Outcome.CONNECT_ERROR, True),
        ("https://a.example/", b"HTTP/1.1 200", Outcome.PROXY_UNREACHABLE, False),
        ("https://a.example/", b"", Outcome.PROXY_UNREACHABLE, False),
    ],
)
async def test_what_a_proxy_says_is_told_by_its_name(url: str, said: bytes, outcome: Outcome, again: bool) -> None:
    async with proxy(said) as between, client(between.url) as made:
        fetched = await made.fetch(url)
        assert (fetched.outcome, fetched.status if outcome is not Outcome.PROXY_REFUSED else None) == (outcome, None)
        assert fetched.retryable is again
        assert fetched.error.startswith(f"the proxy {between.url}")
        assert "go away" not in fetched.error


async def test_a_site_behind_a_proxy_may_forbid() -> None:
    async with site({"/": answer("403 Forbidden")}) as here, proxy() as between:
        between.to = {"docs.example.org:80": here.port}
        async with client(between.url) as made:
            fetched = await made.fetch("http://docs.example.org/")
            assert (fetched.outcome, fetched.status) == (Outcome.HTTP_ERROR, 403)


async def test_a_site_behind_a_tunnel_may_even_ask_for_a_proxys_credentials(tmp_path: Path) -> None:
    """That is nonsense, but the site's: the proxy does not see what goes through."""
    authority = Authority(tmp_path)
    nonsense = {"/": answer("407 Proxy Authentication Required")}
    async with site({**nonsense}, ssl=authority.server("DNS:docs.example.org")) as here, proxy() as between:
        between.to = {"docs.example.org:443": here.port}
        async with client(between.url, access=Access(tls=authority.trusting())) as made:
            fetched = await made.fetch("https://docs.example.org/")
            assert (fetched.outcome, fetched.status) == (Outcome.HTTP_ERROR, 407)


async def test_a_proxy_that_resets_the_connection_says_nothing_of_the_host() -> None:
    async with site(then("reset")) as between, client(between.url().rstrip("/")) as made:
        fetched = await made.fetch("https://docs.example.org/")
        assert (fetched.outcome, fetched.retryable, fetched.host_incident) == (Outcome.PROXY_UNREACHABLE, False, False)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_dead_proxy_says_nothing_of_the_host(scheme: str) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    async with client(dead) as made:
        fetched = await made.fetch(f"{scheme}://docs.example.org/")
        assert (fetched.outcome, fetched.retryable, fetched.host_incident) == (Outcome.PROXY_UNREACHABLE, False, False)
        assert fetched.error.startswith(f"the proxy {dead}")


# Deadlines


async def test_each_step_through_a_proxy_has_its_deadline() -> None:
    async def silent(url: str, script: Any, **fields: Any) -> Fetched:
        async with site(script) as between, client(between.url().rstrip("/"), **fields) as made:
            return await made.fetch(url)

    assert (await silent("https://a.example/", hang, connectTimeout="50ms")).outcome is Outcome.CONNECT_TIMEOUT
    tunnel = then(ESTABLISHED, "hang")
    assert (await silent("https://a.example/", tunnel, tlsTimeout="50ms")).outcome is Outcome.TLS_TIMEOUT
    assert (await silent("http://a.example/", hang, headerTimeout="50ms")).outcome is Outcome.HEADER_TIMEOUT
    assert (await silent("https://a.example/", hang, totalTimeout="50ms")).outcome is Outcome.TOTAL_TIMEOUT


@pytest.mark.parametrize(
    "test",
    [
        test_http_goes_in_absolute_form,
        partial(
            test_what_a_proxy_says_is_told_by_its_name,
            "https://a.example/",
            answer("403 No"),
            Outcome.PROXY_REFUSED,
            False,
        ),
        partial(test_a_dead_proxy_says_nothing_of_the_host, "https"),
        test_a_proxy_that_resets_the_connection_says_nothing_of_the_host,
    ],
    ids=lambda test: getattr(test, "func", test).__name__,
)
def test_the_same_on_uvloop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """The product's loop, whose sockets and exceptions are its own."""
    uvloop.run(test())


def test_a_tunnel_on_uvloop(tmp_path: Path) -> None:
    uvloop.run(test_https_goes_through_a_tunnel_that_sees_nothing(tmp_path))


# The whole crawl


async def test_a_crawl_waits_for_a_proxy_that_is_away(tmp_path: Path) -> None:
    """It says so, and gives every page back as it was."""
    url = f"http://127.0.0.1:{free_port()}"
    file = job(tmp_path, proxy={"url": url, "proxyFiltersAddresses": True}, retries=0)
    async with crawling("-f", file, cwd=tmp_path) as run:
        assert run.process.stdout is not None
        while b"the crawl waits for it" not in (line := await run.process.stdout.readline()):
            assert line, "it ended"
        assert f"the proxy {url}".encode() in line
        run.process.terminate()
        assert await run.end() == 143
    found = rows(tmp_path / "frontier.db", "SELECT DISTINCT state, attempts, retries, openings FROM pages, hosts")
    assert found == [("pending", 0, 0, 0)]


async def test_a_redirect_waits_for_a_proxy_that_is_away(tmp_path: Path) -> None:
    """It was let through for http, and then not for the robots.txt of https: no robots.txt was unreachable."""
    answers: dict[str, bytes] = {f"/{n}": to(f"https://docs.example.org/{n}") for n in range(8)}
    answers["/robots.txt"] = page(b"", status="404 Not Found")
    async with site({**answers}) as here, proxy() as between:
        between.to = {"docs.example.org:80": here.port}
        file = job(tmp_path, proxy={"url": between.url, "proxyFiltersAddresses": True}, perHost=1)
        async with crawling("-f", file, cwd=tmp_path) as run:
            assert run.process.stdout is not None
            while b"the crawl waits for it" not in (line := await run.process.stdout.readline()):
                assert line, "it ended"
            run.process.terminate()
            assert await run.end() == 143
    assert rows(tmp_path / "frontier.db", "SELECT DISTINCT state, attempts, retries FROM pages") == [("pending", 0, 0)]
    assert rows(tmp_path / "frontier.db", "SELECT origin FROM robots") == [("http://docs.example.org",)]


async def test_a_crawl_through_a_proxy(tmp_path: Path) -> None:
    answers = {"/robots.txt": page(b"User-agent: *\nDisallow: /7", "Content-Type: text/plain")}
    answers |= {f"/{n}": page(b"x") for n in range(8)}
    async with site(dict(answers)) as here, proxy() as between:
        between.to = {"docs.example.org:80": here.port}
        file = job(tmp_path, proxy={"url": between.url, "proxyFiltersAddresses": True})
        code, run = await crawl("-f", file, cwd=tmp_path)
        assert code == 0, run.errors
    found: dict[str, int] = dict(rows(tmp_path / "frontier.db", "SELECT outcome, count(*) FROM results GROUP BY 1"))
    assert found == {"ok": 7, "robots_disallowed": 1}
    assert "/7" not in here.targets


def test_a_header_for_http_is_not_shown_to_a_proxy() -> None:
    """Every such header is named; https goes through a tunnel, and without a proxy nobody is in between."""

    def problems(**fetch: Any) -> list[str]:
        seeds = ["http://docs.example.org/", "https://docs.example.org/"]
        value = {"secretKeyRef": {"name": "login", "key": "api-key"}}
        origins = ["https://docs.example.org", "http://docs.example.org", "http://other.example.org"]
        sent = [{"origin": origin, "name": "X-Api-Key", "valueFrom": value} for origin in origins]
        try:
            parse({"seeds": seeds, "fetch": {"headers": sent, **fetch}})
        except InvalidInputError as error:
            return [f"{problem.path} {problem.message.partition(':')[0]}" for problem in error.problems]
        return []

    elsewhere = "spec.fetch.headers[2].origin is on no seed's host"
    assert problems() == [elsewhere]
    between = {"url": "http://proxy.example.org:3128", "proxyFiltersAddresses": True}
    assert problems(proxy=between) == [
        "spec.fetch.headers[1].origin is http",
        elsewhere,
        "spec.fetch.headers[2].origin is http",
    ]


async def test_a_proxy_at_a_private_address_is_refused_before_the_crawl(tmp_path: Path) -> None:
    file = job(tmp_path, proxy={"url": "http://[::ffff:10.0.0.1]:3128/", "proxyFiltersAddresses": True})
    code, run = await crawl("-f", file, cwd=tmp_path)
    assert code == ExitCode.INVALID
    assert run.errors.startswith("error: spec.fetch.proxy.url: ")
    assert "10.0.0.1, which is private" in run.errors
    assert "allowCIDRs" in run.errors
    assert run.errors.count("\n") == 1


def job(tmp_path: Path, **fetch: Any) -> Path:
    file = tmp_path / "crawljob.yaml"
    spec = {"seeds": [f"http://docs.example.org/{n}" for n in range(8)], "fetch": fetch}
    file.write_text(yaml.safe_dump({"apiVersion": "durable-crawler.io/v1alpha1", "kind": "CrawlJob", "spec": spec}))
    return file
