"""NetworkPolicies are enforced in the box: by kube-router's firewall, as a service of the node beside its bridge.

kind's own network enforces them by itself, so this is for the box only. It is not a part of the node image: the node
has all that it calls (iptables, ipset), and the program is one file.
"""

from __future__ import annotations

from tests.support.cluster.process import run, wait_until
from tests.support.toolchain import binaries

PROGRAM = "kube-router"
_INSIDE = f"/usr/local/bin/{PROGRAM}"
# Nothing but policies: the bridge makes the Pods' network, kube-proxy the Services.
_PARTS = ("--run-firewall=true", "--run-router=false", "--run-service-proxy=false", "--run-loadbalancer=false")


def enforce(node: str) -> None:
    """Start it in the node and wait until its rules stand; from then on it follows Pods and policies."""
    run("docker", "cp", binaries.ensure(PROGRAM)[PROGRAM], f"{node}:{_INSIDE}", timeout=60)
    service = ("systemd-run", f"--unit={PROGRAM}", f"--setenv=NODE_NAME={node}", "--property=Restart=always")
    credentials = "--kubeconfig=/etc/kubernetes/admin.conf"
    run("docker", "exec", node, *service, _INSIDE, *_PARTS, credentials)
    rules = ("iptables", "-w", "--list-rules", "KUBE-ROUTER-FORWARD")
    wait_until(lambda: run("docker", "exec", node, *rules), 60, "kube-router's rules")
