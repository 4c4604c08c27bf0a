"""What `make kind` decides, and what it asks of an engine: programs stand in that only write down their calls."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest
from tests.support.cluster import cluster, images
from tests.support.toolchain import cache
from tests.support.toolchain.cache import Failed, Unavailable
from tools.kind import __main__ as command
from tools.kind import choice, machine, parts

REASONS = ("There is no Docker engine, and the cluster's own engine needs Linux.", "")


@pytest.mark.parametrize("why", REASONS)
def test_the_machines_own_engine_comes_first(why: str) -> None:
    assert choice.engine(docker_answers=True, why_no_box=why) == "docker"


def test_without_one_the_harness_makes_one() -> None:
    assert choice.engine(docker_answers=False, why_no_box="") == "box"


def test_where_neither_works_one_sentence_says_why_and_what_to_do() -> None:
    with pytest.raises(Unavailable) as refused:
        choice.engine(docker_answers=False, why_no_box=REASONS[0])
    assert str(refused.value) == f"{REASONS[0][:-1]}: start Docker, or run this on Linux as root."


def test_programs_on_the_path_are_taken_and_others_built() -> None:
    asked: list[str] = []

    def build(*names: str) -> dict[str, Path]:
        asked.extend(names)
        return {name: Path("/built", name) for name in names}

    def find(*present: str) -> dict[str, Path]:
        return choice.programs(lambda name: f"/usr/bin/{name}" if name in present else None, build)

    assert find("kind", "kubectl", "helm") == {}
    assert asked == [], "nothing is built for nothing"
    assert find("kubectl") == {"kind": Path("/built/kind"), "helm": Path("/built/helm")}


def test_what_cannot_be_built_is_to_be_installed() -> None:
    def no_go(*_: str) -> dict[str, Path]:
        raise Unavailable("There is no Go.")

    with pytest.raises(Unavailable, match=r"^Install kind and helm, which are not on PATH .*There is no Go"):
        choice.programs(lambda name: name if name == "kubectl" else None, no_go)

    def broken(*_: str) -> dict[str, Path]:
        raise Failed("Go could not build kind.")

    with pytest.raises(Failed, match=r"^Go could not build kind\.$"):
        choice.programs(lambda _: None, broken)


FAKE = """#!/bin/sh
echo "$(basename "$0") $*" >> {folder}/calls
case "$(basename "$0") $1 $2" in
  "kind get clusters") cat {folder}/clusters ;;
  "kind create cluster") echo durable-crawler >> {folder}/clusters ;;
  "kind delete cluster") echo other > {folder}/clusters ;;
  "docker version --format") echo 29.0.0 ;;
  "docker image inspect") echo sha256:0123456789abcdef ;;
  "docker save --output") echo an image > "$3" ;;
esac
"""


class Machine:
    """A machine with an engine, and what was called on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "clusters").write_text("other\n")
        (folder / "bin").mkdir()
        for name in ("docker", "kind", "kubectl", "helm"):
            (folder / "bin" / name).write_text(FAKE.format(folder=folder))
            (folder / "bin" / name).chmod(0o755)

    def calls(self) -> list[str]:
        """Since the last time."""
        log = self.folder / "calls"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "home" / "kubeconfig"))
    monkeypatch.delenv("CRAWLER_IMAGE", raising=False)
    monkeypatch.setattr(images, "wheels", lambda _: None)
    return made


def test_the_first_time_a_cluster_is_made_and_the_next_it_is_upgraded(
    engine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["up"]) == 0
    first = engine.calls()
    (create,) = (call for call in first if call.startswith("kind create"))
    assert f"--name durable-crawler --config {machine.CONFIG} --kubeconfig {machine.kubeconfig()}" in create
    (upgrade,) = (call for call in first if call.startswith("helm"))
    assert upgrade.startswith("helm upgrade --install durable-crawler ")
    assert "image.repository=durable-crawler,image.tag=kind-0123456789ab" in upgrade, "another image, another tag"
    order = [" ".join(call.split()[:2]) for call in first]
    steps = ("kind create", "docker build", "docker save", "kind load", "helm upgrade")
    assert sorted(steps, key=order.index) == list(steps)

    printed = capsys.readouterr().out
    assert f"export KUBECONFIG={machine.kubeconfig()}\n" in printed
    assert all(what in printed for _, what in parts.GUIDE)
    assert "export PATH" not in printed, "every program was there"

    assert command.main(["up"]) == 0
    second = engine.calls()
    assert not [call for call in second if call.startswith("kind create")]
    assert [" ".join(call.split()[:2]) for call in second if call.startswith("helm")] == ["helm upgrade"]


def test_it_removes_exactly_its_own_and_never_touches_the_persons_kubeconfig(
    engine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["up"]) == 0
    engine.calls()
    capsys.readouterr()
    assert command.main(["down"]) == 0
    assert capsys.readouterr().out == "The kind cluster durable-crawler is removed.\n"
    (delete,) = (call for call in engine.calls() if call.startswith("kind delete"))
    assert delete == f"kind delete cluster --name durable-crawler --kubeconfig {machine.kubeconfig()}"
    assert not machine.folder().exists()
    assert command.main(["down"]) == 0
    assert capsys.readouterr().out == "There is no kind cluster durable-crawler.\n"
    assert not [call for call in engine.calls() if call.startswith("kind delete")]
    assert not (engine.folder / "home").exists()


def test_a_failure_is_one_sentence_that_says_how_to_go_on(engine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    (engine.folder / "bin" / "helm").write_text("#!/bin/sh\necho 'Error: no such chart' >&2\nexit 1\n")
    assert command.main(["up"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert "no such chart" in said
    assert "`make kind-down` removes everything" in said


def test_without_an_engine_there_is_nothing_to_remove(engine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    (engine.folder / "bin" / "docker").write_text("#!/bin/sh\nexit 1\n")
    assert command.main(["down"]) == 0
    assert "there is nothing to remove" in capsys.readouterr().out
    assert engine.calls() == []


def test_a_killed_harness_leaves_the_lock_to_its_box_until_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the next one empties the folder that the last processes of the box still write to."""
    monkeypatch.setattr(cache, "root", lambda: tmp_path)
    box, ours = os.pipe()
    with cache.lock("box") as held:
        child = subprocess.Popen(["cat"], stdin=box, pass_fds=(held,))
    os.close(box)
    with (tmp_path / "locks" / "box").open() as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(ours)
        assert child.wait(10) == 0
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_folders_that_a_killed_cluster_left_are_taken(tmp_path: Path) -> None:
    plan = cluster.Plan("box", tmp_path, tmp_path)
    (plan.host_dir / "volumes").mkdir(parents=True)
    cluster.share(plan)
    assert (plan.host_dir / "collector").stat().st_mode & 0o777 == 0o777
