"""The door to the API server: live reads and guarded writes of raw objects. Only this module imports ``kubernetes``.

Raw dictionaries instead of the client's models: these refuse what a newer or odd object may hold, and they are slow.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import aiohttp
import yaml
from kubernetes.aio import client, config

from crawljob import API_GROUP, API_VERSION, PLURAL
from crawljob_operator import names
from crawljob_operator.observer import Observer

Raw = dict[str, Any]

TIMEOUT_SECONDS = 30
PAGE = 500
EXEC_PROTOCOL = "v4.channel.k8s.io"


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of namespaced object and where the API server keeps it."""

    api: str
    plural: str


CRAWLJOBS = Resource(f"/apis/{API_GROUP}/{API_VERSION}", PLURAL)
PODS = Resource("/api/v1", "pods")
VOLUMES = Resource("/api/v1", "persistentvolumeclaims")
CONFIGS = Resource("/api/v1", "configmaps")
JOBS = Resource("/apis/batch/v1", "jobs")
POLICIES = Resource("/apis/networking.k8s.io/v1", "networkpolicies")
EVENTS = Resource("/api/v1", "events")


class ApiError(Exception):
    """The API server said no, or something went wrong inside it; ``reason`` is a machine's word, ``message`` a text."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status, self.reason, self.message = status, reason, message
        super().__init__(f"{status} {reason}: {message}")


class NotFoundError(ApiError):
    """404: the object, its namespace or its kind is not there."""


class ConflictError(ApiError):
    """409: the object exists already, has another UID, or was changed since it was read."""


class NoClusterError(Exception):
    """The kubeconfig cannot be read, or does not say which cluster is meant."""


NETWORK_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)
"""What a call raises when no answer came; whether it was carried out is unknown."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Server and credentials, for those who make their own connections (kopf's watches)."""

    server: str
    ca_path: str | None
    insecure: bool
    certificate_path: str | None
    private_key_path: str | None
    scheme: str | None
    token: str | None
    username: str | None
    password: str | None


