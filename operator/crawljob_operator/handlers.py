"""Watches through kopf, and nothing more of it: an event wakes the key of a CrawlJob. Only this module imports kopf.

Only ``on.event`` handlers, which write nothing to any object: no finalizers, no annotations, no state of the framework.
The watches retry for ever; ``watchdog`` judges whether they still live.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import kopf

from crawljob import API_GROUP, API_VERSION, KIND, PLURAL
from crawljob_operator import names
from crawljob_operator.kube import Kube
from crawljob_operator.observer import Observer
from crawljob_operator.workqueue import Key

CREDENTIALS_SECONDS = 300
"""A token is read again after this time: kubelets rotate it long before the old one expires."""

_CHILDREN = ("pods", "persistentvolumeclaims")
_WATCHED = (f"{PLURAL}.{API_VERSION}.{API_GROUP}", *(f"{plural}.v1" for plural in _CHILDREN))

_IDENTITY: Any = names.FIELD_MANAGER  # kopf's own type for it is private

Wake = Callable[[Key], None]


class _EndlessBackoffs:
    """Waits between attempts at a failing request: growing to 15 s, without an end. Each iteration starts anew."""

    def __iter__(self) -> Iterator[float]:
        for wait in itertools.chain((0.5, 1.0, 2.0, 4.0, 8.0), itertools.repeat(15.0)):
            yield wait * random.uniform(0.8, 1.2)  # noqa: S311 - spreads retries, guards nothing


class _AllTasks:
    """kopf cancels every task that it did not know when it started, ours included, unless it is told to ignore it."""

    def __contains__(self, task: object) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0


class Watches:
    """The watches on CrawlJobs, on their Pods and on their volumes, in some namespaces or in the whole cluster."""

    def __init__(self, kube: Kube, namespaces: tuple[str, ...], wake: Wake, observer: Observer | None = None) -> None:
        self._namespaces = namespaces
        self._observer = observer or Observer()
        self._registry = _registry(kube, wake, self._observer)
        self._settings = _settings(clusterwide=not namespaces)
        self._stop = asyncio.Event()
        self._tasks: Any = ()

    async def start(self) -> None:
        """Start watching. It takes over SIGTERM and SIGINT: set other handlers afterwards."""
        for plural in (PLURAL, *_CHILDREN):
            self._observer.heard(plural)  # a watch that never tells anything is as old as its start
        self._tasks = await kopf.spawn_tasks(
            registry=self._registry,
            settings=self._settings,
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
            stop_flag=self._stop,
            # Left to itself, kopf looks up the user's name, and an image's numeric user has none.
            identity=_IDENTITY,
        )

    async def run(self) -> None:
        """Return when ``stop`` was called or when kopf has given up; raises what it gave up for."""
        await kopf.run_tasks(self._tasks, ignored=_AllTasks())

    def stop(self) -> None:
        """End the watches."""
        self._stop.set()

    def expected_tasks(self) -> frozenset[str]:
        """Names of the tasks that exist as long as all is watched."""
        scopes = self._namespaces or ("None",)
        return frozenset(f"watcher for {what}@{scope}" for what in _WATCHED for scope in scopes)


def owner_key(namespace: str | None, meta: Mapping[str, Any]) -> Key | None:
    """The CrawlJob that controls an object."""
    for reference in meta.get("ownerReferences") or ():
        group = str(reference.get("apiVersion", "")).partition("/")[0]
        if reference.get("controller") and reference.get("kind") == KIND and group == API_GROUP:
            return Key(str(namespace), str(reference.get("name")))
    return None


def _registry(kube: Kube, wake: Wake, observer: Observer) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        now = await kube.connection()
        return kopf.ConnectionInfo(
            server=now.server,
            ca_path=now.ca_path,
            insecure=now.insecure or None,
            certificate_path=now.certificate_path,
            private_key_path=now.private_key_path,
            scheme=now.scheme,
            token=now.token,
            username=now.username,
            password=now.password,
            expiration=datetime.now(UTC) + timedelta(seconds=CREDENTIALS_SECONDS) if now.token else None,
        )

    @kopf.on.event(API_GROUP, API_VERSION, PLURAL, registry=registry)
    async def crawljob_changed(
        namespace: str | None, name: str, meta: Mapping[str, Any], event: Mapping[str, Any], **_: Any
    ) -> None:
        key = Key(str(namespace), name)
        gone = event["type"] == "DELETED"
        observer.heard(PLURAL, key, "" if gone else str(meta.get("resourceVersion")))
        wake(key)

    @kopf.on.event("", "v1", "pods", registry=registry)
    @kopf.on.event("", "v1", "persistentvolumeclaims", registry=registry)
    async def child_changed(namespace: str | None, meta: Mapping[str, Any], resource: kopf.Resource, **_: Any) -> None:
        observer.heard(resource.plural)
        key = owner_key(namespace, meta)
        if key is not None:
            wake(key)

    return registry


def _settings(*, clusterwide: bool) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.process.ultimate_exiting_timeout = None
    # Scanning follows our CRD as it comes and goes, but needs a right that only a ClusterRole can give.
    settings.scanning.disabled = not clusterwide
    settings.networking.error_backoffs = _EndlessBackoffs()
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 310
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = 70
    settings.watching.chunk_size = 500
    for plural in _CHILDREN:
        settings.watching.label_selectors["", "v1", plural] = names.SELECTOR
    settings.watching.field_selectors["apiextensions.k8s.io", "v1", "customresourcedefinitions"] = (
        f"metadata.name={PLURAL}.{API_GROUP}"
    )
    # One line per event and handler says nothing that our own lines do not.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    return settings
