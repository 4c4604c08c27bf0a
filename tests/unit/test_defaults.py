"""Defaults of v1alpha1 never change: the API server has stored them in every CrawlJob, a Pod's hash leaves them out.

A new field may be added here with its default; a line that is here stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from crawljob.spec import CrawlJobSpec

DEFAULTS: dict[str, Any] = {
    "results.edges": True,
    "audit.externalLinks": "ignore",
    "audit.maxExternalLinks": 10_000,
    "audit.fragments": True,
    "scope.include": [],
    "scope.exclude": [],
    "scope.maxDepth": 16,
    "scope.maxPages": 10000,
    "scope.maxLinksPerPage": 5000,
    "scope.follow": ["a", "area"],
    "fetch.workers": 16,
    "fetch.perHost": 2,
    "fetch.retries": 3,
    "fetch.connectTimeout": "3s",
    "fetch.tlsTimeout": "5s",
    "fetch.headerTimeout": "8s",
    "fetch.totalTimeout": "15s",
    "fetch.maxBodyBytes": 4194304,
    "fetch.headers": [],
    "fetch.caBundle": None,
    "fetch.proxy": None,
    "network.allowCIDRs": [],
    "politeness.robots": "obey",
    "politeness.delay": "0s",
    "politeness.maxCrawlDelay": "60s",
    "politeness.maxRetryAfter": "30s",
    "listen.address": "127.0.0.1",
    "listen.port": 9090,
    "image": None,
    "imagePullPolicy": None,
    # Filled in by code, so that they are absent where existingClaim excludes them.
    "storage.size": None,
    "storage.storageClassName": None,
    "storage.accessModes": None,
    "storage.existingClaim": None,
    "storage.whenDeleted": "Delete",
    "restartPolicy.backoffLimit": 6,
    "restartPolicy.backoff.initialSeconds": 10,
    "restartPolicy.backoff.maxSeconds": 300,
    "restartPolicy.backoff.multiplier": 2,
    "restartPolicy.resetAfterSeconds": 600,
    "podFailurePolicy.rules": [],
    "activeDeadlineSeconds": None,
    "startDeadlineSeconds": 900,
    "ttlSecondsAfterFinished": None,
    "restartRequestedAt": None,
    "suspend": False,
    "telemetry.endpoint": None,
    "telemetry.headers": [],
    "telemetry.protocol": "grpc",
    "telemetry.tls": None,
    "telemetry.tracesSampleRatio": 0.01,
    "podTemplate.resources.requests": {},
    "podTemplate.resources.limits": {},
    "podTemplate.labels": {},
    "podTemplate.annotations": {},
    "podTemplate.nodeSelector": {},
    "podTemplate.tolerations": [],
    "podTemplate.affinity": {},
    "podTemplate.topologySpreadConstraints": [],
    "podTemplate.priorityClassName": None,
    "podTemplate.imagePullSecrets": [],
    "podTemplate.env": [],
    "podTemplate.terminationGracePeriodSeconds": 30,
}


def flat(values: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def test_defaults_are_what_they_were() -> None:
    spec = CrawlJobSpec(seeds=("https://a.example/",)).model_dump(mode="json", by_alias=True, exclude={"seeds"})
    found = dict(flat(spec))
    found.pop("fetch.userAgent")  # it carries the version, and is filled in by code
    assert found == DEFAULTS
