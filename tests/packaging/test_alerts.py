"""Each alert fires when it should, is silent when it should be, and leads to a paragraph that says what to do."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.generate import CHART, ROOT

from crawljob_operator.telemetry.stats import PHASES, RESTART_REASONS

RULES = ROOT / CHART / "files/rules.yaml"
TESTS = Path(__file__).with_name("alerts.yaml")
RUNBOOKS = ROOT / "docs/runbooks.md"
GROUPS: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
ALERTS: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
SEVERITIES = {"warning", "critical"}


def run(promtool: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([promtool, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_promtool_accepts_the_rules(promtool: Path) -> None:
    done = run(promtool, "check", "rules", RULES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


def test_the_alerts_fire_and_do_not_fire(promtool: Path) -> None:
    done = run(promtool, "test", "rules", TESTS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", [rule["alert"] for rule in ALERTS])
@pytest.mark.parametrize("broken", ["vector(1)", "vector(1) > 1"], ids=["always fires", "never fires"])
def test_each_alert_is_tested_both_ways(promtool: Path, alert: str, broken: str, tmp_path: Path) -> None:
    """An alert that always fires fails a test of silence, and one that never does fails the other."""
    cases = [case for test in yaml.safe_load(TESTS.read_text())["tests"] for case in test["alert_rule_test"]]
    silent = [not case["exp_alerts"] for case in cases if case["alertname"] == alert]
    assert set(silent) == {True, False}
    groups = [
        {
            **group,
            "rules": [{**rule, "expr": broken if rule["alert"] == alert else rule["expr"]} for rule in group["rules"]],
        }
        for group in GROUPS
    ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    tests = {**yaml.safe_load(TESTS.read_text()), "rule_files": ["rules.yaml"]}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tests))
    done = run(promtool, "test", "rules", tmp_path / "tests.yaml")
    assert done.returncode == 1, "the tests do not notice"
    assert f"alertname: {alert}" in done.stdout + done.stderr


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in SEVERITIES
    annotations = rule["annotations"]
    assert set(annotations) == {"summary", "description", "runbook"}
    assert all(annotations[key].endswith(".") for key in ("summary", "description"))
    assert annotations["runbook"] == f"docs/runbooks.md#{rule['alert'].lower()}"


def test_the_runbooks_are_those_of_the_alerts_in_their_order() -> None:
    sections = re.split(r"^## ", RUNBOOKS.read_text(), flags=re.MULTILINE)[1:]
    assert [section.splitlines()[0] for section in sections] == [rule["alert"] for rule in ALERTS]
    for section in sections:
        assert re.findall(r"^\*\*(.+?)\*\*", section, flags=re.MULTILINE) == ["Meaning.", "Look.", "Do."]
        assert "kubectl " in section


def test_the_reasons_and_phases_in_the_rules_are_the_operators() -> None:
    text = RULES.read_text()
    (spared,) = re.findall(r'reason!~"([^"]+)"', text)
    assert {reason for reason in RESTART_REASONS if not re.fullmatch(spared, reason)} == {
        *("Error", "Other", "DatabaseFailed", "FrontierOwned", "FrontierUnusable", "InvalidConfiguration"),
        *("ListenerFailed", "OutOfDisk", "UnusableFrontier", "ContainerCannotRun", "DeadlineExceeded", "Evicted"),
        *("OOMKilled", "PodConflict", "StartError"),
    }
    (phases,) = re.findall(r'phase=~"([^"]+)"', text)
    assert set(phases.split("|")) < set(PHASES)
