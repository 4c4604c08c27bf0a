"""What the benchmark of whole crawls computes, without its runs: ratios, noise, problems, targets, logs, sites."""

from __future__ import annotations

import dataclasses
import io
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks import crawl, measured, tables
from benchmarks.calibration import Calibration
from benchmarks.kept import Keeper, Session, read
from benchmarks.nginx import answer, seen
from benchmarks.ratios import Run, Spread, noise, ratio, spread, verdicts
from benchmarks.site import Shape, Site
from benchmarks.sites import linked_pages
from benchmarks.subjects import ROOT, SUBJECTS, environment
from rich.console import Console
from tests.support.toolchain.cache import Unavailable

RUN = Run(
    subject="ours", round=0, position=0, pages=100, missing=0, extra=0, again=0, requests=101, own_pages=100,
    start_seconds=0.5, crawl_seconds=2.0, end_seconds=0.5, cpu_seconds=0.3, peak_bytes=80_000_000, disk_bytes=1_000_000,
    telemetry_bytes=10, exit_code=0, timed_out=False, fine=True,
)  # fmt: skip


def run(subject: str = "ours", number: int = 0, rate: float = 50.0) -> Run:
    """A whole crawl with that many pages per second."""
    return dataclasses.replace(RUN, subject=subject, round=number, crawl_seconds=100 / rate)


def test_a_ratio_is_of_two_runs_in_one_round() -> None:
    """The machine's speed doubles from round to round; what it says about the two does not change with it."""
    runs = [run("ours", 0, 50), run("wget", 0, 25), run("ours", 1, 100), run("wget", 1, 50), run("ours", 2, 200)]
    assert ratio(runs, "ours", "wget") == Spread(2.0, 2.0, 2.0)
    assert ratio(runs, "wget", "ours") == Spread(0.5, 0.5, 0.5)


def test_the_spread_is_of_the_rounds() -> None:
    """Median, lowest and highest."""
    runs = [found for number, rate in enumerate((10, 20, 50)) for found in (run("a", number, rate), run("b", number))]
    assert ratio(runs, "a", "b") == Spread(0.4, 0.2, 1.0)
    assert spread([]) is None


def test_a_run_without_pages_has_no_ratio() -> None:
    """Neither as the faster nor as the slower one."""
    nothing = dataclasses.replace(RUN, subject="colly", pages=0, crawl_seconds=0.0)
    assert nothing.rate == 0
    assert nothing.cpu_per_1000 is None
    assert ratio([RUN, nothing], "ours", "colly") is None
    assert ratio([RUN, nothing], "colly", "ours") is None


def test_start_and_end_count_in_the_whole_rate_only() -> None:
    """100 pages in 2 s, 3 s with both; 0.3 s of the processor are 3 for a thousand pages."""
    assert (RUN.rate, RUN.cpu_per_1000) == (50.0, 3.0)
    assert RUN.whole_rate == pytest.approx(100 / 3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"missing": 3}, "3 pages not found"),
        ({"extra": 2}, "2 pages that the site does not link to"),
        ({"own_pages": 99}, "says 99 pages, the server 100"),
        ({"fine": False, "exit_code": 4}, "ended with exit code 4"),
        ({"timed_out": True, "fine": False, "own_pages": 0}, "stopped at the limit of time"),
        ({"telemetry_bytes": 0}, "the Collector got nothing"),
    ],
)
def test_a_run_that_is_no_whole_crawl_says_so(change: dict[str, Any], said: str) -> None:
    """In one sentence, which the output repeats with its round."""
    bad = dataclasses.replace(RUN, **change)
    assert bad.problems() == [said]
    assert tables.remarks([bad]) == [f"* ours: {said} (round 1)"]


def test_a_page_that_was_got_again_is_no_fault() -> None:
    """But it is told; and the subject may have counted it."""
    twice = dataclasses.replace(RUN, again=1, own_pages=101)
    assert (RUN.problems(), RUN.told, twice.problems()) == ([], [], [])
    assert tables.remarks([twice]) == ["ours: 1 pages asked for again (round 1)"]
    assert dataclasses.replace(twice, own_pages=102).problems() == ["says 102 pages, the server 100"]


def test_a_noisy_round_is_named() -> None:
    """By the kind of work that differed by more than a fifth; a disk may differ."""
    quiet = [Calibration(cpu_ms=100, fetch_ms=50, fsync_ms=1), Calibration(cpu_ms=119, fetch_ms=59, fsync_ms=9)]
    noisy = [Calibration(cpu_ms=100, fetch_ms=50, fsync_ms=1), Calibration(cpu_ms=121, fetch_ms=50, fsync_ms=1)]
    assert noise({0: quiet}) == []
    assert noise({0: quiet, 1: noisy}) == [
        "round 2 was noisy: the same work (cpu) took 100 to 121 ms; do not trust its ratios"
    ]


