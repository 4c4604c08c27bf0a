"""The policy for Jobs that read results: they make room for the crawl, and only for the crawl."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.builders import NOW, around, ended, job, pod, running, summary

from crawljob.status import CrawlJobStatus
from crawljob_operator import render
from crawljob_operator.actions import CreatePod, DeleteReader
from crawljob_operator.conditions import find
from crawljob_operator.decide import decide
from crawljob_operator.observed import Job, Reader
from crawljob_operator.policies import readers


def reader_of(owner: Job, **fields: Any) -> Reader:
    return Reader(**{"name": render.reader_name(owner), "uid": "reader-1", "owner_uid": owner.uid, **fields})


def finished_job(*, then: Any = None) -> Job:
    """One that is complete, with a spec that was edited since."""
    owner = job()
    done = decide(owner, around(owner, ended(owner, 0, message=summary())), NOW)
    assert done.status.phase == "Complete"
    return replace(owner, status=done.status, spec=job(**(then or {})).spec)


def test_the_reader_goes_before_the_pod_comes() -> None:
    owner = job()
    told = decide(owner, around(owner, reader=reader_of(owner)), NOW)
    assert told.actions == (DeleteReader(render.reader_name(owner), "reader-1"),)
    ready = find(told.status.conditions, "Ready")
    assert ready is not None
    assert (ready.status, ready.reason) == ("False", readers.REASON)
    assert render.reader_name(owner) in ready.message
    assert told.announcements == (), "nothing is wrong"
    waiting = decide(replace(owner, status=told.status), around(owner, reader=reader_of(owner, deleting=True)), NOW)
    assert waiting.actions == (), "it is told once"
    assert waiting.status == told.status, "and the status is written once"
    assert waiting.recheck_at == NOW + readers.SOON, "no watch reports its end"
    gone = decide(replace(owner, status=waiting.status), around(owner), NOW)
    assert gone.actions == (CreatePod(1),)


def test_one_that_came_while_the_pod_was_starting_goes_too() -> None:
    owner = job()
    seen = around(owner, pod(owner), reader=reader_of(owner))
    assert decide(owner, seen, NOW).actions == (DeleteReader(render.reader_name(owner), "reader-1"),)
    assert decide(owner, replace(seen, reader=reader_of(owner, deleting=True)), NOW).actions == ()


def test_somebody_elses_job_of_that_name_is_left_alone_and_waited_for_by_nobody() -> None:
    owner = job()
    decision = decide(owner, around(owner, reader=reader_of(owner, owner_uid="somebody")), NOW)
    assert decision.actions == (CreatePod(1),)


@pytest.mark.parametrize(
    ("owner", "wanted"),
    [
        (job(), True),
        (job(suspend=True), False),
        (finished_job(), False),
        (finished_job(then={"restartRequestedAt": "again"}), True),
        (replace(job(), spec=None), False),
    ],
    ids=["to run", "suspended", "finished", "asked for again", "no spec"],
)
def test_a_reader_is_looked_for_only_where_the_crawl_is_to_run(owner: Job, wanted: bool) -> None:
    assert readers.matters(owner, None) is wanted


def test_a_reader_is_not_looked_for_beside_a_crawl_that_has_its_volume() -> None:
    owner = job()
    assert readers.matters(owner, pod(owner))
    assert not readers.matters(owner, running(owner))
    assert not readers.matters(owner, ended(owner, 1)), "the dead Pod goes first"
    assert not readers.matters(owner, pod(owner, owner_uid="somebody"))


def test_readers_of_a_job_that_rests_read_on() -> None:
    for owner in (finished_job(), job(suspend=True)):
        decision = decide(owner, around(owner, reader=reader_of(owner)), NOW)
        assert not [action for action in decision.actions if isinstance(action, DeleteReader)]


def test_the_image_of_the_last_pod_stays_in_the_status() -> None:
    owner = job()
    first = decide(owner, around(owner, running(owner, image="registry.example/crawler:1")), NOW)
    assert first.status.image == "registry.example/crawler:1"
    suspended = replace(job(first.status, suspend=True))
    assert decide(suspended, around(suspended), NOW).status.image == "registry.example/crawler:1"
    assert CrawlJobStatus().image == ""
