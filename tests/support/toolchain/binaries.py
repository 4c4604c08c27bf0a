"""The Go programs that the api and cluster tiers run: which ones, at which version, and how each is built once.

Versions live in the committed go.mod files under tests/support/cluster/go; go.sum checks every download. A program
is built when it is asked for and missing; a warm call touches neither the network nor the Go command.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.toolchain import cache
from tests.support.toolchain.cache import Failed, Unavailable

MODULES = Path(__file__).parent.parent / "cluster" / "go"
BUILD_LIMIT_SECONDS = 3600


@dataclass(frozen=True)
class GoTool:
    """One program: the folder of its go.mod, its main package, and the module whose version names it."""

    folder: str
    package: str
    module: str
    ldflags: str = ""
    own_version: str = ""
    client: bool = False  # runs on the person's machine, whatever that is; all others run on Linux

    def version(self) -> str:
        """The version that go.mod pins, or our own program's."""
        if self.own_version:
            return self.own_version
        text = (MODULES / self.folder / "go.mod").read_text()
        found = re.search(rf"^\s*(?:require )?{re.escape(self.module)} (v\S+)", text, re.MULTILINE)
        if found is None:
            raise Failed(f"{self.folder}/go.mod does not pin {self.module}.")
        return found.group(1)

    def flags(self) -> str:
        """The linker flags with the version filled in: the programs report it, and kubeadm acts on it."""
        version = self.version()
        major, minor, _ = version.removeprefix("v").split(".", 2)
        return f"-s -w {self.ldflags.format(version=version, major=major, minor=minor)}".strip()


_KUBERNETES_FLAGS = " ".join(
    f"-X k8s.io/component-base/version.{name}={value}"
    for name, value in {"gitVersion": "{version}", "gitMajor": "{major}", "gitMinor": "{minor}"}.items()
)


def _kubernetes(command: str, *, client: bool = False) -> GoTool:
    package = f"k8s.io/kubernetes/cmd/{command}"
    return GoTool("kubernetes", package, "k8s.io/kubernetes", _KUBERNETES_FLAGS, client=client)


