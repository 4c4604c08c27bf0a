"""The api tier's fixtures: one API server and one operator process per session, one namespace per test."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

import pytest
from tests.support.apiserver import Api, ApiServer, Raw, die_with_parent, free_ports, stop, wait_until
from tests.support.builders import Kubelet, crawljob, crawljobs
from tests.support.faultproxy import FaultProxy
from tests.support.hasty import Child, Clock
from tests.support.toolchain import binaries
from tests.support.toolchain.cache import Unavailable

from crawljob.crd import crd
from crawljob_operator import names, rbac
from crawljob_operator.plugin import reader
from crawljob_operator.reconcile import read_job

OPERATOR = "operator"
RESYNC_SECONDS = 2
SPEED = 20


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of these need the API server."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.api)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """etcd and kube-apiserver with our kind and our operator's rights."""
    try:
        if shutil.which("openssl") is None:
            raise Unavailable("openssl is not installed; the API server's certificates are made with it.")
        programs = binaries.ensure("etcd", "kube-apiserver")
    except Unavailable as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(str(reason))
        pytest.skip(str(reason))
    folder = tmp_path_factory.mktemp("apiserver")
    with ApiServer(folder, programs["etcd"], programs["kube-apiserver"]) as running:
        install(running.admin)
        yield running


def install(api: Api) -> None:
    """What the chart installs, without the Deployment."""
    definition = api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd())
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}"

    def established() -> bool:
        conditions = (api.get(path) or {}).get("status", {}).get("conditions") or []
        return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

    wait_until(established, "the CrawlJob kind")
    grant(api, OPERATOR)


def grant(api: Api, user: str, namespace: str = "") -> None:
    """The operator's rights for a user, in the whole cluster or in one namespace."""
    group, kind = "rbac.authorization.k8s.io", "Role" if namespace else "ClusterRole"
    path = f"/apis/{group}/v1" + (f"/namespaces/{namespace}" if namespace else "")
    common = {"apiVersion": f"{group}/v1", "metadata": {"name": user}}
    role = {**common, "kind": kind, "rules": rbac.rules(clusterwide=not namespace)}
    api.create(f"{path}/{kind.lower()}s", role)
    binding = {
        **common,
        "kind": f"{kind}Binding",
        "roleRef": {"apiGroup": group, "kind": kind, "name": user},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    api.create(f"{path}/{kind.lower()}bindings", binding)
    question = {"verb": "list", "resource": "pods", **({"namespace": namespace} if namespace else {})}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": question},
    }

    def allowed() -> bool:
        answer = api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

    wait_until(allowed, f"the rights of {user}")


@pytest.fixture
def api(server: ApiServer) -> Api:
    """The administrator's client."""
    return server.admin


@pytest.fixture
def namespace(server: ApiServer) -> Iterator[str]:
    """A fresh namespace, without CrawlJobs when the test is over: they would keep the session's operator busy."""
    name = make_namespace(server.admin)
    yield name
    server.admin.call("DELETE", crawljobs(name))


