"""Other values than the chart's own, each with what it needs beside it: for every test that renders all of them."""

from __future__ import annotations

from typing import Any

MONITORING = ("--api-versions", "monitoring.coreos.com/v1")
"""Says to Helm, where it has no cluster to ask, that the Prometheus Operator is there."""

# For every value, one that is not its default and is seen in what the chart renders.
OTHER_VALUES: dict[str, Any] = {
    "image.repository": "registry.example.org/crawler",
    "image.tag": "9.9.9",
    "image.digest": f"sha256:{'0' * 64}",
    "image.pullPolicy": "Always",
    "imagePullSecrets": [{"name": "pull"}],
    "crawler.image": "registry.example.org/crawler:other",
    "watchNamespaces": ["team-a", "team-b"],
    "serviceAccount.create": False,
    "serviceAccount.name": "mine",
    "serviceAccount.annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/none"},
    "networkPolicy.enabled": False,
    "networkPolicy.limits.allowCIDRs": ["10.20.0.0/16", "fd00:20::/32"],
    "networkPolicy.dns.to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}],
    "networkPolicy.dns.ports": [{"protocol": "UDP", "port": 5353}],
    "networkPolicy.collector.to": [{"ipBlock": {"cidr": "10.1.0.0/16", "except": ["10.1.2.0/24"]}}],
    "networkPolicy.collector.ports": [{"protocol": "TCP", "port": "otlp-grpc"}],
    "telemetry.endpoint": "http://collector:4317",
    "telemetry.protocol": "http/protobuf",
    "telemetry.crawls.enabled": False,
    "telemetry.headersSecret": "otlp-headers",
    "telemetry.tls.caSecret": "otlp-ca",
    "telemetry.tls.clientSecret": "otlp-client",
    "podMonitor.enabled": True,
    "podMonitor.labels": {"release": "prometheus"},
    "podMonitor.interval": "1m30s",
    "prometheusRule.enabled": True,
    "prometheusRule.labels": {"release": "prometheus"},
    "dashboards.enabled": True,
    "dashboards.labels": {"other": "yes"},
    "dashboards.annotations": {"k8s-sidecar-target-directory": "elsewhere"},
    "crds.enabled": False,
    "crds.keep": False,
    "resources.requests.cpu": "50m",
    "resources.requests.memory": "128Mi",
    "resources.limits.memory": "512Mi",
    "logLevel": "debug",
    "extraEnv": [{"name": "PROXY", "valueFrom": {"secretKeyRef": {"name": "proxy", "key": "url"}}}],
    "commonLabels": {"team": "docs"},
    "deploymentAnnotations": {"example.org/owner": "docs"},
    "podLabels": {"example.org/owner": "docs"},
    "podAnnotations": {"example.org/owner": "docs"},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "priorityClassName": "system-cluster-critical",
}

# Values that mean something only beside others.
BESIDE: dict[str, dict[str, Any]] = {
    "serviceAccount.create": {"serviceAccount": {"name": "mine"}},
    "podMonitor.labels": {"podMonitor": {"enabled": True}},
    "podMonitor.interval": {"podMonitor": {"enabled": True}},
    "prometheusRule.labels": {"prometheusRule": {"enabled": True}},
    "dashboards.labels": {"dashboards": {"enabled": True}},
    "dashboards.annotations": {"dashboards": {"enabled": True}},
}


def with_value(path: str, value: Any) -> dict[str, Any]:
    """Values in which this one is set."""
    for key in reversed(path.split(".")):
        value = {key: value}
    assert isinstance(value, dict)
    return value


def other(path: str) -> dict[str, Any]:
    """The other value of the table, and what it needs beside it."""
    values, beside = with_value(path, OTHER_VALUES[path]), BESIDE.get(path, {})
    for part, siblings in beside.items():
        values[part] = {**siblings, **values[part]}
    return values


def coalesced(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """What Helm checks and renders: the chart's own values below the given ones; null takes one away."""
    found = dict(defaults)
    for key, value in values.items():
        below = found.get(key)
        if value is None and key in found:
            del found[key]
        else:
            found[key] = coalesced(value, below) if isinstance(value, dict) and isinstance(below, dict) else value
    return found
