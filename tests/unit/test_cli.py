"""The command line: every problem with its path, one sentence per failure, and the promised exit codes."""

from __future__ import annotations

import hashlib
import json
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner, Result
from tests.support.crawler import crawl
from tests.support.website import Website, page, redirect, tree

from crawljob.crd import crd
from crawljob.exitcodes import ExitCode
from crawljob.summary import MAX_BYTES, RunSummary, parse_summary
from durable_crawler.cli import cli
from durable_crawler.frontier.reader import FrontierReader


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def job(spec: object, **envelope: object) -> str:
    body = {"apiVersion": "durable-crawler.io/v1alpha1", "kind": "CrawlJob", "metadata": {"name": "x"}, "spec": spec}
    return yaml.safe_dump({**body, **envelope})


BAD_SPEC = {
    "seeds": ["ftp://files.example/", "https://user:hunter2@secret.example/"],
    "fetch": {"workers": 0, "connectTimeout": "soon", "worker": 3},
    "restartPolicy": {"backoff": {"initialSeconds": 600}},
    "suspended": True,
}
BAD_PATHS = [
    "spec.seeds[0]",
    "spec.seeds[1]",
    "spec.fetch.workers",
    "spec.fetch.connectTimeout",
    "spec.fetch.worker",
    "spec.restartPolicy.backoff",
    "spec.suspended",
]


