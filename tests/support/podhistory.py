"""What a watch of the test has seen of a namespace's Pods: whether there was never more than one of a CrawlJob."""

from __future__ import annotations

import json

from tests.support.apiserver import Api, Raw
from tests.support.builders import marker_pod

from crawljob_operator import names


class PodHistory:
    """The Pods' events of one namespace from its making on, as the API server's watch tells them."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._since = api.call("GET", self._path).body["metadata"]["resourceVersion"]
        self._alive: dict[str, str] = {}
        self._made: list[str] = []

    def _news(self) -> list[tuple[str, Raw]]:
        """All events since the last call, oldest first: the API server keeps them for a minute or longer."""
        marker = self._api.create(self._path, marker_pod("the-end-of-the-history"))
        self._api.delete(f"{self._path}/{marker['metadata']['name']}", grace=0)
        found: list[tuple[str, Raw]] = []
        with self._api.stream(f"{self._path}?watch=1&resourceVersion={self._since}") as answer:
            for line in answer:
                event = json.loads(line)
                assert event["type"] != "ERROR", event
                if event["object"]["metadata"]["uid"] == marker["metadata"]["uid"]:
                    self._since = event["object"]["metadata"]["resourceVersion"]
                    return found
                found.append((event["type"], event["object"]))
        raise AssertionError(f"the watch ended before its end was seen, after {len(found)} events")

    def made(self) -> list[str]:
        """The UIDs of all Pods of CrawlJobs, in their order; fails where two of one CrawlJob lived at once."""
        for kind, pod in self._news():
            job = pod["metadata"].get("labels", {}).get(names.LABEL_UID)
            uid = pod["metadata"]["uid"]
            if job is None:
                continue
            if kind == "ADDED":
                assert job not in self._alive, f"Pod {uid} was made while {self._alive[job]} was there"
                self._alive[job] = uid
                self._made.append(uid)
            elif kind == "DELETED":
                del self._alive[job]
        return list(self._made)
