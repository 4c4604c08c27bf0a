"""Every sample, as `kubectl apply --dry-run=server` sends it to a real API server, fields validated strictly."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.api.test_schema import STRICT
from tests.support.apiserver import Api
from tests.support.builders import crawljobs
from tools.generate import ROOT

SAMPLES = sorted((ROOT / "manifests/samples").glob("*.yaml"))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_the_api_server_takes_it_and_drops_nothing(api: Api, namespace: str, path: Path) -> None:
    sample = yaml.safe_load(path.read_text())
    taken = api.create(crawljobs(namespace) + STRICT, sample)
    assert list(missing(sample["spec"], taken["spec"])) == []


def missing(given: object, taken: object, path: str = "spec") -> list[str]:
    """What the sample says and the stored object does not; defaults may come on top."""
    if isinstance(given, dict) and isinstance(taken, dict):
        return [name for key in given for name in missing(given[key], taken.get(key), f"{path}.{key}")]
    return [] if given == taken else [path]
