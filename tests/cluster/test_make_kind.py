"""`make kind`, run beside the harness's cluster as it runs where no Docker engine answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.support import commands
from tests.support.cluster import testbed
from tests.support.product import Job
from tools.generate import ROOT
from tools.kind import parts

from durable_crawler.demo.site import Site
from durable_crawler.outcomes import Outcome

PAGES = [page for page in commands.PAGES if any(block.kind == "cluster" for block in commands.blocks(page))]
assert PAGES, "there are commands for a cluster"

pytestmark = pytest.mark.timeout(420)


def make_kind() -> str:
    """The command that `make kind` runs in the harness's cluster, without a terminal; what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.kind", "inside"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def printed() -> Iterator[str]:
    """What the first run printed."""
    yield make_kind()
    testbed.delete("namespace", parts.DEMO, timeout=120)


@pytest.fixture(scope="module")
def job(printed: str) -> Job:
    """Its crawl."""
    return Job(parts.DEMO, parts.DEMO)


def test_the_crawl_is_complete_with_every_page_of_the_site(job: Job) -> None:
    expected = Site().expected()
    assert (job.status["phase"], job.condition("Complete")["reason"]) == ("Complete", "CrawlFinished")
    progress = job.status["progress"]
    failed = sum(outcome is Outcome.HTTP_ERROR for outcome in expected.values())
    assert (progress["done"], progress["failed"]) == (len(expected), failed)


def test_its_trace_and_metrics_are_at_the_collector(job: Job, printed: str) -> None:
    trace, uid = job.status["traceID"], job.live["metadata"]["uid"]
    assert f"The crawl is complete with {len(Site().expected())} pages, and its trace {trace}" in printed
    spans = [line for line in parts.collected_spans().splitlines() if f" {trace} " in line]
    assert len([line for line in spans if line.startswith("crawl attempt ")]) == 1
    assert len(spans) > len(Site().expected()), "every page is in the trace"
    metrics = parts.collected_metrics().splitlines()
    (done,) = (line for line in metrics if line.startswith("crawler_pages_done") and f'crawljob_uid="{uid}"' in line)
    assert f'k8s_namespace_name="{parts.DEMO}"' in done
    assert any(line.startswith("crawljob_operator_jobs{") for line in metrics), "the operator's own"


def test_what_it_prints_to_look_at_works(printed: str) -> None:
    """Every command of its guide that ends by itself, as a shell would run it."""
    for _, command in parts.GUIDE:
        assert command in printed
        if "--watch" not in command and "port-forward" not in command:
            done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr
            assert done.stdout.strip(), f"{command} shows something"


def test_again_it_upgrades_and_takes_nothing_away(job: Job) -> None:
    uid, revision = job.live["metadata"]["uid"], deployed()
    make_kind()
    assert (job.live["metadata"]["uid"], deployed()) == (uid, revision + 1)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_the_documentation_that_need_a_cluster_work(printed: str, page: Path, tmp_path: Path) -> None:
    """From top to bottom, in a copy whose site is the demonstration's and whose image is the one under test."""
    spec = yaml.safe_load((parts.HERE / "crawljob.yaml").read_text())["spec"]
    (site,) = spec["seeds"]
    shutil.copytree(ROOT / "charts", tmp_path / "charts")
    samples = tmp_path / "manifests" / "samples"
    samples.mkdir(parents=True)
    for sample in (ROOT / "manifests" / "samples").glob("*.yaml"):
        document = yaml.safe_load(sample.read_text().replace("https://docs.example.org/", site))
        document["spec"].setdefault("network", {})["allowCIDRs"] = spec["network"]["allowCIDRs"]
        (samples / sample.name).write_text(yaml.safe_dump(document))
    repository, _, tag = os.environ["CRAWLER_IMAGE"].rpartition(":")
    image = f"image.repository={repository},image.tag={tag}"
    texts = [block.text for block in commands.blocks(page) if block.kind == "cluster"]
    texts = [text.replace("image.repository=registry.example.org/durable-crawler", image) for text in texts]
    assert not [text for text in texts if "example.org" in text], "nothing leaves the machine"
    try:
        commands.run(texts, tmp_path, os.environ, 300)
    finally:
        testbed.delete("-f", str(samples), "-n", "default")


def deployed() -> int:
    """The revision of the release that is deployed."""
    found = testbed.helm("history", parts.RELEASE, "-n", parts.SYSTEM, "-o", "json")
    (revision,) = (entry["revision"] for entry in json.loads(found) if entry["status"] == "deployed")
    return int(revision)
