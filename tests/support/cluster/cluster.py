"""One kind cluster, from `create` to `delete`, and the command that runs beside it; the same for both engines."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.cluster import images, nodeimage, outside, policies, storage
from tests.support.cluster.process import Failed, on_path, run
from tests.support.toolchain import binaries, cache

NAME = "crawler"
NODE = f"{NAME}-control-plane"
CONFIGS = Path(__file__).parent / "kind"
TOOLS = ("kubectl", "helm", "kind")


@dataclass(frozen=True)
class Plan:
    """Where one run keeps its things. `mode` is "box", "docker" or "existing"."""

    mode: str
    run_folder: Path
    logs: Path

    @property
    def kubeconfig(self) -> Path:
        return self.run_folder / "kubeconfig"

    @property
    def host_dir(self) -> Path:
        """What Pods write and tests read: `volumes/` and `collector/`."""
        return self.run_folder / "host"


def tools(plan: Plan, extra: dict[str, Path] | None = None) -> Path:
    """A folder with the client programs, to be the first on PATH."""
    folder = plan.run_folder / "bin"
    folder.mkdir(exist_ok=True)
    for name, program in {**binaries.ensure(*TOOLS), **(extra or {})}.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(program)
    return folder


def share(plan: Plan) -> None:
    """Make the folders that the node shares with the tests.

    After a kill they are there: a new engine starts the node of the killed one before that is removed, and makes what
    it mounts.
    """
    for name in ("volumes", "collector"):
        (plan.host_dir / name).mkdir(parents=True, exist_ok=True)
    # The Collector and kind's provisioner write here as they like; what is inside belongs to this run only.
    (plan.host_dir / "collector").chmod(0o777)


def up(plan: Plan) -> None:
    """Create the cluster, Ready, with the images loaded and volumes to claim."""
    share(plan)
    config = plan.run_folder / "kind.yaml"
    config.write_text((CONFIGS / f"{plan.mode}.yaml").read_text().replace("HOST_DIR", str(plan.host_dir)))
    create = ["kind", "create", "cluster", "--name", NAME, "--config", str(config)]
    create += ["--kubeconfig", str(plan.kubeconfig), "--wait", "180s", "--retain", "-v", "1"]
    base_image = images.DOCKER_BASE
    if plan.mode == "box":
        create += ["--image", _box_node_image()]
        base_image = _box_base_image()
    building = _Background(lambda: images.build(base_image, plan.logs / "image.log"))
    run(*create, timeout=400, log=plan.logs / "kind.log")
    # kind restarts its nodes with the engine; after a killed run that would only delay the next one.
    run("docker", "update", "--restart=no", NODE)
    building.join()
    _load(plan)
    if plan.mode == "box":
        storage.make_pool(plan.host_dir, plan.kubeconfig)
        policies.enforce(NODE)
    # Ready means usable: a Pod that starts before DNS answers would fail for no reason of its own.
    ready = ("rollout", "status", "deployment/coredns", "-n", "kube-system", "--timeout=90s")
    run("kubectl", "--kubeconfig", plan.kubeconfig, *ready, timeout=100)


def down(plan: Plan) -> None:
    """Remove the cluster; the engine of a box ends anyway, so this is for the machine's own."""
    run("kind", "delete", "cluster", "--name", NAME, "--kubeconfig", plan.kubeconfig, timeout=120, check=False)


def command(plan: Plan, words: list[str], limit: float) -> int:
    """Run the person's command with everything it needs in its environment; returns its exit code."""
    try:
        return subprocess.run(words, check=False, env=environment(plan), timeout=limit).returncode
    except subprocess.TimeoutExpired:
        cache.say(f"the command did not end within {limit:.0f} s (CLUSTER_LIMIT_SECONDS)")
        return 124
    except FileNotFoundError:
        cache.say(f"there is no command {words[0]}")
        return 127


def environment(plan: Plan) -> dict[str, str]:
    """What CMD and the testbed rely on."""
    given = {
        "CLUSTER_MODE": plan.mode,
        "CLUSTER_RUN_DIR": str(plan.run_folder),
        "CLUSTER_LOGS": str(plan.logs),
        "CRAWLER_IMAGE": images.crawler(),
        "COLLECTOR_IMAGE": images.COLLECTOR,
    }
    if plan.mode != "existing":
        given |= {"KUBECONFIG": str(plan.kubeconfig), "CLUSTER_HOST_DIR": str(plan.host_dir), "CLUSTER_NODE": NODE}
    if plan.mode == "box":
        addresses = {"": outside.PUBLIC, "PRIVATE_": outside.PRIVATE, "GLOBAL_": outside.GLOBAL}
        given |= {f"SITE_{kind}ADDRESS": address for kind, address in addresses.items()}
        given |= {"SITE_NETNS": outside.NETNS}
    return {**on_path(plan.run_folder / "bin"), **given}


def export_logs(plan: Plan) -> None:
    """Keep what explains a failure: the node's journals and containers, and the cluster's objects and events."""
    folder = plan.logs / "cluster"
    kubectl = ["kubectl", "--kubeconfig", str(plan.kubeconfig)]
    for words in (
        ["kind", "export", "logs", "--name", NAME, str(folder)],
        [*kubectl, "cluster-info", "dump", "--all-namespaces", "--output-directory", str(folder / "objects")],
    ):
        try:
            run(*words, timeout=90, log=plan.logs / "export.log")
        except Failed as error:
            cache.say(f"some logs are missing: {error}")


def _load(plan: Plan) -> None:
    """Bring the images into the node, through one archive for each."""
    log = plan.logs / "images.log"
    collector = images.collector_archive(plan.run_folder)
    crawler = plan.run_folder / "crawler.tar"
    run("docker", "save", "--output", crawler, images.crawler(), timeout=120)
    for image in (collector, crawler):
        run("kind", "load", "image-archive", image, "--name", NAME, timeout=180, log=log)
        image.unlink()


def _box_node_image() -> str:
    tar = nodeimage.image()
    entry = ["-c", 'ENTRYPOINT ["/usr/local/bin/entrypoint","/sbin/init"]', "-c", "ENV container docker"]
    return _imported(f"durable-crawler/node:{tar.parent.name}", tar, entry)


def _box_base_image() -> str:
    tar = images.base()
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return _imported(f"{images.BOX_BASE}-{tar.parent.name}", tar, ["-c", f"ENV PATH {path}"])


def _imported(tag: str, tar: Path, changes: list[str]) -> str:
    """Import a root filesystem once; older versions of it make room."""
    repository = tag.split(":", 1)[0]
    present = run("docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", repository).split()
    if tag not in present:
        cache.say(f"importing {repository} (once)")
        run("docker", "import", *changes, tar, tag, timeout=300)
    for old in set(present) - {tag}:
        run("docker", "image", "rm", "--force", old, check=False)
    return tag


class _Background:
    """One piece of work beside the creation of the cluster; its error surfaces in join()."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._error: Exception | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - handed to the caller of join()
            self._error = error

    def join(self) -> None:
        self._thread.join()
        if self._error:
            raise self._error