def make_namespace(api: Api) -> str:
    """A namespace that enforces the restricted profile, with the account that every Pod needs."""
    metadata = {"generateName": "crawls-", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
    made = api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    name = str(made["metadata"]["name"])
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    api.create(f"/api/v1/namespaces/{name}/serviceaccounts", account)
    return name


class Operator:
    """The operator as a process, with its own rights and no more."""

    def __init__(self, server: ApiServer, user: str = OPERATOR, *flags: str) -> None:
        self._kubeconfig = server.kubeconfig(user)
        self._flags: Sequence[str] = ("--resync", str(RESYNC_SECONDS), "--progress-interval", "1", *flags)
        self._log = server.folder / f"{user}.log"
        self._process: subprocess.Popen[bytes] | Child | None = None
        self.port = 0

    def start(self) -> None:
        """Start it and wait until it watches."""
        self.launch()
        wait_until(self.ready, "a ready operator", 30)

    def launch(self) -> None:
        """Start it, and do not wait."""
        (self.port,) = free_ports(1)
        environment = {"KUBECONFIG": str(self._kubeconfig), names.ENV_CRAWLER_IMAGE: "registry.example/crawler:1"}
        self._process = self._spawn(["--listen", f"127.0.0.1:{self.port}", *self._flags], environment)

    def _spawn(self, arguments: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes] | Child:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "crawljob_operator.cli", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
                preexec_fn=die_with_parent,  # noqa: PLW1509 - it makes one system call
            )

    def ready(self) -> bool:
        """Whether it says that it watches; fails when it has ended."""
        assert self._process is not None
        assert self._process.poll() is None, f"the operator ended: {self.log()[-2000:]}"
        return self.answers("/readyz")

    def answers(self, path: str, timeout: float = 1) -> bool:
        """Whether a path of its server answers well in time."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://127.0.0.1:{self.port}{path}", timeout=timeout) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL, as a node's failure would."""
        assert self._process is not None
        stop(self._process, signal.SIGKILL)

    def terminate(self) -> int:
        """SIGTERM, as a kubelet would; its exit code."""
        assert self._process is not None
        return stop(self._process)

    def ended(self) -> int | None:
        """Its exit code, once it has ended by itself."""
        assert self._process is not None
        return self._process.poll()

    def log(self) -> str:
        """Everything it has logged."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""


class HastyOperator(Operator):
    """An operator behind a proxy for which time passes faster; its limits are the product's own."""

    def __init__(self, server: ApiServer, proxy: FaultProxy, speed: float, *flags: str) -> None:
        super().__init__(server)
        self._kubeconfig, self._flags = proxy.kubeconfig, flags
        self._log = server.folder / f"{proxy.kubeconfig.stem}.log"
        self.clock = Clock(speed)
        self.poison = ""

    def at_end(self, event: threading.Event) -> None:
        """Set the event as soon as the process ends by itself."""
        process = self._process
        assert isinstance(process, Child)

        def watch() -> None:
            process.wait()
            event.set()

        threading.Thread(target=watch, name="end of the operator", daemon=True).start()

    def signal_kill(self) -> None:
        """SIGKILL without waiting for the end."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)

    def _spawn(self, arguments: Sequence[str], environment: Mapping[str, str]) -> Child:
        return Child(arguments, environment, self._log, self.clock, self.poison)


@pytest.fixture(scope="session")
def _operator(server: ApiServer) -> Iterator[Operator]:
    process = Operator(server)
    process.start()
    yield process
    if process.running():
        assert process.terminate() == 0


@pytest.fixture
def operator(_operator: Operator) -> Operator:
    """The running operator; a test that has ended it may leave that to the next."""
    if not _operator.running():
        _operator.start()
    return _operator


@pytest.fixture
def resting(_operator: Operator) -> None:
    """No operator runs: the test has its own."""
    if _operator.running():
        _operator.terminate()


@pytest.fixture
def proxy(server: ApiServer, resting: None) -> Iterator[FaultProxy]:
    """What stands between an operator of the test's own and the API server."""
    with FaultProxy(server, OPERATOR) as between:
        yield between


@pytest.fixture
def hasty(server: ApiServer, proxy: FaultProxy, namespace: str) -> Iterator[HastyOperator]:
    """The test's namespace's own operator, behind the proxy; a minute of its time lasts three seconds. Not started."""
    process = HastyOperator(server, proxy, SPEED, "--namespace", namespace)
    yield process
    if process.running():
        process.kill()


