"""An operator that cannot even begin says so in one sentence, without a traceback."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from crawljob_operator.cli import main

NOBODY_LISTENS = """\
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
users: [{name: a, user: {}}]
current-context: a
"""


def started(kubeconfig: Path, *flags: str) -> Result:
    """What the operator says when it is started with this kubeconfig."""
    flags = flags or ("--listen", "127.0.0.1:0")
    return CliRunner().invoke(main, ["--crawler-image", "crawler:1", *flags], env={"KUBECONFIG": str(kubeconfig)})


@pytest.mark.parametrize(
    "content", [None, "", "{{{", "kind: Config\n", NOBODY_LISTENS.replace("current-context: a", "current-context: b")]
)
def test_a_kubeconfig_that_names_no_cluster(tmp_path: Path, content: str | None) -> None:
    kubeconfig = tmp_path / "config"
    if content is not None:
        kubeconfig.write_text(content)
    told = started(kubeconfig)
    assert told.exit_code == 2
    assert f"KUBECONFIG: {kubeconfig} names no cluster to work with" in told.output


def test_an_address_that_is_taken(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(NOBODY_LISTENS)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        told = started(kubeconfig, "--listen", address)
    assert told.exit_code == 1
    assert f"--listen: {address} cannot be listened on (Address already in use)" in told.output
