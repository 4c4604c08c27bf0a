"""A proxy between the operator and the API server that does to calls what networks and API servers do to them.

Plain HTTP on loopback for the operator, TLS with a user's certificate towards the API server. It runs in a thread; its
methods may be called from any. Every call is recorded with its verb, resource and status.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp
import yaml
from aiohttp import web
from tests.support.apiserver import ApiServer, Raw
from yarl import URL

_LINE_MAX = 8 << 20
_HOP_BY_HOP = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding"})
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
MUTATING = frozenset(_VERBS.values())


@dataclass(frozen=True)
class Call:
    """One request, in the words of an audit log; ``status`` is 0 where the client got no answer."""

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""
    status: int = 0

    @classmethod
    def of(cls, method: str, path: str, query: Any) -> Self:
        """Read it from a request's line."""
        parts = path.strip("/").split("/")
        parts = parts[2:] if parts[0] == "api" else parts[3:]  # past the group and its version
        namespace = ""
        if parts[:1] == ["namespaces"] and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        resource, name, part = (*parts, "", "", "")[:3]
        verb = _VERBS.get(method, "get" if name else "list")
        if query.get("watch") in ("1", "true"):
            verb = "watch"
        return cls(verb, f"{resource}/{part}" if part else resource, namespace, name)


@dataclass(frozen=True)
class Status:
    """The API server answers with an error of its own."""

    code: int
    reason: str = ""
    retry_after: int | None = None


@dataclass(frozen=True)
class Expired:
    """A watch begins, and says at once that its resourceVersion is too old: the ordinary way of it."""


@dataclass(frozen=True)
class Silence:
    """The connection stands and nothing comes over it: a watch that is open goes silent as well."""


@dataclass(frozen=True)
class Slow:
    """The answer takes long."""

    seconds: float


@dataclass(frozen=True)
class Cut:
    """The connection breaks instead of an answer."""


@dataclass(frozen=True)
class Swallow:
    """An event of a watch that is open does not arrive."""


Fault = Status | Expired | Silence | Slow | Cut | Swallow


@dataclass
class Rule:
    """A fault for the calls that match; an empty field matches all, ``left`` counts down where it is a number."""

    fault: Fault
    verbs: frozenset[str] = frozenset()
    resource: str = ""
    name: str = ""
    left: int | None = None
    hits: int = 0
    lifted: asyncio.Event = field(default_factory=asyncio.Event)

    def takes(self, call: Call) -> bool:
        """Whether the fault is for this call; a rule that counts counts it."""
        fits = (
            (not self.verbs or call.verb in self.verbs)
            and (not self.resource or call.resource == self.resource)
            and (not self.name or call.name == self.name)
        )
        if not fits or self.left == 0 or self.lifted.is_set():
            return False
        if self.left is not None:
            self.left -= 1
        self.hits += 1
        return True


