"""The product in a test cluster: its chart installed by Helm, CrawlJobs, and their volumes read from outside."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from tests.support.cluster import collector, testbed

from crawljob_operator import names
from durable_crawler.frontier.model import FrontierError
from durable_crawler.frontier.reader import FrontierReader

RELEASE = "durable-crawler"
NAMESPACE = "durable-crawler-system"
OPERATOR = ("deployment/durable-crawler", "-n", NAMESPACE)
CHART = Path(__file__).resolve().parents[2] / "charts" / "durable-crawler"


def install(*arguments: str, chart: Path = CHART) -> None:
    """Install or upgrade the chart with the image under test, and wait until the operator is ready."""
    repository, _, tag = os.environ["CRAWLER_IMAGE"].rpartition(":")
    image = ("--set", f"image.repository={repository},image.tag={tag}")
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": collector.NAMESPACE}}}
    peers = ("--set-json", f"networkPolicy.collector.to={json.dumps([peer])}")
    command = ("upgrade", "--install", RELEASE, str(chart), "-n", NAMESPACE, "--create-namespace", *image, *peers)
    testbed.helm(*command, "--wait", "--timeout", "150s", *arguments)


def stop_operator() -> None:
    """Scale the operator to nothing, as in an outage."""
    testbed.kubectl("scale", "--replicas=0", *OPERATOR)
    testbed.kubectl("wait", "--for=delete", "pod", "-l", f"app.kubernetes.io/instance={RELEASE}", "-n", NAMESPACE)


def start_operator() -> None:
    """Undo ``stop_operator``."""
    testbed.kubectl("scale", "--replicas=1", *OPERATOR)
    testbed.kubectl("rollout", "status", *OPERATOR, "--timeout=90s", timeout=100)


def crawljob(name: str, *seeds: str, **spec: Any) -> str:
    """A CrawlJob as YAML."""
    body = {
        "apiVersion": "durable-crawler.io/v1alpha1",
        "kind": "CrawlJob",
        "metadata": {"name": name},
        "spec": {"seeds": list(seeds), **spec},
    }
    return yaml.safe_dump(body)


class Job:
    """A CrawlJob that was applied, and what hangs on it."""

    def __init__(self, name: str, namespace: str) -> None:
        self.name = name
        self.namespace = namespace

    @property
    def live(self) -> Mapping[str, Any]:
        """As the API server has it; empty when it is gone."""
        found: Mapping[str, Any] = testbed.get_json("crawljob", self.name, "-n", self.namespace) or {}
        return found

    @property
    def status(self) -> Mapping[str, Any]:
        """Its status; empty before the operator has seen it."""
        status: Mapping[str, Any] = self.live.get("status", {})
        return status

    def condition(self, kind: str) -> Mapping[str, Any]:
        """One condition; empty when there is none."""
        return next((found for found in self.status.get("conditions", ()) if found["type"] == kind), {})

    def owned(self, kind: str) -> list[str]:
        """Names of the objects of a kind that this CrawlJob owns."""
        found = testbed.get_json(kind, "-n", self.namespace)
        items = found["items"] if found else ()
        owners = {item["metadata"]["name"]: item["metadata"].get("ownerReferences", ()) for item in items}
        return [name for name, refs in owners.items() if any(ref["name"] == self.name for ref in refs)]

    @property
    def pod(self) -> Mapping[str, Any]:
        """Its one Pod; empty while there is none."""
        pods = [found for name in self.owned("pod") if (found := testbed.get_json("pod", name, "-n", self.namespace))]
        assert len(pods) <= 1, "at most one Pod"
        return pods[0] if pods else {}

    def edit(self, **spec: Any) -> None:
        """Change fields of its spec."""
        patch = json.dumps({"spec": spec})
        testbed.kubectl("patch", "crawljob", self.name, "-n", self.namespace, "--type=merge", "--patch", patch)

    def wait(self, condition: str, timeout: int) -> None:
        """What users type: ``kubectl wait --for=condition=…``."""
        arguments = (f"--for=condition={condition}", f"crawljob/{self.name}", f"--timeout={timeout}s")
        testbed.kubectl("wait", *arguments, "-n", self.namespace, timeout=timeout + 10)

    def until(self, what: Callable[[], object], timeout: float, describe: str) -> None:
        """Wait for something, with the job's status in the failure."""
        try:
            testbed.wait_until(what, timeout, describe, interval=0.5)
        except testbed.Failed as error:
            raise AssertionError(f"{error}\n{yaml.safe_dump(dict(self.status))}") from None

    @property
    def claim(self) -> str:
        """Name of its claim: one that was there already, or its own, also a retained one; empty while there is none."""
        if existing := self.live["spec"].get("storage", {}).get("existingClaim"):
            return str(existing)
        selector = f"{names.LABEL_UID}={self.live['metadata']['uid']}"
        found = testbed.get_json("pvc", "-l", selector, "-n", self.namespace)
        return found["items"][0]["metadata"]["name"] if found else ""

    def frontier(self) -> FrontierReader:
        """Its frontier, read on the host."""
        return FrontierReader(testbed.volume_path(self.claim, self.namespace) / "frontier.db")

    def done(self) -> int:
        """Pages with a result, as the database says; 0 while there is none."""
        try:
            return self.frontier().snapshot().done if self.claim else 0
        except (FrontierError, ValueError, testbed.Failed):
            return 0
