"""The operator while the API server is not itself: it hears again, or it ends; it is never alive and deaf."""

from __future__ import annotations

from tests.api.conftest import Crawl, Operator
from tests.support.apiserver import ApiServer, wait_until


def test_it_hears_again_after_the_api_server_was_away(server: ApiServer, operator: Operator, crawl: Crawl) -> None:
    """A job that is made right after the outage is served, by the same process."""
    crawl.name = "before"
    crawl.apply(suspend=True)
    crawl.wait_phase("Suspended")
    server.restart_apiserver()
    crawl.api = crawl.kubelet.api = server.admin
    crawl.name = "after"
    crawl.apply()
    wait_until(crawl.kubelet.pods, "the Pod", 60)
    assert operator.running()
    assert operator.answers("/healthz")
