"""What the operator costs with a thousand CrawlJobs: time, calls, memory, processor. ``make bench-operator`` runs it.

A real etcd and kube-apiserver, the operator as a process of its own, and a hand that plays the kubelet; all of them
share this machine, so read the calls and the memory as they are, and the times as an upper bound. Three phases:

- burst: all jobs at once, each with its whole life; one in ten fails once and is restarted.
- beside a failing one: a quota refuses one job's Pod for ever; others come and go, few at a time.
- idle: finished and running jobs, a new operator, and full listings at short intervals: nothing may be written.

Raw figures go to ``benchmarks/results/operator.json``. Exits with 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import socketserver
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tests.api.conftest import install
from tests.support.apiserver import ApiServer, wait_until
from tests.support.builders import crawljob, crawljobs
from tests.support.toolchain import binaries
from tests.support.toolchain.cache import Unavailable

from benchmarks.frontier import quantile
from benchmarks.operator_fleet import Fleet, Life, make_namespace
from benchmarks.operator_probe import Audit, Call, MeasuredOperator, by_verb, worst_minute
from crawljob.summary import Progress

JOBS = 1000
MEMORY_MB = 200
"""The most that the operator may ever hold."""
REFUSED_CALLS_PER_MINUTE = 90
"""The most that a job which cannot get its Pod may cost the API server: its first minute, with some ten reconciles."""
LIMIT_SECONDS = 1800
FAILS_ONE_IN = 10
BESIDE_AT_A_TIME = 4
RESYNC_JOBS_PER_SECOND = 50
"""So many are surely looked at in time, on two busy cores too."""
RESULTS = Path(__file__).parent / "results" / "operator.json"

BURST, BESIDE, REFUSED, STAYING = "burst", "beside", "refused", "staying"


@dataclass(slots=True)
class Figures:
    """What was measured; times in seconds, memory in MiB."""

    jobs: int
    others: int
    """Jobs beside the failing one; as many keep running while the operator is idle."""
    seconds: float = 0
    phases: dict[str, int] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    """Of the burst's namespace, by verb and resource."""
    reconciles: list[float] = field(default_factory=list)
    cpu: float = 0
    peak_mb: float = 0
    rest_mb: float = 0
    beside_phases: dict[str, int] = field(default_factory=dict)
    beside_seconds: float = 0
    reactions: list[float] = field(default_factory=list)
    burst_reactions: list[float] = field(default_factory=list)
    refused_per_minute: int = 0
    resyncs: int = 0
    idle_seconds: float = 0
    idle_reads: int = 0
    idle_reconciles: int = 0
    idle_writes: dict[str, int] = field(default_factory=dict)
    idle_cpu: float = 0
    idle_peak_mb: float = 0
    idle_rest_mb: float = 0

    def missed(self) -> list[str]:
        """The targets that were missed, in words."""
        said = []
        for name, count, phases in (
            ("burst", self.jobs, self.phases),
            ("beside a failing one", self.others, self.beside_phases),
        ):
            if phases != {"Complete": count}:
                said.append(f"{name}: not all of {count} are Complete: {phases}")
        if (most := max(self.peak_mb, self.idle_peak_mb)) > MEMORY_MB:
            said.append(f"memory: {most:.0f} MiB, {MEMORY_MB} are allowed")
        if self.refused_per_minute > REFUSED_CALLS_PER_MINUTE:
            said.append(f"the refused job: {self.refused_per_minute} calls within a minute")
        if self.idle_writes:
            said.append(f"writes while idle: {self.idle_writes}")
        return said


def measure(server: ApiServer, figures: Figures, resync: float, resyncs: int, console: Console) -> None:
    """All phases, one after the other."""
    install(server.admin)
    audit = Audit(server)
    operator = MeasuredOperator(server)
    with progress_server() as port:
        operator.start()
        try:
            burst(server, operator, audit, figures, port)
            console.print(f"burst: {figures.jobs} jobs in {figures.seconds:.0f} s")
            beside_a_failing_one(server, audit, figures, port)
            console.print(f"beside a failing one: {figures.others} jobs in {figures.beside_seconds:.0f} s")
            figures.peak_mb, figures.rest_mb = operator.memory_mb(peak=True), operator.memory_mb()
            staying = [Life(f"staying-{number}", stays=True) for number in range(figures.others)]
            with Fleet(server, STAYING, staying, port) as fleet:
                fleet.start(at_a_time=BESIDE_AT_A_TIME)
                if not fleet.wait(LIMIT_SECONDS):
                    raise RuntimeError(f"not all jobs run: {fleet.phases()}")
        finally:
            operator.terminate()
        idle = MeasuredOperator(server, resync)
        idle.start()
        try:
            idle_phase(idle, audit, figures, resyncs)
        finally:
            idle.terminate()


