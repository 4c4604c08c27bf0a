"""What the operator does and costs, seen from outside: its process, its log, and the API server's audit log."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tests.api.conftest import OPERATOR, Operator
from tests.support.apiserver import ApiServer, Raw

from crawljob import PLURAL
from crawljob_operator import names

READS = frozenset({"get", "list", "watch"})


class MeasuredOperator(Operator):
    """The operator as it is shipped, in a process of its own; it tells each reconcile in its log."""

    def __init__(self, server: ApiServer, resync: float = names.DEFAULT_RESYNC_SECONDS) -> None:
        interval = str(names.DEFAULT_PROGRESS_SECONDS)
        flags = ("--progress-interval", interval, "--resync", str(resync), "--log-level", "debug")
        super().__init__(server, OPERATOR, *flags)

    def cpu_seconds(self) -> float:
        """Processor time so far."""
        fields = self._proc("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self, *, peak: bool = False) -> float:
        """Resident memory in MiB, now or at its highest."""
        wanted = "VmHWM:" if peak else "VmRSS:"
        line = next(line for line in self._proc("status").splitlines() if line.startswith(wanted))
        return int(line.split()[1]) / 1024

    def reconciles(self) -> list[float]:
        """Seconds of each reconcile of all operators so far, without its wait in the queue."""
        lines = (line for line in self.log().splitlines() if '"message": "reconciled"' in line)
        return [json.loads(line)["seconds"] for line in lines]

    def _proc(self, name: str) -> str:
        assert isinstance(self._process, subprocess.Popen)
        return Path(f"/proc/{self._process.pid}/{name}").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Call:
    """One completed request of the operator."""

    verb: str
    resource: str
    namespace: str
    second: float
    ours: bool
    """Made by the reconciler or the resync, not by kopf's watches."""
    first_page: bool

    @property
    def is_write(self) -> bool:
        """Whether it asks for a change, granted or not."""
        return self.verb not in READS

    @property
    def is_reconcile(self) -> bool:
        """Each reconcile begins with reading its CrawlJob."""
        return (self.verb, self.resource) == ("get", PLURAL)

    @property
    def is_resync(self) -> bool:
        """Each full listing begins with the first page of all CrawlJobs."""
        return self.ours and self.first_page and (self.verb, self.resource) == ("list", PLURAL)


class Audit:
    """Reads what the API server has written about the operator's requests, each record once."""

    def __init__(self, server: ApiServer) -> None:
        self._path = server.audit_log
        self._offset = 0

    def news(self) -> list[Call]:
        """Calls since the last question."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return list(_calls(json.loads(line) for line in whole.splitlines()))


def _calls(records: Iterable[Raw]) -> Iterator[Call]:
    for record in records:
        reference = record.get("objectRef")
        if reference is None or record["user"]["username"] != OPERATOR:
            continue
        sub = f"/{reference['subresource']}" if "subresource" in reference else ""
        yield Call(
            verb=record["verb"],
            resource=reference["resource"] + sub,
            namespace=reference.get("namespace", ""),
            second=datetime.fromisoformat(record["requestReceivedTimestamp"]).timestamp(),
            ours=str(record.get("userAgent", "")).startswith(names.FIELD_MANAGER),
            first_page="continue=" not in record["requestURI"],
        )


def by_verb(calls: Iterable[Call]) -> Counter[tuple[str, str]]:
    """How many calls of each verb on each resource."""
    return Counter((call.verb, call.resource) for call in calls)


def worst_minute(calls: Sequence[Call]) -> int:
    """The most calls within 60 seconds."""
    times = sorted(call.second for call in calls)
    return max((sum(start <= time < start + 60 for time in times) for start in times), default=0)