class FaultProxy:
    """Serves while it is entered; ``kubeconfig`` leads to it."""

    def __init__(self, server: ApiServer, user: str, name: str = "") -> None:
        self.calls: list[Call] = []
        self.before_write: Callable[[int, Call], bool] = lambda _, __: False
        """Called with the number, from 1, of a mutating call that was not forwarded yet; true: it never will be."""
        self.after_write: Callable[[int, Call], bool] = lambda _, __: False
        """Called when the call was carried out and its answer not given; true: it never will be."""
        self._upstream = server.url
        self._context = _client_context(server.kubeconfig(user))
        self._file = server.folder / f"proxy-{name or user}.kubeconfig"
        self._rules: list[Rule] = []
        self._streams: dict[web.StreamResponse, Call] = {}
        self.written = 0
        """Mutating calls that have come."""
        self._frozen: set[web.StreamResponse] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._submit(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._submit(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        assert not self._thread.is_alive(), "the proxy's loop has ended"
        self._loop.close()

    @property
    def kubeconfig(self) -> Path:
        """A file that leads a client here."""
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxy", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "nobody"}}],
            "current-context": "proxy",
        }
        self._file.write_text(yaml.safe_dump(content))
        return self._file

    @contextmanager
    def fault(
        self, fault: Fault, *verbs: str, resource: str = "", name: str = "", times: int | None = None
    ) -> Iterator[Rule]:
        """Inject while entered; ``hits`` of what is entered says how often it struck."""
        rule = Rule(fault, frozenset(verbs), resource, name, times)
        self._rules.append(rule)
        try:
            yield rule
        finally:
            self._loop.call_soon_threadsafe(rule.lifted.set)
            self._rules.remove(rule)

    def cut(self, resource: str = "") -> int:
        """Break the watches that are open, or those of one resource; returns how many."""

        async def abort() -> int:
            hit = [r for r, call in self._streams.items() if not resource or call.resource == resource]
            for response in hit:
                _abort(response)
            return len(hit)

        return int(self._submit(abort()))

    def freeze(self) -> None:
        """The watches that are open go silent for good, as when the other end has vanished; new ones do not."""
        self._frozen |= set(self._streams)

    def watching(self) -> list[str]:
        """The resources whose watches are open now."""
        return sorted(call.resource for call in list(self._streams.values()))

    def made(self, *verbs: str, resource: str = "", since: int = 0) -> list[Call]:
        """The recorded calls of these verbs, from the ``since``-th recorded call on."""
        return [c for c in self.calls[since:] if c.verb in verbs and resource in ("", c.resource)]

    def writes(self, since: int = 0) -> list[Call]:
        """The recorded mutating calls."""
        return self.made(*MUTATING, since=since)

    def _submit(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    async def _start(self) -> None:
        self._connector = aiohttp.TCPConnector(ssl=self._context, limit=0)
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            auto_decompress=False,
            read_bufsize=_LINE_MAX,
            timeout=aiohttp.ClientTimeout(total=None),
            trust_env=False,
        )
        app = web.Application(client_max_size=_LINE_MAX)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _end(self) -> None:
        for response in list(self._streams):
            _abort(response)
        await self._runner.cleanup()
        await self._connector.close(abort_ssl=True)
        await self._session.close()
        async with asyncio.timeout(10):
            while self._open_sockets():  # a TLS connection says goodbye after it was closed
                await asyncio.sleep(0.01)

    def _open_sockets(self) -> int:
        selector = self._loop._selector  # type: ignore[attr-defined]
        return len(selector.get_map()) - 1  # the loop's own

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        call = Call.of(request.method, request.path, request.query)
        place = len(self.calls)
        self.calls.append(call)
        body = await request.read()
        number = 0
        if call.verb in MUTATING:
            self.written += 1
            number = self.written
            if self.before_write(number, call):
                return _break(request)
        for rule in [rule for rule in self._rules if not isinstance(rule.fault, Swallow)]:
            if rule.takes(call):
                answer = await self._strike(rule, request)
                if answer is not None:
                    self.calls[place] = replace(call, status=answer.status)
                    return answer
        url = URL(self._upstream + request.raw_path, encoded=True)
        try:
            async with self._session.request(
                request.method, url, data=body or None, headers=_end_to_end(request.headers)
            ) as upstream:
                content = b"" if call.verb == "watch" else await upstream.read()
                if number and self.after_write(number, call):
                    return _break(request)
                self.calls[place] = replace(call, status=upstream.status)
                response = web.StreamResponse(status=upstream.status, headers=_end_to_end(upstream.headers))
                await response.prepare(request)
                if call.verb == "watch":
                    await self._stream(call, upstream, response)
                else:
                    await response.write(content)
                await response.write_eof()
                return response
        except (aiohttp.ClientError, ConnectionError):
            return _break(request)  # one of the two has gone

    async def _stream(self, call: Call, upstream: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        self._streams[response] = call
        try:
            async for line in upstream.content:
                if response in self._frozen:
                    await asyncio.Event().wait()  # until the client gives up
                silent = [rule for rule in self._rules if isinstance(rule.fault, Silence) and rule.takes(call)]
                for rule in silent:
                    await rule.lifted.wait()
                bookmark = b'"type":"BOOKMARK"' in line[:40]
                swallowed = not bookmark and any(
                    isinstance(rule.fault, Swallow) and rule.takes(call) for rule in self._rules
                )
                if not swallowed:
                    await response.write(line)
        finally:
            del self._streams[response]
            self._frozen.discard(response)

    async def _strike(self, rule: Rule, request: web.Request) -> web.StreamResponse | None:
        """Answer in the fault's way; ``None``: go on as usual."""
        match rule.fault:
            case Status(code, reason, retry_after):
                headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
                return web.json_response(_status(code, reason), status=code, headers=headers)
            case Expired():
                return await _line(request, {"type": "ERROR", "object": _status(410, "Expired")}, end=True)
            case Silence():
                await _line(request, None, end=False)
                await asyncio.Event().wait()  # until the client goes, or the proxy
            case Slow(seconds):
                await asyncio.sleep(seconds)
            case Cut():
                return _break(request)
            case Swallow():
                raise AssertionError("it strikes events, not calls")
        return None


async def _line(request: web.Request, event: Raw | None, *, end: bool) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    if event is not None:
        await response.write(json.dumps(event).encode() + b"\n")
    if end:
        await response.write_eof()
    return response


def _end_to_end(headers: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in headers.items() if key.lower() not in _HOP_BY_HOP}


def _status(code: int, reason: str) -> Raw:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "made by the test's proxy",
        "reason": reason,
        "code": code,
    }


def _break(request: web.Request) -> web.Response:
    """Close the connection without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)  # nobody hears it


def _abort(response: web.StreamResponse) -> None:
    transport = response._req.transport if response._req is not None else None
    if transport is not None:
        transport.abort()


def _client_context(kubeconfig: Path) -> ssl.SSLContext:
    content = yaml.safe_load(kubeconfig.read_text())
    user, cluster = content["users"][0]["user"], content["clusters"][0]["cluster"]
    assert urlsplit(cluster["server"]).hostname == "127.0.0.1", "traffic stays on loopback"
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    context.load_cert_chain(user["client-certificate"], user["client-key"])
    return context
