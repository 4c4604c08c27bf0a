"""The operator's small policies: waits, names, rendering, patches, the queue, reading progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.support.apiserver import free_ports
from tests.support.builders import NOW, around, job, running
from tests.support.podsecurity import violations

from crawljob.spec import Backoff
from crawljob.status import CrawlJobStatus
from crawljob.summary import Progress
from crawljob_operator import backoff, identity, rbac, render, times
from crawljob_operator.announce import _shortened
from crawljob_operator.apply import _refusal
from crawljob_operator.decide import decide
from crawljob_operator.handlers import owner_key
from crawljob_operator.kube import NETWORK_ERRORS, ApiError, _error
from crawljob_operator.patching import merge_patch, status_patch
from crawljob_operator.progress import ProgressReader
from crawljob_operator.workqueue import WOKEN_SECONDS, Key, WorkQueue

policies = st.builds(
    lambda low, more, factor: Backoff(initial_seconds=low, max_seconds=min(low + more, 86_400), multiplier=factor),
    st.integers(1, 3600),
    st.integers(0, 86_400),
    st.integers(1, 10),
)


@given(policies, st.integers(1, 100_000), st.text(max_size=8), st.integers(0, 10**9))
def test_a_wait_is_never_negative_nor_too_long(policy: Backoff, row: int, uid: str, attempt: int) -> None:
    """Within ten per cent of the bounds, and the same when it is computed again."""
    wait = backoff.delay(policy, row, uid, attempt).total_seconds()
    assert policy.initial_seconds * 0.9 <= wait <= policy.max_seconds * 1.1
    assert backoff.delay(policy, row, uid, attempt).total_seconds() == wait


def test_waits_double_up_to_the_limit() -> None:
    """10, 20, 40, 80, 160, 300, 300, … each ±10 %."""
    waits = [backoff.delay(Backoff(), row, "uid", row).total_seconds() for row in (1, 2, 3, 4, 5, 6, 80)]
    for wait, middle in zip(waits, (10, 20, 40, 80, 160, 300, 300), strict=True):
        assert abs(wait - middle) <= middle * 0.1


@given(st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", fullmatch=True))
def test_names_fit_whatever_the_job_is_called(name: str) -> None:
    """DNS labels of at most 63 characters, and another UID gives another name."""
    child = identity.child_name(name, "uid-1")
    assert len(child) <= 63
    assert child[0].isalnum()
    assert child[-1].isalnum()
    assert "." not in child
    assert child != identity.child_name(name, "uid-2")
    assert len(identity.label_value(name)) <= 63


def test_the_spec_hash_sees_what_shapes_the_pod() -> None:
    """And neither defaults that are written down nor what the operator alone obeys."""

    def of(**spec: Any) -> str:
        found = job(**spec).spec
        assert found is not None
        return identity.spec_hash(found)

    assert of() == of(scope={}, fetch={"workers": 16}, podTemplate={"resources": {}}) == of(suspend=True)
    assert of() == of(restartPolicy={"backoffLimit": 0}, storage={"size": "9Gi"})
    changes = ({"image": "a:1"}, {"seeds": ["https://b.example/"]}, {"fetch": {"workers": 2}}, {"listen": {"port": 80}})
    assert len({of(), *(of(**change) for change in changes)}) == 5


def test_the_trace_is_derived() -> None:
    """One trace per CrawlJob, one span per attempt."""
    one, two = identity.traceparent("uid", 1), identity.traceparent("uid", 2)
    assert one.split("-")[1] == two.split("-")[1] == identity.trace_id("uid")
    assert one.split("-")[2] != two.split("-")[2]
    assert [len(part) for part in one.split("-")] == [2, 32, 16, 2]


def test_the_pod_says_who_it_is() -> None:
    """Its environment, its image, its resources."""
    owner = job(podTemplate={"resources": {"limits": {"memory": "1Gi"}}}, image="own:1")
    assert owner.spec is not None
    body = render.pod(owner, owner.spec, 3, "default:1")
    (container,) = body["spec"]["containers"]
    environment = {item["name"]: item.get("value") for item in container["env"]}
    assert environment["TRACEPARENT"] == identity.traceparent(owner.uid, 3)
    assert "crawljob.attempt=3" in environment["OTEL_RESOURCE_ATTRIBUTES"]
    assert "k8s.pod.uid=$(K8S_POD_UID)" in environment["OTEL_RESOURCE_ATTRIBUTES"]
    assert "k8s.node.name=$(K8S_NODE_NAME)" in environment["OTEL_RESOURCE_ATTRIBUTES"]
    given = [item["name"] for item in container["env"]]
    assert given.index("K8S_NODE_NAME") < given.index("OTEL_RESOURCE_ATTRIBUTES")  # or it would not be filled in
    assert (container["image"], container["resources"]) == ("own:1", {"limits": {"memory": "1Gi"}})
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


def header(secret: str, key: str, name: str) -> dict[str, Any]:
    source = {"secretKeyRef": {"name": secret, "key": key}}
    return {"origin": "https://docs.example.com", "name": name, "valueFrom": source}


def test_secrets_are_mounted_key_by_key_and_never_read() -> None:
    """One volume for each Secret, with the keys that are named, for the crawler's group; a flag names the folder."""
    headers = [
        header("b.two", "k", "X-1"),
        header("one", "z", "X-2"),
        header("one", "a", "X-3"),
        header("one", "a", "X-4"),
    ]
    owner = job(fetch={"headers": headers})
    assert owner.spec is not None
    body = render.pod(owner, owner.spec, 1, "i")
    spec, (container,) = body["spec"], body["spec"]["containers"]
    assert violations(body) == []
    assert spec["volumes"][3:] == [
        {
            "name": "secret-0",
            "secret": {"secretName": "b.two", "items": [{"key": "k", "path": "k"}], "defaultMode": 0o440},
        },
        {
            "name": "secret-1",
            "secret": {
                "secretName": "one",
                "items": [{"key": "a", "path": "a"}, {"key": "z", "path": "z"}],
                "defaultMode": 0o440,
            },
        },
    ]
    assert container["volumeMounts"][3:] == [
        {"name": "secret-0", "mountPath": "/etc/crawljob-secrets/b.two", "readOnly": True},
        {"name": "secret-1", "mountPath": "/etc/crawljob-secrets/one", "readOnly": True},
    ]
    assert container["args"][-2:] == ["--secret-dir", "/etc/crawljob-secrets"]
    assert not any("secrets" in group["resources"] for group in rbac.rules(clusterwide=True))


