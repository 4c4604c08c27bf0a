"""Debian packages: installed on the machine, unpacked beside it, or assembled into a root filesystem."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.toolchain import cache
from tests.support.toolchain.cache import Failed, Unavailable

SUITE = "bookworm"
LIMIT_SECONDS = 900


def packages(*names: str) -> None:
    """Install those of the named packages that are missing; says what to do where it may not."""
    missing = [name for name in names if not _installed(name)]
    if not missing:
        return
    wanted = " ".join(missing)
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise Unavailable(f"The cluster needs {wanted}; install them as root (Debian: apt-get install {wanted}).")
    cache.say(f"installing {wanted}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    _apt(["update", "-qq"], environment)
    with _services_stay_off():
        _apt(["install", "-y", "-qq", "--no-install-recommends", *missing], environment)


def unpacked(name: str) -> Path:
    """The files of a package, unpacked into the cache and not installed."""

    def fetch(folder: Path) -> None:
        cache.say(f"fetching the package {name}")
        with tempfile.TemporaryDirectory() as scratch:
            # apt's download sandbox user must be able to write here, or apt warns on every call.
            Path(scratch).chmod(0o777)
            _apt(["download", "-qq", name], dict(os.environ), cwd=Path(scratch))
            for package in Path(scratch).glob("*.deb"):
                _run(["dpkg-deb", "-x", str(package), str(folder)])

    return cache.publish(f"packages/{name}-{SUITE}", fetch)


def rootfs(name: str, include: list[str]) -> Path:
    """A tar file with a minimal Debian and the given packages."""
    key = cache.digest(SUITE, *include)

    def bootstrap(folder: Path) -> None:
        packages("mmdebstrap", "debian-archive-keyring")
        cache.say(f"assembling the root filesystem {name} (once; about two minutes)")
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(include)}"]
        command += ["--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*"]
        command += ["--dpkgopt=path-exclude=/usr/share/locale/*"]
        mirror = os.environ.get("DEBIAN_MIRROR")
        _run([*command, SUITE, str(folder / "rootfs.tar"), *([mirror] if mirror else [])])

    return cache.publish(f"rootfs/{name}-{key}", bootstrap) / "rootfs.tar"


def _installed(name: str) -> bool:
    query = ["dpkg-query", "-W", "-f", "${db:Status-Status}", name]
    try:
        return subprocess.run(query, check=False, capture_output=True, text=True, timeout=30).stdout == "installed"
    except FileNotFoundError:
        return False


class _services_stay_off:  # noqa: N801 - reads as a statement, like contextlib's own
    """While packages are installed, keep their services (nginx, containerd) from starting on the machine."""

    policy = Path("/usr/sbin/policy-rc.d")

    def __enter__(self) -> None:
        self.mine = not self.policy.exists()
        if self.mine:
            self.policy.write_text("#!/bin/sh\nexit 101\n")
            self.policy.chmod(0o755)

    def __exit__(self, *_: object) -> None:
        if self.mine:
            self.policy.unlink(missing_ok=True)


def _apt(arguments: list[str], environment: dict[str, str], cwd: Path | None = None) -> None:
    _run(["apt-get", *arguments], environment, cwd)


def _run(command: list[str], environment: dict[str, str] | None = None, cwd: Path | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            check=False,
            env=environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{command[0]} took more than {LIMIT_SECONDS} s.") from error
    if done.returncode:
        raise Failed(f"{' '.join(command[:2])} failed: {done.stderr.strip()[-500:]}")
