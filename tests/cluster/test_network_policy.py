"""The crawl's NetworkPolicy, enforced: what a Pod with the crawl's labels reaches when nothing in it says no.

The crawler's own guard refuses most of this already, so the connections are made by a Pod of the same image that has
the label which the policy selects, and runs a script instead of the crawler.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import product
from tests.support.cluster import collector, testbed
from tests.support.cluster.site import Site
from tests.support.product import Job

from crawljob_operator import names

IN_THE_BOX = testbed.mode() == "box"
Target = tuple[str, int]

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        testbed.mode() == "existing", reason="an existing cluster has no outside world to serve the sites from"
    ),
]

# Rules follow a new Pod: what must be refused is tried until it is, and then everything once.
CONNECT = """
import json, socket, time
targets, refused = json.loads({targets!r}), {refused!r}
def reached(host, port):
    try:
        socket.create_connection((host, port), timeout=3).close()
        return True
    except OSError:
        return False
for name in refused:
    until = time.monotonic() + 30
    while reached(*targets[name]) and time.monotonic() < until:
        time.sleep(0.5)
print(json.dumps({{name: reached(*target) for name, target in targets.items()}}))
"""
SERVE = """
import http.server, threading
for port in (9090, 9999):
    server = http.server.ThreadingHTTPServer(("", port), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever).start()
"""


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    collector.deploy()
    product.install()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Enough pages for a crawl that lasts as long as the test."""
    (tmp_path / "index.html").write_text("".join(f'<a href="{n}.html">{n}</a>' for n in range(1000)))
    return tmp_path


@pytest.fixture
def sites(folder: Path) -> Iterator[dict[str, Site]]:
    """One for each kind of address that the harness has; the first is slow and gets crawled."""
    served = {"site": Site(folder, requests_per_second=4)}
    if IN_THE_BOX:
        served |= {"private": Site(folder, private=True), "global": Site(folder, truly_global=True)}
    try:
        for site in served.values():
            site.start()
        yield served
    finally:
        for site in served.values():
            site.stop()


def serving(name: str, namespace: str, labels: dict[str, str]) -> str:
    """A Pod that answers on the listener's port and on another one; its address."""
    body = testbed.script_pod(name, SERVE)
    body["metadata"]["labels"] = labels
    body["spec"]["containers"][0]["readinessProbe"] = {"tcpSocket": {"port": 9999}, "periodSeconds": 1}
    testbed.apply(body, "-n", namespace)
    testbed.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "-n", namespace, "--timeout=60s", timeout=70)
    address: str = testbed.get_json("pod", name, "-n", namespace)["status"]["podIP"]
    return address


def connect(
    name: str, namespace: str, labels: dict[str, str], targets: dict[str, Target], refused: set[str]
) -> dict[str, bool]:
    """What a Pod with these labels reaches, once the rules of its policy stand."""
    script = CONNECT.format(targets=json.dumps(targets), refused=sorted(refused))
    body = testbed.script_pod(name, script)
    body["metadata"]["labels"] = labels
    testbed.apply(body, "-n", namespace)
    ended = testbed.pod_finished(name, namespace, 180)
    logs = testbed.kubectl("logs", name, "-n", namespace)
    assert ended["exitCode"] == 0, logs
    found: dict[str, bool] = json.loads(logs)
    return found


def started(job: Job) -> None:
    """The crawl runs under its policy: the kubelet's probes and the operator's own questions get through."""
    job.until(lambda: job.status.get("phase") == "Running", 90, "a ready crawler")
    job.until(lambda: job.status.get("progress", {}).get("done", 0) > 0, 60, "progress that the operator has read")


def policy_of(job: Job) -> str:
    """The one policy of a running crawl."""
    started(job)
    (found,) = job.owned("networkpolicy")
    return found


def test_only_what_the_crawl_needs_can_be_reached(namespace: str, sites: dict[str, Site]) -> None:
    site = sites["site"]
    ranges = [f"{site.address}/32"]
    spec: dict[str, Any] = {
        "fetch": {"workers": 1},
        "network": {"allowCIDRs": ranges},
    }
    testbed.apply(product.crawljob("docs", site.url("/"), **spec), "-n", namespace)
    job = Job("docs", namespace)
    first_policy = policy_of(job)
    crawler = {names.LABEL_UID: job.live["metadata"]["uid"]}

    collector_host, collector_port = collector.HTTP.removeprefix("http://").rsplit(":", 1)
    targets: dict[str, Target] = {name: (served.address, served.port) for name, served in sites.items()}
    targets["pod"] = (serving("server", namespace, {}), 9090)
    targets["api server"] = ("kubernetes.default.svc", 443)
    targets["collector"] = (collector_host, int(collector_port))
    opened = {"site", "global", "collector"} & set(targets)
    assert connect("free", namespace, {}, targets, set()) == dict.fromkeys(targets, True), "all of it is there"
    found = connect("first", namespace, crawler, targets, set(targets) - opened)
    assert found == {name: name in opened for name in targets}, "the collector has a name: DNS works too"

    address = serving("listener", namespace, crawler)
    ports: dict[str, Target] = {"listener": (address, 9090), "other": (address, 9999)}
    assert connect("outside", namespace, {}, ports, {"other"}) == {"listener": True, "other": False}

    if not IN_THE_BOX:
        return  # a private site besides exists in the box only
    ranges.append(f"{sites['private'].address}/32")
    testbed.apply(product.crawljob("docs", site.url("/"), **spec), "-n", namespace)
    job.until(lambda: job.status.get("restarts") == 1, 90, "the end of the Pod with the old spec")
    assert policy_of(job) != first_policy
    opened.add("private")
    found = connect("second", namespace, crawler, targets, set(targets) - opened)
    assert found == {name: name in opened for name in targets}, "exactly the range that was allowed"
