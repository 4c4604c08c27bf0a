"""The command line of `make kind` and `make kind-down`: python -m tools.kind up|down.

`inside` is what `up` runs beside the cluster of the tests' harness, where there is no Docker engine: that cluster ends
with the command beside it, so a person gets a shell; without a terminal the crawl is waited for and checked.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from tests.support.cluster import box, docker
from tests.support.cluster.__main__ import main as harness
from tests.support.toolchain import cache
from tests.support.toolchain.cache import Failed, Unavailable

from tools.kind import choice, machine, parts


def main(arguments: list[str]) -> int:
    """Do what is asked; 1 with one sentence where it cannot be done."""
    parser = argparse.ArgumentParser(prog="python -m tools.kind", description=__doc__)
    parser.add_argument("action", choices=("up", "down", "inside"))
    action = parser.parse_args(arguments).action
    try:
        return {"up": up, "down": down, "inside": inside}[action]()
    except Failed as error:
        cache.say(f"{error}{_how_to_go_on(action)}")
    except Unavailable as error:
        cache.say(str(error))
    except KeyboardInterrupt:
        cache.say(f"interrupted{_how_to_go_on(action)}")
        return 130
    return 1


def up() -> int:
    """Make or upgrade everything, and say what to look at."""
    docker_answers = docker.answers()
    engine = choice.engine(docker_answers=docker_answers, why_no_box="" if docker_answers else box.why_not())
    if engine == "box":
        cache.say("no Docker engine answers, so the tests' own is used: what it runs ends with this command")
        return harness(["exec", "--", sys.executable, "-m", "tools.kind", "inside"])
    with cache.lock("kind"):  # a second run would take the first's half-made cluster for an interrupted one's
        machine.prepare()
        image = machine.up()
        cache.say("installing the operator, a Collector, a site and a crawl of it")
        parts.install(image, machine.COLLECTOR)
        _show(*machine.setup())
    return 0


def down() -> int:
    """Remove exactly that cluster."""
    if not docker.answers():
        if machine.folder().exists():
            raise Unavailable("No Docker engine answers, but a cluster was made with one: start it, then try again.")
        print("No Docker engine answers, so there is nothing to remove: without one, the cluster ended with its shell.")
        return 0
    with cache.lock("kind"):
        machine.prepare()
        print(machine.down())
    return 0


def inside() -> int:
    """The same in the harness's cluster, then a shell in it."""
    parts.install(os.environ["CRAWLER_IMAGE"], os.environ["COLLECTOR_IMAGE"])
    _show()
    if not sys.stdin.isatty():
        print(parts.check())
        return 0
    print("This shell reaches the cluster; when it ends, the cluster does.", flush=True)
    subprocess.run([os.environ.get("SHELL", "sh")], check=False)  # noqa: S603 - the person's own shell
    return 0


def _how_to_go_on(action: str) -> str:
    if action != "up" or not machine.folder().exists():  # the harness's own cluster leaves nothing behind
        return ""
    return " (`make kind` again goes on from here, `make kind-down` removes everything)"


def _show(*setup: str) -> None:
    lines = [f"  {line}\n" for line in setup]
    print("\nWhat to look at:\n\n", *lines, "\n" if lines else "", parts.guide(), sep="", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
