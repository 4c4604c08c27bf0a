"""Every name that others rely on: labels, the Pod's fixed parts, environment variables, the operator's own options.

The chart, the tests and the documentation take them from here.
"""

from __future__ import annotations

from typing import Final

from crawljob import API_GROUP, lifecycle

FIELD_MANAGER: Final = "durable-crawler-operator"
"""Who wrote a field, in ``metadata.managedFields``; also the component of Events."""

LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "durable-crawler"
LABEL_NAME: Final = "app.kubernetes.io/name"
APP_NAME: Final = "durable-crawler"
LABEL_COMPONENT: Final = "app.kubernetes.io/component"
COMPONENT: Final = "crawler"
READER_COMPONENT: Final = "result-reader"
"""The Job, and its Pod, by which results are read from the volume."""
PLUGIN: Final = "kubectl-crawl"
"""Console script, which kubectl finds as ``kubectl crawl``; also its field manager."""
LABEL_CRAWLJOB: Final = f"{API_GROUP}/crawljob"
"""The CrawlJob's name, shortened with a hash where it has more than the 63 characters of a label."""
LABEL_UID: Final = f"{API_GROUP}/crawljob-uid"
LABEL_ATTEMPT: Final = f"{API_GROUP}/attempt"
LABEL_SPEC_HASH: Final = f"{API_GROUP}/spec-hash"
LABEL_RESTART: Final = f"{API_GROUP}/restart-request"
"""Mark of the restart request that this Pod follows."""

SELECTOR: Final = f"{LABEL_MANAGED_BY}={MANAGED_BY}"
"""What the API server sends us of Pods and volumes."""

CONTAINER: Final = lifecycle.CONTAINER
"""The container whose end is the Pod's end; injected sidecars have other names."""
PORT_NAME: Final = "http"
CONFIG_VOLUME: Final = "config"
CONFIG_FILE: Final = "crawljob.yaml"
CONFIG_DIR: Final = "/etc/crawljob"
SECRET_DIR: Final = "/etc/crawljob-secrets"  # noqa: S105 - a path
"""A folder for each Secret that the spec names, in it a file for each key."""
CA_DIR: Final = "/etc/crawljob-ca"
TELEMETRY_CA_DIR: Final = "/etc/crawljob-telemetry-ca"
CA_FILE: Final = "ca.pem"
DATA_DIR: Final = "/data"
FRONTIER: Final = f"{DATA_DIR}/frontier.db"
USER_ID: Final = 65532

ENV_TRACEPARENT: Final = "TRACEPARENT"
ENV_RESOURCE_ATTRIBUTES: Final = "OTEL_RESOURCE_ATTRIBUTES"

ENV_CRAWLER_IMAGE: Final = "CRAWLER_IMAGE"
ENV_NAMESPACES: Final = "WATCH_NAMESPACES"
"""Comma-separated; empty or unset: the whole cluster."""
ENV_LISTEN: Final = "LISTEN_ADDRESS"
ENV_RESYNC: Final = "RESYNC_SECONDS"
ENV_PROGRESS_INTERVAL: Final = "PROGRESS_INTERVAL_SECONDS"
ENV_NETWORK_POLICY: Final = "NETWORK_POLICY"
"""The chart's ``networkPolicy`` values, as JSON."""
ENV_LOG_LEVEL: Final = "LOG_LEVEL"
ENV_OTLP_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
ENV_OTLP_PROTOCOL: Final = "OTEL_EXPORTER_OTLP_PROTOCOL"
"""OpenTelemetry's own variables: the operator itself sends to where they say. It gives them to crawls that name no
endpoint in their spec."""
ENV_CRAWLS_TELEMETRY: Final = "CRAWLS_TELEMETRY"

FLAG_CRAWLER_IMAGE: Final = "--crawler-image"
FLAG_NAMESPACE: Final = "--namespace"
FLAG_LISTEN: Final = "--listen"
FLAG_RESYNC: Final = "--resync"
FLAG_PROGRESS_INTERVAL: Final = "--progress-interval"
FLAG_NETWORK_POLICY: Final = "--network-policy"
FLAG_LOG_LEVEL: Final = "--log-level"
FLAG_OTLP_ENDPOINT: Final = "--otlp-endpoint"
FLAG_OTLP_PROTOCOL: Final = "--otlp-protocol"
FLAG_CRAWLS_TELEMETRY: Final = "--crawls-telemetry"

DEFAULT_LISTEN: Final = "0.0.0.0:8080"
DEFAULT_RESYNC_SECONDS: Final = 300.0
DEFAULT_PROGRESS_SECONDS: Final = 30.0
