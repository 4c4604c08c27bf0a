"""The README's commands, files and limits are those of the project."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.support.commands import PAGES
from tools.generate import CHART, ROOT

from crawljob.exitcodes import ExitCode

README = (ROOT / "README.md").read_text()


def _help(*command: str) -> str:
    program = [sys.executable, "-m", "durable_crawler", *command, "--help"]
    return subprocess.run(program, capture_output=True, text=True, timeout=60, check=True).stdout


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^\.PHONY: (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE)) <= targets


@pytest.mark.parametrize("path", sorted(set(re.findall(r"(?:charts|manifests|docs|tests)/[\w./-]*\w", README))))
def test_every_file_that_is_named_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_inside_the_project_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)  # code has brackets of its own
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_table_of_commands_is_the_programs() -> None:
    shown = _help()
    commands = set(re.findall(r"^  ([a-z]+)  ", shown[shown.index("Commands:") :], re.MULTILINE))
    table = README[README.index("| command |") : README.index("is the reference of the flags")]
    rows = "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    assert {words.split()[0] for words in re.findall(r"`([^`]+)`", rows)} == commands


def test_every_flag_that_is_named_exists() -> None:
    shown = _help("run")
    (row,) = (line for line in README.splitlines() if line.startswith("| `run`"))
    for flag in re.findall(r"--[a-z-]+", row):
        assert f" {flag} " in shown


def test_every_exit_code_is_told() -> None:
    start = README.index("The exit code says")
    sentence = README[start : README.index("\n\n", start)]
    assert {int(number) for number in re.findall(r"\d+", sentence)} == {int(code) for code in ExitCode}


def test_every_setting_of_the_chart_that_is_named_exists() -> None:
    values = yaml.safe_load((ROOT / CHART / "values.yaml").read_text())
    for path in re.findall(r"--set '?([\w.]+)=", README):
        node = values
        for key in path.split("."):
            assert key in node
            node = node[key]
