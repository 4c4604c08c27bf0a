"""The objects that a crawl needs, as the API server gets them: volume claim, ConfigMap, NetworkPolicy, Pod.

All are owned by their CrawlJob, so that the garbage collector removes them with it, also without an operator.
"""

from __future__ import annotations

import ipaddress
import json
from typing import Any

from crawljob import API_GROUP, API_VERSION, KIND, manifest
from crawljob.access import CaBundle
from crawljob.pod_template import PodTemplate
from crawljob.spec import CrawlJobSpec, Listen
from crawljob.telemetry import CERTIFICATE_KEY, PRIVATE_KEY, Telemetry
from crawljob_operator import identity, names, network
from crawljob_operator.netsettings import NetworkSettings
from crawljob_operator.observed import Job

Body = dict[str, Any]

TMP_SIZE = "64Mi"

_NOT_THE_CRAWLERS = sorted(identity.NOT_IN_THE_POD | {"image", "image_pull_policy", "pod_template"})
"""What the operator alone obeys: an edit of it gives the crawler no other file."""

_DATA_VOLUME, _TMP_VOLUME = "data", "tmp"
_READ_ONLY = 0o440


def pod_name(job: Job) -> str:
    """The one name that this CrawlJob's Pods have: the API server itself then refuses a second one."""
    return identity.child_name(job.name, job.uid)


def reader_name(job: Job) -> str:
    """The Job that reads results from the volume: one name, as one Pod at a time can have the volume."""
    return identity.child_name(job.name, job.uid, "reader")


def claim_name(job: Job, spec: CrawlJobSpec | None) -> str:
    """The claim that the Pod uses: one that is there already, or our own, which has the Pod's name.

    A CrawlJob that is deleted and made again has another UID, and starts afresh.
    """
    return (spec.storage.existing_claim if spec is not None else None) or pod_name(job)


def config_name(job: Job, spec: CrawlJobSpec) -> str:
    """The ConfigMap's name, which changes with its content: a running Pod's file never changes under it.

    Of the same content as JSON: every reconcile asks for it, and YAML takes twenty times as long to write.
    """
    content = _crawlers_part(job, spec).model_dump(mode="json", by_alias=True, exclude_none=True)
    return identity.child_name(job.name, job.uid, json.dumps(content, sort_keys=True))


def config_text(job: Job, spec: CrawlJobSpec) -> str:
    """The crawler's file."""
    return manifest.render(job.name, _crawlers_part(job, spec))


def _crawlers_part(job: Job, spec: CrawlJobSpec) -> CrawlJobSpec:
    """What the crawler obeys itself, and the restart request that its pages follow."""
    given = {
        **{name: CrawlJobSpec.model_fields[name].get_default(call_default_factory=True) for name in _NOT_THE_CRAWLERS},
        "listen": listen(spec),
        "restart_requested_at": job.restart_request,
    }
    return spec.model_copy(update=given)


def listen(spec: CrawlJobSpec) -> Listen:
    """Where the crawler listens in a Pod: on all addresses, unless the user has given one."""
    if "address" in spec.listen.model_fields_set:
        return spec.listen
    return spec.listen.model_copy(update={"address": "0.0.0.0"})  # noqa: S104 - the Pod's own network


def volume(job: Job, spec: CrawlJobSpec) -> Body:
    """The PersistentVolumeClaim of the frontier."""
    storage = spec.storage
    body: Body = {
        "accessModes": list(storage.wanted_access_modes),
        "resources": {"requests": {"storage": storage.wanted_size}},
    }
    if storage.storage_class_name is not None:
        body["storageClassName"] = storage.storage_class_name
    about = metadata(job, claim_name(job, spec))
    if storage.when_deleted == "Retain":
        del about["ownerReferences"]
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": about, "spec": body}


def config(job: Job, spec: CrawlJobSpec) -> Body:
    """The ConfigMap with the crawler's file."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(job, config_name(job, spec)),
        "immutable": True,
        "data": {names.CONFIG_FILE: config_text(job, spec)},
    }


def policy(job: Job, spec: CrawlJobSpec, settings: NetworkSettings) -> Body:
    """The NetworkPolicy of the CrawlJob's Pod."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(job, network.policy_name(job, spec, settings)),
        "spec": network.policy_spec(job, spec, settings),
    }