@pytest.mark.parametrize("command", ["validate", "run"])
def test_all_problems_are_named_at_once_with_their_paths(tmp_path: Path, command: str) -> None:
    file = tmp_path / "crawljob.yaml"
    file.write_text(job(BAD_SPEC))
    result = invoke(command, "-f", file)
    assert result.exit_code == ExitCode.INVALID
    lines = result.stderr.splitlines()
    assert [line.split(": ")[1] for line in lines] == BAD_PATHS
    assert result.stdout == ""
    assert "hunter2" not in result.stderr, "what may be a secret is not repeated"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "0 documents"),
        (b"- a\n- b\n", "must be a mapping"),
        (b"a: [", "is not YAML"),
        (b"\xff\xfe\x00", "is not UTF-8"),
        (b"apiVersion: v1\nkind: Pod\nspec: {}\n", "apiVersion: must be durable-crawler.io/v1alpha1"),
        (job(None).encode(), "spec: required"),
        (job({}).encode(), "spec.seeds: required"),
        (job({"seeds": []}).encode(), "spec.seeds: must have at least 1"),
        (job({"seeds": ["https://a.example/"]}, extra=1).encode(), "extra: unknown field"),
        (job({"seeds": ["https://a.example/" + "é" * 1000]}).encode(), "spec.seeds[0]"),
        (job({"seeds": ["https://a.example/"], "fetch": {"workers": "4"}}).encode(), "spec.fetch.workers"),
        (b"apiVersion: durable-crawler.io/v1alpha1\nkind: CrawlJob\nspec: {seeds: [2026-01-01]}\n", "spec"),
        (b"x" * (1024 * 1024 + 1), "is larger than"),
        (b"a: b\0", "special characters are not allowed"),
        (b"spec: {seeds: [a], seeds: [b]}", "the key 'seeds' stands twice (line 1, column 20)"),
    ],
)
def test_a_bad_file_is_one_clear_answer(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "crawljob.yaml"
    file.write_bytes(content)
    result = invoke("validate", "-f", file)
    assert result.exit_code == ExitCode.INVALID
    assert says in result.stderr
    assert "Traceback" not in result.output


def test_a_missing_file_is_one_clear_answer(tmp_path: Path) -> None:
    result = invoke("validate", "-f", tmp_path / "absent.yaml")
    assert result.exit_code == ExitCode.INVALID
    assert "cannot be read" in result.stderr


def test_validate_as_json(tmp_path: Path) -> None:
    file = tmp_path / "crawljob.yaml"
    file.write_text(job(BAD_SPEC))
    answer = json.loads(invoke("validate", "-f", file, "--format", "json").stdout)
    assert answer["valid"] is False
    assert [problem["path"] for problem in answer["problems"]] == BAD_PATHS


def test_a_flag_is_named_as_a_flag(tmp_path: Path) -> None:
    result = invoke(
        "run", "--seed", "https://a.example/", "--workers", "0", "--seed", "mailto:x", "--db", tmp_path / "x"
    )
    assert result.exit_code == ExitCode.INVALID
    assert "--workers: " in result.stderr
    assert "--seed: " in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_seed_or_file_it_says_what_to_do() -> None:
    result = invoke("run")
    assert result.exit_code == ExitCode.INVALID
    assert "--seed: required unless a file is given with -f" in result.stderr


@pytest.mark.parametrize("metrics", ["9090x", "host:", ":", "1.2.3.4:99999", "0", "localhost:9090"])
def test_a_bad_listener_is_refused(tmp_path: Path, metrics: str) -> None:
    result = invoke("run", "--seed", "https://a.example/", "--metrics", metrics, "--db", tmp_path / "x")
    assert result.exit_code == ExitCode.INVALID
    assert result.stderr.startswith("error: --metrics: ")


def test_crd_and_schema_are_printed() -> None:
    assert yaml.safe_load(invoke("crd").stdout) == crd()
    assert json.loads(invoke("schema").stdout)["properties"]["kind"] == {"const": "CrawlJob"}


async def test_the_six_flags_alone_run_a_crawl(tmp_path: Path) -> None:
    async with Website(tree(30)) as site:
        database = tmp_path / "my.db"
        flags = ("--seed", site.url, "--workers", "3", "--per-host", "2", "--retries", "0", "--db", database)
        code, run = await crawl(*flags, cwd=tmp_path)
        assert code == 0, run.errors
        assert run.summary["progress"]["done"] == 30
        assert FrontierReader(database).finished_urls() == {site.url + (str(n) if n else "") for n in range(30)}
        assert site.most_in_flight <= 2


async def test_a_file_runs_the_same_crawl_and_flags_override_it(tmp_path: Path) -> None:
    async with Website(tree(30)) as site:
        file = tmp_path / "crawljob.yaml"
        file.write_text(job({"seeds": [site.url], "fetch": {"workers": 9, "perHost": 9}, "scope": {"maxDepth": 1}}))
        code, run = await crawl("-f", file, "--per-host", "1", cwd=tmp_path)
        assert code == 0, run.errors
        assert run.summary["progress"]["done"] == 5
        assert site.most_in_flight == 1
        assert (tmp_path / "frontier.db").exists()


@pytest.mark.parametrize(
    ("follow", "found"), [(["a"], {"/", "/a"}), (["a", "frame", "iframe", "next"], {"/", "/a", "/f", "/i", "/n"})]
)
async def test_links_are_followed_from_what_the_spec_says(tmp_path: Path, follow: list[str], found: set[str]) -> None:
    async def start(_: web.Request) -> web.Response:
        head = "<link rel=next href=/n><frameset><frame src=/f></frameset>"
        return web.Response(text=f"{head}", content_type="text/html")

    async def framed(_: web.Request) -> web.Response:
        body = "<link rel=next href=/n><iframe src=/i></iframe><a href=/a>a</a>"
        return web.Response(text=body, content_type="text/html")

    answers = {"/": framed, "/n": start, **{path: page() for path in ("/a", "/f", "/i")}}
    async with Website(answers) as site:
        file = tmp_path / "crawljob.yaml"
        file.write_text(job({"seeds": [site.url], "scope": {"follow": follow}}))
        code, run = await crawl("-f", file, cwd=tmp_path)
        assert code == 0, run.errors
        assert set(site.requests) == found


async def test_the_page_limit_is_exact(tmp_path: Path) -> None:
    async with Website(tree(50)) as site:
        file = tmp_path / "crawljob.yaml"
        file.write_text(job({"seeds": [site.url], "scope": {"maxPages": 17}}))
        for _ in range(2):
            code, run = await crawl("-f", file, cwd=tmp_path)
            assert (code, run.summary["reason"]) == (0, "PageLimitReached")
            assert run.summary["progress"]["done"] == 17
        assert site.requests.total() == 17


async def test_a_crawl_that_fetches_nothing_says_what_to_do(tmp_path: Path) -> None:
    async with Website({"/": redirect("http://www.other.example/start")}) as site:
        code, run = await crawl("--seed", site.url, cwd=tmp_path)
        assert (code, run.summary["reason"]) == (0, "NothingFetched")
        assert "http://www.other.example/start" in run.summary["message"]
        assert "add it as a seed" in run.summary["message"]


async def test_a_frontier_that_is_none_is_left_alone(tmp_path: Path) -> None:
    foreign = tmp_path / "accounts.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE money (amount INTEGER)")
    connection.close()
    before = hashlib.sha256(foreign.read_bytes()).hexdigest()
    code, run = await crawl("--seed", "http://127.0.0.1:1/", "--db", foreign, cwd=tmp_path)
    assert code == ExitCode.UNUSABLE_FRONTIER
    assert "is not a frontier of durable-crawler" in run.errors
    assert run.errors.count("\n") == 1
    assert "progress" not in run.summary, "nothing was counted, which is not zero"
    assert hashlib.sha256(foreign.read_bytes()).hexdigest() == before
    assert [file.name for file in tmp_path.iterdir()] == ["accounts.db"]


