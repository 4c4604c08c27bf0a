"""A frontier with rows that no crawler writes: whoever reads it says so in one sentence, and changes nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.crawler import crawl
from tests.support.website import Website, page
from tests.unit.test_results_stored import run

from durable_crawler.cli import cli

DAMAGE = {
    "text that is none": "UPDATE pages SET url = CAST(x'687474703a2f2fff1b5b32' AS TEXT) WHERE found_on IS NOT NULL",
    "no JSON": "UPDATE results SET hops = '[broken'",
    "another kind": "UPDATE results SET hops = '[1]'",
    "a row that lacks": "DELETE FROM pages WHERE url LIKE '%/a'",
    "a time that is none": "UPDATE results SET finished_ms = 9223372036854775807",
}
READERS = [["report", "--format", "json"], ["export", "pages"], ["export", "links"]]
UNTOUCHED = {
    ("no JSON", "links"),
    ("another kind", "links"),
    ("a time that is none", "links"),
    ("a time that is none", "pages"),
    ("a row that lacks", "pages"),
}
"""What a reader has no need to read."""


@pytest.fixture
async def db(tmp_path: Path) -> Path:
    path = tmp_path / "frontier.db"
    async with Website({"/": page("/a"), "/a": page("/")}) as site:
        await run(path, site.url)
    return path


@pytest.mark.parametrize("command", READERS, ids=" ".join)
@pytest.mark.parametrize("damage", DAMAGE)
def test_rows_that_cannot_be_are_one_sentence(db: Path, damage: str, command: list[str]) -> None:
    connection = sqlite3.connect(db)
    connection.execute("PRAGMA foreign_keys = OFF")
    for (trigger,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {trigger}")  # a disk that fails asks none
    with connection:
        assert connection.execute(DAMAGE[damage]).rowcount
    connection.close()
    before = db.read_bytes()
    done = CliRunner().invoke(cli, [*command, "--db", str(db)])
    if (damage, command[1]) in UNTOUCHED:
        assert done.exit_code == 0
        return
    (line,) = done.stderr.splitlines()
    assert done.exit_code == 15
    assert line.startswith(f"error: {db}: the frontier is damaged (")
    assert line.isprintable()
    assert db.read_bytes() == before


async def test_links_that_are_damaged_end_the_next_crawl_in_one_sentence_too(db: Path) -> None:
    """It counts on from the links that were stored last; a restart would find the same for ever."""
    connection = sqlite3.connect(db)
    with connection:
        assert connection.execute("UPDATE edges SET packed = x'00ff'").rowcount
    connection.close()
    code, run_ = await crawl("--seed", "http://127.0.0.1:1/", "--db", db, cwd=db.parent)
    assert code == 15
    assert run_.summary["reason"] == "FrontierUnusable"
    assert run_.summary["message"].startswith(f"{db}: the frontier is damaged (")
    assert run_.errors == f"error: {run_.summary['message']}\n"
