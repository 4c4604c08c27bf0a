"""Where results go: files that are whole or not there, what is no file, and the one file that is never written to."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.website import Website, page
from tests.unit.test_results_stored import run

from crawljob.wholefile import whole_file

PROGRAM = [sys.executable, "-m", "durable_crawler"]
READERS = [["report"], ["export", "pages"], ["status"], ["explain", "http://a.example/"]]


@pytest.fixture
async def db(tmp_path: Path) -> Path:
    path = tmp_path / "frontier.db"
    async with Website({"/": page()}) as site:
        await run(path, site.url)
    return path


def test_what_is_no_file_stays_what_it_is(tmp_path: Path) -> None:
    """/dev/stdout, /dev/null and the like: who may rename over them would remove them from the machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        with whole_file(pipe) as file:
            file.write(b"result")
        assert reader.communicate(timeout=30)[0] == b"result"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_of_a_link_the_target_is_replaced(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("before")
    link.symlink_to(target)
    with whole_file(link) as file:
        file.write(b"after")
        assert target.read_text() == "before"
    assert (link.is_symlink(), target.read_text()) == (True, "after")
    assert sorted(tmp_path.iterdir()) == [link, target]


@pytest.mark.parametrize("letter", ["n", "ü"])
def test_a_name_may_be_as_long_as_the_file_system_takes(tmp_path: Path, letter: str) -> None:
    path = tmp_path / (letter * (255 // len(letter.encode())))
    with whole_file(path) as file:
        file.write(b"result")
    assert path.read_bytes() == b"result"


def test_half_a_file_is_none(tmp_path: Path) -> None:
    def fails() -> None:
        with whole_file(tmp_path / "result") as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("more", ["", "-wal", "-shm", ".lock"])
@pytest.mark.parametrize("command", [["report"], ["export", "pages"]], ids=" ".join)
def test_the_frontier_is_not_written_over(db: Path, tmp_path: Path, command: list[str], more: str) -> None:
    before = db.read_bytes()
    link = tmp_path / "link"
    link.symlink_to(f"{db.name}{more}")
    for output in (f"{db}{more}", str(link)):
        done = subprocess.run([*PROGRAM, *command, "--db", db, "--output", output], capture_output=True, check=False)
        assert done.returncode == 2
        assert b"belongs to the frontier; name another file" in done.stderr
    assert db.read_bytes() == before


@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_a_standard_output_that_takes_nothing_is_one_sentence(db: Path, command: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*PROGRAM, *command, "--db", db], stdout=full, stderr=subprocess.PIPE, check=False)
    expected = b"error: standard output cannot be written (No space left on device)\n"
    assert (done.returncode, done.stderr) == (1, expected)
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *PROGRAM, *command, "--db", str(db)]
    done = subprocess.run(closed, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (1, b"error: standard output is closed; open it, or name a file\n")


def test_an_output_without_a_name_is_one_sentence(db: Path) -> None:
    done = subprocess.run([*PROGRAM, "report", "--db", db, "--output", ""], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (1, b"error: .: cannot be written (Is a directory); nothing was changed\n")


ENDED = """
import os, signal, sys
from pathlib import Path
from durable_crawler.cli.output import written

def parts():
    yield "half"
    os.kill(os.getpid(), int(sys.argv[1]))
    while True:
        yield ""

written(parts(), Path("result"))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_who_is_ended_leaves_no_half_file(tmp_path: Path, number: signal.Signals) -> None:
    program = ["env", f"--default-signal={number}", sys.executable, "-c", ENDED, str(int(number))]
    done = subprocess.run(program, cwd=tmp_path, timeout=60, check=False)
    assert done.returncode == 128 + number
    assert not list(tmp_path.iterdir())
