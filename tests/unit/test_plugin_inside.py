"""What runs in the Job that reads a volume: a copy that can be opened, of a volume that stays as it is."""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crawljob_operator.plugin import inside
from crawljob_operator.plugin.errors import PluginError

PROGRAM = [sys.executable, "-m", "crawljob_operator.plugin.cli", "inside"]

CRASH = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode=WAL")
db.execute("CREATE TABLE page (url TEXT)")
db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
db.execute("INSERT INTO page VALUES ('only in the WAL')")
os._exit(9)
"""


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A folder with the database of a process that was killed."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "frontier.db.lock").touch()
    subprocess.run([sys.executable, "-c", CRASH, folder / "frontier.db"], check=False, timeout=30)
    assert (folder / "frontier.db-wal").stat().st_size > 0
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


def test_what_a_killed_crawl_has_committed_is_in_the_copy(volume: Path, tmp_path: Path) -> None:
    before = contents(volume)
    target = tmp_path / "scratch.db"
    inside.copy(volume / "frontier.db", target)
    assert contents(volume) == before, "the volume stays as it is"
    assert not (tmp_path / "scratch.db-shm").exists(), "it is made anew by whoever opens the copy"
    connection = sqlite3.connect(f"file:{target}?mode=ro", uri=True)
    assert connection.execute("SELECT url FROM page").fetchall() == [("only in the WAL",)]
    connection.close()


def test_the_copy_of_a_database_that_was_closed_in_order(volume: Path, tmp_path: Path) -> None:
    sqlite3.connect(volume / "frontier.db").execute("PRAGMA wal_checkpoint(TRUNCATE)").connection.close()
    (volume / "frontier.db-wal").unlink(missing_ok=True)
    inside.copy(volume / "frontier.db", tmp_path / "scratch.db")
    assert not (tmp_path / "scratch.db-wal").exists()


def test_a_database_in_use_is_not_copied(volume: Path, tmp_path: Path) -> None:
    with (volume / "frontier.db.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(PluginError, match="a crawl has it open again"):
            inside.copy(volume / "frontier.db", tmp_path / "scratch.db")
    assert not (tmp_path / "scratch.db").exists()


@pytest.mark.parametrize("missing", ["the database", "room"])
def test_what_cannot_be_copied_is_one_line_for_the_kubelet(volume: Path, tmp_path: Path, missing: str) -> None:
    target = tmp_path / "scratch.db"
    if missing == "the database":
        (volume / "frontier.db").unlink()
    else:
        target = Path("/dev/full")
    done = subprocess.run(
        [*PROGRAM, "copy", volume / "frontier.db", target], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert ("nothing was crawled yet" if missing == "the database" else "No space left on device") in line


def test_it_stays_while_somebody_reads() -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    inside.hold(30, others=lambda: 10 <= now < 200, clock=lambda: now, sleep=sleep)
    assert 229 <= now <= 231


def test_it_ends_at_once_when_it_is_told_to() -> None:
    """As the first process of its container it would otherwise get no SIGTERM."""
    code = (
        "from crawljob_operator.plugin import inside; inside.end_on_sigterm(); print('up', flush=True); inside.hold(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=dict(os.environ))
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    assert time.monotonic() - begun < 5
    process.stdout.close()


def test_it_loads_no_kubernetes_client() -> None:
    """A second of a Pod's start, and memory that a report could use."""
    loaded = "import sys, crawljob_operator.plugin.cli, crawljob_operator.plugin.inside; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", loaded], check=True, timeout=60, capture_output=True, text=True)
    assert not {"kubernetes", "aiohttp", "kopf"} & set(done.stdout.split())
