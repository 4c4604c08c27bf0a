"""What a collector is shown: headers, and files with certificates. Whoever made it has read and checked them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Credentials:
    """All of it; empty where the exporters' own variables decide."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca: Path | None = None
    """PEM certificates of the authorities that are trusted, instead of the system's."""
    certificate: Path | None = None
    """PEM chain of the client's certificate."""
    key: Path | None = None
