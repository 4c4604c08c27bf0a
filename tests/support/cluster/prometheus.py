"""Real Prometheus servers, run as processes of the cluster's node: they reach Pods and Services as from a Pod.

Debian's build does not discover Pods by itself, so ``PodTargets`` does it in its place, for a PodMonitor as the chart
renders it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml
from tests.support.cluster import testbed
from tests.support.cluster.process import run
from tests.support.toolchain import prometheus

PROGRAM = "/usr/local/bin/prometheus"
SECOND = "1s"
# A folder of the host that the node sees, which the Collector uses as well.
_SHARED, _SHARED_IN_NODE = "collector", "/var/durable-crawler/collector"

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Series:
    """One series of an answer: its labels, and its values in order of time."""

    labels: Labels
    values: tuple[float, ...]


class Prometheus:
    """One server with the chart's rules, scraping every second. ``with Prometheus(...) as server:``."""

    def __init__(self, name: str, port: int, scrapes: list[dict[str, Any]], rules: Path) -> None:
        """``scrapes`` is the configuration's ``scrape_configs``."""
        self._folder = folder(f"prometheus-{name}")
        self._inside = in_node(self._folder)
        self._address = f"127.0.0.1:{port}"
        (self._folder / "rules.yaml").write_text(rules.read_text())
        config = {
            "global": {"scrape_interval": SECOND, "evaluation_interval": "5s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": scrapes,
        }
        (self._folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        self._pid = 0

    def __enter__(self) -> Self:
        run("docker", "cp", prometheus.ensure()["prometheus"], f"{os.environ['CLUSTER_NODE']}:{PROGRAM}")
        options = [f"--config.file={self._inside}/prometheus.yaml", f"--storage.tsdb.path={self._inside}/data"]
        command = shlex.join([PROGRAM, *options, f"--web.listen-address={self._address}"])
        self._pid = int(testbed.node_exec("sh", "-c", f"setsid {command} >{self._inside}/log 2>&1 & echo $!"))
        testbed.wait_until(lambda: self._get("/-/ready"), 30, f"Prometheus; see {self._folder}/log")
        return self

    def __exit__(self, *_: object) -> None:
        testbed.node_exec("kill", str(self._pid), check=False)

    def now(self, expression: str) -> list[Series]:
        """What an expression is now."""
        result = self._data("/api/v1/query", query=expression)["result"]
        return [Series(found["metric"], (float(found["value"][1]),)) for found in result]

    def course(self, expression: str, start: float, end: float) -> list[Series]:
        """What it was between two times, in seconds since the epoch, every five seconds."""
        result = self._data("/api/v1/query_range", query=expression, start=f"{start}", end=f"{end}", step="5")["result"]
        return [Series(found["metric"], tuple(float(value) for _, value in found["values"])) for found in result]

    def series(self, selector: str, start: float, end: float) -> list[Labels]:
        """The labels of every series that there was between two times."""
        found: list[Labels] = self._data(
            "/api/v1/series", **{"match[]": selector, "start": f"{start}", "end": f"{end}"}
        )
        return found

    def rules(self) -> list[dict[str, Any]]:
        """Every rule, with its ``health`` and ``state``."""
        return [rule for group in self._data("/api/v1/rules")["groups"] for rule in group["rules"]]

    def _data(self, path: str, **parameters: str) -> Any:
        answer = json.loads(self._get(path, **parameters))
        assert answer["status"] == "success", f"{parameters}: {answer}"
        return answer["data"]

    def _get(self, path: str, **parameters: str) -> str:
        words = [word for key, value in parameters.items() for word in ("--data-urlencode", f"{key}={value}")]
        ready = ("--fail",) if not parameters and "api" not in path else ()
        return testbed.node_exec("curl", "-sS", *ready, "--get", *words, f"http://{self._address}{path}")


class PodTargets:
    """Keeps the targets of a PodMonitor in a file, as Prometheus's own discovery would have them, until it is left."""

    def __init__(self, monitor: Mapping[str, Any]) -> None:
        self.name = monitor["metadata"]["name"]
        spec = monitor["spec"]
        (self._endpoint,) = spec["podMetricsEndpoints"]
        self._selector = ",".join(f"{key}={value}" for key, value in spec["selector"]["matchLabels"].items())
        own = monitor["metadata"]["namespace"]
        self._where = ("-A",) if spec.get("namespaceSelector", {}).get("any") else ("-n", own)
        self._file = folder("targets") / f"{self.name}.json"
        self._write()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def scrape(self) -> dict[str, Any]:
        """The scrape configuration that the Prometheus operator makes of it."""
        return {
            "job_name": self.name,
            "metrics_path": self._endpoint["path"],
            "file_sd_configs": [{"files": [f"{in_node(self._file)}"], "refresh_interval": SECOND}],
            "relabel_configs": [
                {_snake(key): value for key, value in relabeling.items()}
                for relabeling in self._endpoint["relabelings"]
            ],
        }

    def _keep(self) -> None:
        while not self._stop.wait(1):
            try:
                self._write()
            except testbed.Failed:
                continue  # the API server is busy; what was found last stays

    def _write(self) -> None:
        found = testbed.get_json("pods", *self._where, "-l", self._selector)  # None where there are none
        targets = [target for pod in (found or {}).get("items", ()) if (target := self._target(pod))]
        fresh = self._file.with_suffix(".part")
        fresh.write_text(json.dumps(targets))
        fresh.rename(self._file)

    def _target(self, pod: Mapping[str, Any]) -> dict[str, Any] | None:
        address = pod.get("status", {}).get("podIP")
        if not address or pod["status"]["phase"] != "Running":
            return None
        ports = [port for container in pod["spec"]["containers"] for port in container.get("ports", ())]
        (port,) = (port["containerPort"] for port in ports if port["name"] == self._endpoint["port"])
        metadata = pod["metadata"]
        labels = {f"__meta_kubernetes_pod_label_{_plain(key)}": value for key, value in metadata["labels"].items()}
        labels |= {"__meta_kubernetes_namespace": metadata["namespace"]}
        labels |= {"namespace": metadata["namespace"], "pod": metadata["name"]}
        return {"targets": [f"{address}:{port}"], "labels": labels}


def folder(name: str) -> Path:
    """A folder that the tests and the node share."""
    made = testbed.host_dir() / _SHARED / name
    made.mkdir(exist_ok=True)
    return made


def in_node(path: Path) -> Path:
    """Where the node sees a file of such a folder."""
    return Path(_SHARED_IN_NODE) / path.relative_to(testbed.host_dir() / _SHARED)


def _plain(label: str) -> str:
    return re.sub(r"\W", "_", label)


def _snake(key: str) -> str:
    return re.sub("([A-Z])", lambda found: f"_{found[1].lower()}", key)
