"""The power is cut at any write: every commit that was acknowledged is there, and nothing is half there.

The product's own opening and flushes run on a recorded disk (``tests.support.faults_power``: apsw's SQLite); what a cut
leaves is opened by the product with the standard library's SQLite.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.crawler import judge, rows
from tests.support.faults_power import Connection, Disk, powered

from durable_crawler.clock import SystemClock
from durable_crawler.frontier import Deferral, Lease, Link, Result, SqliteFrontier, Verdict, group, opening
from durable_crawler.frontier.model import HostState
from durable_crawler.frontier.opening import Admission
from durable_crawler.frontier.sets import Row
from durable_crawler.frontier.statements import STATEMENTS
from durable_crawler.outcomes import Outcome
from durable_crawler.politeness import Pace

SITE = "http://a.example/"
ADMISSION = Admission(((SITE, "a.example"),), 16)
FLUSHES = 42
CUTS = 60
NOW_MS = 1_800_000_000_000


@dataclass
class Acknowledged:
    """What the frontier promised, and from which event of the disk on."""

    done: list[tuple[int, str]] = field(default_factory=list)
    deferred: list[tuple[int, str, int]] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)


class Workload:
    """Some flushes of every kind of operation, as a crawl makes them."""

    def __init__(self, path: Path, disk: Disk, chance: random.Random) -> None:
        self._path = path
        self._disk = disk
        self._chance = chance
        self._now_ms = NOW_MS
        self._found = 0
        self._held: list[Lease] = []
        self.acknowledged = Acknowledged()

    async def run(self) -> None:
        for start in range(3):  # each finds what the one before has left
            opening._create_if_absent(self._path, self._now_ms)
            opened = opening.prepare(self._path, ADMISSION, self._now_ms)
            self.acknowledged.epochs.append((len(self._disk.events), opened.epoch))
            self._held = []
            connection: Any = opening.connect(self._path)
            assert isinstance(connection, Connection)
            for _ in range(FLUSHES // 3):
                await self._flush(connection, opened)
                if self._chance.random() < 0.15:
                    connection.execute(STATEMENTS["checkpoint"])
            if start == 1:  # an orderly end; the others were killed, and leave their WAL as it is
                connection.execute(STATEMENTS["closed"], {"epoch": opened.epoch})
                connection.execute(STATEMENTS["last_checkpoint"])
                connection.close()

    async def _flush(self, connection: Connection, opened: opening.Opened) -> None:
        async def run(name: str, parameters: Any) -> list[Row]:
            return connection.execute(STATEMENTS[name], parameters).fetchall()

        self._now_ms += 700
        host = opened.hosts[0].id
        operations = [self._settle(lease, host) for lease in self._held]
        operations.append(group.Claim(_future(), {host: 6}, 6, {}))
        terms = group.Terms(opened.epoch, self._now_ms, 120_000, 10_000)
        flushed = await group.flush(run, operations, terms)
        moment = len(self._disk.events)
        self._held = []
        for operation, answer in flushed.answers:
            match operation:
                case group.Finish(lease=lease):
                    assert answer is Verdict.KEPT
                    self.acknowledged.done.append((moment, lease.url))
                case group.Defer(lease=lease):
                    assert answer is Verdict.KEPT
                    self.acknowledged.deferred.append((moment, lease.url, lease.retries + 1))
                case group.Claim():
                    self._held = list(answer.leases)

    def _settle(self, lease: Lease, host: int) -> group.Operation:
        kind = self._chance.random()
        if kind < 0.1:
            return group.Release(_future(), [lease])
        if kind < 0.25:
            return group.Defer(_future(), lease, Deferral(self._now_ms + 500, HostState(Pace(), self._now_ms + 400)))
        links = []
        for _ in range(self._chance.randint(2, 12)):
            self._found += 1
            links.append(Link(f"{SITE}{self._found}", "a.example", host, lease.depth + 1))
        links.append(Link(f"http://b.example/{self._found}", "b.example", None, lease.depth + 1))
        title = "t" * self._chance.choice((5, 500, 9000))  # a large one has overflow pages
        return group.Finish(_future(), lease, Result(Outcome.OK, 200, bytes=100, title=title), links, None)


def _future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


async def lost_after_cut(folder: Path, disk: Disk, promised: Acknowledged, moment: int, chance: random.Random) -> str:
    """Open what the cut left with the product; what was promised and is not there."""
    folder.mkdir()
    for name, content in disk.after_cut(moment, chance).items():
        (folder / name).write_bytes(content)
    path = folder / "frontier.db"
    frontier = await SqliteFrontier.open(path, ADMISSION, max_pages=10_000, clock=SystemClock())
    epoch = frontier.epoch
    await frontier.close()
    judge(path, f"cut before event {moment}")
    done = {url for (url,) in rows(path, "SELECT url FROM pages JOIN results ON page_id = id WHERE state = 'done'")}
    retries: dict[str, int] = dict(rows(path, "SELECT url, retries FROM pages"))
    lost = [url for when, url in promised.done if when <= moment and url not in done]
    lost += [url for when, url, count in promised.deferred if when <= moment and retries.get(url, 0) < count]
    lost += [f"epoch {number}" for when, number in promised.epochs if when <= moment and epoch <= number]
    return ", ".join(lost)


@pytest.mark.parametrize("seed", range(4))
async def test_a_power_cut_loses_no_acknowledged_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    disk, promised = await recorded(tmp_path, monkeypatch, chance)
    assert len(promised.done) > 50
    assert promised.deferred
    for number in range(CUTS):
        moment = chance.randint(0, len(disk.events))
        lost = await lost_after_cut(tmp_path / f"cut-{number}", disk, promised, moment, chance)
        assert lost == "", f"seed {seed}: the power was cut before event {moment}"


async def test_the_cuts_would_notice_commits_that_are_not_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With SQLite's default for WAL, commits are not synced: the same cuts must then find promises that are broken."""
    chance = random.Random(1)
    disk, promised = await recorded(tmp_path, monkeypatch, chance, synchronous="NORMAL")
    for number in range(CUTS):
        moment = chance.randint(0, len(disk.events))
        if await lost_after_cut(tmp_path / f"cut-{number}", disk, promised, moment, chance):
            return
    pytest.fail("no cut lost anything, so they show nothing")


async def recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chance: random.Random, synchronous: str | None = None
) -> tuple[Disk, Acknowledged]:
    """The workload's disk and promises."""
    folder = tmp_path / "recorded"
    folder.mkdir()
    with powered(monkeypatch, synchronous) as disk:
        workload = Workload(folder / "frontier.db", disk, chance)
        await workload.run()
    return disk, workload.acknowledged
