"""What kstatus makes of our status: Flux, Helm 4 and kpt wait by its rules for kinds that they do not know.

The rules are those of fluxcd/cli-utils 1.2 (pkg/kstatus/status, Compute), which Helm 4 waits with; the cluster tier
waits with Helm itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pytest
from tests.support.builders import NOW, around, ended, job, pod, running, summary

from crawljob import crd
from crawljob.problems import Problem
from crawljob.status import CrawlJobStatus
from crawljob_operator.decide import decide
from crawljob_operator.observed import Job, Note, Refusal, Seen

Kstatus = Literal["InProgress", "Current", "Failed"]


def kstatus(generation: int, status: dict[str, Any]) -> Kstatus:
    """The verdict on a custom resource that is not being deleted."""
    if "observedGeneration" in status and status["observedGeneration"] != generation:
        return "InProgress"
    conditions = status.get("conditions", [])
    for condition in conditions:
        if condition["type"] == "Reconciling" and condition["status"] == "True":
            return "InProgress"
        if condition["type"] == "Stalled" and condition["status"] == "True":
            return "Failed"
    for condition in conditions:
        if condition["type"] == "Ready":
            return "Current" if condition["status"] == "True" else "InProgress"
    return "Current"


def verdict(owner: Job, seen: Callable[[Job], Seen]) -> Kstatus:
    """Of what is written when this is seen."""
    status = decide(owner, seen(owner), NOW).status
    for condition in status.conditions:
        assert condition.observed_generation == owner.generation
    return kstatus(owner.generation, status.model_dump(mode="json", by_alias=True, exclude_none=True))


REFUSAL = Refusal(Note("QuotaExceeded", "pods=0"), NOW.replace(year=2032))


@pytest.mark.parametrize(
    ("expected", "seen"),
    [
        ("InProgress", lambda owner: Seen(config_name="config")),
        ("InProgress", lambda owner: around(owner, pod(owner))),
        ("InProgress", lambda owner: around(owner, pod(owner, unscheduled=Note("Unschedulable")))),
        ("InProgress", lambda owner: around(owner, pod(owner, waiting=Note("ImagePullBackOff")))),
        ("InProgress", lambda owner: around(owner, running(owner))),
        ("InProgress", lambda owner: around(owner, running(owner, ready=False))),
        ("InProgress", lambda owner: around(owner, running(owner, deleting=True))),
        ("InProgress", lambda owner: around(owner, ended(owner, 1))),
        ("InProgress", lambda owner: around(owner, ended(owner, 143))),
        ("InProgress", lambda owner: around(owner, refusal=REFUSAL)),
        ("Failed", lambda owner: around(owner, refusal=replace(REFUSAL, stalled=True))),
        ("Failed", lambda owner: around(owner, pod(owner, waiting=Note("InvalidImageName")))),
        ("Failed", lambda owner: around(owner, pod(owner, owner_uid="somebody else"))),
        ("Failed", lambda owner: around(owner, ended(owner, 2))),
        ("Current", lambda owner: around(owner, ended(owner, 0, message=summary()))),
    ],
)
def test_what_is_waited_for_is_the_end_of_the_crawl(expected: Kstatus, seen: Callable[[Job], Seen]) -> None:
    assert verdict(job(), seen) == expected


def test_a_suspended_job_is_as_it_was_asked_to_be() -> None:
    owner = job(suspend=True)
    assert verdict(owner, lambda owner: around(owner, running(owner))) == "InProgress"
    assert verdict(owner, around) == "Current"


def test_an_unusable_spec_has_failed() -> None:
    assert verdict(replace(job(), spec=None, problems=(Problem("spec", "bad"),)), lambda _: Seen()) == "Failed"


def test_a_job_that_goes_on_has_not_failed_any_more() -> None:
    stalled = decide(job(), around(job(), pod(job(), waiting=Note("InvalidImageName"))), NOW).status
    assert verdict(job(stalled), lambda owner: around(owner, running(owner))) == "InProgress"
    failed = decide(job(), around(job(), ended(job(), 2)), NOW).status
    assert verdict(job(failed, restartRequestedAt="now"), around) == "InProgress"


@pytest.mark.parametrize("code", [0, 2])
def test_an_edit_of_a_finished_job_leaves_the_verdict(code: int) -> None:
    """Until it is seen, it is in progress; then the job is what it was."""
    status = decide(job(), around(job(), ended(job(), code)), NOW).status
    edited = replace(job(status, fetch={"workers": 1}), generation=2)
    assert kstatus(2, status.model_dump(mode="json", by_alias=True)) == "InProgress"
    assert verdict(edited, lambda owner: around(owner, ended(owner, code))) == ("Failed" if code else "Current")


def test_a_job_that_nobody_has_looked_at_is_in_progress() -> None:
    """The API server fills it in: without a status, kstatus would call it current at once."""
    (version,) = crd.crd()["spec"]["versions"]
    default = version["schema"]["openAPIV3Schema"]["properties"]["status"]["default"]
    assert kstatus(1, default) == "InProgress"
    assert CrawlJobStatus.model_validate(default).phase == "Pending"
