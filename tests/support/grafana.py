"""A dashboard as Grafana reads it: panels, queries and variables of the JSON that the chart ships."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "charts/durable-crawler/files/dashboards"
PATHS = sorted(FOLDER.glob("*.json"))
assert PATHS, "there are dashboards"


@dataclass(frozen=True)
class Shown:
    """One query of one panel, variables not filled in."""

    dashboard: str
    panel: str
    expression: str
    legend: str

    def __str__(self) -> str:
        return f"{self.dashboard} / {self.panel}: {self.expression}"


def load(path: Path) -> dict[str, Any]:
    """The JSON."""
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def panels(dashboard: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Its panels, without the headings of rows."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries() -> Iterator[Shown]:
    """Every query of every panel of every dashboard."""
    for path in PATHS:
        for panel in panels(load(path)):
            for target in panel["targets"]:
                yield Shown(path.stem, panel["title"], target["expr"], target.get("legendFormat", ""))


def filled(expression: str, **values: str) -> str:
    """The expression with the variables' values, ``$name`` for each; ``interval`` is for ``$__rate_interval``."""
    for name, value in {**values, "__rate_interval": values.get("interval", "1m")}.items():
        expression = expression.replace(f"${name}", value)
    assert "$" not in expression, f"a variable without a value: {expression}"
    return expression
