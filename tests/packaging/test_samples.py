"""The samples, the published schema and the definition agree with what the program itself accepts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped] # its stubs are a package of their own
import pytest
import yaml
from tools.generate import ROOT

from crawljob import manifest
from crawljob.crd import crd
from crawljob.problems import InvalidInputError

SAMPLES = sorted((ROOT / "manifests/samples").glob("*.yaml"))
SCHEMA = json.loads((ROOT / "manifests/crawljob.schema.json").read_text())
STRUCTURAL = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_a_sample_is_accepted_by_everything_that_reads_one(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    assert manifest.load(path).name == document["metadata"]["name"]
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    jsonschema.Draft202012Validator(STRUCTURAL).validate(document)
    assert not list(_unknown(document["spec"], STRUCTURAL["properties"]["spec"], "spec")), "kubectl would refuse these"


def _unknown(node: Any, schema: dict[str, Any], path: str) -> list[str]:
    """Fields that the definition does not know, which kubectl refuses and a structural schema prunes."""
    if isinstance(node, list):
        return [name for item in node for name in _unknown(item, schema["items"], f"{path}[]")]
    if not isinstance(node, dict) or "properties" not in schema:
        return []
    known = schema["properties"]
    return [f"{path}.{key}" for key in node if key not in known] + [
        name for key, value in node.items() if key in known for name in _unknown(value, known[key], f"{path}.{key}")
    ]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"seeds": []},
        {"seeds": ["https://docs.example.org/"], "depth": 3},
        {"seeds": ["https://docs.example.org/"], "fetch": {"workers": 0}},
        {"seeds": ["https://docs.example.org/"], "telemetry": {"protocol": "udp"}},
    ],
    ids=str,
)
def test_the_published_schema_refuses_what_the_program_refuses(spec: dict[str, Any]) -> None:
    document = {"apiVersion": "durable-crawler.io/v1alpha1", "kind": "CrawlJob", "spec": spec}
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    with pytest.raises(InvalidInputError):
        manifest.parse(spec)
    assert list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(document))
