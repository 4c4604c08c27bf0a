"""Every sample, applied for real: only the site's address differs, and how long the crawl takes.

Side by side, as each mostly waits. The site wants a token on every page, so a private site's credentials matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from tests.support import product, stories
from tests.support.cluster import testbed
from tests.support.cluster.site import Site
from tests.support.product import Job
from tools.generate import ROOT

SAMPLES = {path.stem: path for path in sorted((ROOT / "manifests/samples").glob("*.yaml"))}
PUBLIC, PRIVATE = "https://docs.example.org", "https://docs.internal.example.org"
PAGES = {"/": "<a href=latest/>", "/latest/": "<a href=one.html>", "/latest/one.html": "<a href=/>"}
TOKEN = "Bearer REPLACE-WITH-YOUR-TOKEN"
LIMIT_SECONDS = 150
# Some authority in PEM: that of the API server.
AUTHORITY = 'go-template={{range .clusters}}{{index .cluster "certificate-authority-data" | base64decode}}{{end}}'

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        testbed.mode() == "existing", reason="an existing cluster has no outside world to serve the sites from"
    ),
]


@dataclass(frozen=True)
class Place:
    """A namespace with what the samples' comments tell to make first, an open site and one that wants the token."""

    namespace: str
    open: Site
    closed: Site

    def apply(self, sample: str) -> Job:
        """Apply it with the sites' addresses instead of its own."""
        text = SAMPLES[sample].read_text()
        for address, site in ((PUBLIC, self.open), (PRIVATE, self.closed)):
            text = text.replace(address, site.url("").rstrip("/"))
        document: dict[str, Any] = yaml.safe_load(text)
        spec = document["spec"]
        assert "example.org" not in str(spec["seeds"]), "nothing is asked but the sites of the test"
        network = spec.setdefault("network", {})
        network["allowCIDRs"] = [*network.get("allowCIDRs", ()), f"{self.open.address}/32", f"{self.closed.address}/32"]
        testbed.apply(document, "-n", self.namespace)
        return Job(document["metadata"]["name"], self.namespace)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    product.install()
    folder = tmp_path_factory.mktemp("site")
    for path, text in PAGES.items():
        page = folder / (path[1:] + "index.html" if path.endswith("/") else path[1:])
        page.parent.mkdir(exist_ok=True)
        page.write_text(f"<title>{path}</title>{text}")
    closed = f'if ($http_authorization != "{TOKEN}") {{ return 401; }}'
    with (
        testbed.namespace("samples", **stories.RESTRICTED) as namespace,
        Site(folder) as site,
        Site(folder, port=8443, private=True, extra=closed) as private,
    ):
        made = Place(namespace, site, private)
        secret = f"--from-literal=authorization={TOKEN}"
        testbed.kubectl("create", "secret", "generic", "docs-login", secret, "-n", namespace)
        authority = folder / "ca.crt"
        authority.write_text(testbed.kubectl("config", "view", "--raw", "-o", AUTHORITY))
        testbed.kubectl("create", "configmap", "company-ca", f"--from-file={authority}", "-n", namespace)
        yield made
        testbed.delete("crawljob", "--all", "-n", namespace)


def finishes(place: Place, sample: str) -> None:
    """It crawls every page of its site."""
    job = place.apply(sample)
    if job.live["spec"].get("suspend"):
        job.wait("Suspended", 60)
        assert not job.pod, "nothing runs"
        job.edit(suspend=False)
    job.wait("Complete", LIMIT_SECONDS)
    progress = job.status["progress"]
    assert (progress["done"], progress["failed"]) == (len(PAGES), 0)


@pytest.fixture(scope="module")
def ends(place: Place) -> Iterator[dict[str, Any]]:
    """The end of each, to be waited for."""
    with ThreadPoolExecutor(len(SAMPLES)) as pool:
        yield {sample: pool.submit(finishes, place, sample) for sample in SAMPLES}


@pytest.mark.parametrize("sample", SAMPLES)
def test_it_crawls(ends: dict[str, Any], sample: str) -> None:
    """And the suspended one only after it was resumed."""
    ends[sample].result(LIMIT_SECONDS + 90)