@pytest.mark.parametrize(
    ("reference", "volume"),
    [
        ("secretKeyRef", {"secret": {"secretName": "ours"}}),
        ("configMapKeyRef", {"configMap": {"name": "ours"}}),
    ],
)
def test_certificates_are_one_file(reference: str, volume: dict[str, dict[str, str]]) -> None:
    """From either kind; its name in the Pod does not depend on the key."""
    owner = job(fetch={"caBundle": {reference: {"name": "ours", "key": "root.crt"}}})
    assert owner.spec is not None
    body = render.pod(owner, owner.spec, 1, "i")
    spec, (container,) = body["spec"], body["spec"]["containers"]
    ((kind, source),) = volume.items()
    content = {**source, "items": [{"key": "root.crt", "path": "ca.pem"}], "defaultMode": 0o440}
    assert violations(body) == []
    assert spec["volumes"][3:] == [{"name": "ca", kind: content}]
    assert container["volumeMounts"][3:] == [{"name": "ca", "mountPath": "/etc/crawljob-ca", "readOnly": True}]
    assert container["args"][-2:] == ["--ca-bundle", "/etc/crawljob-ca/ca.pem"]


def test_a_pod_that_brings_nothing_along_mounts_nothing() -> None:
    """Neither flags nor volumes."""
    owner = job()
    assert owner.spec is not None
    spec = render.pod(owner, owner.spec, 1, "i")["spec"]
    assert len(spec["volumes"]) == len(spec["containers"][0]["volumeMounts"]) == 3
    assert "--secret-dir" not in spec["containers"][0]["args"]
    assert "--ca-bundle" not in spec["containers"][0]["args"]


