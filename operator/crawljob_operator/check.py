"""What ``crawljob-operator check`` asks the API server, each question answered in one line; ``helm test`` runs it.

``rights`` is asked with the operator's own account: every right that its code uses, and none that it must never have.
``sample`` is a dry run of a CrawlJob that has every field of this version, each at its default (so nothing below a part
that is absent, or in an empty list): it is refused where the definition in the cluster is older than the operator, or
is not ours.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

from crawljob import API_GROUP, API_VERSION, KIND, PLURAL
from crawljob.spec import CrawlJobSpec
from crawljob_operator import rbac
from crawljob_operator.kube import CRAWLJOBS, ApiError, Kube, Raw

FORBIDDEN = (
    ("", "secrets", "get"),
    ("", "secrets", "list"),
    ("", "pods/exec", "create"),
    ("", "nodes", "get"),
    (API_GROUP, PLURAL, "create"),
    ("rbac.authorization.k8s.io", "rolebindings", "create"),
)
"""Rights by which a stolen token would be worth more than the operator itself (group, resource, verb)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One question and how it came out."""

    passed: bool
    what: str
    remedy: str = ""
    """What to do, where it did not pass."""

    def __str__(self) -> str:
        return f"ok    {self.what}" if self.passed else f"FAIL  {self.what}: {self.remedy}"


@dataclass(frozen=True, slots=True)
class Right:
    """A verb on a resource (``crawljobs/status`` names a subresource) in a namespace, or in the whole cluster."""

    group: str
    resource: str
    verb: str
    namespace: str
    name: str = ""

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        named = f"{resource} {self.name}" if self.name else resource
        return f"{self.verb} {named} in {f'namespace {self.namespace}' if self.namespace else 'the whole cluster'}"

    def attributes(self) -> dict[str, str]:
        """As a SelfSubjectAccessReview has it."""
        resource, _, part = self.resource.partition("/")
        found = {
            "group": self.group,
            "resource": resource,
            "subresource": part,
            "verb": self.verb,
            "namespace": self.namespace,
            "name": self.name,
        }
        return {key: value for key, value in found.items() if value}


def needed(namespaces: Sequence[str]) -> Iterator[Right]:
    """Every right that the operator of these namespaces uses; of the whole cluster without any."""
    for namespace in namespaces or ("",):
        for rule in rbac.rules(clusterwide=not namespaces):
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        for name in rule.get("resourceNames", ("",)):
                            yield Right(group, resource, verb, namespace, name)


def forbidden(namespaces: Sequence[str], home: str = "") -> Iterator[Right]:
    """Every right that it must not have: where it works, and in the namespace in which it lives (``home``)."""
    for namespace in dict.fromkeys([*(namespaces or ("",)), *([home] if home else [])]):
        for group, resource, verb in FORBIDDEN:
            yield Right(group, resource, verb, namespace)


async def rights(kube: Kube, namespaces: Sequence[str], home: str = "") -> AsyncIterator[Answer]:
    """Ask for each right, with the account that ``kube`` has."""
    for right in needed(namespaces):
        remedy = "the operator's account lacks it; upgrade the release, or bind the Role of the chart to that account"
        yield Answer(await kube.allowed(right.attributes()), f"may {right}", remedy)
    for right in forbidden(namespaces, home):
        where = "kubectl get clusterrolebindings,rolebindings -A -o wide"
        remedy = f"the operator's account has it and must not; find who binds it ({where})"
        yield Answer(not await kube.allowed(right.attributes()), f"may not {right}", remedy)


async def sample(kube: Kube, namespace: str) -> AsyncIterator[Answer]:
    """Have a CrawlJob with every field judged by the API server, which keeps nothing of it."""
    what = f"a {KIND} with every field of this version is accepted in namespace {namespace} (dry run)"
    try:
        await kube.try_create(CRAWLJOBS, crawljob(namespace))
    except ApiError as error:
        remedy = "install the definition of this version (crds.enabled=true, or manifests/crd.yaml)"
        if error.status == 403:
            remedy = "who runs this check may not create CrawlJobs there, or something else forbids it"
        yield Answer(False, what, f"{remedy}; the API server says: {error.message}")
    else:
        yield Answer(True, what)


def crawljob(namespace: str) -> Raw:
    """A CrawlJob with all fields of the spec, each at its default; null where that is none."""
    spec = CrawlJobSpec(seeds=("http://127.0.0.1/",))
    return {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": KIND,
        "metadata": {"name": "durable-crawler-check", "namespace": namespace},
        "spec": spec.model_dump(mode="json", by_alias=True),
    }
