"""The machine's own Docker engine, or a cluster that exists already: the command runs beside it, no box."""

from __future__ import annotations

import os

from tests.support.cluster import box, cluster
from tests.support.cluster.process import Failed, run


def answers() -> bool:
    """Whether a Docker engine can be used from here."""
    try:
        return bool(run("docker", "version", "--format", "{{.Server.Version}}", timeout=15).strip())
    except Failed:
        return False


def execute(plan: cluster.Plan, words: list[str]) -> int:
    """Run the command beside an existing cluster, or one that is made for it and deleted afterwards."""
    os.environ["PATH"] = f"{cluster.tools(plan)}:{os.environ.get('PATH', '')}"
    if plan.mode == "existing":
        return cluster.command(plan, words, box.COMMAND_LIMIT_SECONDS)
    cluster.down(plan)  # of a run that was killed
    try:
        cluster.up(plan)
        code = cluster.command(plan, words, box.COMMAND_LIMIT_SECONDS)
        if code:
            cluster.export_logs(plan)
        return code
    finally:
        cluster.down(plan)