def test_each_target_is_reached_missed_or_not_measured() -> None:
    """By the median; those of rust-doc are others."""
    runs = [run("ours", 0, 100), run("fetch-parse", 0, 100), run("wget2", 0, 200)]
    found = {verdict.what: verdict.reached for verdict in verdicts(runs, "synthetic")}
    assert found["ours / fetch-parse"] is True
    assert found["ours / wget2"] is False
    assert found["ours / scrapy"] is None
    assert found["start to first answer, s"] is True
    rust = {verdict.what: verdict.reached for verdict in verdicts([*runs, run("wget-spider", 0, 70)], "rust-doc")}
    assert rust == {"ours / wget-spider": False, "start to first answer, s": True, "peak memory, MB": True}


def test_what_was_no_whole_crawl_of_ours_reaches_no_target() -> None:
    """One that ended after a few quick pages is none."""
    broken = dataclasses.replace(RUN, exit_code=1, fine=False, missing=90)
    assert {verdict.reached for verdict in verdicts([broken, run("wget", 0, 1)], "synthetic")} == {None}


def test_the_table_has_every_subject_the_fastest_first() -> None:
    """With its ratios to ours and to the ceiling, and a mark where a run was not whole."""
    runs = [run("scrapy", 0, 20), run("ours", 0, 100), run("fetch-parse", 0, 125)]
    runs[0] = dataclasses.replace(runs[0], missing=1)
    console = Console(width=150, file=io.StringIO(), record=True)
    console.print(tables.comparison(runs))
    rows = [line.strip("│ ").split("│") for line in console.export_text().splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in row[:4]] for row in rows]
    assert cells == [
        ["fetch-parse", "125", "1.25", "1.00"],
        ["ours", "100", "1.00", "0.80"],
        ["scrapy *", "20", "0.20", "0.16"],
    ]


def test_figures_are_shown_with_their_spread() -> None:
    """Unless there is none."""
    assert tables.shown(Spread(0.951, 0.93, 0.992)) == "0.95 (0.93-0.99)"
    assert tables.shown(Spread(1.0, 1.0, 1.0)) == "1.00"
    assert tables.shown(Spread(12.34, 9.0, 15.0)) == "12.3 (9.0-15.0)"
    assert tables.shown(None) == "-"


def test_raw_figures_are_kept_after_every_run_and_shown_again(tmp_path: Path) -> None:
    """The same tables come of them, with what was left out, and on what machine it was."""
    keeper = Keeper(tmp_path / "new" / "figures.jsonl", Session("rust-doc", 100, {"colly": "No Go."}, {"cpus": 2}))
    keeper.calibration(0, Calibration(cpu_ms=100, fetch_ms=50, fsync_ms=1))
    for found in (run("ours", 0, 90), run("wget-spider", 0, 60)):
        keeper.run(found)
        assert read(keeper.path.read_text().splitlines()) == keeper.session
    file = io.StringIO()
    tables.show(Console(width=150, file=file), read(keeper.path.read_text().splitlines()))
    text = file.getvalue()
    assert "rust-doc: 100 pages, 1 round" in text
    assert "colly: left out. No Go." in text
    assert "about the same time" in text
    assert "cpus: 2" in text
    assert [line.split("│")[5].strip() for line in text.splitlines() if "ours / wget-spider" in line] == ["reached"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "session"}', '{"kind": "run"}'])
def test_another_file_is_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    """One sentence says so."""
    (tmp_path / "file").write_text(text)
    with pytest.raises(SystemExit) as error:
        crawl.main(["--show", str(tmp_path / "file")])
    assert error.value.code == 2
    assert "cannot be shown" in capsys.readouterr().err


def test_each_round_begins_with_the_next_subject() -> None:
    """So that all of them are first at some time."""
    subjects = list(SUBJECTS.values())[:3]
    firsts = [crawl.rotated(subjects, number)[0] for number in range(4)]
    assert firsts == [*subjects, subjects[0]]
    assert all(set(crawl.rotated(subjects, number)) == set(subjects) for number in range(4))


def test_the_servers_log_judges_a_run() -> None:
    """Pages are what GET got with 200 and HTML; everything is a request."""
    lines = [
        "10.000 GET 200 127.0.1.1:80/robots.txt text/plain",
        "10.100 HEAD 200 127.0.1.1:80/a.html text/html",
        "10.200 GET 200 127.0.1.1:80/a.html text/html; charset=utf-8",
        "10.300 GET 200 127.0.1.1:80/a.html text/html",
        "10.400 GET 404 127.0.1.1:80/b.html text/html",
        "10.500 GET 301 127.0.1.1:80/c -",
    ]
    found = seen(map(answer, lines))
    assert found.pages == {"http://127.0.1.1:80/a.html"}
    assert (found.again, found.requests, found.first, found.last) == (1, 6, 10.0, 10.5)
    assert seen([]).pages == frozenset()


