"""A real etcd and kube-apiserver on loopback for the api tier, and a small client for tests.

Started once per test session, in a folder of its own; stopped in order, and ended by the kernel if the tests are
killed. Nothing plays the kubelet or a controller: tests write a Pod's status as a kubelet would (``support.builders``).
"""

from __future__ import annotations

import ctypes
import http.client
import json
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import yaml

Raw = dict[str, Any]
T = TypeVar("T")

START_SECONDS = 60
STOP_SECONDS = 30

_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata"}],
}


class ApiServer:
    """etcd and kube-apiserver; ``admin`` may do everything, ``kubeconfig`` makes files for other users."""

    def __init__(self, folder: Path, etcd: Path, apiserver: Path) -> None:
        self.folder = folder
        self._programs = {"etcd": etcd, "kube-apiserver": apiserver}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._etcd_port, self._etcd_peer_port, self.port = free_ports(3)
        self.url = f"https://127.0.0.1:{self.port}"
        self.audit_log = folder / "audit.log"
        self.admin: Api
        self._clients: list[Api] = []

    def __enter__(self) -> Self:
        try:
            self._certificates()
            self._start_etcd()
            self.start_apiserver()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        while self._clients:
            self._clients.pop().close()
        # The apiserver first: one that has lost its etcd takes long to end.
        while self._processes:
            stop(self._processes.pop())

    def start_apiserver(self) -> None:
        """Start kube-apiserver and wait until it is ready."""
        policy = self.folder / "audit.yaml"
        policy.write_text(yaml.safe_dump(_AUDIT_POLICY))
        path = self.folder
        self._start(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            # There is no Service to publish, and loopback addresses are not allowed in one.
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=Node,RBAC",
            f"--client-ca-file={path / 'ca.crt'}",
            f"--tls-cert-file={path / 'server.crt'}",
            f"--tls-private-key-file={path / 'server.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={path / 'server.key'}",
            f"--service-account-signing-key-file={path / 'server.key'}",
            f"--cert-dir={path}",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-maxsize=2000",  # megabytes; a benchmark writes many, and whoever reads follows one file
        )
        self.admin = Api(self.url, self.kubeconfig("admin", "system:masters"))
        self._clients.append(self.admin)
        wait_until(lambda: self._alive() and self.admin.ready(), "a ready kube-apiserver", START_SECONDS)

    def restart_apiserver(self) -> None:
        """Let kube-apiserver crash and start it again; etcd keeps what there is."""
        stop(self._processes.pop(), signal.SIGKILL)
        self.start_apiserver()

    def kubeconfig(self, user: str, group: str = "") -> Path:
        """A kubeconfig with a client certificate of this user."""
        path = self.folder / f"{user}.kubeconfig"
        if path.exists():
            return path
        self._certificate(user, f"/CN={user}" + (f"/O={group}" if group else ""), "extendedKeyUsage=clientAuth")
        ca, cert, key = (str(self.folder / name) for name in ("ca.crt", f"{user}.crt", f"{user}.key"))
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": self.url, "certificate-authority": ca}}],
            "users": [{"name": user, "user": {"client-certificate": cert, "client-key": key}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "current-context": "test",
        }
        path.write_text(yaml.safe_dump(content))
        return path

    def requests(self, user: str) -> list[Raw]:
        """Audit records of one user's completed requests, oldest first."""
        if not self.audit_log.exists():
            return []
        records = []
        for line in self.audit_log.read_text().splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:
                continue  # the last line while it is being written
        return [record for record in records if record.get("user", {}).get("username") == user]

    def _start_etcd(self) -> None:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._etcd_peer_port}"
        self._start(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        wait_until(lambda: self._alive() and _answers(f"{client}/health"), "a healthy etcd", START_SECONDS)

    def _start(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    [self._programs[name], *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.folder,
                    preexec_fn=die_with_parent,  # noqa: PLW1509 - it makes one system call
                )
            )

    def _alive(self) -> bool:
        for process, name in zip(self._processes, self._programs, strict=False):
            if process.poll() is not None:
                tail = (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{name} ended with {process.returncode}: {tail}")
        return True

    def _certificates(self) -> None:
        ca = ["-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=test-ca", "-days", "2", "-nodes", "-x509"]
        self._openssl("req", "-newkey", "rsa:2048", *ca)
        self._certificate("server", "/CN=kube-apiserver", "subjectAltName=IP:127.0.0.1,DNS:localhost")

    def _certificate(self, name: str, subject: str, extension: str) -> None:
        key = ["-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject, "-nodes"]
        self._openssl("req", "-newkey", "rsa:2048", *key)
        (self.folder / f"{name}.ext").write_text(extension)
        signing = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"]
        self._openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.crt", "-extfile", f"{name}.ext", *signing)

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True, timeout=60)


@dataclass(frozen=True)
class Answer:
    """An HTTP answer of the API server."""

    status: int
    body: Raw

    @property
    def message(self) -> str:
        """The error's words."""
        return str(self.body.get("message", ""))


class Api:
    """A client that says what it got, for tests: nothing is retried, and errors are values."""

    def __init__(self, url: str, kubeconfig: Path) -> None:
        user = yaml.safe_load(kubeconfig.read_text())
        credentials, cluster = user["users"][0]["user"], user["clusters"][0]["cluster"]
        self._context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._context.load_cert_chain(credentials["client-certificate"], credentials["client-key"])
        self._address = urllib.parse.urlsplit(url).netloc
        self._mine = threading.local()
        self._all: list[http.client.HTTPSConnection] = []

    def close(self) -> None:
        """Close the connections of all threads."""
        for connection in self._all:
            connection.close()

    def ready(self) -> bool:
        """Whether the server says that it is."""
        try:
            return self._request("GET", "/readyz", None, {})[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def call(self, method: str, path: str, body: Raw | None = None, content: str = "application/json") -> Answer:
        """One request."""
        data = None if body is None else json.dumps(body).encode()
        status, answer = self._request(method, path, data, {"Content-Type": content})
        try:
            return Answer(status, json.loads(answer))
        except json.JSONDecodeError:  # a group that is not served yet: "404 page not found"
            return Answer(status, {"message": str(answer).strip()})

    def stream(self, path: str) -> http.client.HTTPResponse:
        """The open answer to a GET, on a connection of its own, which ends with it; for watches."""
        connection = http.client.HTTPSConnection(self._address, context=self._context, timeout=60)
        connection.request("GET", path, headers={"Connection": "close"})
        return connection.getresponse()

    def _request(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        # A connection per thread that stays: the handshakes would cost more than all the calls.
        connection: http.client.HTTPSConnection | None = getattr(self._mine, "connection", None)
        if connection is None:
            connection = http.client.HTTPSConnection(self._address, context=self._context, timeout=30)
            self._mine.connection = connection
            self._all.append(connection)
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except BaseException:
            connection.close()  # the next request opens it anew
            raise

    def get(self, path: str) -> Raw | None:
        """An object, or ``None`` where there is none."""
        answer = self.call("GET", path)
        if answer.status == 404:
            return None
        return self._good(answer)

    def items(self, path: str, labels: str = "") -> list[Raw]:
        """The objects of a collection."""
        query = f"?labelSelector={urllib.parse.quote(labels)}" if labels else ""
        return list(self._good(self.call("GET", path + query))["items"])

    def create(self, path: str, body: Raw) -> Raw:
        """Create an object that must be accepted."""
        return self._good(self.call("POST", path, body))

    def patch(self, path: str, patch: Mapping[str, Any]) -> Raw:
        """Merge a patch that must be accepted."""
        return self._good(self.call("PATCH", path, dict(patch), "application/merge-patch+json"))

    def delete(self, path: str, grace: int | None = None) -> None:
        """Delete an object that must be there."""
        options = {} if grace is None else {"gracePeriodSeconds": grace}
        self._good(self.call("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", **options}))

    @staticmethod
    def _good(answer: Answer) -> Raw:
        assert answer.status < 300, f"{answer.status}: {answer.message}"
        return answer.body


def wait_until(predicate: Callable[[], T | None], what: str, timeout: float = 60, interval: float = 0.02) -> T:
    """Poll until the predicate gives something true, and return that."""
    deadline = time.monotonic() + timeout
    while True:
        result = predicate()
        if result:
            return result
        assert time.monotonic() < deadline, f"waited {timeout:.0f} s for {what} in vain"
        time.sleep(interval)


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody uses now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [int(item.getsockname()[1]) for item in sockets]
    finally:
        for item in sockets:
            item.close()


class Stoppable(Protocol):
    """What is used of ``subprocess.Popen`` to end a process."""

    def poll(self) -> int | None: ...
    def send_signal(self, sig: signal.Signals) -> None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> int: ...


def stop(process: Stoppable, number: signal.Signals = signal.SIGTERM) -> int:
    """End a process that we started, and wait until it is gone."""
    if process.poll() is None:
        process.send_signal(number)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait(STOP_SECONDS)


def die_with_parent() -> None:
    """In a child before it executes: the kernel kills it when the tests end, however they end."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _answers(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
