"""Pages that the parser would need minutes for are told beforehand; ordinary ones never are."""

from __future__ import annotations

import pytest

from durable_crawler.hostile import ATTRIBUTES_MAX, NESTING_MAX, objection
from durable_crawler.parse import parse


@pytest.mark.parametrize(
    "body",
    [
        b"<div>" * 200_000 + b"<a href=/x>",
        b"<div></p>" * 100_000,
        b"<DIV></span>" * 100_000,
        b"<b><i>" * 50_000,
        b"<table><tr><td>" * 20_000,
        b"<a " + b" ".join(b"a%d=1" % number for number in range(40_000)) + b">",
        b"<p " + b"a/" * 100_000,
    ],
)
def test_what_is_nested_without_end_or_has_attributes_without_end(body: bytes) -> None:
    assert objection(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<p>" * 100_000,
        b"<li>one" * 100_000,
        b"<br>" * 100_000,
        b"<div><b>x</b></div>" * 50_000,
        b"<table>" + b"<tr><td>1<td>2" * 50_000,
        b"<img src='data:" + b"A" * 1_000_000 + b"'>",
        b"<" * 1_000_000,
        b"a > b " * 100_000,
    ],
)
def test_what_is_only_long(body: bytes) -> None:
    assert objection(body) == ""


def test_what_is_let_through_at_the_limit_is_parsed() -> None:
    body = b"<div>" * (NESTING_MAX - 2) + b"<a href=/deep>" + b"<i " + b"x=1 " * (ATTRIBUTES_MAX // 2) + b">"
    assert objection(body) == ""
    assert parse(body, "text/html", "http://a.example/", 10).links == ("http://a.example/deep",)
