"""The cluster of `make kind` on the machine's own Docker engine: made, given the image, and removed.

Everything of it is in one folder of the user's cache, the kubeconfig too; ~/.kube/config is left alone.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.support.cluster import images
from tests.support.cluster.process import run
from tests.support.toolchain import cache

from tools.kind import choice

CLUSTER = "durable-crawler"
CONFIG = Path(__file__).with_name("cluster.yaml")
# 0.159.0, for amd64 and arm64; the tag is for people, the digest decides.
COLLECTOR = (
    "otel/opentelemetry-collector-contrib:0.159.0"
    "@sha256:1f2c54a30e713fac6b3ae77a1ec84010c2007e29ced8ec666214fc2f6739c1cc"
)


def folder() -> Path:
    """Where kubeconfig, logs and links to built programs are kept."""
    return cache.root() / "kind"


def kubeconfig() -> Path:
    """The file that KUBECONFIG must name to reach the cluster."""
    return folder() / "kubeconfig"


def prepare() -> None:
    """Put the programs that are missing on this process's PATH, and let it speak to this cluster only."""
    built = choice.programs()
    programs = folder() / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    for name, program in built.items():
        (programs / name).unlink(missing_ok=True)
        (programs / name).symlink_to(program)
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}{os.pathsep}{programs}"
    os.environ["KUBECONFIG"] = str(kubeconfig())


def _begun() -> Path:
    """The file that is there from before the cluster is made until it is whole."""
    return folder() / "begun"


def up() -> str:
    """Make the cluster unless it is there, build the image and load it; the image's tag."""
    log = folder() / "log.txt"
    log.unlink(missing_ok=True)
    there = exists()
    if there and _begun().exists():
        # An interrupted `kind create` leaves its node, which kind lists like a whole cluster and never finishes.
        cache.say(f"removing what an interrupted run left of the kind cluster {CLUSTER}")
        run("kind", "delete", "cluster", "--name", CLUSTER, "--kubeconfig", kubeconfig(), timeout=120, log=log)
        there = False
    if there:
        run("kind", "export", "kubeconfig", "--name", CLUSTER, "--kubeconfig", kubeconfig(), log=log)
    else:
        cache.say(f"making the kind cluster {CLUSTER} (a minute, and kind's node image once)")
        _begun().touch()
        create = ("kind", "create", "cluster", "--name", CLUSTER, "--config", CONFIG)
        run(*create, "--kubeconfig", kubeconfig(), "--wait", "180s", timeout=900, log=log)
        _begun().unlink()
    cache.say("building the image, and loading it into the node")
    tag = _image(log)
    archive = folder() / "image.tar"
    run("docker", "save", "--output", archive, tag, timeout=120)
    run("kind", "load", "image-archive", archive, "--name", CLUSTER, timeout=180, log=log)
    archive.unlink()
    return tag


def down() -> str:
    """Remove that cluster and its folder; what was done, in one line."""
    existed = exists()
    if existed:
        run("kind", "delete", "cluster", "--name", CLUSTER, "--kubeconfig", kubeconfig(), timeout=120)
    shutil.rmtree(folder(), ignore_errors=True)
    return f"The kind cluster {CLUSTER} is removed." if existed else f"There is no kind cluster {CLUSTER}."


def exists() -> bool:
    """Whether the engine has a cluster of our name."""
    return CLUSTER in run("kind", "get", "clusters").split()


def setup() -> list[str]:
    """What a person types once, so that kubectl and helm reach the cluster."""
    lines = [f"export KUBECONFIG={kubeconfig()}"]
    if any((folder() / "bin").iterdir()):
        lines.append(f'export PATH="$PATH:{folder() / "bin"}"')
    return lines


def _image(log: Path) -> str:
    """Build the image under a tag that changes with its content, so that a new one is rolled out."""
    with cache.lock("box"):  # the tests' harness fills and builds from the same dist/wheels
        if images.crawler() == images.CRAWLER:
            images.wheels(images.DOCKER_PYTHON)
        images.build(images.DOCKER_BASE, log)
        identity = run("docker", "image", "inspect", "--format", "{{.Id}}", images.crawler()).strip()
        tag = f"{CLUSTER}:kind-{identity.removeprefix('sha256:')[:12]}"
        run("docker", "tag", images.crawler(), tag)
    return tag
