"""The commands in the documentation: found in the pages, checked without running them, and run in a copy.

The rule for whoever writes a page. A fenced block of `sh` holds one command to a line, `\\` continues it, and a word
after `sh` (which no reader sees) says what the tests do with the block:

- ```` ```sh ````: nothing is run, but each command must exist: its program, subcommand and flags, the files that it
  reads, a make target, a chart's value.
- ```` ```sh local ````: that, and the packaging tier runs it from top to bottom, in a copy of the samples. The page's
  https://docs.example.org/ is a small site on loopback there.
- ```` ```sh cluster ````: that, and the cluster tier runs it after `make kind`, with the image under test instead of
  registry.example.org/durable-crawler, and the demonstration's site instead of https://docs.example.org/.

Blocks of one kind in one page are run in their order, in one shell: a variable that is exported stays so. What a
reader must replace is in capitals or at example.org.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, takewhile
from pathlib import Path

import click
import yaml
from tools.generate import CHART, ROOT

from crawljob_operator.plugin.cli import plugin
from durable_crawler.cli import cli

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
KINDS = ("", "local", "cluster")
# Programs that are not ours and that no test tier has: nothing of them is known but their name.
ELSEWHERE = frozenset({"cat", "cp", "curl", "docker", "export", "flux", "jq", "mkdir", "promtool", "sqlite3"})
_FENCE = re.compile(r"^```sh *([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ENDS = {"|", "&&", "||", ";", ">", "<", ">>"}


@dataclass(frozen=True)
class Block:
    """One fenced block: where it is, what is done with it, and its text."""

    page: Path
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def commands(self) -> Iterator[list[str]]:
        """Its commands as words, those behind a pipe too; comments and variables before a command are left out."""
        for line in self.text.replace("\\\n", " ").splitlines():
            words = shlex.shlex(line, posix=True, punctuation_chars=True)
            words.whitespace_split = True
            command: list[str] = []
            for word in [*words, ";"]:
                if word in _ENDS:
                    if command and word not in {">", "<", ">>"}:
                        yield command
                        command = []
                elif command or not re.match(r"[A-Z_]+=", word):
                    command.append(word)


def blocks(page: Path) -> list[Block]:
    """Every block of a page."""
    text = page.read_text()
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found[1].strip(), found[2])
        for found in _FENCE.finditer(text)
    ]


def problems(words: Sequence[str], helps: Mapping[str, Path]) -> list[str]:
    """What is wrong with one command; ``helps`` are the programs of other projects that can be asked for their help."""
    program, *rest = words
    name = Path(program).name
    if name == "make":
        return [f"no make target {word}" for word in rest if "=" not in word and word not in _targets()]
    if name == "durable-crawler":
        return [*_of(cli, name, rest), *_missing_files(rest)]
    if name == "kubectl" and rest[:1] == ["crawl"]:
        return _of(plugin, "kubectl crawl", rest[1:])
    if name in ("kubectl", "helm"):
        return (
            [*_asked(name, helps[name], rest), *_missing_files(rest), *_unknown_values(rest)] if name in helps else []
        )
    return [] if name in ELSEWHERE else [f"{name} is not among the programs that commands.py knows"]


def run(block_texts: Sequence[str], folder: Path, environment: Mapping[str, str], limit_seconds: float) -> str:
    """Run blocks from top to bottom in one shell; what they printed. ``AssertionError`` where a command fails."""
    done = subprocess.run(
        ["sh", "-eux"],
        input="\n".join(block_texts),
        cwd=folder,
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=limit_seconds,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def _of(program: click.Group, name: str, words: Sequence[str]) -> list[str]:
    """Unknown subcommands and flags of a program of ours."""
    command: click.Command = program
    if words and not words[0].startswith("-"):
        if words[0] not in program.commands:
            return [f"{name} has no command {words[0]}"]
        command = program.commands[words[0]]
    known = {"-h", "--help"} | {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
    return [f"{name} {command.name} has no flag {flag}" for flag in _flags(words) if flag not in known]


def _asked(name: str, program: Path, words: Sequence[str]) -> list[str]:
    """Unknown subcommands and flags of kubectl and helm, by their own help."""
    everywhere = _help(program, "options") if name == "kubectl" else ""
    subcommand = list(takewhile(lambda word: not word.startswith("-"), words))[:3]
    while subcommand:
        shown = _help(program, *subcommand, "--help")
        if re.search(rf"^ *{name} {' '.join(subcommand)}\b", shown, re.MULTILINE):
            known = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", shown + everywhere))
            return [f"{name} {' '.join(subcommand)} has no flag {flag}" for flag in _flags(words) if flag not in known]
        subcommand.pop()
    return [f"{name} has no command {' '.join(words[:1])}"]


@cache
def _help(program: Path, *words: str) -> str:
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=30, check=False).stdout


def _flags(words: Sequence[str]) -> list[str]:
    """The flags of a command, up to a `--`, without their values."""
    end = words.index("--") if "--" in words else len(words)
    return [word.partition("=")[0] for word in words[:end] if re.match(r"--?[a-zA-Z]", word)]


def _missing_files(words: Sequence[str]) -> list[str]:
    """Files and folders of the repository that a command reads and that are not there."""
    named = [word for word in words if re.match(r"(charts|docs|manifests|tools)/", word)]
    return [f"there is no {word}" for word in named if not (ROOT / word).exists()]


def _unknown_values(words: Sequence[str]) -> list[str]:
    """Values that a command sets and the chart does not have."""
    settings = [value for flag, value in pairwise(words) if flag in ("--set", "--set-json", "--set-string")]
    paths = [path for setting in settings for path in re.findall(r"(?:^|,)([A-Za-z][\w.]*)=", setting)]
    return [f"the chart has no value {path}" for path in paths if not _is_value(path)]


def _is_value(path: str) -> bool:
    node = yaml.safe_load((ROOT / CHART / "values.yaml").read_text())
    for key in path.split("."):
        if node == {}:  # labels and the like: any key
            return True
        if not isinstance(node, dict) or key not in node:
            return False
        node = node[key]
    return True


@cache
def _targets() -> frozenset[str]:
    return frozenset(re.findall(r"^\.PHONY: (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
