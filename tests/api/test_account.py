"""The operator with a Pod's own account, as it runs in a cluster: with a token from a file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kubernetes.aio.config import incluster_config
from tests.api.conftest import Crawl
from tests.support.apiserver import Api, ApiServer

from crawljob_operator.handlers import Watches
from crawljob_operator.kube import CRAWLJOBS, Kube
from crawljob_operator.watchdog import missing
from crawljob_operator.workqueue import Key


@pytest.fixture
def account(server: ApiServer, api: Api, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The namespace's default account as the operator's."""
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": namespace},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "operator"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }
    api.create(f"/apis/{group}/v1/clusterrolebindings", binding)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    made = api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token", request)
    token = tmp_path / "token"
    token.write_text(made["status"]["token"])
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(server.folder / "ca.crt"))


@pytest.mark.usefixtures("account")
async def test_reads_and_watches_work_with_the_pods_account(crawl: Crawl) -> None:
    """Both the client's and kopf's."""
    woken: asyncio.Queue[Key] = asyncio.Queue()
    async with await Kube.connect() as kube:
        assert await kube.get(CRAWLJOBS, crawl.namespace, "nothing") is None
        watches = Watches(kube, (), woken.put_nowait)
        await watches.start()
        task = asyncio.create_task(watches.run())
        async with asyncio.timeout(20):
            while missing(watches.expected_tasks()):
                await asyncio.sleep(0.05)
            crawl.apply(suspend=True)
            while await woken.get() != Key(crawl.namespace, crawl.name):
                pass
        watches.stop()
        await asyncio.wait_for(task, 10)
