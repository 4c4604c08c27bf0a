"""Assembles the box's node image: Debian, kind's own node files, and the Kubernetes programs built from source.

kind's published node image cannot be pulled where only package registries are reachable. What goes in is the same;
what differs is in the folder node/, each file saying why.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support.cluster import archive
from tests.support.toolchain import binaries, cache, debian
from tests.support.toolchain.cache import Failed

FILES = Path(__file__).parent / "node"
PROGRAMS = ("kubeadm", "kubelet", "kubectl", "kube-proxy", "crictl")
# The program of each control plane image, by the image's last path element in `kubeadm config images list`.
IMAGES = {
    "etcd": "etcd",
    "kube-apiserver": "kube-apiserver",
    "kube-controller-manager": "kube-controller-manager",
    "kube-scheduler": "kube-scheduler",
    "coredns": "coredns",
    "pause": "pause",
}
DEBIAN = [
    *("systemd", "systemd-sysv", "dbus", "kmod", "containerd", "runc", "containernetworking-plugins"),
    *("iptables", "iproute2", "conntrack", "ethtool", "socat", "ebtables", "ipset", "jq", "rsync"),
    *("procps", "curl", "openssl", "util-linux", "mount", "hostname"),
]
# Units that Debian enables by itself and that have no place in a container.
UNWANTED = (
    "lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service",
    "lib/systemd/system/multi-user.target.wants/*",
    "etc/systemd/system/*.wants/*",
    "lib/systemd/system/local-fs.target.wants/*",
    "lib/systemd/system/sockets.target.wants/*udev*",
    "lib/systemd/system/sockets.target.wants/*initctl*",
    "lib/systemd/system/basic.target.wants/*",
)
ENABLED = ("kubelet.service", "containerd.service", "undo-mount-hacks.service", "kube-proxy.path")


def programs() -> tuple[str, ...]:
    """Every program that the node image is made of."""
    return tuple(dict.fromkeys((*PROGRAMS, *IMAGES.values(), "kind")))


def image() -> Path:
    """The root filesystem of the node image as a tar file for `docker import`; assembled once per content."""
    built = binaries.ensure(*programs())
    base = debian.rootfs("node", DEBIAN)
    ours = [path for path in sorted(FILES.iterdir()) if path.is_file()]
    key = cache.digest(
        str(base.parent.name),
        Path(__file__).read_bytes(),
        Path(archive.__file__).read_bytes(),
        *(path.parent.name for path in built.values()),
        *(path.read_bytes() for path in ours),
    )
    folder = cache.publish(f"node/{key}", lambda scratch: _assemble(scratch, base, built))
    for older in folder.parent.iterdir():  # a gigabyte each
        if older != folder and ".part-" not in older.name:
            shutil.rmtree(older, ignore_errors=True)
    return folder / "node.tar"


def _assemble(folder: Path, base: Path, built: dict[str, Path]) -> None:
    cache.say("assembling the node image (once; about half a minute)")
    root = folder / "root"
    root.mkdir()
    _tar("-x", "-p", "--numeric-owner", "-f", str(base), "-C", str(root))
    _kind_files(binaries.module_dir("kind") / "images" / "base" / "files", root)
    _kubernetes(root, built)
    pause = _control_plane_images(root, built)
    _our_files(root, pause)
    _units(root)
    _tar("-c", "--numeric-owner", "-f", str(folder / "node.tar"), "-C", str(root), ".")
    shutil.rmtree(root)


def _kind_files(files: Path, root: Path) -> None:
    """Lay kind's files over the root. The module cache is read-only, so every mode is set anew."""
    for source in files.rglob("*"):
        if not source.is_file():
            continue
        relative = source.relative_to(files)
        program = relative.parts[0] == "usr" or relative.parts[:2] == ("kind", "bin")
        _install(source, root / relative, 0o755 if program else 0o644)


