"""What the benchmark of a page's parts computes, without its crawls."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from benchmarks import parts
from rich.console import Console

PAGE = b"<title>t</title><p id=x><a href=/1>one</a> <a href=2>two</a></p>"


def test_the_steps_of_parsing_add_up_to_all_of_it() -> None:
    found = parts.steps({f"https://x.example/{number}": PAGE * 50 for number in range(20)})
    everything = found.pop("all")
    assert sum(found.values()) == pytest.approx(everything)
    assert all(cost > 0 for name, cost in found.items() if name != "links"), found


def test_the_medians_are_shown_with_their_shares() -> None:
    crawls = [parts.Crawl(loop, 100.0, 200.0, 1200.0) for loop in (800.0, 1000.0, 5000.0)]
    console = Console(file=io.StringIO(), width=110)
    console.print(parts.show(crawls, [{"links": 300.0, "all": 400.0}]))
    assert isinstance(console.file, io.StringIO)
    rows = [line.split("│")[1:4] for line in console.file.getvalue().splitlines() if "│" in line]
    shown = {name.strip().partition(":")[0]: (cost.strip(), share.strip()) for name, cost, share in rows}
    assert shown["event loop's thread, start included"] == ("1000", "1.00")
    assert shown["the rest"] == ("400", "0.40")
    assert shown["fetching, by a program that does nothing else"] == ("200", "0.20")


def test_each_thread_of_a_process_is_counted_and_a_crawl_that_fails_is_told() -> None:
    busy = "import threading, time\ndef work():\n while time.thread_time() < 0.3: pass\n"
    program = f"{busy}t = threading.Thread(target=work); t.start(); t.join(); time.sleep(0.2)"
    ticks = parts.ticks(subprocess.Popen([sys.executable, "-c", program]))
    assert len(ticks) == 2
    assert ticks[max(ticks)] >= 15, "of 30, at the last look"
    with pytest.raises(SystemExit, match="exit code 3"):
        parts.ticks(subprocess.Popen([sys.executable, "-c", "import sys; sys.exit(3)"]))