def pod(
    job: Job,
    spec: CrawlJobSpec,
    attempt: int,
    default_image: str,
    limit_seconds: int | None = None,
    *,
    collector: Telemetry | None = None,
) -> Body:
    """The Pod of one attempt; it fits the restricted profile of the Pod Security Standards.

    ``limit_seconds`` is when the kubelet ends it; ``collector`` gets the telemetry of a crawl that names none.
    """
    labels = {
        **spec.pod_template.labels,
        names.LABEL_ATTEMPT: str(attempt),
        names.LABEL_SPEC_HASH: identity.spec_hash(spec),
        names.LABEL_RESTART: identity.request_mark(job.restart_request),
    }
    annotations = dict(spec.pod_template.annotations)
    limit = {} if limit_seconds is None else {"activeDeadlineSeconds": limit_seconds}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata(job, pod_name(job), labels), **({"annotations": annotations} if annotations else {})},
        "spec": {
            **placement(spec.pod_template),
            **limit,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": spec.pod_template.termination_grace_period_seconds,
            "securityContext": pod_security(),
            "containers": [_container(job, spec, attempt, default_image, collector)],
            "volumes": [
                {"name": names.CONFIG_VOLUME, "configMap": {"name": config_name(job, spec)}},
                {"name": _DATA_VOLUME, "persistentVolumeClaim": {"claimName": claim_name(job, spec)}},
                {"name": _TMP_VOLUME, "emptyDir": {"sizeLimit": TMP_SIZE}},
                *(volume for volume, _ in _access(spec)),
            ],
        },
    }


def pod_security() -> Body:
    """What the restricted profile asks of a Pod, and our user."""
    # No appArmorProfile: the field is of Kubernetes 1.30. The runtime's default profile is in force without it, and the
    # annotations that would take it away are none that a CrawlJob may have.
    return {
        "runAsNonRoot": True,
        "runAsUser": names.USER_ID,
        "runAsGroup": names.USER_ID,
        "fsGroup": names.USER_ID,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> Body:
    """What the restricted profile asks of a container, and a root filesystem that nobody writes to."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def placement(template: PodTemplate) -> Body:
    """What the user says about where the Pod runs, in the API's own shape; nothing where nothing is said."""
    fields = {
        "node_selector",
        "tolerations",
        "affinity",
        "topology_spread_constraints",
        "priority_class_name",
        "image_pull_secrets",
    }
    return template.model_dump(mode="json", by_alias=True, include=fields, exclude_defaults=True)


def _container(job: Job, spec: CrawlJobSpec, attempt: int, default_image: str, collector: Telemetry | None) -> Body:
    resources = spec.pod_template.resources
    return {
        "name": names.CONTAINER,
        "image": spec.image or default_image,
        **({"imagePullPolicy": spec.image_pull_policy} if spec.image_pull_policy else {}),
        "args": _arguments(spec),
        "env": [
            *_environment(job, attempt),
            *_default_collector(spec, collector),
            *_own_environment(spec.pod_template),
        ],
        "ports": [{"name": names.PORT_NAME, "containerPort": spec.listen.port, "protocol": "TCP"}],
        "resources": {
            key: dict(values)
            for key, values in (("requests", resources.requests), ("limits", resources.limits))
            if values
        },
        "securityContext": container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": names.CONFIG_VOLUME, "mountPath": names.CONFIG_DIR, "readOnly": True},
            {"name": _DATA_VOLUME, "mountPath": names.DATA_DIR},
            {"name": _TMP_VOLUME, "mountPath": "/tmp"},  # noqa: S108 - inside the container
            *(mount for _, mount in _access(spec)),
        ],
        **_probes(spec),
    }


def _arguments(spec: CrawlJobSpec) -> list[str]:
    given = [
        ("--secret-dir", names.SECRET_DIR, _secrets(spec)),
        ("--ca-bundle", f"{names.CA_DIR}/{names.CA_FILE}", spec.fetch.ca_bundle),
        ("--telemetry-ca", f"{names.TELEMETRY_CA_DIR}/{names.CA_FILE}", _telemetry_ca(spec)),
    ]
    files = [word for flag, path, wanted in given if wanted for word in (flag, path)]
    return ["run", "-f", f"{names.CONFIG_DIR}/{names.CONFIG_FILE}", "--db", names.FRONTIER, *files]


def _secrets(spec: CrawlJobSpec) -> dict[str, set[str]]:
    """The keys that are read of each Secret."""
    sources = [header.value_from for header in spec.fetch.headers]
    sources += [header.value_from for header in spec.telemetry.headers]
    keys: dict[str, set[str]] = {}
    for source in (source.secret_key_ref for source in sources):
        keys.setdefault(source.name, set()).add(source.key)
    client = None if spec.telemetry.tls is None else spec.telemetry.tls.client_certificate
    if client is not None:
        keys.setdefault(client.secret_name, set()).update((CERTIFICATE_KEY, PRIVATE_KEY))
    return keys


def _telemetry_ca(spec: CrawlJobSpec) -> CaBundle | None:
    return None if spec.telemetry.tls is None else spec.telemetry.tls.ca


