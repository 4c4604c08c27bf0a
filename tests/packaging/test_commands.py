"""Every command in the documentation exists, and what needs no cluster is run.

The rule for pages is in tests/support/commands.py.
"""

from __future__ import annotations

import functools
import http.server
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.support import commands
from tests.support.commands import Block
from tests.support.toolchain import binaries
from tests.support.toolchain.cache import Unavailable
from tools.generate import ROOT

BLOCKS = [block for page in commands.PAGES for block in commands.blocks(page)]
LOCAL = sorted({block.page for block in BLOCKS if block.kind == "local"})
SITE = "https://docs.example.org/"


@pytest.fixture(scope="session")
def helps(helm: Path) -> dict[str, Path]:
    """Who is asked for its help."""
    try:
        return {"helm": helm, **binaries.ensure("kubectl")}
    except Unavailable as error:
        pytest.skip(str(error))


def test_pages_with_commands_are_found() -> None:
    assert {"README.md", "docs/getting-started.md"} <= {str(block.page.relative_to(ROOT)) for block in BLOCKS}
    assert LOCAL
    text = "\n".join(page.read_text() for page in commands.PAGES)
    fences = set(re.findall(r"^```(\w+)", text, re.MULTILINE))
    assert not fences & {"bash", "shell", "console"}, "commands stand in blocks of sh, where the tests see them"


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_command_exists(block: Block, helps: dict[str, Path]) -> None:
    assert block.kind in commands.KINDS, f"say one of {commands.KINDS} after sh"
    found = list(block.commands())
    assert found, "a block of commands has commands"
    assert [problem for words in found for problem in commands.problems(words, helps)] == []


@pytest.mark.parametrize("block", [block for block in BLOCKS if "helm upgrade" in block.text], ids=str)
def test_upgrades_are_told_to_take_the_new_charts_values(block: Block) -> None:
    """With ``--reuse-values`` alone Helm renders the new chart without them, and refuses what is missing."""
    for words in block.commands():
        assert "--reuse-values" not in words


def test_commands_in_the_samples_comments_exist(helps: dict[str, Path]) -> None:
    samples = sorted((ROOT / "manifests" / "samples").glob("*.yaml"))
    lines = [line for sample in samples for line in re.findall(r"^#   (.+)$", sample.read_text(), re.MULTILINE)]
    assert lines
    found = Block(samples[0], 1, "", "\n".join(lines)).commands()
    assert [problem for words in found for problem in commands.problems(words, helps)] == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("make nothing", "no make target nothing"),
        (".venv/bin/durable-crawler crawl", "durable-crawler has no command crawl"),
        ("durable-crawler run --sed https://docs.example.org/", "durable-crawler run has no flag --sed"),
        ("durable-crawler run -f manifests/samples/none.yaml", "there is no manifests/samples/none.yaml"),
        ("kubectl aply -f manifests/crd.yaml", "kubectl has no command aply"),
        ("kubectl get crawljobs --wach", "kubectl get has no flag --wach"),
        ("kubectl crawl reprot first", "kubectl crawl has no command reprot"),
        ("kubectl crawl report first --ouput x", "kubectl crawl report has no flag --ouput"),
        ("kubectl get pods | grepp x", "grepp is not among the programs that commands.py knows"),
        ("helm instal x charts/durable-crawler", "helm has no command instal"),
        ("helm install x charts/durable --wait", "there is no charts/durable"),
        (
            "helm install x charts/durable-crawler --set image.repo=x,crds.keep=true",
            "the chart has no value image.repo",
        ),
    ],
)
def test_what_does_not_exist_is_named(line: str, problem: str, helps: dict[str, Path]) -> None:
    block = Block(ROOT / "README.md", 1, "", f"# a comment\n{line}\n")
    assert [found for words in block.commands() for found in commands.problems(words, helps)] == [problem]


def test_commands_are_read_as_a_shell_reads_them() -> None:
    text = "A=1 make \\\n  test # not this\nkubectl get pods -o json | jq '.items[] | .kind' > kinds && make lint\n"
    assert list(Block(ROOT / "README.md", 1, "", text).commands()) == [
        ["make", "test"],
        ["kubectl", "get", "pods", "-o", "json"],
        ["jq", ".items[] | .kind", "kinds"],
        ["make", "lint"],
    ]


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A site of three pages on loopback."""
    folder = tmp_path_factory.mktemp("site")
    for name, link in (("index.html", "one.html"), ("one.html", "two.html"), ("two.html", "/")):
        (folder / name).write_text(f"<title>{name}</title><a href={link}>")
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Says nothing of what it serves."""

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.mark.parametrize("page", LOCAL, ids=lambda page: page.name)
def test_commands_that_need_no_cluster_work(page: Path, site: str, tmp_path: Path) -> None:
    """From top to bottom, in a copy of the samples whose site is on loopback."""
    samples = tmp_path / "manifests" / "samples"
    samples.mkdir(parents=True)
    for sample in (ROOT / "manifests" / "samples").glob("*.yaml"):
        document = yaml.safe_load(sample.read_text().replace(SITE, site))
        document["spec"].setdefault("network", {})["allowCIDRs"] = ["127.0.0.0/8"]
        (samples / sample.name).write_text(yaml.safe_dump(document))
    program = tmp_path / ".venv" / "bin" / "durable-crawler"
    program.parent.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    run = f'if [ "$1" = run ]; then set -- "$@" --metrics {port}; fi'  # 9090 may be somebody else's
    program.write_text(f'#!/bin/sh\n{run}\nexec {sys.executable} -m durable_crawler "$@"\n')
    program.chmod(0o755)
    seed, allowed = f"--seed {SITE}", f"--seed {site} --allow-cidr 127.0.0.0/8"
    texts = [block.text.replace(seed, allowed) for block in commands.blocks(page) if block.kind == "local"]
    assert not [text for text in texts if "https://" in text], "nothing leaves the machine"
    commands.run(texts, tmp_path, os.environ, 100)
    assert list(tmp_path.glob("*.db")), "a crawl has left its result"
