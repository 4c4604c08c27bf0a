"""The command line: python -m tests.support.cluster exec|shell|build."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.support.cluster import box, cluster, docker, images, nodeimage, site
from tests.support.toolchain import binaries, cache
from tests.support.toolchain.cache import Unavailable

SKIPPED = 77


def main(arguments: list[str]) -> int:
    options = _parse(arguments)
    # A polite end is enough: every `finally` on the way down removes what it made.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if options.action == "build":
            return _build(options.names)
        words = [os.environ.get("SHELL", "sh")] if options.action == "shell" else options.command
        return _execute(words[1:] if words[:1] == ["--"] else words)
    except Unavailable as error:
        cache.say(str(error))
        return box.FAILED if isinstance(error, cache.Failed) else SKIPPED
    except KeyboardInterrupt:
        return 130


def _execute(words: list[str]) -> int:
    mode, reason = _mode()
    if reason:
        cache.say(reason)
        return SKIPPED
    _prepare(mode)
    if mode == "existing":
        with tempfile.TemporaryDirectory() as folder:
            return _run(mode, Path(folder), words)
    with cache.lock("box") as held:  # one at a time: they share the engine's data, the wheels and this folder
        run_folder = cache.root() / "run"
        shutil.rmtree(run_folder, ignore_errors=True)
        run_folder.mkdir()
        if images.crawler() == images.CRAWLER:
            images.wheels(images.BOX_PYTHON if mode == "box" else images.DOCKER_PYTHON)
        try:
            return _run(mode, run_folder, words, held)
        finally:
            shutil.rmtree(run_folder, ignore_errors=True)


def _run(mode: str, run_folder: Path, words: list[str], *held: int) -> int:
    """Run the command with a folder for logs, which stays when the command fails or the person named it."""
    wanted = os.environ.get("CLUSTER_LOGS")
    logs = Path(wanted).resolve() if wanted else Path(tempfile.mkdtemp(prefix="durable-crawler-logs-"))
    logs.mkdir(parents=True, exist_ok=True)
    plan = cluster.Plan(mode, run_folder, logs)
    code = box.FAILED
    try:
        code = box.execute(words, run_folder, logs, held) if mode == "box" else docker.execute(plan, words)
        return code
    finally:
        if code == 0 and not wanted:
            shutil.rmtree(logs, ignore_errors=True)
        elif code:
            cache.say(f"the logs are in {logs}")


def _mode() -> tuple[str, str]:
    """Which cluster to use, or the reason why there can be none."""
    if os.environ.get("CLUSTER") == "existing":
        missing = "" if os.environ.get("KUBECONFIG") else "CLUSTER=existing needs KUBECONFIG."
        return "existing", missing
    if docker.answers():
        return "docker", ""
    return "box", box.why_not()


def _prepare(mode: str) -> None:
    binaries.ensure(*cluster.TOOLS)
    if mode == "box":
        box.prepare()
    if mode == "docker":
        binaries.ensure("otelcol")
    if mode != "existing":
        site.prefetch()


def _build(names: list[str]) -> int:
    """Prefetch: the named programs, `node` or `base`, or everything that this machine will use."""
    if not names:
        mode, reason = _mode()
        if reason:
            cache.say(reason)
            return SKIPPED
        _prepare(mode)
        return 0
    for name in names:
        made = {"node": nodeimage.image, "base": images.base}.get(name)
        sys.stdout.write(f"{made() if made else binaries.ensure(name)[name]}\n")
    return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.support.cluster", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    run = actions.add_parser("exec", help="run a command beside a fresh cluster; exit 77 where there can be none")
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD...")
    actions.add_parser("shell", help="the same with an interactive shell")
    build = actions.add_parser("build", help="build and fetch beforehand")
    build.add_argument("names", nargs="*", metavar="NAME", help=f"node, base, {', '.join(binaries.TOOLS)}")
    options = parser.parse_args(arguments)
    if options.action == "exec" and not [word for word in options.command if word != "--"]:
        parser.error("exec needs a command: exec -- pytest tests/cluster")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