def burst(server: ApiServer, operator: MeasuredOperator, audit: Audit, figures: Figures, port: int) -> None:
    """All jobs at once."""
    lives = [Life(f"job-{number}", fails=number % FAILS_ONE_IN == 0) for number in range(figures.jobs)]
    audit.news()
    with Fleet(server, BURST, lives, port) as fleet:
        cpu, started = operator.cpu_seconds(), time.monotonic()
        fleet.start(at_a_time=len(lives))
        fleet.wait(LIMIT_SECONDS)
        figures.seconds = time.monotonic() - started
        figures.cpu = operator.cpu_seconds() - cpu
        figures.phases = dict(fleet.phases())
        figures.burst_reactions = fleet.reactions()
    figures.reconciles = operator.reconciles()
    figures.calls = _texts(by_verb(call for call in audit.news() if call.namespace == BURST))


def beside_a_failing_one(server: ApiServer, audit: Audit, figures: Figures, port: int) -> None:
    """Others come and go while one job never gets its Pod."""
    make_namespace(server, REFUSED)
    quotas = f"/api/v1/namespaces/{REFUSED}/resourcequotas"
    nothing = {"hard": {"pods": "0"}}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": nothing}
    server.admin.create(quotas, quota)
    # Nobody computes the usage here; the quota plugin refuses until somebody has.
    server.admin.patch(f"{quotas}/none/status", {"status": {**nothing, "used": {"pods": "0"}}})
    server.admin.create(crawljobs(REFUSED), crawljob("refused", REFUSED))
    lives = [Life(f"beside-{number}") for number in range(figures.others)]
    with Fleet(server, BESIDE, lives, port) as fleet:
        started = time.monotonic()
        fleet.start(at_a_time=BESIDE_AT_A_TIME)
        fleet.wait(LIMIT_SECONDS)
        figures.beside_seconds = time.monotonic() - started
        figures.beside_phases = dict(fleet.phases())
        figures.reactions = fleet.reactions()
    path = crawljobs(REFUSED, "refused")
    ready = (server.admin.get(path) or {}).get("status", {}).get("conditions", [])
    if not any(condition["reason"] == "QuotaExceeded" for condition in ready):
        raise RuntimeError(f"the failing job does not fail: {ready}")
    figures.refused_per_minute = worst_minute([call for call in audit.news() if call.namespace == REFUSED])
    server.admin.delete(path)


def idle_phase(operator: MeasuredOperator, audit: Audit, figures: Figures, resyncs: int) -> None:
    """Count what full listings cost when nothing has changed; the new operator's first one is not counted."""
    _until_resync(audit, 2)
    cpu, started = operator.cpu_seconds(), time.monotonic()
    calls = _until_resync(audit, resyncs)
    figures.idle_seconds = time.monotonic() - started
    figures.idle_cpu = operator.cpu_seconds() - cpu
    figures.idle_peak_mb, figures.idle_rest_mb = operator.memory_mb(peak=True), operator.memory_mb()
    figures.resyncs = resyncs
    figures.idle_reads = sum(call.ours and not call.is_write for call in calls)
    figures.idle_reconciles = sum(call.is_reconcile for call in calls)
    figures.idle_writes = _texts(by_verb(call for call in calls if call.is_write))


def _until_resync(audit: Audit, number: int) -> list[Call]:
    """The calls until so many full listings have begun."""
    calls: list[Call] = []

    def begun() -> bool:
        calls.extend(audit.news())
        return sum(call.is_resync for call in calls) >= number

    wait_until(begun, f"{number} full listings", LIMIT_SECONDS, interval=0.2)
    return calls


def _texts(counts: Counter[tuple[str, str]]) -> dict[str, int]:
    return {" ".join(what): number for what, number in sorted(counts.items())}


