"""The cluster harness itself: what every other cluster test takes for granted."""

from __future__ import annotations

import json
import os
import sqlite3
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster import collector, testbed
from tests.support.cluster.site import Site, documentation

TRACE = "5b8efff798038103d269b633813fc60c"


def claim(name: str) -> dict[str, Any]:
    """A ReadWriteOncePod claim of the default class."""
    spec = {"accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def outcome(name: str, script: str, namespace: str) -> str:
    """Run a script in a Pod and return its logs; it must exit 0."""
    testbed.apply(testbed.script_pod(name, script), "-n", namespace)
    ended = testbed.pod_finished(name, namespace)
    logs = testbed.kubectl("logs", name, "-n", namespace)
    assert ended["exitCode"] == 0, logs
    return logs


def test_the_node_is_ready() -> None:
    """One node, Ready, and DNS of the cluster runs."""
    testbed.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=30s")
    testbed.kubectl("rollout", "status", "deployment/coredns", "-n", "kube-system", "--timeout=60s", timeout=70)


def test_a_pod_with_a_volume_ends_with_code_message_logs_and_files(namespace: str) -> None:
    """What the operator reads after a crawl is there, and the test can open the database that the Pod wrote."""
    script = (
        "import pathlib, sqlite3, sys\n"
        "database = sqlite3.connect('/data/frontier.db')\n"
        "database.execute('PRAGMA journal_mode=WAL')\n"
        "database.execute('CREATE TABLE pages AS SELECT 7 AS done')\n"
        "database.commit()\n"
        "pathlib.Path('/dev/termination-log').write_text('seven pages')\n"
        "print('a line of the log')\n"
        "sys.exit(3)\n"
    )
    testbed.apply(claim("frontier"), "-n", namespace)
    testbed.apply(testbed.script_pod("crawl", script, claim="frontier"), "-n", namespace)
    ended = testbed.pod_finished("crawl", namespace)
    assert (ended["exitCode"], ended["message"]) == (3, "seven pages")
    assert "a line of the log" in testbed.kubectl("logs", "crawl", "-n", namespace)
    folder = testbed.volume_path("frontier", namespace)
    database = sqlite3.connect(folder / "frontier.db")
    try:
        assert database.execute("SELECT done FROM pages").fetchall() == [(7,)]
    finally:
        database.close()


def test_a_pod_reaches_the_outside_site_and_is_seen_there(namespace: str) -> None:
    """The site's log shows exactly what went over the wire."""
    with Site(documentation("python3-doc"), port=8080) as site:
        fetch = f"import urllib.request as r; print(r.urlopen({site.url('/library/os.html?a=%2F')!r}).status)"
        assert outcome("fetch", fetch, namespace).strip() == "200"
        (request,) = site.requests(at_least=1)
    assert (request.method, request.path, request.status) == ("GET", "/library/os.html?a=%2F", 200)
    assert request.agent.startswith("Python-urllib")
    assert request.bytes > 10_000


def test_a_site_stops_and_starts_again(tmp_path: Path) -> None:
    """An outage of the site is something that a test can make, and the log goes on where it was."""
    (tmp_path / "index.html").write_text("<p>here")
    with Site(tmp_path, port=8081) as site:
        assert urllib.request.urlopen(site.url(), timeout=10).read() == b"<p>here"
        site.stop()
        with pytest.raises(OSError, match=r"refused|unreachable|timed out|No route"):
            urllib.request.urlopen(site.url(), timeout=2)
        site.start()
        assert urllib.request.urlopen(site.url("/?again"), timeout=10).status == 200
        assert [request.path for request in site.requests(at_least=2)] == ["/", "/?again"]


@pytest.mark.skipif(testbed.mode() != "box", reason="names of the outside world exist in the box only")
def test_names_of_the_outside_world_resolve(namespace: str) -> None:
    """Through the cluster's own DNS: a site by name, a private one, and none."""
    script = (
        "import socket\n"
        "for name in ('docs.site.test', 'intranet.private.test', 'nowhere.test'):\n"
        "    try:\n"
        "        print(socket.gethostbyname(name))\n"
        "    except socket.gaierror:\n"
        "        print('none')\n"
    )
    addresses = [os.environ["SITE_ADDRESS"], os.environ["SITE_PRIVATE_ADDRESS"], "none"]
    assert outcome("resolve", script, namespace).split() == addresses


def test_a_container_can_be_killed_from_outside(namespace: str) -> None:
    """SIGKILL as the kernel would send it: no grace, no hook, exit code 137."""
    testbed.apply(testbed.script_pod("victim", "import time; time.sleep(600)"), "-n", namespace)
    testbed.kubectl("wait", "--for=condition=Ready", "pod/victim", "-n", namespace, "--timeout=60s", timeout=70)
    testbed.kill_container("victim", namespace)
    assert testbed.pod_finished("victim", namespace)["exitCode"] == 137


def test_the_collector_keeps_what_it_is_sent(namespace: str) -> None:
    """A span and a counter sent over OTLP can be read back, also after a restart of the Collector."""
    span = {"traceId": TRACE, "spanId": "eee19b7ec3c1b174", "name": "crawl", "kind": 1}
    span |= {"startTimeUnixNano": "1", "endTimeUnixNano": "2"}
    spans = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    counter = {"aggregationTemporality": 2, "isMonotonic": True, "dataPoints": [{"asInt": "7", "timeUnixNano": "2"}]}
    metrics = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "crawler.completed", "sum": counter}]}]}]}
    collector.deploy()
    script = (
        "import time, urllib.request as r\n"
        "def send(url, body):\n"
        "    for attempt in range(6):\n"
        "        try:\n"
        "            return r.urlopen(r.Request(url, body, {'Content-Type': 'application/json'}), timeout=10)\n"
        "        except OSError as error:\n"
        "            print(error, flush=True)\n"  # the way to a Service that was just made may not lead there yet
        "            time.sleep(1)\n"
        "    raise SystemExit(1)\n"
    ) + "".join(
        f"send({collector.HTTP + path!r}, {json.dumps(body).encode()!r})\n"
        for path, body in (("/v1/traces", spans), ("/v1/metrics", metrics))
    )
    outcome("send", script, namespace)
    collector.flush()
    assert [(found.name, found.start) for found in collector.read_spans() if found.trace_id == TRACE] == [("crawl", 1)]
    assert 7 in {point.value for point in collector.read_metrics() if point.name == "crawler.completed"}
    collector.reset()
    assert collector.read_spans() == []