def _kubernetes(root: Path, built: dict[str, Path]) -> None:
    for name in PROGRAMS:
        _install(built[name], root / "usr/bin" / name, 0o755)
    _write(root / "kind/version", binaries.TOOLS["kubelet"].version())
    for name in ("containerd", "ctr", "containerd-shim-runc-v2", "crictl"):
        _link(root / "usr/local/bin" / name, f"/usr/bin/{name}")
    _link(root / "opt/cni/bin", "/usr/lib/cni")
    (root / "etc/kubernetes/manifests").mkdir(parents=True, exist_ok=True)


def _control_plane_images(root: Path, built: dict[str, Path]) -> str:
    """Write the images that this kubeadm asks for; returns the tag of the pause image."""
    version = binaries.TOOLS["kubeadm"].version()
    listing = subprocess.run(
        [built["kubeadm"], "config", "images", "list", "--kubernetes-version", version],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    pause = ""
    (root / "kind/images").mkdir(parents=True)
    for tag in listing.stdout.split():
        name = tag.rsplit("/", 1)[1].split(":", 1)[0]
        if name in IMAGES:
            inside = "/coredns" if name == "coredns" else None
            archive.write(built[IMAGES[name]], tag, root / "kind/images" / f"{name}.tar", inside)
            pause = tag.rsplit(":", 1)[1] if name == "pause" else pause
    missing = [name for name in IMAGES if not (root / "kind/images" / f"{name}.tar").exists()]
    if missing:
        raise Failed(f"kubeadm {version} names no image for {', '.join(missing)}: {listing.stderr.strip()[-300:]}")
    return pause


def _our_files(root: Path, pause: str) -> None:
    _install(FILES / "runc-without-sys-resource", root / "usr/local/sbin/runc", 0o755)
    _write(root / "etc/containerd/config.toml", (FILES / "containerd.toml").read_text().replace("PAUSE", pause))
    _install(FILES / "10-bridge.conflist", root / "etc/cni/net.d/10-bridge.conflist", 0o644)
    _install(FILES / "storage.yaml", root / "kind/manifests/default-storage.yaml", 0o644)
    _write(root / "kind/manifests/default-cni.yaml", "")
    _install(FILES / "kube-proxy.yaml", root / "kind/kube-proxy.yaml", 0o644)
    for unit in ("kube-proxy.service", "kube-proxy.path"):
        _install(FILES / unit, root / "etc/systemd/system" / unit, 0o644)
    drop_ins = root / "etc/systemd/system"
    _install(FILES / "import-images.conf", drop_ins / "containerd.service.d/import-images.conf", 0o644)
    _install(FILES / "after-containerd.conf", drop_ins / "kubelet.service.d/after-containerd.conf", 0o644)


def _units(root: Path) -> None:
    # Raised limits and a negative OOM score need the capability that the machine may lack.
    containerd = root / "etc/systemd/system/containerd.service"
    refused = ("Limit", "TasksMax", "OOMScoreAdjust")
    kept = [line for line in containerd.read_text().splitlines() if not line.startswith(refused)]
    containerd.write_text("\n".join(kept) + "\n")
    for pattern in UNWANTED:
        for path in root.glob(pattern):
            path.unlink()
    for unit in ENABLED:
        _link(root / "etc/systemd/system/multi-user.target.wants" / unit, f"/etc/systemd/system/{unit}")
    _link(root / "etc/systemd/system/systemd-binfmt.service", "/dev/null")
    with (root / "etc/systemd/journald.conf").open("a") as journald:
        journald.write("ReadKMsg=no\n")


def _install(source: Path, target: Path, mode: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def _write(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def _link(link: Path, target: str) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink() and not link.exists():
        link.symlink_to(target)


def _tar(*arguments: str) -> None:
    done = subprocess.run(["tar", *arguments], check=False, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise Failed(f"tar failed: {done.stderr.strip()[-300:]}")
