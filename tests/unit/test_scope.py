"""What belongs to the crawl, and by which reason not."""

from __future__ import annotations

import pytest

from crawljob.manifest import parse
from crawljob.patterns import Ruling
from durable_crawler.scope import LeftOut, Scope

A = "https://a.example"


@pytest.fixture
def scope() -> Scope:
    include, exclude = ["/docs/*", "/p*"], ["*.pdf", "/private/*"]
    spec = {"seeds": [f"{A}/#top"], "scope": {"maxDepth": 3, "include": include, "exclude": exclude}}
    return Scope.of(parse(spec))


@pytest.mark.parametrize(
    ("url", "depth", "why"),
    [
        (f"{A}/docs/a", 3, None),
        (f"{A}/docs/a", 4, LeftOut.DEPTH),
        ("http://a.example/docs/a", 1, None),
        ("https://b.example/docs/a.pdf", 4, LeftOut.AUTHORITY),
        (f"{A}:81/docs/a", 1, LeftOut.AUTHORITY),
        (f"{A}/docs/a.pdf", 1, LeftOut.EXCLUDED),
        (f"{A}/private/", 1, LeftOut.EXCLUDED),
        (f"{A}/blog", 1, LeftOut.NOT_INCLUDED),
        (f"{A}/", 1, None),
        (f"{A}/?", 1, LeftOut.NOT_INCLUDED),
    ],
)
def test_why_a_page_is_left_out(scope: Scope, url: str, depth: int, why: LeftOut | None) -> None:
    assert scope.objection(url, depth) is why


def test_the_pattern_that_decided_is_known(scope: Scope) -> None:
    assert scope.ruling(f"{A}/private/") == Ruling(False, "/private/*")
    assert scope.ruling(f"{A}/public") == Ruling(True, "/p*")
    assert scope.ruling(f"{A}/blog") == Ruling(False)
    assert scope.ruling(f"{A}/") == Ruling(True), "a seed needs no pattern"
