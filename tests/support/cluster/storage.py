"""Volumes that are made beforehand, in a folder of the host, so that tests can open a Pod's files directly.

The box's class `standard` has no provisioner. With kind's own node image (Docker mode) its local-path provisioner
makes the volumes, in a folder that is mounted from the host as well; volume_path() finds both.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.support.cluster.process import Failed, run

POOL_SIZE = 100
CAPACITY = "2Gi"
CRAWLER_UID = 65532
# Where the folder host/volumes is mounted in the node, by the name of the mode.
MOUNTS = {"box": "/var/durable-crawler/volumes", "docker": "/var/local-path-provisioner"}


def make_pool(host_dir: Path, kubeconfig: Path, first: int = 0, count: int = POOL_SIZE) -> None:
    """Create `count` volumes; a volume is used once, as in a test cluster that nobody cleans."""
    volumes = [_volume(f"pool-{number:03d}", host_dir) for number in range(first, first + count)]
    listing = json.dumps({"apiVersion": "v1", "kind": "List", "items": volumes})
    run("kubectl", "--kubeconfig", kubeconfig, "create", "-f", "-", input=listing, timeout=90)


def host_path(node_path: str, host_dir: Path) -> Path:
    """The folder of the host that the node sees as `node_path`."""
    for mount in MOUNTS.values():
        if node_path.startswith(f"{mount}/"):
            return host_dir / "volumes" / node_path.removeprefix(f"{mount}/")
    raise Failed("This volume is not in a folder that the host shares with the node.")


def _volume(name: str, host_dir: Path) -> dict[str, object]:
    folder = host_dir / "volumes" / name
    folder.mkdir()
    # hostPath ignores fsGroup: the folder must belong to the Pod's user from the start.
    os.chown(folder, CRAWLER_UID, CRAWLER_UID)
    folder.chmod(0o700)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "storageClassName": "standard",
            "capacity": {"storage": CAPACITY},
            "accessModes": ["ReadWriteOncePod"],  # may have no other beside it
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": f"{MOUNTS['box']}/{name}", "type": "Directory"},
        },
    }