@pytest.mark.parametrize(("given", "address", "probed"), [(None, "0.0.0.0", True), ("::1", "::1", False)])
def test_the_listener_is_reachable_unless_the_user_wants_otherwise(
    given: str | None, address: str, probed: bool
) -> None:
    """A loopback listener cannot be probed from outside: no probe instead of a Pod that is killed for ever."""
    owner = job(listen={"address": given} if given else {})
    assert owner.spec is not None
    assert f"address: {address}" in render.config_text(owner, owner.spec).replace("'", "")
    assert ("livenessProbe" in render.pod(owner, owner.spec, 1, "i")["spec"]["containers"][0]) is probed


def test_the_config_does_not_change_with_suspension() -> None:
    """A resumed Pod gets the same file."""
    one, two = job(), job(suspend=True)
    assert one.spec is not None
    assert two.spec is not None
    assert render.config_name(one, one.spec) == render.config_name(two, two.spec)


values = st.recursive(
    st.integers() | st.text(max_size=3), lambda inner: st.dictionaries(st.text(max_size=2), inner), max_leaves=8
)
objects = st.dictionaries(st.text(max_size=2), values)


def applied(old: object, patch: object) -> object:
    """RFC 7386, as the API server does it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = applied(result.get(key), value)
    return result


@given(objects, objects)
def test_a_patch_leads_from_the_old_to_the_new(old: dict[str, object], new: dict[str, object]) -> None:
    """And is empty where they are equal."""
    assert applied(old, merge_patch(old, new)) == new
    assert merge_patch(new, new) == {}


def test_a_status_that_says_the_same_is_not_written() -> None:
    """Also when it has a member that a newer operator wrote."""
    owner = job()
    status = decide(owner, around(owner, running(owner)), NOW).status
    stored = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert status_patch({**stored, "fromTheFuture": 1}, status) == {}
    assert CrawlJobStatus.model_validate(stored) == status
    assert status_patch({**stored, "nextRestartTime": "2031-01-01T00:00:00Z"}, status) == {"nextRestartTime": None}


@pytest.mark.parametrize(
    "text", [None, "", "soon", "0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", 7, "0001-01-01T00:00:00+09:00"]
)
def test_odd_times_are_no_times(text: object) -> None:
    """Kubelets write them."""
    assert times.parse(text) is None


def test_times_are_written_as_kubernetes_does() -> None:
    """Whole seconds, never earlier than meant."""
    time = datetime(2031, 1, 2, 3, 4, 5, 600_000, tzinfo=UTC)
    assert times.text(times.ceil(time)) == "2031-01-02T03:04:06Z"
    assert times.parse("2031-01-02T03:04:05.5+02:00") == datetime(2031, 1, 2, 1, 4, 5, 500_000, tzinfo=UTC)


def test_a_childs_key_is_its_controllers_name() -> None:
    """Of our kind only."""
    ours = {"apiVersion": "durable-crawler.io/v1alpha1", "kind": "CrawlJob", "name": "docs", "controller": True}
    assert owner_key("ns", {"ownerReferences": [ours]}) == Key("ns", "docs")
    for other in ({"kind": "Job"}, {"controller": False}, {"apiVersion": "example.com/v1"}):
        assert owner_key("ns", {"ownerReferences": [{**ours, **other}]}) is None
    assert owner_key("ns", {}) is None


def test_errors_are_read_from_whatever_answers() -> None:
    """A proxy's HTML is an error too; a namespace on its way out is told from other prohibitions."""
    assert _error(502, b"<html>bad gateway").status == 502
    body = b'{"reason": "Forbidden", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}'
    assert _error(403, body).reason == "NamespaceTerminating"


