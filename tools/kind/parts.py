"""What `make kind` puts into the cluster that KUBECONFIG names, whichever engine runs it; doing it again upgrades."""

from __future__ import annotations

from pathlib import Path

from tests.support.cluster.testbed import apply, helm, kubectl, wait_until

from crawljob_operator.names import LABEL_CRAWLJOB

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CHART = ROOT / "charts" / "durable-crawler"
RELEASE, SYSTEM = "durable-crawler", "durable-crawler-system"
DEMO = "demo"
"""The namespace of site, Collector and crawl, and the crawl's name."""
WAIT_SECONDS = 240
"""For images to be pulled and Pods to be ready; also for the crawl to end."""
_LABEL = f"{LABEL_CRAWLJOB}={DEMO}"
GUIDE = (
    ("what the crawl does, and why", f"kubectl get crawljobs -n {DEMO} --watch"),
    ("the same in full, with its events", f"kubectl describe crawljob {DEMO} -n {DEMO}"),
    ("its log", f"kubectl logs -n {DEMO} -l {_LABEL} --tail=20"),
    ("every span of its trace", f"kubectl logs -n {DEMO} deployment/otel-collector"),
    (
        "http://127.0.0.1:9090/metrics, while it runs",
        f'kubectl port-forward -n {DEMO} "$(kubectl get pod -n {DEMO} -l {_LABEL} -o name)" 9090',
    ),
    ("http://127.0.0.1:8889/metrics, for a Prometheus", f"kubectl port-forward -n {DEMO} service/otel-collector 8889"),
)
_COLLECTOR_METRICS = f"/api/v1/namespaces/{DEMO}/services/otel-collector:prometheus/proxy/metrics"


def install(image: str, collector_image: str) -> None:
    """Install or upgrade site, Collector and operator, wait until they are ready, and apply the crawl."""
    apply(_manifest("site.yaml").replace("CRAWLER_IMAGE", image))
    apply(_manifest("collector.yaml").replace("COLLECTOR_IMAGE", collector_image))
    repository, _, tag = image.rpartition(":")
    release = ("upgrade", "--install", RELEASE, str(CHART), "--namespace", SYSTEM, "--create-namespace")
    values = ("--values", str(HERE / "values.yaml"), "--set", f"image.repository={repository},image.tag={tag}")
    helm(*release, *values, "--wait", "--timeout", f"{WAIT_SECONDS}s", timeout=WAIT_SECONDS + 30)
    for name in ("site", "otel-collector"):
        ready = ("rollout", "status", f"deployment/{name}", "--namespace", DEMO, f"--timeout={WAIT_SECONDS}s")
        kubectl(*ready, timeout=WAIT_SECONDS + 10)
    apply(_manifest("crawljob.yaml"))


def check() -> str:
    """Wait until the crawl is complete and its telemetry is at the Collector; what was seen, in one line.

    Raises ``Failed`` with what is missing.
    """
    complete = ("wait", "--for=condition=Complete", f"crawljob/{DEMO}", "--namespace", DEMO)
    kubectl(*complete, f"--timeout={WAIT_SECONDS}s", timeout=WAIT_SECONDS + 10)
    done, trace = _status("progress.done"), _status("traceID")
    wait_until(lambda: f"crawl job {trace}" in collected_spans(), 60, f"the trace {trace} at the Collector")
    wait_until(lambda: f'crawljob_name="{DEMO}"' in collected_metrics(), 60, "the crawl's metrics at the Collector")
    return f"The crawl is complete with {done} pages, and its trace {trace} and its metrics are at the Collector."


def collected_metrics() -> str:
    """What a Prometheus would read from the Collector."""
    return kubectl("get", "--raw", _COLLECTOR_METRICS)


def collected_spans() -> str:
    """The Collector's log: a line for each span, with name, trace id, span id and attributes."""
    return kubectl("logs", "deployment/otel-collector", "--namespace", DEMO, "--tail=-1")


def guide() -> str:
    """What there is to look at, as commands."""
    lines = [f"  # {meaning}\n  {command}\n" for meaning, command in GUIDE]
    dashboards = sorted(CHART.rglob("dashboards/*.json"))
    lines += [f"\nDashboards, for a Grafana with that Prometheus: {dashboards[0].parent}\n"] if dashboards else []
    return "".join(lines)


def _manifest(name: str) -> str:
    return (HERE / name).read_text()


def _status(path: str) -> str:
    return kubectl("get", "crawljob", DEMO, "--namespace", DEMO, "--output", f"jsonpath={{.status.{path}}}")
