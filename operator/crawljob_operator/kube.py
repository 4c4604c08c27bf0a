"""The door to the API server: live reads and guarded writes of raw objects. Only this module imports ``kubernetes``.

Raw dictionaries instead of the client's models: these refuse what a newer or odd object may hold, and they are slow.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import aiohttp
from kubernetes.aio import client, config

from crawljob import API_GROUP, API_VERSION, PLURAL
from crawljob_operator import names
from crawljob_operator.observer import Observer

Raw = dict[str, Any]

TIMEOUT_SECONDS = 30
PAGE = 500


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of namespaced object and where the API server keeps it."""

    api: str
    plural: str


CRAWLJOBS = Resource(f"/apis/{API_GROUP}/{API_VERSION}", PLURAL)
PODS = Resource("/api/v1", "pods")
VOLUMES = Resource("/api/v1", "persistentvolumeclaims")
CONFIGS = Resource("/api/v1", "configmaps")
POLICIES = Resource("/apis/networking.k8s.io/v1", "networkpolicies")
EVENTS = Resource("/api/v1", "events")


class ApiError(Exception):
    """The API server said no, or something went wrong inside it; ``reason`` is a machine's word, ``message`` a text."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status, self.reason, self.message = status, reason, message
        super().__init__(f"{status} {reason}: {message}")


class NoAccountError(Exception):
    """There is neither a kubeconfig nor a Pod's own account to reach an API server with."""


class NotFoundError(ApiError):
    """404: the object, its namespace or its kind is not there."""


class ConflictError(ApiError):
    """409: the object exists already, has another UID, or was changed since it was read."""


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

    def __init__(self, configuration: client.Configuration, observer: Observer | None = None) -> None:
        self._configuration = configuration
        self._observer = observer or Observer()
        self._client = client.ApiClient(configuration)
        self._client.user_agent = names.FIELD_MANAGER

    @classmethod
    async def connect(cls, observer: Observer | None = None) -> Self:
        """Take the kubeconfig that ``KUBECONFIG`` names, else the Pod's own account, else the user's kubeconfig.

        Raises ``NoAccountError`` where there is none, or it cannot be used.
        """
        configuration = client.Configuration()
        try:
            if "KUBECONFIG" not in os.environ and _in_cluster():
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            else:
                await config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except config.ConfigException as error:
            raise NoAccountError(f"no cluster to talk to ({error}); set KUBECONFIG, or run in a Pod") from None
        return cls(configuration, observer)

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
        return await self._call("POST", _path(resource, namespace), body=body, query=[*_MANAGER, *_STRICT])

    async def try_create(self, resource: Resource, body: Raw) -> None:
        """Have the creation of an object judged, which keeps nothing. Raises what ``create`` would."""
        namespace = body["metadata"]["namespace"]
        query = [*_MANAGER, *_STRICT, ("dryRun", "All")]
        await self._call("POST", _path(resource, namespace), body=body, query=query)

    async def allowed(self, attributes: Mapping[str, str]) -> bool:
        """Whether this account may do what the attributes of a SelfSubjectAccessReview describe."""
        kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        body = {**kind, "spec": {"resourceAttributes": dict(attributes)}}
        answer = await self._call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=body)
        return bool((answer.get("status") or {}).get("allowed"))

    async def delete(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        """Delete exactly this object, gracefully; that it is gone already is what was wanted."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            await self._call("DELETE", _path(resource, namespace, name), body=body)
        except NotFoundError:
            return

    async def patch(self, resource: Resource, namespace: str, name: str, patch: Raw, *, part: str = "") -> Raw:
        """Merge a patch into an object or into a subresource (``part``) of it."""
        path = _path(resource, namespace, name) + (f"/{part}" if part else "")
        return await self._call("PATCH", path, body=patch, query=_MANAGER, content="application/merge-patch+json")

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


_MANAGER = [("fieldManager", names.FIELD_MANAGER)]
# What a CrawlJob passes on (affinity) may have a typo: without this the API server drops it and says nothing.
_STRICT = [("fieldValidation", "Strict")]


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
