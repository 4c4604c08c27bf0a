"""The rights that the operator's code uses, as data; the chart and the plain manifests are generated from it.

Nothing here is for later: a verb is added in the change that calls it. No Secrets, no exec, no Nodes.
"""

from __future__ import annotations

from typing import Any

from crawljob import API_GROUP, PLURAL


def rules(*, clusterwide: bool) -> list[dict[str, Any]]:
    """The ``rules`` of the ClusterRole (``clusterwide``) or of the Role in each watched namespace."""
    namespaced = [
        _rule(API_GROUP, PLURAL, "get", "list", "watch", "delete"),
        _rule(API_GROUP, f"{PLURAL}/status", "patch"),
        # blockOwnerDeletion in an owner reference needs it where OwnerReferencesPermissionEnforcement is on.
        _rule(API_GROUP, f"{PLURAL}/finalizers", "update"),
        _rule("", "pods", "get", "list", "watch", "create", "delete"),
        _rule("", "persistentvolumeclaims", "get", "list", "watch", "create", "patch"),
        _rule("", "configmaps", "get", "list", "create", "delete"),
        _rule("batch", "jobs", "get", "delete"),
        _rule("networking.k8s.io", "networkpolicies", "get", "list", "create", "delete"),
        _rule("", "events", "list", "create", "patch"),
    ]
    if not clusterwide:
        return namespaced
    # The watcher follows our own CRD only: it may come, go and come back while the operator runs.
    definition = _rule("apiextensions.k8s.io", "customresourcedefinitions", "list", "watch")
    return [*namespaced, {**definition, "resourceNames": [f"{PLURAL}.{API_GROUP}"]}]


def _rule(group: str, resource: str, *verbs: str) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