async def test_a_frontier_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, run = await crawl("--seed", "http://127.0.0.1:1/", "--db", tmp_path / "file" / "frontier.db", cwd=tmp_path)
    assert code == ExitCode.INFRASTRUCTURE
    assert "cannot be opened" in run.errors
    assert run.errors.count("\n") == 1


async def test_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, run = await crawl("--seed", "http://127.0.0.1:1/", "--metrics", str(port), cwd=tmp_path)
    assert code == ExitCode.INFRASTRUCTURE
    assert "cannot listen" in run.errors
    assert run.errors.count("\n") == 1


async def test_a_dead_host_ends_in_outcomes_not_in_a_crash(tmp_path: Path) -> None:
    file = tmp_path / "crawljob.yaml"
    # Otherwise it would be asked for its robots.txt for half an hour.
    file.write_text(job({"seeds": ["http://127.0.0.1:1/"], "politeness": {"robots": "ignore"}}))
    code, run = await crawl("-f", file, "--retries", "1", cwd=tmp_path)
    assert (code, run.summary["reason"]) == (0, "NothingFetched")
    assert run.summary["progress"]["failed"] == 1


def test_a_summary_always_fits_the_termination_log() -> None:
    for text in ("x" * 10_000, "é" * 10_000, "\n" * 10_000, "\U0001f577" * 9000):
        summary = RunSummary(outcome="failed", reason="Error", message=text, exit_code=1)
        written = summary.to_json()
        assert len(written.encode()) < MAX_BYTES
        read = parse_summary(written)
        assert read is not None
        assert text.startswith(read.message)
        assert len(read.message) > 500
    assert parse_summary("last line of a log") is None
    assert parse_summary(None) is None


async def test_titles_are_kept_and_bytes_counted(tmp_path: Path) -> None:
    async with Website({"/": page(title="Hello")}) as site:
        _, run = await crawl("--seed", site.url, cwd=tmp_path)
    assert run.summary["progress"]["bytes"] > 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--seed", "foo"], "--seed: must be an absolute http or https URL such as https://docs.example.org/"),
        (["--seed", "http://a.example/", "--allow-cidr", "127.0.0.1"], "such as 127.0.0.1/32"),
        (["--seed", "http://a.example/", "--metrics", "localhost:9095"], "such as 127.0.0.1:9095"),
        (["-f", ""], "error: -f: must name a file, such as crawljob.yaml"),
    ],
)
def test_a_mistake_is_answered_with_what_to_write(arguments: list[str], sentence: str) -> None:
    result = invoke("run", *arguments)
    assert result.exit_code == ExitCode.INVALID
    assert sentence in result.stderr
    assert "pattern" not in result.stderr


def test_a_signal_while_the_program_loads_ends_it() -> None:
    """Also as the first process of a container, which a signal reaches only if it has a handler for it."""
    loading = (
        "import os, signal, sys, types\n"
        "cli = types.ModuleType('durable_crawler.cli')\n"
        "cli.main = lambda: os.kill(os.getpid(), signal.SIGTERM) or signal.pause()\n"
        "sys.modules[cli.__name__] = cli\n"
        "from durable_crawler.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", loading], capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (ExitCode.SIGTERM, b"")
