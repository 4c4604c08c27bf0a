"""A container engine for the box: Debian's containerd and dockerd, with all state in places that the box owns.

Images and build layers stay in the cache between runs, because importing the node image takes longer than a cluster
takes to start. Containers, networks and volumes of an earlier run are removed before the cluster is made: a box may
have been killed at any time.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.cluster.process import Failed, run, start, wait_until
from tests.support.toolchain import cache, debian

PACKAGES = ("containerd", "runc", "iptables", "iproute2", "conntrack", "jq", "libdevmapper1.02.1", "nginx-light")
RUNTIME = Path(__file__).parent / "node" / "runc-without-sys-resource"
STATE = Path("/run/engine")  # the box has a /run of its own


def prepare() -> None:
    """Install and fetch what the engine needs; the box has no network to do it later."""
    debian.packages(*PACKAGES)
    debian.unpacked("docker.io")


def programs() -> dict[str, Path]:
    """docker, dockerd and docker-proxy, unpacked and not installed: the machine may have a client of its own."""
    root = debian.unpacked("docker.io") / "usr"
    return {
        "docker": root / "bin/docker",
        "dockerd": root / "sbin/dockerd",
        "docker-proxy": root / "sbin/docker-proxy",
    }


def cgroup() -> str:
    """The control group of everything in this cache's box, so that what is left of it can be found and removed."""
    return f"durable-crawler-{cache.digest(str(cache.root()))}"


def up(logs: Path) -> None:
    """Start the engine and wait until it answers; a data folder that it cannot read is made anew, once."""
    try:
        _start(logs)
    except Failed:
        cache.say("the engine does not start with its earlier data; starting over without it")
        shutil.rmtree(_data(), ignore_errors=True)
        _start(logs)
    _remove_leftovers()


def down() -> None:
    """Free the disk space of this run; the processes end with the box."""
    _remove_leftovers()


def _data() -> Path:
    return cache.root() / "engine"


def _start(logs: Path) -> None:
    STATE.mkdir(exist_ok=True)
    _data().mkdir(exist_ok=True)
    socket = STATE / "containerd.sock"
    # No CRI: the machine's own configuration files must not matter in here.
    (STATE / "containerd.toml").write_text('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
    (STATE / "dockerd.json").write_text("{}\n")
    containerd = start(
        logs / "containerd.log",
        "containerd",
        *("--config", STATE / "containerd.toml"),
        *("--root", _data() / "containerd", "--state", STATE / "containerd", "--address", socket),
    )
    dockerd = start(
        logs / "dockerd.log",
        "dockerd",
        *("--config-file", STATE / "dockerd.json", "--containerd", socket),
        *("--data-root", _data() / "docker", "--exec-root", STATE / "docker", "--pidfile", STATE / "dockerd.pid"),
        *("--host", "unix:///run/docker.sock", "--storage-driver", "overlay2"),
        *("--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", f"/{cgroup()}"),
        *("--add-runtime", f"nocap={RUNTIME}", "--default-runtime", "nocap"),
    )

    def answers() -> bool:
        if dockerd.poll() is not None or containerd.poll() is not None:
            return True  # no use waiting; the call after this reports it
        return bool(run("docker", "version", "--format", "{{.Server.Version}}", timeout=10))

    try:
        wait_until(answers, 60, "the container engine")
        run("docker", "version", timeout=10)
    except Failed:
        for process in (dockerd, containerd):
            process.kill()
            process.wait(10)
        raise


def _remove_leftovers() -> None:
    if containers := run("docker", "ps", "-aq").split():
        run("docker", "rm", "--force", "--volumes", *containers, timeout=90)
    run("docker", "volume", "prune", "--force")
    run("docker", "network", "prune", "--force")
    run("docker", "image", "prune", "--force", timeout=120)  # the project's image as it was before each change