def _access(spec: CrawlJobSpec) -> list[tuple[Body, Body]]:
    """Volumes, each with its mount, of what the crawler is let in with; only the kubelet reads Secrets (law O9).

    None is optional: the kubelet starts the Pod when all are there, and says in Events which one is not.
    """
    keys = _secrets(spec)
    found = [
        _files(f"secret-{number}", "secret", secret, {key: key for key in keys[secret]}, f"{names.SECRET_DIR}/{secret}")
        for number, secret in enumerate(sorted(keys))
    ]
    if spec.fetch.ca_bundle is not None:
        found.append(_certificates("ca", spec.fetch.ca_bundle, names.CA_DIR))
    if (telemetry_ca := _telemetry_ca(spec)) is not None:
        found.append(_certificates("telemetry-ca", telemetry_ca, names.TELEMETRY_CA_DIR))
    return found


def _certificates(name: str, bundle: CaBundle, folder: str) -> tuple[Body, Body]:
    source = bundle.secret_key_ref or bundle.config_map_key_ref
    assert source is not None, "the contract admits exactly one"
    kind = "configMap" if bundle.secret_key_ref is None else "secret"
    return _files(name, kind, source.name, {source.key: names.CA_FILE}, folder)


def _files(name: str, kind: str, source: str, paths: dict[str, str], folder: str) -> tuple[Body, Body]:
    """A volume with the named keys of a Secret or ConfigMap, for the crawler's group (``fsGroup``) only; its mount."""
    content = {
        "secretName" if kind == "secret" else "name": source,
        "items": [{"key": key, "path": path} for key, path in sorted(paths.items())],
        "defaultMode": _READ_ONLY,
    }
    return {"name": name, kind: content}, {"name": name, "mountPath": folder, "readOnly": True}


def _probes(spec: CrawlJobSpec) -> Body:
    # The kubelet asks from outside the Pod's network: it cannot reach a loopback listener, and would kill the crawl.
    if _is_loopback(listen(spec).address):
        return {}

    def probe(path: str, period: int, failures: int) -> Body:
        check = {"path": path, "port": names.PORT_NAME}
        return {"httpGet": check, "periodSeconds": period, "timeoutSeconds": 5, "failureThreshold": failures}

    # Killing a crawler that is only slow costs more than three minutes of a hung one.
    return {"livenessProbe": probe("/healthz", 20, 9), "readinessProbe": probe("/readyz", 5, 3)}


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False  # the crawler will say what is wrong with it


def _environment(job: Job, attempt: int) -> list[Body]:
    attributes = {
        "k8s.namespace.name": job.namespace,
        "k8s.pod.name": "$(K8S_POD_NAME)",
        "k8s.pod.uid": "$(K8S_POD_UID)",
        "k8s.node.name": "$(K8S_NODE_NAME)",
        "crawljob.name": job.name,
        "crawljob.uid": job.uid,
        "crawljob.attempt": str(attempt),
    }
    return [
        {"name": "K8S_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "K8S_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": "K8S_NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": names.ENV_RESOURCE_ATTRIBUTES, "value": ",".join(f"{k}={v}" for k, v in attributes.items())},
        {"name": names.ENV_TRACEPARENT, "value": identity.traceparent(job.uid, attempt)},
    ]


def _default_collector(spec: CrawlJobSpec, collector: Telemetry | None) -> list[Body]:
    """Where a crawl's telemetry goes that names no endpoint of its own, neither in the spec nor as a variable.

    A variable of the Pod, and neither in the file nor in the hash: another collector restarts no crawl.
    """
    taken = {variable.name for variable in spec.pod_template.env}
    if collector is None or collector.endpoint is None or spec.telemetry.endpoint is not None:
        return []
    if names.ENV_OTLP_ENDPOINT in taken:
        return []
    wanted = {names.ENV_OTLP_ENDPOINT: collector.endpoint, names.ENV_OTLP_PROTOCOL: collector.protocol}
    return [{"name": name, "value": value} for name, value in wanted.items() if name not in taken]


def _own_environment(template: PodTemplate) -> list[Body]:
    return [variable.model_dump(mode="json", by_alias=True, exclude_none=True) for variable in template.env]


def metadata(job: Job, name: str, extra: dict[str, str] | None = None, *, component: str = names.COMPONENT) -> Body:
    """Name, labels and owner of an object of this CrawlJob."""
    return {
        "name": name,
        "namespace": job.namespace,
        "labels": {
            names.LABEL_NAME: names.APP_NAME,
            names.LABEL_COMPONENT: component,
            names.LABEL_MANAGED_BY: names.MANAGED_BY,
            names.LABEL_CRAWLJOB: identity.label_value(job.name),
            names.LABEL_UID: job.uid,
            **(extra or {}),
        },
        "ownerReferences": owner_references(job),
    }


def owner_references(job: Job) -> list[Body]:
    """The CrawlJob as the controller of an object: the garbage collector removes it with the CrawlJob."""
    return [
        {
            "apiVersion": f"{API_GROUP}/{API_VERSION}",
            "kind": KIND,
            "name": job.name,
            "uid": job.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