def test_a_network_policy_cuts_off_the_pod_that_it_selects(namespace: str) -> None:
    """And no other. kind's own network enforces policies, kube-router does in the box; another cluster's may not."""
    serve = "import http.server as h; h.HTTPServer(('', 8000), h.SimpleHTTPRequestHandler).serve_forever()"
    server = testbed.script_pod("server", serve)
    server["spec"]["containers"][0]["readinessProbe"] = {"tcpSocket": {"port": 8000}, "periodSeconds": 1}
    testbed.apply(server, "-n", namespace)
    testbed.kubectl("wait", "--for=condition=Ready", "pod/server", "-n", namespace, "--timeout=60s", timeout=70)
    address = testbed.get_json("pod", "server", "-n", namespace)["status"]["podIP"]
    selector = {"matchLabels": {"cut": "off"}}
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "nothing"}}
    testbed.apply({**policy, "spec": {"podSelector": selector, "policyTypes": ["Ingress", "Egress"]}}, "-n", namespace)
    # Rules follow a new Pod, so the first attempts of it may still get through.
    script = (
        "import socket, time\n"
        "for _ in range({attempts}):\n"
        "    try:\n"
        f"        socket.create_connection(({address!r}, 8000), timeout=2).close()\n"
        "    except OSError:\n"
        "        print('refused')\n"
        "        break\n"
        "    time.sleep(0.5)\n"
        "else:\n"
        "    print('reached')\n"
    )
    cut_off = testbed.script_pod("cut-off", script.format(attempts=40))
    cut_off["metadata"]["labels"] = selector["matchLabels"]
    testbed.apply(cut_off, "-n", namespace)
    assert outcome("free", script.format(attempts=5), namespace).strip() == "reached"
    assert testbed.pod_finished("cut-off", namespace)["exitCode"] == 0
    result = testbed.kubectl("logs", "cut-off", "-n", namespace).strip()
    if result == "reached" and testbed.mode() == "existing":
        pytest.skip("this cluster's network does not enforce NetworkPolicy")
    assert result == "refused"


def test_the_image_runs_as_a_named_user_without_a_compiler(namespace: str) -> None:
    """Restricted Pods run as 65532; libraries that ask for that user's name get one, under any other UID as well."""
    script = (
        "import getpass, os, pwd, shutil\n"
        "print(os.getuid(), pwd.getpwuid(os.getuid()).pw_name, getpass.getuser(), shutil.which('cc'))\n"
    )
    assert outcome("whoami", script, namespace).split() == ["65532", "crawler", "crawler", "None"]


def test_helm_talks_to_the_cluster(namespace: str) -> None:
    """The real Helm, for the chart: asked for this test's own namespace, whatever other tests have installed."""
    assert json.loads(testbed.helm("list", "-n", namespace, "-o", "json")) == []
