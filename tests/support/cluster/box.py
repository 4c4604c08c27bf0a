"""The box, seen from outside: namespaces around engine, cluster and tests, and the certainty that they all end.

Everything runs below one `unshare`; when its first process ends, the kernel ends the rest, and mounts, bridges and
firewall rules go with their namespaces. What is left to do here is the lock, the control groups and the folders.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from tests.support.cluster import engine, images, nodeimage, policies
from tests.support.cluster.process import Failed, wait_until
from tests.support.toolchain import binaries, cache, prometheus

NAMESPACES = ("--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc")
COMMAND_LIMIT_SECONDS = int(os.environ.get("CLUSTER_LIMIT_SECONDS", "7200"))
SETUP_LIMIT_SECONDS = 900
FAILED = 70  # the setup failed although the machine should be able to: never a skip


def why_not() -> str:
    """Why this machine cannot make a box; empty when it can."""
    if sys.platform != "linux":
        return "There is no Docker engine, and the cluster's own engine needs Linux."
    if os.geteuid() != 0:
        return "There is no Docker engine that answers, and the cluster's own engine needs root."
    try:
        probe = subprocess.run(
            ["unshare", *NAMESPACES, "true"], check=False, capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"There is no Docker engine, and namespaces cannot be made here ({error})."
    if probe.returncode:
        return f"There is no Docker engine, and namespaces cannot be made here ({probe.stderr.strip()[-200:]})."
    return ""


def prepare() -> None:
    """Fetch and build everything that the box needs, as it has no network."""
    engine.prepare()
    nodeimage.image()
    images.base()
    binaries.ensure("helm", "otelcol", policies.PROGRAM)
    prometheus.ensure()


def execute(command: list[str], run_folder: Path, logs: Path, held: Collection[int]) -> int:
    """Run `command` in the box beside a fresh cluster and return its exit code; the caller holds the lock `held`.

    The box holds it too: after a kill of this process the next one waits until the last process of the box has ended.
    """
    _remove_cgroups()  # of a box whose harness was killed
    inner = [sys.executable, "-m", "tests.support.cluster.inside", str(run_folder), str(logs), *command]
    # setpriv: if this process is killed, unshare is too, and with it the box.
    box = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", *NAMESPACES, *inner], pass_fds=tuple(held))
    try:
        return box.wait(SETUP_LIMIT_SECONDS + COMMAND_LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        cache.say(f"the command took more than {COMMAND_LIMIT_SECONDS} s (CLUSTER_LIMIT_SECONDS); the box is ended")
        return 124
    finally:
        box.kill()  # unshare ignores everything less
        box.wait()
        _remove_cgroups()


def _remove_cgroups() -> None:
    """Remove the box's control groups; after a kill its last processes take a moment to end."""
    try:
        wait_until(_cgroups_gone, 15, "the end of the box's processes")
    except Failed:
        cache.say("some control groups of the box are left; the next run removes them")


def _cgroups_gone() -> bool:
    root = Path("/sys/fs/cgroup")
    tops = [*root.glob(f"*/{engine.cgroup()}"), *root.glob(engine.cgroup())]  # version 1 and version 2
    for top in tops:
        inner = sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True)
        for folder in (*inner, top):
            with contextlib.suppress(OSError):  # busy: some process is still on its way out
                folder.rmdir()
    return not any(top.exists() for top in tops)
