"""Fixtures of the cluster tier; without a cluster its tests are skipped, visibly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cluster import testbed

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder is of the cluster tier."""
    skip = pytest.mark.skip(
        reason="no cluster: run it with `python -m tests.support.cluster exec -- pytest tests/cluster`"
    )
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            if not testbed.mode():
                item.add_marker(skip)


@pytest.fixture
def namespace() -> Iterator[str]:
    """A namespace that only this test uses."""
    with testbed.namespace() as name:
        yield name
