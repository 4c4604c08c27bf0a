"""Writes the image of one static program as a docker-archive, so that no engine is needed to make it."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path

# As container images call this machine's processor.
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def write(program: Path, tag: str, target: Path, inside: str | None = None) -> None:
    """Write `target`, an image called `tag` that holds nothing but `program`, at `inside` or under /usr/local/bin."""
    place = inside or f"/usr/local/bin/{program.name}"
    layer_path = target.with_suffix(".layer")
    with tarfile.open(layer_path, "w") as layer:
        entry = tarfile.TarInfo(place.lstrip("/"))
        entry.size = program.stat().st_size
        entry.mode = 0o755
        with program.open("rb") as source:
            layer.addfile(entry, source)
    with layer_path.open("rb") as written:
        layer_digest = hashlib.file_digest(written, "sha256").hexdigest()
    config = {
        "architecture": ARCHITECTURE,
        "os": "linux",
        "config": {"Entrypoint": [place], "Env": ["PATH=/usr/local/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
    }
    config_bytes = json.dumps(config, sort_keys=True).encode()
    config_name = f"{hashlib.sha256(config_bytes).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [tag], "Layers": [f"{layer_digest}.tar"]}]
    with tarfile.open(target, "w") as image:
        _add(image, config_name, config_bytes)
        image.add(layer_path, f"{layer_digest}.tar")
        _add(image, "manifest.json", json.dumps(manifest).encode())
    layer_path.unlink()


def _add(image: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    image.addfile(entry, io.BytesIO(data))