# In the order of a cold build: what the api tier waits for comes first.
TOOLS: dict[str, GoTool] = {
    "etcd": GoTool("etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": _kubernetes("kube-apiserver"),
    "kind": GoTool("kind", "sigs.k8s.io/kind", "sigs.k8s.io/kind", client=True),
    "kubectl": _kubernetes("kubectl", client=True),
    "kube-controller-manager": _kubernetes("kube-controller-manager"),
    "kubelet": _kubernetes("kubelet"),
    "kubeadm": _kubernetes("kubeadm"),
    "kube-scheduler": _kubernetes("kube-scheduler"),
    "kube-proxy": _kubernetes("kube-proxy"),
    "crictl": GoTool(
        "crictl",
        "sigs.k8s.io/cri-tools/cmd/crictl",
        "sigs.k8s.io/cri-tools",
        "-X sigs.k8s.io/cri-tools/pkg/version.Version={version}",
    ),
    "coredns": GoTool("coredns", "github.com/coredns/coredns", "github.com/coredns/coredns"),
    "kube-router": GoTool(
        "kube-router",
        "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router",
        "github.com/cloudnativelabs/kube-router/v2",
    ),
    "otelcol": GoTool("collector", "durable-crawler.io/tests/collector", "go.opentelemetry.io/collector/otelcol"),
    "pause": GoTool("pause", "durable-crawler.io/tests/pause", "durable-crawler.io/tests/pause", own_version="v1.0.0"),
    "helm": GoTool(
        "helm",
        "helm.sh/helm/v4/cmd/helm",
        "helm.sh/helm/v4",
        "-X helm.sh/helm/v4/internal/version.version={version}",
        client=True,
    ),
    "helm-docs": GoTool(
        "helm-docs", "github.com/norwoodj/helm-docs/cmd/helm-docs", "github.com/norwoodj/helm-docs", client=True
    ),
}


def ensure(*names: str) -> dict[str, Path]:
    """Return the path of each named program, building those that are missing.

    Raises Unavailable with one sentence when a name is unknown, Go is missing, or a build fails.
    """
    unknown = [name for name in names if name not in TOOLS]
    if unknown:
        raise Unavailable(f"Unknown program {', '.join(unknown)}; known are {', '.join(TOOLS)}.")
    return {name: built(name, TOOLS[name]) for name in names}


def module_dir(name: str) -> Path:
    """The unpacked source of the program's module in Go's module cache (kind's holds the node image's files)."""
    tool = TOOLS[name]
    done = _go(["list", "-m", "-f", "{{.Dir}}", tool.module], tool)
    if done.returncode or not done.stdout.strip():
        raise Failed(f"Go does not find the source of {tool.module}: {done.stderr.strip()[-300:]}")
    return Path(done.stdout.strip())


def module_files(folder: str, module: str, *files: str) -> list[Path]:
    """Files of a module of which no program is built, at the version that the folder's go.mod pins, from the cache.

    Raises Unavailable like ``ensure``, and Failed where the module is not the one that go.sum knows.
    """
    tool = GoTool(folder, "", module)

    def fetch(target: Path) -> None:
        done = _go(["mod", "download", "-json", module], tool)
        found = json.loads(done.stdout or "{}")
        # Go itself compares with go.sum only what it builds.
        if done.returncode or f"{module} {tool.version()} {found['Sum']}\n" not in _sums(folder):
            raise Failed(
                f"{module} {tool.version()} is not to be had as go.sum has it: {found.get('Error', done.stderr)}"
            )
        for file in files:
            shutil.copyfile(Path(found["Dir"]) / file, target / Path(file).name)

    key = cache.digest(_sums(folder), *files)
    kept = cache.publish(f"modules/{folder}-{tool.version()}-{key}", fetch)
    return [kept / Path(file).name for file in files]


def _sums(folder: str) -> str:
    return (MODULES / folder / "go.sum").read_text()


def built(name: str, tool: GoTool) -> Path:
    """The path of one program, also of one that is not among ``TOOLS``; it is built when it is missing."""
    sources = sorted(path for path in (MODULES / tool.folder).iterdir() if path.suffix in {".mod", ".sum", ".go"})
    key = cache.digest(tool.package, tool.flags(), *(path.read_bytes() for path in sources))
    folder = cache.publish(f"bin/{name}-{tool.version()}-{key}", lambda scratch: _build(name, tool, scratch))
    return folder / name


def _build(name: str, tool: GoTool, folder: Path) -> None:
    cache.say(f"building {name} {tool.version()} (once; minutes, not seconds)")
    started = time.monotonic()
    output = folder / name
    flags = ["-trimpath", "-buildvcs=false", "-mod=readonly", "-p", str(min(2, os.cpu_count() or 1))]
    done = _go(["build", *flags, "-ldflags", tool.flags(), "-o", str(output), tool.package], tool)
    if done.returncode:
        raise Failed(f"Go could not build {name} {tool.version()}: {done.stderr.strip()[-2000:]}")
    cache.say(f"built {name} in {time.monotonic() - started:.0f} s")


def _go(arguments: list[str], tool: GoTool) -> subprocess.CompletedProcess[str]:
    """Run the Go command in the tool's module folder, with nothing of the user's Go settings that changes a build."""
    program = shutil.which("go")
    if program is None:
        raise Unavailable("The Go toolchain (1.26 or newer) is not on PATH; install it to build the test programs.")
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}
    if not tool.client:
        environment["GOOS"] = "linux"
    try:
        return subprocess.run(
            [program, *arguments],
            check=False,
            cwd=MODULES / tool.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"Building {tool.package} took more than {BUILD_LIMIT_SECONDS} s.") from error


if __name__ == "__main__":
    import sys

    for path in ensure(*(sys.argv[1:] or TOOLS)).values():
        print(path)
