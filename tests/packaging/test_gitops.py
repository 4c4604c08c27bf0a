"""What the documentation says of GitOps: the health script, run by the Lua that Argo CD has (5.1) on what the operator
writes, and objects for Flux that name what there is. That Flux needs no script is shown by tests/unit/test_kstatus.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import jsonschema  # type: ignore[import-untyped] # its stubs are a package of their own
import pytest
import yaml
from lupa import lua51
from tests.support.builders import NOW, around, ended, job, pod, running, summary
from tests.support.chart_values import coalesced
from tools.generate import ROOT

from crawljob import API_GROUP, API_VERSION, KIND, crd
from crawljob_operator.decide import decide
from crawljob_operator.observed import Job, Note, Seen

PAGE = (ROOT / "docs" / "gitops.md").read_text()
OBJECTS = [item for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) for item in yaml.safe_load_all(block)]
(SCRIPT,) = (
    item["data"][f"resource.customizations.health.{API_GROUP}_{KIND}"]
    for item in OBJECTS
    if item.get("kind") == "ConfigMap"
)


def health(generation: int, status: dict[str, Any] | None) -> tuple[str, str]:
    """What Argo CD shows."""
    lua = lua51.LuaRuntime(unpack_returned_tuples=True)
    body = {"metadata": {"generation": generation}, **({} if status is None else {"status": status})}
    found = lua.eval(f"function(obj) {SCRIPT} end")(lua.table_from(body, recursive=True))
    return found["status"], found["message"]


def written(owner: Job, seen: Seen) -> dict[str, Any]:
    """The status as the API server has it afterwards."""
    return decide(owner, seen, NOW).status.model_dump(mode="json", by_alias=True, exclude_none=True)


@pytest.mark.parametrize(
    ("expected", "seen", "spec"),
    [
        (("Progressing", "Starting"), lambda owner: around(owner, pod(owner)), {}),
        (("Progressing", "Running"), lambda owner: around(owner, running(owner)), {}),
        (("Progressing", "Error"), lambda owner: around(owner, ended(owner, 1)), {}),
        (("Progressing", "Suspending"), lambda owner: around(owner, running(owner)), {"suspend": True}),
        (("Suspended", "Suspended"), around, {"suspend": True}),
        (("Healthy", "CrawlFinished"), lambda owner: around(owner, ended(owner, 0, message=summary())), {}),
        (("Degraded", "InvalidConfiguration"), lambda owner: around(owner, ended(owner, 2)), {}),
        (
            ("Degraded", "InvalidImageName"),
            lambda owner: around(owner, pod(owner, waiting=Note("InvalidImageName", "bad"))),
            {},
        ),
    ],
)
def test_health_is_what_the_status_says(
    expected: tuple[str, str], seen: Callable[[Job], Seen], spec: dict[str, Any]
) -> None:
    owner = job(**spec)
    status, message = health(1, written(owner, seen(owner)))
    assert (status, message.partition(": ")[0]) == expected


def test_what_flux_is_given_names_the_chart_its_values_and_the_kind() -> None:
    (release,) = (item["spec"] for item in OBJECTS if item.get("kind") == "HelmRelease")
    chart = ROOT / release["chart"]["spec"]["chart"]
    values = coalesced(release["values"], yaml.safe_load((chart / "values.yaml").read_text()))
    jsonschema.Draft202012Validator(json.loads((chart / "values.schema.json").read_text())).validate(values)
    (checks,) = (item["healthChecks"] for item in OBJECTS if "healthChecks" in item)
    assert [(check["apiVersion"], check["kind"]) for check in checks] == [(f"{API_GROUP}/{API_VERSION}", KIND)]


def test_what_the_operator_has_not_seen_yet_is_progressing() -> None:
    """A new job, one without any status, and an edit of a finished one."""
    (version,) = crd.crd()["spec"]["versions"]
    default = version["schema"]["openAPIV3Schema"]["properties"]["status"]["default"]
    done = written(job(), around(job(), ended(job(), 0, message=summary())))
    for generation, status in ((1, default), (1, None), (2, done)):
        assert health(generation, status) == ("Progressing", "The operator has not looked at it yet.")