def test_an_event_ends_with_a_whole_problem() -> None:
    """It holds 1,024 characters; the status has the rest."""
    assert _shortened("a word") == "a word"
    problems = "; ".join(f"spec.seeds[{number}]: must be an absolute URL" for number in range(40))
    said = _shortened(problems)
    assert len(said) <= 1024
    assert said.endswith("must be an absolute URL; ... (in full in the status)")
    assert len(_shortened("x" * 5000)) == 1024


async def test_a_key_is_worked_on_once_at_a_time_and_not_forgotten() -> None:
    """Wakes during the work lead to one more turn; other keys go on meanwhile."""
    running_now: set[Key] = set()
    turns: list[Key] = []
    gate, entered = asyncio.Event(), asyncio.Event()

    async def handler(key: Key) -> None:
        assert key not in running_now
        running_now.add(key)
        turns.append(key)
        if key.name == "slow" and not gate.is_set():
            entered.set()
            await gate.wait()
        running_now.discard(key)
        if len(turns) == 3:
            done.set()

    done = asyncio.Event()
    queue = WorkQueue(handler, workers=2)
    task = asyncio.create_task(queue.run())
    slow, fast = Key("n", "slow"), Key("n", "fast")
    queue.wake(slow)
    await entered.wait()
    for _ in range(5):
        queue.wake(slow)
    queue.wake(fast)
    while fast not in turns:
        await asyncio.sleep(0)
    gate.set()
    await asyncio.wait_for(done.wait(), 5)
    await asyncio.sleep(0)
    assert sorted(turns) == [fast, slow, slow]
    task.cancel()


async def test_an_error_of_one_key_is_tried_again_and_hurts_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a wait that grows."""
    monkeypatch.setattr("crawljob_operator.workqueue.ERROR_FIRST_SECONDS", 0.01)
    calls: dict[str, int] = {}
    healed = asyncio.Event()

    async def handler(key: Key) -> None:
        calls[key.name] = calls.get(key.name, 0) + 1
        if key.name == "bad":
            if calls["bad"] < 3:
                raise RuntimeError("a bug")
            healed.set()

    queue = WorkQueue(handler, workers=1)
    task = asyncio.create_task(queue.run())
    queue.wake(Key("n", "bad"))
    queue.wake(Key("n", "good"))
    await asyncio.wait_for(healed.wait(), 5)
    assert calls == {"bad": 3, "good": 1}
    task.cancel()


@pytest.mark.parametrize(("error", "traceback"), [(ApiError(503, "", "busy"), False), (KeyError("a bug"), True)])
async def test_a_defect_has_its_traceback_once_and_an_ordinary_error_none(
    error: Exception, traceback: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("crawljob_operator.workqueue.ERROR_FIRST_SECONDS", 0.001)
    healed, left = asyncio.Event(), [error, error]

    async def handler(_: Key) -> None:
        if left:
            raise left.pop()
        healed.set()

    queue = WorkQueue(handler, ordinary=(ApiError, *NETWORK_ERRORS))
    task = asyncio.create_task(queue.run())
    queue.wake(Key("n", "docs"))
    await asyncio.wait_for(healed.wait(), 5)
    task.cancel()
    assert [bool(record.exc_info) for record in caplog.records] == [traceback, False]


async def test_the_echo_of_its_own_write_does_not_hurry_a_key_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event while it works, and others while it waits: it is tried when its wait is over, or after 15 s."""
    monkeypatch.setattr("crawljob_operator.workqueue.ERROR_FIRST_SECONDS", 100.0)
    calls = []

    async def handler(key: Key) -> None:
        calls.append(key)
        queue.wake(key)
        raise RuntimeError("a bug")

    queue = WorkQueue(handler, workers=1)
    task = asyncio.create_task(queue.run())
    key = Key("n", "bad")
    queue.wake(key)
    for _ in range(100):
        await asyncio.sleep(0)
        queue.wake(key)
    assert len(calls) == 1
    left = queue._timers[key].when() - asyncio.get_running_loop().time()
    assert 0 < left <= WOKEN_SECONDS
    task.cancel()


