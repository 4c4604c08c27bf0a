"""What is kept of a browser's view."""

from __future__ import annotations

import os
from pathlib import Path

from playwright.sync_api import Page


def keep(tab: Page, name: str) -> None:
    """A screenshot in the folder that ARTIFACTS names, if it names one: for who looks at what a test cannot judge."""
    folder = os.environ.get("ARTIFACTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        tab.screenshot(path=Path(folder) / f"{name}.png")
