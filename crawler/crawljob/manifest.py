"""Reads a CrawlJob from YAML or from an object of the API server, naming every problem at once.

The command line calls ``load``, the operator ``parse``; the Pod's ConfigMap holds what ``render`` writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from crawljob import API_GROUP, API_VERSION, KIND
from crawljob.problems import InvalidInputError, Problem, from_validation
from crawljob.spec import CrawlJobSpec

FILE_MAX_BYTES = 1024 * 1024  # what a ConfigMap can hold

_ENVELOPE = ("apiVersion", "kind", "metadata", "spec", "status")


@dataclass(frozen=True, slots=True)
class CrawlJobFile:
    """A CrawlJob as read from a file; ``name`` is ``crawl`` where the file has none."""

    name: str
    spec: CrawlJobSpec


def load(path: Path) -> CrawlJobFile:
    """Read a ``crawljob.yaml``. Raises ``InvalidInputError`` with all problems, also for files that cannot be read."""
    if path == Path():  # of an empty word, or the folder itself
        raise InvalidInputError([Problem("-f", "must name a file, such as crawljob.yaml")])
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_MAX_BYTES + 1)
    except OSError as error:
        raise InvalidInputError([Problem(str(path), f"cannot be read ({error.strerror})")]) from None
    if len(raw) > FILE_MAX_BYTES:
        raise InvalidInputError([Problem(str(path), f"is larger than {FILE_MAX_BYTES} bytes")])
    try:
        documents = [d for d in yaml.load_all(raw.decode(), _Loader) if d is not None]
    except UnicodeDecodeError:
        raise InvalidInputError([Problem(str(path), "is not UTF-8 text")]) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise InvalidInputError([Problem(str(path), f"is not YAML: {_yaml_reason(error)}")]) from None
    if len(documents) != 1:
        raise InvalidInputError([Problem(str(path), f"must hold one CrawlJob, has {len(documents)} documents")])
    return _from_document(documents[0], str(path))


def parse(spec: object) -> CrawlJobSpec:
    """Validate a spec as the API server stores it. Raises ``InvalidInputError`` with all problems."""
    try:
        # Through JSON: its rules of strictness are those of the API server (a list is a list, "4" is no number).
        return CrawlJobSpec.model_validate_json(json.dumps(spec, default=_not_json))
    except ValidationError as error:
        raise InvalidInputError(from_validation(error, "spec")) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError([Problem("spec", str(error))]) from None


def render(name: str, spec: CrawlJobSpec) -> str:
    """The file that the crawler reads: the whole spec with every default filled in, keys in a stable order."""
    body = {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": KIND,
        "metadata": {"name": name},
        "spec": spec.model_dump(mode="json", by_alias=True, exclude_none=True),
    }
    return yaml.safe_dump(body, sort_keys=True, allow_unicode=True)


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice, as the API server does: YAML itself would keep the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    problem = f"the key {key.value!r} stands twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add(key.value)
        found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return found


def _from_document(document: Any, source: str) -> CrawlJobFile:
    if not isinstance(document, Mapping):
        raise InvalidInputError([Problem(source, "must be a mapping with apiVersion, kind, metadata and spec")])
    problems = [Problem(str(key), "unknown field") for key in document if key not in _ENVELOPE]
    for key, expected in (("apiVersion", f"{API_GROUP}/{API_VERSION}"), ("kind", KIND)):
        if document.get(key) != expected:
            problems.append(Problem(key, f"must be {expected}, got {document.get(key)!r}"))
    metadata = document.get("metadata") or {}
    name = metadata.get("name", "crawl") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str) or not name:
        problems.append(Problem("metadata.name", "must be a string"))
    if document.get("spec") is None:
        problems.append(Problem("spec", "required"))
    else:
        try:
            spec = parse(document["spec"])
        except InvalidInputError as error:
            problems.extend(error.problems)
    if problems:
        raise InvalidInputError(problems)
    return CrawlJobFile(name=str(name), spec=spec)


def _not_json(value: object) -> object:
    raise ValueError(f"a value of type {type(value).__name__} is not allowed; quote it if it is meant as text")


def _yaml_reason(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    if isinstance(error, RecursionError):
        return "too deeply nested"
    reason = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"{reason} (line {mark.line + 1}, column {mark.column + 1})" if mark else str(reason)
