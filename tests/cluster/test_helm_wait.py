"""``helm install --wait`` of somebody's own chart with a CrawlJob in it: it returns when the crawl is done.

Helm 4 waits by kstatus, and needs to know nothing of CrawlJobs. It returns early from a job that has failed for good.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support import product, stories
from tests.support.cluster import testbed
from tests.support.product import Job
from tests.support.stories import Place

pytestmark = [
    pytest.mark.timeout(200),
    pytest.mark.skipif(
        testbed.mode() == "existing", reason="an existing cluster has no outside world to serve the site from"
    ),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    product.install()
    with stories.place(tmp_path_factory.mktemp("site"), pages=10) as made:
        yield made


def chart(folder: Path, manifest: str) -> str:
    """A chart of one CrawlJob, which Helm itself applies."""
    (folder / "templates").mkdir()
    (folder / "Chart.yaml").write_text(yaml.safe_dump({"apiVersion": "v2", "name": "docs", "version": "1.0.0"}))
    (folder / "templates" / "crawljob.yaml").write_text(manifest)
    return str(folder)


def install(place: Place, name: str, folder: Path, timeout: str, **spec: Any) -> str:
    release = chart(folder, place.manifest(name, **spec))
    return testbed.helm("install", name, release, "-n", place.namespace, "--wait", "--timeout", timeout)


def test_it_returns_when_the_crawl_is_done(place: Place, tmp_path: Path) -> None:
    install(place, "docs", tmp_path, "120s", **stories.SLOWLY)
    job = Job("docs", place.namespace)
    assert (job.status["phase"], job.status["progress"]["done"]) == ("Complete", place.pages)


def test_it_fails_at_once_when_the_job_has_failed(place: Place, tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(testbed.Failed) as failed:
        install(place, "hopeless", tmp_path, "120s", image="Not An Image")
    assert "CrawlJob" in str(failed.value)
    assert "status: Failed" in str(failed.value)
    assert "Not An Image" in str(failed.value), "in the kubelet's words"
    assert time.monotonic() - started < 100, "long before its own time is over"


def test_it_waits_for_an_operator_that_is_away(place: Place, tmp_path: Path) -> None:
    """A job that nobody has looked at is not done."""
    product.stop_operator()
    try:
        with pytest.raises(testbed.Failed) as failed:
            install(place, "unseen", tmp_path, "4s")
        assert "status: InProgress" in str(failed.value)
    finally:
        product.start_operator()
    Job("unseen", place.namespace).wait("Complete", 90)
