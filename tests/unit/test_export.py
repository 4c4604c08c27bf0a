"""Rows for other programs: all three forms say what the database has."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from click.testing import CliRunner
from tests.support.crawler import rows
from tests.support.website import Website, page, redirect
from tests.unit.test_results_stored import html, run

from durable_crawler.cli import cli
from durable_crawler.cli.export import FORMATS
from durable_crawler.cli.export import TABLES as NAMES
from durable_crawler.results import export
from durable_crawler.results.export import TABLES

RUN = "=@\N{FULLWIDTH EQUALS SIGN}"
"""What a spreadsheet takes for the beginning of a formula, of what the site has."""

SITE = {
    "/": html(
        '<title>=1+1</title><a href=/a#x rel=Help>To A,\n"quoted"</a><a href=/gone></a><a href=/to-a>@SUM(1)</a>'
        "<a href=/a>&#xFF1D;1</a>"
    ),
    "/a": page("/"),
    "/to-a": redirect("/a", 301),
}


@pytest.fixture
async def db(tmp_path: Path) -> Path:
    path = tmp_path / "frontier.db"
    async with Website(SITE) as site:
        await run(path, site.url)
    return path


def exported(*arguments: Any) -> bytes:
    done = CliRunner().invoke(cli, ["export", *map(str, arguments)])
    assert done.exit_code == 0, done.stderr
    return done.stdout_bytes


def objects(db: Path, table: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in exported(table, "--db", db).splitlines()]


def test_pages_are_the_databases(db: Path) -> None:
    stored = rows(
        db,
        "SELECT url, state, outcome, status, depth, bytes, coalesce(lower(hex(content_hash)), ''), finished_ms, title "
        "FROM pages LEFT JOIN results ON page_id = pages.id ORDER BY pages.id",
    )
    names = ("url", "state", "outcome", "status", "depth", "bytes", "content_hash", "finished", "title")
    found = objects(db, "pages")
    shown = [tuple(row[name] for name in names) for row in found]
    assert [tuple("" if value is None else value for value in row) for row in shown] == stored
    (moved,) = [row for row in found if row["url"].endswith("/to-a")]
    assert moved["class"] == "redirected"
    assert moved["redirects"] == [f"301 {moved['final_url']}"]


def test_links_are_those_of_the_pages(db: Path) -> None:
    found = [
        (row["target"].rpartition("/")[2], row["fragment"], row["text"], row["rel"])
        for row in objects(db, "links")
        if row["source"].count("/") == 3 and row["source"].endswith("/")
    ]
    assert found == [
        ("a", "x", 'To A, "quoted"', "help"),
        ("gone", None, None, None),
        ("to-a", None, "@SUM(1)", None),
        ("a", None, "\N{FULLWIDTH EQUALS SIGN}1", None),
    ]
    others = [(row["source"], row["target"], row["position"]) for row in objects(db, "links")[4:]]
    home = objects(db, "pages")[0]["url"]
    assert sorted(others) == [(f"{home}a", home, 0), (f"{home}to-a", home, 0)], "a redirect has those of its target"


@pytest.mark.parametrize("table", NAMES)
def test_parquet_and_json_lines_are_the_same(db: Path, table: str) -> None:
    read = pyarrow.parquet.read_table(io.BytesIO(exported(table, "--db", db, "--format", "parquet")))
    assert read.column_names == [column.name for column in TABLES[table].columns]
    assert [field.nullable for field in read.schema] == [column.optional for column in TABLES[table].columns]
    found = read.to_pylist()
    for row in found:
        if row.get("finished") is not None:
            row["finished"] = round(row["finished"].timestamp() * 1000)
    assert found == objects(db, table)


@pytest.mark.parametrize("table", NAMES)
def test_csv_is_the_same_as_text_and_no_spreadsheet_runs_it(db: Path, table: str) -> None:
    text = exported(table, "--db", db, "--format", "csv").decode()
    assert text.splitlines(keepends=True)[0].endswith("\r\n"), "RFC 4180"
    read = list(csv.DictReader(io.StringIO(text, newline="")))
    for row, told in zip(read, objects(db, table), strict=True):
        for name, value in told.items():
            shown = "\n".join(value) if isinstance(value, list) else "" if value is None else str(value)
            shown = shown.lower() if isinstance(value, bool) else shown
            assert row[name] == (f"'{shown}" if shown[:1] in RUN and shown else shown)
    cells = [cell for row in read for cell in row.values() if cell]
    assert not any(cell[0] in RUN for cell in cells)
    assert {cell[1] for cell in cells if cell[0] == "'"} == (set(RUN) - {"="} if table == "links" else {"="})


def test_the_names_of_the_command_line_are_the_programs() -> None:
    assert tuple(TABLES) == NAMES


def test_without_pyarrow_one_sentence_says_what_to_install(db: Path) -> None:
    blocked = "import sys; sys.modules['pyarrow'] = None; from durable_crawler.cli import cli; cli.main(sys.argv[1:])"
    command = [sys.executable, "-c", blocked, "export", "pages", "--db", str(db), "--format"]
    done = subprocess.run([*command, "parquet"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: --format parquet needs pyarrow: pip install 'durable-crawler[parquet]'\n"
    assert subprocess.run([*command, "csv"], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_is_whole_or_not_there(db: Path, form: str) -> None:
    output = db.with_name("pages")
    exported("pages", "--db", db, "--format", form, "--output", output)
    assert output.read_bytes() == exported("pages", "--db", db, "--format", form)
    assert (output.stat().st_mode & 0o777) == 0o644
    missing = db.with_name("missing") / "pages"
    done = CliRunner().invoke(cli, ["export", "pages", "--db", str(db), "--format", form, "--output", str(missing)])
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    others = sorted(path.name for path in db.parent.iterdir() if not path.name.startswith("frontier"))
    assert others == ["crawljob.json", "pages"]


@pytest.mark.parametrize("table", NAMES)
async def test_rows_are_of_one_moment_while_the_crawl_goes_on(db: Path, table: str) -> None:
    """A reader that has begun sees nothing of what is stored meanwhile, and holds nobody up."""
    from durable_crawler.frontier.reader import FrontierReader  # noqa: PLC0415

    before = objects(db, table)
    with FrontierReader(db).results() as connection:
        lines = export.jsonl(export.TABLES[table], connection)
        first = next(lines)
        async with Website({"/": page("/new"), "/new": page()}) as site:
            await run(db, site.url)
        assert [json.loads(first), *map(json.loads, lines)] == before
    assert len(objects(db, table)) > len(before)
