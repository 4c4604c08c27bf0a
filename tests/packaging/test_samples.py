"""The samples, the published schema and the definition agree with what the program itself accepts."""

from __future__ import annotations

import json
from collections.abc import Iterator
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


def _errors(document: Any) -> list[str]:
    """What the published schema has against a document."""
    broken = [reference for reference in _references(SCHEMA) if _target(reference) is None]
    assert not broken, "a reference that leads nowhere makes editors ignore the schema"
    return [error.message for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(document)]


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from _references(item)


def _target(reference: str) -> Any:
    node: Any = SCHEMA
    for part in reference.removeprefix("#/").split("/"):
        node = node.get(part) if isinstance(node, dict) else None
    return node


def test_the_published_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_a_sample_is_accepted_by_everything_that_reads_one(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    assert manifest.load(path).name == document["metadata"]["name"]
    assert not _errors(document)
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
    with pytest.raises(InvalidInputError):
        manifest.parse(spec)
    assert _errors(document)
