"""Seeds of the simulations, and how a failure is seen again.

``SIM_SEED=17`` runs one seed, ``SIM_SEEDS=2000`` that many; a failure shows the command that repeats it.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

SEEDS = 50


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        one = os.environ.get("SIM_SEED")
        seeds = [int(one)] if one else range(int(os.environ.get("SIM_SEEDS", SEEDS)))
        metafunc.parametrize("seed", seeds)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    callspec: Any = getattr(item, "callspec", None)
    if report.failed and callspec is not None and "seed" in callspec.params:
        test = item.nodeid.partition("[")[0]
        again = f"SIM_SEED={callspec.params['seed']} python -m pytest '{test}'"
        report.sections.append(("the same again", again))
    return report
