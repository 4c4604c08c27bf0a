"""The life of a CrawlJob on a real API server: one Pod at a time, from the first to the last."""

from __future__ import annotations

import yaml
from tests.api.conftest import Crawl, Operator
from tests.support.builders import summary

from crawljob import manifest


def test_a_new_job_gets_volume_config_and_pod(operator: Operator, crawl: Crawl) -> None:
    """Everything that a crawl needs is made, owned by the CrawlJob, and admitted by the restricted profile."""
    job = crawl.apply(storage={"size": "2Gi"})
    pod = crawl.kubelet.new_pod()
    (volume,), (config,) = crawl.volumes(), crawl.configs()
    for child in (pod, volume, config):
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (job["metadata"]["uid"], True, True)
    assert volume["spec"]["resources"]["requests"]["storage"] == "2Gi"
    assert volume["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert config["immutable"] is True
    rendered = yaml.safe_load(config["data"]["crawljob.yaml"])
    assert rendered["spec"]["listen"]["address"] == "0.0.0.0"
    assert manifest.parse(rendered["spec"]).seeds == ("https://docs.example.com/",)
    mounted = {next(iter(set(v) - {"name"})): v for v in pod["spec"]["volumes"]}
    assert mounted["configMap"]["configMap"]["name"] == config["metadata"]["name"]
    assert mounted["persistentVolumeClaim"]["persistentVolumeClaim"]["claimName"] == volume["metadata"]["name"]
    assert len(pod["metadata"]["name"]) <= 63


def test_a_crawl_that_finishes_is_complete(operator: Operator, crawl: Crawl) -> None:
    """The summary's reason and counts become the status; nothing runs afterwards."""
    crawl.apply()
    pod = crawl.kubelet.new_pod()
    crawl.kubelet.run(pod)
    status = crawl.wait_phase("Running")
    assert status["currentPod"]["uid"] == pod["metadata"]["uid"]
    crawl.kubelet.exit(pod, 0, summary(reason="PageLimitReached", done=7, pending=3))
    status = crawl.wait_phase("Complete")
    assert crawl.condition("Complete")["reason"] == "PageLimitReached"
    assert crawl.condition("Ready")["status"] == "True"
    assert (status["progress"]["done"], status["progress"]["pending"]) == (7, 3)
    assert status["restarts"] == 0
    assert status["completionTime"]
    assert len(crawl.kubelet.pods()) == 1, "the Pod stays for its logs"


def test_three_failures_are_three_restarts_on_one_volume(operator: Operator, crawl: Crawl) -> None:
    """Each end is counted once, and there is never a second Pod or another volume."""
    crawl.apply()
    pod = crawl.kubelet.new_pod()
    volume = crawl.volumes()[0]["metadata"]["uid"]
    for number in range(1, 4):
        assert pod["metadata"]["labels"]["durable-crawler.io/attempt"] == str(number)
        crawl.kubelet.run(pod)
        crawl.kubelet.exit(pod, 1, "database is locked")
        pod = crawl.kubelet.new_pod(besides=pod["metadata"]["uid"])
    crawl.kubelet.run(pod)
    status = crawl.wait_phase("Running")
    assert (status["restarts"], status["consecutiveFailures"], status["attempt"]) == (3, 3, 4)
    assert [end["exitCode"] for end in status["history"]] == [1, 1, 1]
    assert status["lastTermination"]["message"] == "database is locked"
    assert [claim["metadata"]["uid"] for claim in crawl.volumes()] == [volume]
