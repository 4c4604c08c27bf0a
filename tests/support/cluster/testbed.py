"""What a cluster test does to the cluster: kubectl and helm, waiting, a container's sudden death, a volume's files.

Works below `python -m tests.support.cluster exec`, which sets the environment; every call has a time limit.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.cluster import storage
from tests.support.cluster.process import Failed, run, wait_until

__all__ = [
    "Failed",
    "apply",
    "container_pid",
    "delete",
    "get_json",
    "helm",
    "host_dir",
    "kill_container",
    "kubectl",
    "load_image",
    "mode",
    "namespace",
    "node_exec",
    "pod_finished",
    "script_pod",
    "volume_path",
    "wait_until",
]

IMAGE_PYTHON = "/opt/durable-crawler/bin/python"


def mode() -> str:
    """ "box", "docker" or "existing"; empty outside of a test cluster."""
    return os.environ.get("CLUSTER_MODE", "")


def host_dir() -> Path:
    """The folder that the node shares with the tests."""
    folder = os.environ.get("CLUSTER_HOST_DIR")
    if not folder:
        raise Failed("This cluster shares no folder with the tests; use one that the harness makes.")
    return Path(folder)


def kubectl(*arguments: str, input: str | None = None, check: bool = True, timeout: float = 60) -> str:  # noqa: A002
    """Run kubectl and return its standard output; raises Failed with its error unless `check` is off."""
    return run("kubectl", *arguments, input=input, check=check, timeout=timeout)


def helm(*arguments: str, check: bool = True, timeout: float = 180) -> str:
    """Run helm and return its standard output."""
    return run("helm", *arguments, check=check, timeout=timeout)


def get_json(*arguments: str, timeout: float = 60) -> Any:
    """`kubectl get … -o json`, parsed; None when the object does not exist."""
    found = kubectl("get", *arguments, "--ignore-not-found", "-o", "json", timeout=timeout)
    return json.loads(found) if found.strip() else None


def apply(manifest: str | Mapping[str, Any], *arguments: str) -> str:
    """Apply YAML text or one object."""
    text = manifest if isinstance(manifest, str) else json.dumps(manifest)
    return kubectl("apply", "-f", "-", *arguments, input=text)


def delete(*arguments: str, timeout: float = 90) -> str:
    """Delete and wait until it is gone."""
    return kubectl("delete", "--ignore-not-found", *arguments, timeout=timeout)


@contextmanager
def namespace(prefix: str = "test", **labels: str) -> Iterator[str]:
    """A namespace of its own, deleted afterwards without waiting: the next test has another name."""
    name = f"{prefix}-{uuid.uuid4().hex[:8]}"
    apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    # Pods are refused until the namespace has its service account.
    wait_until(lambda: get_json("serviceaccount", "default", "-n", name), 30, f"the service account of {name}")
    try:
        yield name
    finally:
        kubectl("delete", "namespace", name, "--wait=false", check=False)


def script_pod(name: str, script: str, *, claim: str | None = None) -> dict[str, Any]:
    """A restricted Pod of the project's image that runs a Python script."""
    container: dict[str, Any] = {
        "name": "crawler",
        "image": os.environ["CRAWLER_IMAGE"],
        "imagePullPolicy": "IfNotPresent",
        "command": [IMAGE_PYTHON, "-c", script],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    spec: dict[str, Any] = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]}
    if claim:
        container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def pod_finished(pod: str, namespace: str, timeout: float = 90) -> dict[str, Any]:
    """Wait until the Pod's first container has ended, and return its `terminated` state."""

    def terminated() -> dict[str, Any] | None:
        found = get_json("pod", pod, "-n", namespace) or {}
        statuses = found.get("status", {}).get("containerStatuses") or [{}]
        state: dict[str, Any] | None = statuses[0].get("state", {}).get("terminated")
        return state

    return wait_until(terminated, timeout, f"the end of Pod {namespace}/{pod}") or {}


def volume_path(claim: str, namespace: str) -> Path:
    """The host's folder behind a bound PersistentVolumeClaim; waits a little for the binding."""

    def bound() -> str:
        found = get_json("pvc", claim, "-n", namespace) or {}
        name: str = found.get("spec", {}).get("volumeName", "")
        return name

    volume = get_json("pv", wait_until(bound, 30, f"the binding of claim {namespace}/{claim}"))
    spec = volume["spec"]
    source = spec.get("hostPath") or spec.get("local") or {}
    return storage.host_path(source.get("path", ""), host_dir())


def node_exec(*command: str, timeout: float = 60, check: bool = True) -> str:
    """Run a command in the node as root."""
    node = os.environ.get("CLUSTER_NODE")
    if not node:
        raise Failed("This cluster's node cannot be entered; use one that the harness makes.")
    return run("docker", "exec", node, *command, timeout=timeout, check=check)


def container_pid(pod: str, namespace: str, container: str | None = None) -> int:
    """The process id, in the node, of a running container's first process."""
    labels = ["--label", f"io.kubernetes.pod.name={pod}", "--label", f"io.kubernetes.pod.namespace={namespace}"]
    if container:
        labels += ["--label", f"io.kubernetes.container.name={container}"]
    running = node_exec("crictl", "ps", "--state", "running", "--quiet", *labels).split()
    if len(running) != 1:
        raise Failed(f"Pod {namespace}/{pod} has {len(running)} running containers, not one; name the container.")
    return int(node_exec("crictl", "inspect", "--output", "go-template", "--template", "{{.info.pid}}", running[0]))


def kill_container(pod: str, namespace: str, container: str | None = None, signal: str = "KILL") -> None:
    """Send a signal to the container's first process, past the kubelet and the API; returns once it is sent."""
    node_exec("kill", f"-{signal}", str(container_pid(pod, namespace, container)))


def load_image(archive: Path, timeout: float = 180) -> None:
    """Load one more image (a docker-archive) into the node."""
    node = os.environ.get("CLUSTER_NODE", "")
    run("kind", "load", "image-archive", archive, "--name", node.removesuffix("-control-plane"), timeout=timeout)
