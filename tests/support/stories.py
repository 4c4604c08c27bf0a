"""Stories of CrawlJobs, told side by side in one namespace: tests that mostly wait, each for something of its own.

Each is a function and a test by itself; what it raises is that test's failure, with its own traceback.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import product
from tests.support.cluster import testbed
from tests.support.cluster.site import Site
from tests.support.product import Job

TELLERS = 6
"""More would only wait for the machine."""
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
FLAKY, MENDED = "/flaky.html", "mended"
"""A page that no other leads to, and the file without which it answers 500."""
SLOWLY: dict[str, Any] = {
    "politeness": {"delay": "300ms"},
    "fetch": {"workers": 1, "perHost": 1},
}


@dataclass(frozen=True)
class Place:
    """Where they are told: a namespace that admits restricted Pods only, and one site of few pages."""

    namespace: str
    site: Site
    pages: int

    def manifest(self, name: str, *more: str, **spec: Any) -> str:
        """A CrawlJob of the site and more of its paths; its requests can be told from others by its name."""
        agent = {"userAgent": f"{name}/1", **spec.pop("fetch", {})}
        backoff = {"backoff": {"initialSeconds": 1}, **spec.pop("restartPolicy", {})}
        network = {"allowCIDRs": [f"{self.site.address}/32"]}
        body = {"network": network, "fetch": agent, "restartPolicy": backoff, **spec}
        return product.crawljob(name, *(self.site.url(path) for path in ("/", *more)), **body)

    def apply(self, name: str, *more: str, namespace: str = "", **spec: Any) -> Job:
        """Apply one, to the namespace unless another is given."""
        namespace = namespace or self.namespace
        testbed.apply(self.manifest(name, *more, **spec), "-n", namespace)
        return Job(name, namespace)

    def asked(self, name: str) -> Counter[str]:
        """How often which page was asked for by the crawls of that name."""
        return Counter(request.path for request in self.site.requests() if request.agent == f"{name}/1")


@contextmanager
def place(folder: Path, pages: int = 30) -> Iterator[Place]:
    """Make one; a crawl that goes ``SLOWLY`` takes 300 ms for each of its pages."""
    names = [f"{number}.html" for number in range(pages - 1)]
    for name in names:
        (folder / name).write_text(f"<title>{name}</title>")
    (folder / FLAKY[1:]).write_text("<title>well again</title>")
    (folder / "index.html").write_text("".join(f'<a href="{name}">{name}</a>' for name in names))
    flaky = f"location = {FLAKY} {{ if (!-f $document_root/{MENDED}) {{ return 500; }} }}"
    with testbed.namespace("life", **RESTRICTED) as namespace, Site(folder, extra=flaky) as site:
        yield Place(namespace, site, pages)


@contextmanager
def told(
    stories: Sequence[Callable[[Place], None]], at: Place, limit_seconds: float
) -> Iterator[Callable[[Callable[[Place], None]], None]]:
    """Begin all of them; the value waits for the end of one and raises what it raised."""
    with ThreadPoolExecutor(TELLERS) as pool:
        running = {story: pool.submit(story, at) for story in stories}
        yield lambda story: running[story].result(limit_seconds)