@contextmanager
def progress_server() -> Iterator[int]:
    """Answers for every Pod what its crawler would say of its progress; its port on loopback."""
    body = Progress(done=20, pending=20).model_dump_json(by_alias=True).encode()
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    class Crawler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            self.wfile.write(answer)

    class Server(socketserver.ThreadingTCPServer):
        request_queue_size = 128
        daemon_threads = True

    with Server(("127.0.0.1", 0), Crawler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()


def show(console: Console, figures: Figures) -> None:
    """Print what was measured."""
    table = Table("measured", "value", title=f"{figures.jobs} CrawlJobs")
    for name, value in _rows(figures):
        table.add_row(name, value)
    console.print(table)
    calls = Table("verb", "resource", "calls per job", title="API calls over a job's whole life")
    for what, number in figures.calls.items():
        verb, resource = what.split()
        calls.add_row(verb, resource, f"{number / figures.jobs:.2f}")
    console.print(calls)


def _rows(figures: Figures) -> Iterator[tuple[str, str]]:
    per_job = sum(figures.calls.values()) / figures.jobs
    writes = sum(number for what, number in figures.calls.items() if _is_write(what)) / figures.jobs
    beheld = figures.jobs + 2 * figures.others
    yield "burst: all Complete after", f"{figures.seconds:.1f} s ({figures.jobs / figures.seconds:.1f} jobs/s)"
    yield "reconcile p50, p99", _quantiles(figures.reconciles)
    yield "reconciles per job", f"{figures.calls.get('get crawljobs', 0) / figures.jobs:.1f}"
    yield "API calls per job, of these writes", f"{per_job:.1f}, {writes:.1f}"
    yield "operator's CPU per job", f"{figures.cpu / figures.jobs * 1000:.0f} ms"
    yield "event to status p50, p99 in the burst", _quantiles(figures.burst_reactions)
    yield "the same beside a failing job", _quantiles(figures.reactions)
    yield "the failing job's calls per minute", str(figures.refused_per_minute)
    yield "memory: peak, then at rest", f"{figures.peak_mb:.0f} MiB, {figures.rest_mb:.0f} MiB"
    yield (
        f"a new operator for {beheld} jobs: the same",
        f"{figures.idle_peak_mb:.0f} MiB, {figures.idle_rest_mb:.0f} MiB",
    )
    yield "idle: writes", str(sum(figures.idle_writes.values()))
    yield "idle: full listings", f"{figures.resyncs} in {figures.idle_seconds:.0f} s"
    yield "idle: reads per listing and job", f"{figures.idle_reads / figures.resyncs / beheld:.2f}"
    yield "idle: CPU per reconcile", f"{figures.idle_cpu / max(1, figures.idle_reconciles) * 1000:.1f} ms"


def _is_write(what: str) -> bool:
    return what.split(maxsplit=1)[0] not in ("get", "list", "watch")


def _quantiles(seconds: Sequence[float]) -> str:
    return ", ".join(f"{quantile(seconds, share) * 1000:.0f} ms" for share in (0.5, 0.99)) if seconds else "-"


def main(arguments: Iterable[str] | None = None) -> int:
    """Measure, print, keep; 1 when a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operator", description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS, help="CrawlJobs of the burst; a tenth of them in the others")
    parser.add_argument(
        "--resync",
        type=float,
        help="seconds between full listings in the idle phase; a listing should be worked off by then",
    )
    parser.add_argument("--resyncs", type=int, default=12, help="full listings to count")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the raw figures go")
    chosen = parser.parse_args(None if arguments is None else list(arguments))
    console = Console()
    try:
        if shutil.which("openssl") is None:
            raise Unavailable("openssl is not installed; the API server's certificates are made with it.")
        programs = binaries.ensure("etcd", "kube-apiserver")
    except Unavailable as reason:
        console.print(str(reason))
        return 1
    figures = Figures(chosen.jobs, max(3, chosen.jobs // 10))
    resync = chosen.resync or max(5, chosen.jobs / RESYNC_JOBS_PER_SECOND)
    with (
        tempfile.TemporaryDirectory(prefix="bench-operator-") as folder,
        ApiServer(Path(folder), programs["etcd"], programs["kube-apiserver"]) as server,
    ):
        measure(server, figures, resync, chosen.resyncs, console)
    show(console, figures)
    missed = figures.missed()
    chosen.results.parent.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "cpus": os.cpu_count()}
    content = {"machine": machine, "figures": asdict(figures), "missed": missed}
    chosen.results.write_text(json.dumps(content), encoding="utf-8")
    for text in missed:
        console.print(f"missed: {text}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
