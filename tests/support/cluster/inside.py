"""The first process of the box: sets up mounts, network, engine and cluster, runs the command, and ends.

Started by box.py only, in fresh namespaces, as root: python -m tests.support.cluster.inside RUN_FOLDER LOGS CMD...
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tests.support.cluster import box, cluster, engine, outside
from tests.support.cluster.process import Failed, run
from tests.support.toolchain import cache
from tests.support.toolchain.cache import Unavailable


def main(arguments: list[str]) -> int:
    plan = cluster.Plan("box", Path(arguments[0]), Path(arguments[1]))
    try:
        os.environ["PATH"] = f"{cluster.tools(plan, engine.programs())}:{os.environ['PATH']}"
        os.environ.pop("DOCKER_HOST", None)  # the machine's engine, if it names one, is not in here
        os.environ.pop("DOCKER_CONTEXT", None)
        os.environ["DOCKER_CONFIG"] = str(plan.run_folder / "docker")
        _mounts()
        outside.up(plan.run_folder, plan.logs)
        engine.up(plan.logs)
        cluster.up(plan)
    except Unavailable as error:
        cache.say(f"the cluster did not start: {error}")
        if plan.kubeconfig.exists():
            cluster.export_logs(plan)
        return box.FAILED
    except KeyboardInterrupt:
        return 130
    try:
        code = cluster.command(plan, arguments[2:], box.COMMAND_LIMIT_SECONDS)
        if code:
            cluster.export_logs(plan)
    except KeyboardInterrupt:
        code = 130
    try:
        engine.down()
    except Failed as error:
        cache.say(f"the next run will remove what is left on disk ({error})")
    return code


def _mounts() -> None:
    """A /run of our own before anything starts: stale sockets and pid files of the machine must not be seen."""
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    for name in ("netns", "lock", "containerd", "docker"):
        Path("/run", name).mkdir()


def _reap(child: int) -> int:
    """Collect the orphans of the box, as its process 1 must, until our own child ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command and the child
    while True:
        ended, status = os.wait()
        if ended == child:
            return os.waitstatus_to_exitcode(status) % 256


if __name__ == "__main__":
    worker = os.fork()
    if worker:
        sys.exit(_reap(worker))
    sys.exit(main(sys.argv[1:]))