class Kube:
    """A client of one API server; closed by ``async with``."""

    def __init__(
        self,
        configuration: client.Configuration,
        observer: Observer | None = None,
        *,
        manager: str = names.FIELD_MANAGER,
        namespace: str = "default",
    ) -> None:
        self._configuration = configuration
        self._observer = observer or Observer()
        self._client = client.ApiClient(configuration)
        self._client.user_agent = manager
        self._manager = [("fieldManager", manager)]
        self.namespace = namespace
        """Where the kubeconfig's context, or the Pod, is at home."""

    @classmethod
    async def connect(
        cls,
        observer: Observer | None = None,
        *,
        manager: str = names.FIELD_MANAGER,
        kubeconfig: str | None = None,
        context: str | None = None,
    ) -> Self:
        """Take the kubeconfig that is given, else the one that ``KUBECONFIG`` names, else the Pod's own account, else
        the user's kubeconfig; of a kubeconfig its current context, unless another one is given.

        Raises ``NoClusterError`` where that does not say which cluster is meant.
        """
        configuration = client.Configuration()
        where = kubeconfig or os.environ.get("KUBECONFIG", "~/.kube/config")
        try:
            if kubeconfig is None and context is None and "KUBECONFIG" not in os.environ and _in_cluster():
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
                namespace = _own_namespace()
            else:
                loader = await config.load_kube_config(  # type: ignore[no-untyped-call]
                    config_file=kubeconfig, context=context, client_configuration=configuration
                )
                namespace = (loader.current_context.get("context") or {}).get("namespace") or ""
        except (config.ConfigException, OSError, yaml.YAMLError) as error:
            why = " ".join(str(error).split())
            raise NoClusterError(f"KUBECONFIG: {where} names no cluster to work with ({why})") from error
        return cls(configuration, observer, manager=manager, namespace=namespace or "default")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()  # type: ignore[no-untyped-call]

    async def connection(self) -> Connection:
        """Server and credentials as they are now; a rotated token is read again."""
        settings = self._configuration
        scheme, _, token = ((await settings.get_api_key_with_prefix("BearerToken")) or "").strip().partition(" ")
        if scheme and not token:
            scheme, token = "Bearer", scheme
        return Connection(
            server=settings.host,
            ca_path=settings.ssl_ca_cert,
            insecure=not settings.verify_ssl,
            certificate_path=settings.cert_file,
            private_key_path=settings.key_file,
            scheme=scheme or None,
            token=token or None,
            username=settings.username or None,
            password=settings.password or None,
        )

    async def get(self, resource: Resource, namespace: str, name: str) -> Raw | None:
        """Read one object from the store itself, not from a cache; ``None`` when it is not there."""
        try:
            return await self._call("GET", _path(resource, namespace, name))
        except NotFoundError:
            return None

    async def items(
        self, resource: Resource, namespace: str | None, *, labels: str = "", fields: str = "", limit: int | None = None
    ) -> AsyncIterator[Raw]:
        """Every object that matches, in pages, or the first ``limit``."""
        selection = {"labelSelector": labels, "fieldSelector": fields}
        query = [(key, value) for key, value in selection.items() if value]
        token = ""
        while True:
            page = [*query, ("limit", str(limit or PAGE)), *([("continue", token)] if token else [])]
            answer = await self._call("GET", _path(resource, namespace), query=page)
            for item in answer.get("items") or []:
                yield item
            token = (answer.get("metadata") or {}).get("continue") or ""
            if not token or limit is not None:
                return

    async def create(self, resource: Resource, body: Raw) -> Raw:
        """Create an object. Raises ``ConflictError`` when the name is taken, ``ApiError`` for an unknown field."""
        namespace = body["metadata"]["namespace"]
        return await self._call("POST", _path(resource, namespace), body=body, query=[*self._manager, *_STRICT])

    async def try_create(self, resource: Resource, body: Raw) -> None:
        """Have the creation of an object judged, which keeps nothing. Raises what ``create`` would."""
        namespace = body["metadata"]["namespace"]
        query = [*self._manager, *_STRICT, ("dryRun", "All")]
        await self._call("POST", _path(resource, namespace), body=body, query=query)

    async def allowed(self, attributes: Mapping[str, str]) -> bool:
        """Whether this account may do what the attributes of a SelfSubjectAccessReview describe."""
        kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        body = {**kind, "spec": {"resourceAttributes": dict(attributes)}}
        answer = await self._call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=body)
        return bool((answer.get("status") or {}).get("allowed"))

    async def delete(
        self, resource: Resource, namespace: str, name: str, uid: str, *, children_first: bool = False
    ) -> None:
        """Delete exactly this object, gracefully; that it is gone already is what was wanted.

        ``children_first``: it stays, marked as being deleted, until all that it owns is gone.
        """
        body: Raw = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        if children_first:
            body["propagationPolicy"] = "Foreground"
        try:
            await self._call("DELETE", _path(resource, namespace, name), body=body)
        except NotFoundError:
            return

    async def patch(self, resource: Resource, namespace: str, name: str, patch: Raw, *, part: str = "") -> Raw:
        """Merge a patch into an object or into a subresource (``part``) of it."""
        path = _path(resource, namespace, name) + (f"/{part}" if part else "")
        return await self._call("PATCH", path, body=patch, query=self._manager, content="application/merge-patch+json")

    @asynccontextmanager
    async def exec(
        self, namespace: str, pod: str, container: str, command: Sequence[str]
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Start a program in a container; its output comes as messages of the protocol v4.channel.k8s.io.

        Raises ``ApiError`` where the API server or the kubelet will not have it.
        """
        query = [("container", container), ("stdout", "true"), ("stderr", "true"), *(("command", w) for w in command)]
        headers = {"Sec-WebSocket-Protocol": EXEC_PROTOCOL}
        _, url, headers, *_ = await self._client.param_serialize(
            "GET", _path(PODS, namespace, pod) + "/exec", header_params=headers, auth_settings=["BearerToken"]
        )
        rest = self._client.rest_client
        session = rest.pool_manager
        assert session is not None, "an object was read before"
        address = f"ws{url.removeprefix('http')}?{urlencode(query)}"
        try:
            # No heartbeat: while somebody looks at one page of a pager nothing is read, and no answer would be seen.
            stream = await session.ws_connect(address, headers=headers, proxy=rest.proxy)
        except aiohttp.WSServerHandshakeError as error:
            kind = NotFoundError if error.status == 404 else ApiError
            raise kind(error.status, "", error.message) from None
        try:
            yield stream
        finally:
            await stream.close()

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: Raw | None = None,
        query: list[tuple[str, str]] | None = None,
        content: str = "application/json",
    ) -> Raw:
        headers = {"Accept": "application/json", "Content-Type": content}
        request = await self._client.param_serialize(
            method, path, query_params=query, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS, sock_connect=10)
        started, code = time.monotonic(), "error"
        try:
            response = await self._client.call_api(*request, _request_timeout=timeout)
            data: bytes = await response.read()  # type: ignore[no-untyped-call]
            code = str(response.status)
        finally:
            self._observer.called(method, code, time.monotonic() - started)
        if 200 <= response.status <= 299:
            answer = json.loads(data)
            assert isinstance(answer, dict), "the API server answers with objects"
            return answer
        raise _error(response.status, data)


# What a CrawlJob passes on (affinity) may have a typo: without this the API server drops it and says nothing.
_STRICT = [("fieldValidation", "Strict")]


_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def _own_namespace() -> str:
    return _NAMESPACE_FILE.read_text() if _NAMESPACE_FILE.exists() else ""


def _in_cluster() -> bool:
    token = Path(config.incluster_config.SERVICE_TOKEN_FILENAME)
    return "KUBERNETES_SERVICE_HOST" in os.environ and token.exists()


def _path(resource: Resource, namespace: str | None, name: str = "") -> str:
    scope = f"/namespaces/{namespace}" if namespace else ""
    return f"{resource.api}{scope}/{resource.plural}" + (f"/{name}" if name else "")


def _error(status: int, data: bytes) -> ApiError:
    try:
        answer = json.loads(data)
    except ValueError:
        answer = None
    if not isinstance(answer, Mapping):
        answer = {"message": data.decode(errors="replace")[:500]}
    causes = (answer.get("details") or {}).get("causes") or []
    # A namespace on its way out answers 403 like any other prohibition; only the cause tells.
    ending = any(cause.get("reason") == "NamespaceTerminating" for cause in causes)
    reason = "NamespaceTerminating" if ending else str(answer.get("reason") or "")
    kind = {404: NotFoundError, 409: ConflictError}.get(status, ApiError)
    return kind(status, reason, str(answer.get("message") or ""))
