"""Derives the CustomResourceDefinition and the JSON Schema from the models of ``spec`` and ``status``.

A structural schema (Kubernetes, "Specifying a structural schema") has no references, no titles, and says ``nullable``
or simply nothing where JSON Schema says ``anyOf: [..., null]``. ``durable-crawler crd`` prints the result; the chart's
and the plain manifests' copies are generated from it and compared in the packaging tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from pydantic import BaseModel

from crawljob import API_GROUP, API_VERSION, KIND, PLURAL
from crawljob.spec import CrawlJobSpec
from crawljob.status import CrawlJobStatus

FILLED_IN_BY_CODE = frozenset({"fetch.userAgent", "listen.address"})
"""Fields whose default depends on where the crawl runs or on the version: the API server stores none for them."""

_DROPPED = frozenset(
    {"title", "additionalProperties", "$defs", "exclusiveMinimum", "exclusiveMaximum", "discriminator"}
)

_COLUMNS = (
    ("Phase", "string", ".status.phase", "What the job is doing", 0),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', "Why", 0),
    ("Done", "integer", ".status.progress.done", "Pages with a result", 0),
    ("Pending", "integer", ".status.progress.pending", "Pages that can be claimed", 0),
    ("Restarts", "integer", ".status.restarts", "Pods that ended before the crawl did", 0),
    ("Age", "date", ".metadata.creationTimestamp", "Since creation", 0),
    ("Exit", "integer", ".status.lastTermination.exitCode", "Exit code of the last Pod", 1),
    ("Message", "string", '.status.conditions[?(@.type=="Ready")].message', "Why, in words", 1),
)


def crd() -> dict[str, Any]:
    """The CustomResourceDefinition (``apiextensions.k8s.io/v1``) as plain data."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{API_GROUP}"},
        "spec": {
            "group": API_GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["crawl"],
                "categories": ["crawl"],
            },
            "versions": [
                {
                    "name": API_VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(*column) for column in _COLUMNS],
                    "schema": {"openAPIV3Schema": _object_schema()},
                }
            ],
        },
    }


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a ``crawljob.yaml``, for editors."""
    spec = CrawlJobSpec.model_json_schema(by_alias=True)
    definitions = spec.pop("$defs", {})  # references are from the root
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": KIND,
        "type": "object",
        "required": ["apiVersion", "kind", "spec"],
        "additionalProperties": False,
        "properties": {
            "apiVersion": {"const": f"{API_GROUP}/{API_VERSION}"},
            "kind": {"const": KIND},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": {"type": "object"},
        },
        "$defs": definitions,
    }


def structural(model: type[BaseModel]) -> dict[str, Any]:
    """A model's schema as the API server wants it."""
    schema = model.model_json_schema(by_alias=True)
    return _structural(schema, schema.get("$defs", {}), "", defaults=model is CrawlJobSpec)


def _object_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "A bounded, polite, crash-safe web crawl.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural(CrawlJobSpec),
            # What nobody has looked at yet is in progress for kstatus, and not current as a thing without conditions.
            "status": {**structural(CrawlJobStatus), "default": {"observedGeneration": -1}},
        },
    }


def _column(name: str, kind: str, path: str, description: str, priority: int) -> dict[str, Any]:
    column = {"name": name, "type": kind, "jsonPath": path, "description": description}
    return {**column, "priority": priority} if priority else column


def _structural(
    node: Mapping[str, Any], definitions: Mapping[str, Any], path: str, *, defaults: bool
) -> dict[str, Any]:
    node = _without_reference(node, definitions)
    result: dict[str, Any] = {}
    for key, value in node.items():
        match key:
            case "properties":
                result[key] = {
                    name: _structural(item, definitions, _join(path, name), defaults=defaults)
                    for name, item in value.items()
                }
            case "items":
                result[key] = _structural(value, definitions, f"{path}[]", defaults=defaults)
            case "prefixItems" | "propertyNames":
                continue  # tuples of one type and bounded keys: said by items and by a rule
            case "const":
                result["enum"] = [value]
            case "patternProperties":  # pydantic's way to bound keys; a structural schema bounds values alone
                (values,) = value.values()
                result["additionalProperties"] = _structural(values, definitions, f"{path}{{}}", defaults=defaults)
            case "additionalProperties" if isinstance(value, Mapping):
                result[key] = _structural(value, definitions, f"{path}{{}}", defaults=defaults)
            case "default":
                if defaults and path not in FILLED_IN_BY_CODE and (isinstance(value, str | int | float) or value == {}):
                    result[key] = value
            case _ if key not in _DROPPED:
                result[key] = deepcopy(value)  # a definition that stands twice must not become an alias in YAML
    names = node.get("propertyNames", {}).get("enum")
    if names:
        rule = f"self.all(key, key in {list(names)!r})"
        result.setdefault("x-kubernetes-validations", []).append(
            {"rule": rule, "message": f"keys must be among {', '.join(names)}"}
        )
        result["maxProperties"] = len(names)
    return result


def _without_reference(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """The node with its ``$ref`` inlined and an ``anyOf`` with null reduced to its other part."""
    merged = dict(node)
    if "$ref" in merged:
        target = definitions[merged.pop("$ref").rsplit("/", 1)[-1]]
        merged = {**_without_reference(target, definitions), **merged}
    options = [option for option in merged.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) < len(merged.get("anyOf", ())):
        assert len(options) == 1, "only `X | None` can be said structurally"
        extra = {key: value for key, value in merged.items() if key != "anyOf"}
        merged = {**_without_reference(options[0], definitions), **extra}
    if merged.get("x-kubernetes-int-or-string"):
        merged.pop("type", None)
    return merged


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