async def test_progress_is_read_at_most_once_per_interval() -> None:
    """From the Pod itself, and a crawler that does not answer is no error."""
    (port,) = free_ports(1)
    clock = [0.0]
    pod = running(job())
    async with ProgressReader(30, lambda: clock[0]) as reader:
        async with answering(port) as asked:
            found = await reader.read("job", pod, port)
            assert found is not None
            assert (found.done, found.pending, found.rate) == (4, 2, 1.2)
            assert await reader.read("job", pod, port) is None
            assert reader.due_in("job", pod) == 30
            clock[0] = 31
            assert await reader.read("job", pod, port) is not None
        clock[0] = 62
        assert await reader.read("job", pod, port) is None
    assert len(asked) == 2


async def test_a_silent_pod_is_asked_less_and_less_often() -> None:
    """Each question costs a worker a second; a new Pod is asked at once, and one that speaks again as before."""
    (port,) = free_ports(1)
    clock = [0.0]
    first, second = running(job()), running(job(), "pod-2")
    async with ProgressReader(30, lambda: clock[0]) as reader:
        waits = []
        for _ in range(7):
            assert await reader.read("job", first, port) is None
            waits.append(reader.due_in("job", first))
            clock[0] += waits[-1]
        assert waits == [30, 60, 120, 240, 480, 480, 480]
        assert reader.due_in("job", second) == 0
        assert await reader.read("job", second, port) is None
        assert reader.due_in("job", second) == 30
        async with answering(port):
            clock[0] += 30
            assert await reader.read("job", second, port) is not None
            assert reader.due_in("job", second) == 30


@asynccontextmanager
async def answering(port: int) -> AsyncIterator[list[int]]:
    """A crawler that tells its counts, and how often it was asked for them."""
    asked = []

    async def progress(_: web.Request) -> web.Response:
        asked.append(1)
        return web.json_response({"done": 4, "pending": 2, "rate": 1.2345, "new": True})

    app = web.Application()
    app.router.add_get("/progress", progress)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield asked
    finally:
        await runner.cleanup()


def test_the_decision_takes_new_counts_with_their_time() -> None:
    """And keeps the time when they are the same."""
    owner = job()
    seen = around(owner, running(owner))
    first = decide(owner, around(owner, running(owner), progress=Progress(done=1)), NOW).status
    assert first.progress is not None
    assert first.progress.updated_at == times.text(NOW)
    later = decide(job(first), around(owner, running(owner), progress=Progress(done=1)), NOW + timedelta(minutes=1))
    assert later.status.progress == first.progress
    assert decide(job(first), seen, NOW).status.progress == first.progress


@pytest.mark.parametrize(
    ("message", "reason", "stalled"),
    [
        ('pods "x" is forbidden: exceeded quota: few, requested: pods=1, used: pods=0', "QuotaExceeded", False),
        ('pods "x" is forbidden: status unknown for quota: few, resources: pods', "QuotaExceeded", False),
        ('pods "x" is forbidden: violates PodSecurity "restricted:latest"', "PodAdmissionRejected", True),
    ],
)
def test_a_quota_needs_no_person(message: str, reason: str, stalled: bool) -> None:
    """Nor does one that was made a moment ago, and is not counted yet."""
    refused = _refusal(ApiError(403, "Forbidden", message), "Pod")
    assert refused is not None
    assert (refused.note.reason, refused.stalled) == (reason, stalled)
    assert message in refused.note.message
