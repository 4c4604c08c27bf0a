"""What docs/security.md says that the operator may do is what the chart lets it do."""

from __future__ import annotations

import re

import pytest
import yaml
from tools.generate import CHART, ROOT

PAGE = ROOT / "docs/security.md"
NOUNS = {
    "crawljobs": "CrawlJobs",
    "crawljobs/status": "status",
    "pods": "Pods",
    "jobs": "Jobs",
    "persistentvolumeclaims": "volumes",
    "configmaps": "ConfigMaps",
    "networkpolicies": "NetworkPolicies",
    "events": "Events",
    "customresourcedefinitions": "definition",
}
VERBS = {"create": r"make|write", "delete": r"delete", "patch": r"write|enlarge"}
RIGHTS = [
    (resource, verb)
    for rule in yaml.safe_load((ROOT / CHART / "files/rules-cluster.yaml").read_text())
    for resource in rule["resources"]
    if resource != "crawljobs/finalizers"  # no right of its own: it lets Pods and volumes name their CrawlJob as owner
    for verb in rule["verbs"]
]


@pytest.mark.parametrize(("resource", "verb"), RIGHTS)
def test_each_right_of_the_operator_is_named(resource: str, verb: str) -> None:
    noun = NOUNS[resource]
    (cell,) = re.findall(r"^\| operator \| ([^|]+) \|", PAGE.read_text(), re.MULTILINE)
    clauses = re.split(r";|,(?= write)", cell.partition(" ([")[0])
    named = [clause for clause in clauses if noun in clause]
    assert named, f"nothing is said of {resource}"
    assert verb not in VERBS or any(re.search(rf"\b({VERBS[verb]})\b", clause) for clause in named), named
