"""Every implementation of the frontier keeps what the port promises."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.frontier_suite import FrontierSuite, Maker, MemoryMaker, SqliteMaker


@pytest.fixture(params=["sqlite", "memory"])
def maker(request: pytest.FixtureRequest, tmp_path: Path) -> Maker:
    return SqliteMaker(tmp_path / "frontier.db") if request.param == "sqlite" else MemoryMaker()


class TestFrontier(FrontierSuite):
    """The battery, once for each."""