def test_the_synthetic_site_is_the_same_every_time(tmp_path: Path) -> None:
    """Byte by byte but for the port, of the asked size, with the asked links; each page leads to the next."""
    texts = []
    for name in ("one", "two"):
        site = Site(Shape(hosts=2, pages=5, links=30, size=10_000), tmp_path / name)
        site.write()
        files = sorted((tmp_path / name).rglob("*.html"))
        texts.append([file.read_text().replace(f":{site.port}/", ":port/") for file in files])
        assert {file.stat().st_size for file in files} == {10_000}
    assert texts[0] == texts[1]
    assert len(texts[0]) == 10
    assert {text.count('<a class="internal" href=') for text in texts[0]} == {30}
    assert '<a class="internal" href="/p1.html">' in texts[0][0]


def test_the_pages_of_documentation_are_those_that_links_lead_to(tmp_path: Path) -> None:
    """From file to file, through folders and base elements, not out of the site, and not to what no link names."""
    files = {
        "index.html": '<a href="a.html#x">a</a> <a href=folder>f</a> <a href="http://other.invalid/z.html">z</a>',
        "a.html": '<base href="/folder/"><area href="b%20b.html?q=1"> <a href="missing.html">m</a> <a href="x.txt">',
        "folder/index.html": '<a href="../index.html">up</a> <a href="http://[">broken</a>',
        "folder/b b.html": "",
        "folder/x.txt": "",
        "unlinked.html": "",
    }
    (tmp_path / "folder").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    found = linked_pages(tmp_path, "http://127.0.1.1:8000/index.html")
    names = ["a.html", "folder/", "folder/b%20b.html?q=1", "index.html"]
    assert sorted(found) == [f"http://127.0.1.1:8000/{name}" for name in names]


def test_a_program_is_measured_with_its_children(tmp_path: Path) -> None:
    """Processor time and memory of both, and its exit code."""
    child = "held = bytearray(60_000_000); sum(range(5_000_000)); import time; time.sleep(0.3)"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}]); sys.exit(3)"
    used = measured.run([sys.executable, "-c", program], os.environ, tmp_path, tmp_path / "output", 60)
    assert (used.exit_code, used.timed_out) == (3, False)
    assert used.peak_bytes > 60_000_000
    assert used.cpu_seconds > 0.02
    assert used.wall_seconds >= 0.3


def test_a_program_that_does_not_end_is_ended(tmp_path: Path) -> None:
    """With what it has started."""
    program = "import subprocess, time; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); time.sleep(60)"
    used = measured.run([sys.executable, "-c", program], os.environ, tmp_path, tmp_path / "output", 1)
    assert used.timed_out
    assert used.wall_seconds < 30
    assert has_ended(int((tmp_path / "output").read_text()))


def has_ended(pid: int) -> bool:
    """Waits for its end; False if that does not come."""
    try:
        end = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with os.fdopen(end):
        return bool(select.select([end], [], [], 30)[0])


def test_what_a_run_leaves_on_the_disk_is_added_up(tmp_path: Path) -> None:
    """As the file system counts it."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"x" * 10_000)
    assert 10_000 <= measured.bytes_left(tmp_path) < 30_000


def test_what_cannot_be_installed_is_left_out_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """And tried once, however many subjects need it."""
    tried = []

    def fails() -> None:
        tried.append(1)
        raise Unavailable("There is no Go.")

    for name in ("scrapy", "scrapy-jobdir"):
        monkeypatch.setitem(SUBJECTS, name, dataclasses.replace(SUBJECTS[name], prepare=fails))
    able, left_out = crawl.prepared(["scrapy", "ours-quiet", "scrapy-jobdir"])
    assert [subject.name for subject in able] == ["ours-quiet"]
    assert left_out == {"scrapy": "There is no Go.", "scrapy-jobdir": "There is no Go."}
    assert len(tried) == 1


def test_an_unknown_subject_is_refused_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """Which names those that there are."""
    with pytest.raises(SystemExit) as error:
        crawl.main(["--only", "ours,heritrix"])
    assert error.value.code == 2
    assert "unknown heritrix; known are ours, " in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may leave the machine's network")
def test_the_crawlers_can_ask_nothing_but_loopback() -> None:
    """Which is there and works: that is where the site is."""
    program = (
        "import socket; from benchmarks.isolated import interfaces, isolate; assert isolate(); print(interfaces());"
        "server = socket.create_server(('127.0.3.1', 0)); socket.create_connection(server.getsockname(), 5)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "['lo']\n"


def test_no_subject_gets_a_proxy_and_no_peer_our_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is on loopback, and a peer runs what is installed for it."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("PYTHONPATH", "here")
    assert "http_proxy" not in environment([sys.executable])
    assert environment([sys.executable])["PYTHONPATH"] == "here"
    assert "PYTHONPATH" not in environment(["wget"])
