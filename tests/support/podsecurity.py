"""The restricted profile of the Pod Security Standards, as explicit checks on a Pod or a Pod's template.

The packaging tests put every Pod that the chart renders through it; any test may do so with a Pod of the operator's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip


_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"


def violations(pod: Mapping[str, Any]) -> list[str]:
    """What a namespace that enforces the restricted profile would refuse; empty when it would admit the Pod."""
    spec = pod["spec"]
    return [
        *_of_metadata(pod.get("metadata") or {}),
        *_of_pod(spec),
        *(text for container in _containers(spec) for text in _of_container(container, spec)),
    ]


def _of_metadata(metadata: Mapping[str, Any]) -> Iterator[str]:
    for key, value in (metadata.get("annotations") or {}).items():
        # The API server takes it for the profile of the container whose name follows.
        if key.startswith(_APPARMOR) and value not in ("", "runtime/default") and not value.startswith("localhost/"):
            yield f"{key} is {value}"


def _containers(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(kind) or ()


def _of_pod(spec: Mapping[str, Any]) -> Iterator[str]:
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield f"{field} is on"
    for volume in spec.get("volumes") or ():
        if kinds := set(volume) - {"name"} - _VOLUMES:
            yield f"volume {volume['name']} is a {', '.join(sorted(kinds))}"
    context = spec.get("securityContext") or {}
    if context.get("sysctls"):
        yield "sysctls are set"
    if (context.get("appArmorProfile") or {}).get("type") == "Unconfined":
        yield "AppArmor does not confine it"


def _of_container(container: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[str]:
    name = container["name"]
    pod = spec.get("securityContext") or {}
    own = container.get("securityContext") or {}
    capabilities = own.get("capabilities") or {}
    if own.get("privileged"):
        yield f"{name} is privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield f"{name} allows privilege escalation"
    if "ALL" not in (capabilities.get("drop") or ()):
        yield f"{name} does not drop ALL capabilities"
    if extra := set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"}:
        yield f"{name} adds {', '.join(sorted(extra))}"
    if own.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True:
        yield f"{name} may run as root"
    if own.get("runAsUser", pod.get("runAsUser")) == 0:
        yield f"{name} runs as user 0"
    seccomp = (own.get("seccompProfile") or pod.get("seccompProfile") or {}).get("type")
    if seccomp not in ("RuntimeDefault", "Localhost"):
        yield f"{name} has no seccomp profile"
    if own.get("procMount", "Default") != "Default":
        yield f"{name} sets procMount"
    if (own.get("appArmorProfile") or {}).get("type") == "Unconfined":
        yield f"AppArmor does not confine {name}"
    for port in container.get("ports") or ():
        if port.get("hostPort"):
            yield f"{name} has a host port"