class Crawl:
    """One CrawlJob in one namespace, and what a test asks about it."""

    def __init__(self, api: Api, namespace: str, name: str = "docs", kubelet: Kubelet | None = None) -> None:
        self.api = api
        self.namespace = namespace
        self.name = name
        self.kubelet = kubelet or Kubelet(api, namespace)

    def beside(self, name: str) -> Crawl:
        """Another CrawlJob of the namespace, whose kubelet sees its own Pods only."""
        return Crawl(self.api, self.namespace, name, Kubelet(self.api, self.namespace, name))

    def apply(self, **spec: object) -> Raw:
        """Create the CrawlJob."""
        return self.api.create(crawljobs(self.namespace), crawljob(self.name, self.namespace, **spec))

    def edit(self, **spec: object) -> None:
        """Change its spec."""
        self.api.patch(crawljobs(self.namespace, self.name), {"spec": spec})

    def get(self) -> Raw:
        """The CrawlJob."""
        found = self.api.get(crawljobs(self.namespace, self.name))
        assert found is not None
        return found

    def status(self) -> Raw:
        """Its status."""
        return dict(self.get().get("status", {}))

    def condition(self, kind: str) -> Raw:
        """One of its conditions, empty where it has none of this type."""
        return next((c for c in self.status().get("conditions", []) if c["type"] == kind), {})

    def wait_phase(self, phase: str, timeout: float = 60) -> Raw:
        """Wait for a phase; the status."""

        def reached() -> Raw | None:
            status = self.status()
            return status if status.get("phase") == phase else None

        try:
            return wait_until(reached, f"phase {phase}", timeout)
        except AssertionError:
            raise AssertionError(f"no phase {phase}: {self.status()}") from None

    def wait_condition(self, kind: str, status: str, reason: str = "") -> Raw:
        """Wait for a condition; the condition."""

        def reached() -> Raw | None:
            found = self.condition(kind)
            fits = found.get("status") == status and (not reason or found.get("reason") == reason)
            return found if fits else None

        try:
            return wait_until(reached, f"{kind}={status}")
        except AssertionError:
            raise AssertionError(f"no {kind}={status} {reason}: {self.status()}") from None

    def volumes(self) -> list[Raw]:
        """The namespace's volume claims."""
        return self.api.items(f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims")

    def bind_volume(self, size: str = "1Gi") -> None:
        """Let the one unbound claim be bound, as the volume controller would."""
        (claim,) = [claim for claim in self.volumes() if claim["status"]["phase"] == "Pending"]
        path = f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims/{claim['metadata']['name']}/status"
        self.api.patch(path, {"status": {"phase": "Bound", "capacity": {"storage": size}}})

    def read(self) -> Raw:
        """Make the Job by which ``kubectl crawl`` reads results; no controller makes a Pod of it here."""
        owner = read_job(self.get())
        body = reader.body(owner, "registry.example/crawler:1", "claim", Decimal(1024), "client")
        return self.api.create(jobs(self.namespace), body)

    def reader_told_to_go(self, made: Raw) -> None:
        """Wait until a reader is being deleted after its Pod."""

        def told() -> bool:
            found = self.api.get(jobs(self.namespace, made["metadata"]["name"]))
            assert found is not None, "it stays until its Pod is gone"
            finalizers = found["metadata"].get("finalizers") or ()
            return "deletionTimestamp" in found["metadata"] and "foregroundDeletion" in finalizers

        wait_until(told, "the reader's deletion")

    def reader_is_gone(self, made: Raw) -> None:
        """What the garbage collector does once the Job's Pod is gone."""
        self.api.patch(jobs(self.namespace, made["metadata"]["name"]), {"metadata": {"finalizers": None}})

    def configs(self) -> list[Raw]:
        """The namespace's ConfigMaps."""
        return self.api.items(f"/api/v1/namespaces/{self.namespace}/configmaps")

    def policies(self) -> list[Raw]:
        """The namespace's NetworkPolicies."""
        return self.api.items(policies(self.namespace))


def policies(namespace: str, name: str = "") -> str:
    """Path of the namespace's NetworkPolicies, or of one."""
    return f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies" + (f"/{name}" if name else "")


def jobs(namespace: str, name: str = "") -> str:
    """Path of the namespace's Jobs, or of one."""
    return f"/apis/batch/v1/namespaces/{namespace}/jobs" + (f"/{name}" if name else "")


@pytest.fixture
def crawl(api: Api, namespace: str) -> Crawl:
    """A CrawlJob to be applied in the test's namespace."""
    return Crawl(api, namespace)
