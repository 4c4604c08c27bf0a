"""What lets a crawl into a private site, over real sockets: headers for one origin, certificates of one's own."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web
from tests.support.crawler import crawl, crawling, rows
from tests.support.misbehaving import Authority, page, site, to
from tests.support.relays import both_schemes

from crawljob.exitcodes import ExitCode
from crawljob.problems import InvalidInputError
from crawljob.spec import Fetch
from durable_crawler.access import VALUE_MAX_BYTES, Access, OriginHeaders, read
from durable_crawler.clock import SystemClock
from durable_crawler.fetch import Fetcher
from durable_crawler.outcomes import Outcome

LOOPBACK = (ip_network("127.0.0.0/8"),)
SECRET = "s3cr3t-q7J-value"
REF = {"name": "site-login", "key": "api-key"}


def header(origin: str, name: str = "X-Api-Key", **ref: str) -> dict[str, Any]:
    return {"origin": origin, "name": name, "valueFrom": {"secretKeyRef": {**REF, **ref}}}


def fetch_of(*headers: dict[str, Any], **fields: Any) -> Fetch:
    return Fetch.model_validate({"headers": headers, **fields}, strict=False)


def secret(
    folder: Path, value: bytes = f"{SECRET}\n".encode(), *, name: str = REF["name"], key: str = REF["key"]
) -> Path:
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / key).write_bytes(value)
    return folder


def job(tmp_path: Path, seeds: Sequence[str], **spec: Any) -> Path:
    file = tmp_path / "crawljob.yaml"
    body = {"apiVersion": "durable-crawler.io/v1alpha1", "kind": "CrawlJob", "spec": {"seeds": list(seeds), **spec}}
    file.write_text(yaml.safe_dump(body))
    return file


def names(head: str) -> set[str]:
    return {line.partition(":")[0].lower() for line in head.split("\r\n")[1:] if line}


# Reading


def test_values_are_read_without_their_last_newline(tmp_path: Path) -> None:
    secret(tmp_path, "gr\u00fcn \n".encode())
    headers = read(fetch_of(header("https://a.example")), secret_dir=tmp_path).headers
    assert headers.of("https://a.example/x?y") == {"X-Api-Key": "gr\u00fcn "}
    for other in ("http://a.example/", "https://a.example:444/", "https://b.a.example/", "https://a.example.b/"):
        assert headers.of(other) == {}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (f"{SECRET}\n\n".encode(), "control character"),
        (f"{SECRET}\r\n".encode(), "control character"),
        (f"{SECRET}\r\nHost: evil.example\n".encode(), "control character"),
        (f"{SECRET}\0".encode(), "control character"),
        (f"\t{SECRET}".encode(), "control character"),
        (f"{SECRET}\x7f".encode(), "control character"),
        (f"{SECRET}\u0085".encode(), "control character"),
        (f"{SECRET}\xff".encode("latin-1"), "is not UTF-8"),
        (b"x" * (VALUE_MAX_BYTES + 1), "has more than 8192 bytes"),
        (None, "cannot be read (No such file or directory)"),
    ],
)
def test_a_value_that_no_header_may_have_is_named_by_its_file(tmp_path: Path, value: bytes | None, says: str) -> None:
    file = tmp_path / REF["name"] / REF["key"]
    if value is not None:
        secret(tmp_path, value)
    with pytest.raises(InvalidInputError) as refused:
        read(fetch_of(header("https://a.example")), secret_dir=tmp_path)
    (problem,) = refused.value.problems
    assert problem.path == "spec.fetch.headers[0].valueFrom.secretKeyRef"
    assert problem.message.startswith(f"{file} ")
    assert says in problem.message
    assert SECRET not in problem.message


def test_a_value_of_exactly_the_limit_is_taken(tmp_path: Path) -> None:
    secret(tmp_path, b"x" * VALUE_MAX_BYTES + b"\n")
    assert len(read(fetch_of(header("https://a.example")), secret_dir=tmp_path).headers.of("https://a.example/")) == 1


def test_values_are_in_no_repr() -> None:
    access = Access(OriginHeaders({"https://a.example": {"X": SECRET}}))
    assert SECRET not in f"{access!r} {access} {access.headers!r} {access.headers}"


@pytest.mark.parametrize(
    ("fetch", "arguments", "says"),
    [
        ({"headers": [header("http://127.0.0.1:1")]}, (), "spec.fetch.headers: the values are read from files: name"),
        ({"headers": [header("http://127.0.0.1:1")]}, ("--secret-dir", "no"), "no/site-login/api-key cannot be read"),
        ({"caBundle": {"configMapKeyRef": REF}}, (), "spec.fetch.caBundle: the certificates are read from a file"),
        ({}, ("--ca-bundle", "no.pem"), "--ca-bundle: no.pem cannot be read (No such file or directory)"),
        ({}, ("--ca-bundle", "crawljob.yaml"), "--ca-bundle: crawljob.yaml does not hold PEM certificates"),
        ({}, ("--ca-bundle", "empty.pem"), "--ca-bundle: empty.pem does not hold PEM certificates"),
        ({}, ("--ca-bundle", "half.pem"), "--ca-bundle: half.pem does not hold PEM certificates"),
    ],
)
async def test_what_cannot_be_read_is_one_sentence_and_no_crawl(
    tmp_path: Path, fetch: dict[str, Any], arguments: Sequence[str], says: str
) -> None:
    Authority(tmp_path)
    (tmp_path / "empty.pem").touch()
    (tmp_path / "half.pem").write_bytes((tmp_path / "ca.pem").read_bytes() * 2 + b"-----BEGIN CERTIFICATE-----\nMII")
    file = job(tmp_path, ["http://127.0.0.1:1/"], fetch=fetch)
    code, run = await crawl("-f", file.name, *arguments, cwd=tmp_path)
    assert code == ExitCode.INVALID
    assert says in run.errors
    assert run.errors.count("\n") == 1
    assert not (tmp_path / "frontier.db").exists()


# Headers


async def test_scenario_41_a_header_goes_to_its_origin_and_nowhere_else(tmp_path: Path) -> None:
    """Not behind a redirect within the scope, not to another seed, and its value into nothing that we write or send."""
    seen: list[bytes] = []
    told: list[str] = []

    async def collect(request: web.Request) -> web.Response:
        seen.append(await request.read())
        return web.Response()

    collector = web.AppRunner(web.Application(), access_log=None, shutdown_timeout=0.1)
    collector.app.router.add_post("/{path:.*}", collect)
    await collector.setup()
    await web.TCPSite(collector, "127.0.0.1", 0).start()
    authority = Authority(tmp_path)
    async with (
        site({"/robots.txt": page(b"", "Content-Type: text/plain"), "/": page(b"<p>other")}) as other,
        site({"/robots.txt": page(b"", "Content-Type: text/plain")}) as plain,
        site({"/robots.txt": page(b"", "Content-Type: text/plain")}, ssl=authority.server()) as encrypted,
        both_schemes(plain, encrypted) as port,
    ):
        here = f"http://127.0.0.1:{port}"
        file = job(
            tmp_path,
            [f"{here}/", f"{here}/ask", other.url()],
            fetch={"headers": [header(here)], "retries": 0},
            telemetry={
                "endpoint": f"http://127.0.0.1:{collector.addresses[0][1]}",
                "protocol": "http/protobuf",
                "tracesSampleRatio": 1,
            },
        )
        arguments = ("--secret-dir", secret(tmp_path / "secrets"), "--ca-bundle", "ca.pem", "--log-level", "debug")
        async with crawling("-f", file, *arguments, cwd=tmp_path) as run:

            async def ask(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                async with aiohttp.ClientSession() as client:
                    for path in ("progress", "metrics"):
                        async with client.get(f"http://127.0.0.1:{run.port}/{path}") as answer:
                            told.append(await answer.text())
                writer.write(page(b"x"))

            plain.answers |= {"/": to(f"https://127.0.0.1:{port}/secure"), "/ask": ask}
            encrypted.answers["/secure"] = page(f"<a href='{here}/broken'>a</a><a href='{other.url()}'>b</a>".encode())
            plain.answers["/broken"] = b"not HTTP\r\n\r\n"
            assert await run.end() == 0, run.errors
    await collector.cleanup()

    assert sorted(plain.targets) == ["/", "/ask", "/broken", "/robots.txt"]
    assert all(f"X-Api-Key: {SECRET}\r\n" in head for head in plain.heads)
    assert sorted(encrypted.targets) == ["/robots.txt", "/secure"]
    assert sorted(other.targets) == ["/", "/robots.txt"]
    assert not any("x-api-key" in names(head) for head in (*encrypted.heads, *other.heads))
    outcomes: dict[str, str] = dict(
        rows(tmp_path / "frontier.db", "SELECT url, outcome FROM pages JOIN results ON page_id = id")
    )
    assert outcomes[f"{here}/"] == "ok"
    assert outcomes[f"{here}/broken"] == "protocol_error"

    files = [path for path in tmp_path.glob("frontier.db*") if path.is_file()]
    written = {path.name: path.read_bytes() for path in files}
    written |= {"stdout": run.raw.encode(), "stderr": run.errors.encode(), "spans and metrics": b"".join(seen)}
    written |= {"progress": told[0].encode(), "/metrics": told[1].encode()}
    assert b"/broken" in written["frontier.db"] + written.get("frontier.db-wal", b"")
    assert b"/broken" in written["spans and metrics"]
    assert [name for name, content in written.items() if SECRET.encode() in content] == []


async def test_a_robots_txt_elsewhere_gets_no_header() -> None:
    async with site({"/robots.txt": page(b"")}) as other, site({"/robots.txt": to(other.url("/robots.txt"))}) as here:
        both = {server.url().rstrip("/"): {"Cookie": SECRET} for server in (here, other)}
        access = Access(OriginHeaders(both))
        async with Fetcher(Fetch(), SystemClock(), allowed=LOOPBACK, access=access) as client:
            assert (await client.fetch_robots(here.url("/robots.txt"))).outcome is Outcome.OK
        assert f"Cookie: {SECRET}\r\n" in here.heads[0]
        assert "cookie" not in names(other.heads[0])


async def test_a_header_is_sent_with_each_hop_of_its_origin() -> None:
    async with site({"/": to("/b"), "/b": page(b"x")}) as here:
        access = Access(OriginHeaders({here.url().rstrip("/"): {"Authorization": f"Bearer {SECRET}"}}))
        async with Fetcher(Fetch(), SystemClock(), allowed=LOOPBACK, access=access) as client:
            fetched = await client.fetch(here.url())
        assert [f"Authorization: Bearer {SECRET}\r\n" in head for head in here.heads] == [True, True]
        assert SECRET not in f"{fetched!r}{fetched.exchanges!r}"


# Certificates


@pytest.mark.parametrize(
    ("bundle", "name", "outcome"),
    [
        (True, "IP:127.0.0.1", "ok"),
        (False, "IP:127.0.0.1", "tls_error"),
        (True, "IP:127.0.0.2", "tls_error"),
        (True, "DNS:other.example", "tls_error"),
    ],
)
async def test_an_own_authority_is_trusted_by_its_file_only(
    tmp_path: Path, bundle: bool, name: str, outcome: str
) -> None:
    context = Authority(tmp_path).server(name)
    async with site({"/": page(b"x")}, ssl=context) as here:
        seed = f"https://127.0.0.1:{here.port}/"
        file = job(
            tmp_path,
            [seed],
            politeness={"robots": "ignore"},
            fetch={"caBundle": {"secretKeyRef": REF}} if bundle else {},
        )
        arguments = ("--ca-bundle", tmp_path / "ca.pem") if bundle else ()
        code, run = await crawl("-f", file, *arguments, cwd=tmp_path)
        assert code == 0, run.errors
        assert rows(tmp_path / "frontier.db", "SELECT outcome FROM results") == [(outcome,)]
        assert len(here.heads) == (1 if outcome == "ok" else 0)


def test_own_certificates_are_trusted_besides_the_systems(tmp_path: Path) -> None:
    Authority(tmp_path)
    bundle = tmp_path / "commented.pem"
    bundle.write_bytes("# für uns\n".encode() + (tmp_path / "ca.pem").read_bytes())
    context = read(Fetch(), ca_bundle=bundle).tls
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.cert_store_stats()["x509_ca"] == ssl.create_default_context().cert_store_stats()["x509_ca"] + 1
