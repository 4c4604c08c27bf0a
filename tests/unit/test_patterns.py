"""Which URLs a pattern matches, that each URL of the table is one, and what a hostile pattern costs."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawljob.manifest import parse
from crawljob.patterns import Ruling, UrlPatterns
from crawljob.problems import InvalidInputError
from durable_crawler.urls import canonical

SITE = "https://x.example"


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("/", ["/"], ["/?", "/a"]),
        ("/docs/*", ["/docs/", "/docs/a", "/docs/a/b?c=d"], ["/docs", "/docs?a", "/Docs/a", "/a/docs/", "/docsearch"]),
        ("/docs*", ["/docs", "/docs?a", "/docsearch"], ["/doc"]),
        ("/docs/**", ["/docs/", "/docs/a/b"], ["/docs"]),
        ("/a?b=1", ["/a?b=1"], ["/a", "/ab=1", "/axb=1", "/a?b=12"]),
        ("/*?*", ["/?", "/a?b"], ["/", "/a"]),
        ("/*.pdf", ["/.pdf", "/a/b.pdf"], ["/a.pdf?x", "/a.PDF", "/apdf"]),
        ("/*/edit/*", ["/a/edit/", "/a/b/edit/c", "//edit/"], ["/edit/", "/a/edit"]),
        ("/a*a", ["/aa", "/aba"], ["/a"]),
        ("/*ab*ab", ["/abab", "/ab-ab", "/ababab"], ["/ab", "/aab", "/abb"]),
        ("/*ab*bc*", ["/abbc", "/ab/bc?"], ["/abc", "/bcab"]),
        ("*", ["/", "/a?b"], []),
        ("*.html", ["/a.html", "/?a.html"], ["/a.htm"]),
        ("https://x.example/*", ["/", "/a"], []),
        ("https://x.example/a", ["/a"], ["/a/", "/"]),
        ("https://*.example/b*", ["/b"], ["/a"]),
        ("http://x.example/*", [], ["/"]),
        ("http*://x.example/*", ["/"], []),
        ("*://x.example/*", ["/"], []),
        ("*x.example/a", ["/a", "/?x.example/a"], []),
        ("/?[a-z]+(.)$^|", ["/?[a-z]+(.)$^|"], ["/?a"]),
        ("/%C3%A9", ["/%C3%A9"], ["/%c3%a9"]),
        (r"/\d", [], ["/1"]),
    ],
)
def test_what_a_pattern_matches(pattern: str, matching: list[str], others: list[str]) -> None:
    assert parse({"seeds": ["https://other.example/x"], "scope": {"include": [pattern]}}).scope.include == (pattern,)
    urls = [SITE + target for target in matching + others]
    assert [canonical(url) for url in urls] == urls
    patterns = UrlPatterns(include=[pattern])
    assert [url for url in urls if patterns.ruling(url).admitted] == [SITE + target for target in matching]


@pytest.mark.parametrize(
    "pattern",
    [
        *("", "docs/*", "a*", "?x", "#", "/a#b", "/a b", "/é", "/a\n", "/\t", "/\0", "/a\N{NO-BREAK SPACE}"),
        *("https://x.example", "https://X.example/*", "https://é.example/*", "ftp://x.example/*", "https:/x/"),
        *("^/docs", "https?://x.example/*", "/" + "a" * 256),
    ],
)
@pytest.mark.parametrize("field", ["include", "exclude"])
def test_a_pattern_that_can_match_nothing_is_refused(field: str, pattern: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse({"seeds": ["https://x.example/"], "scope": {field: ["/ok", pattern]}})
    assert [problem.path for problem in refused.value.problems] == [f"spec.scope.{field}[1]"]


def test_there_are_a_hundred_patterns_at_most() -> None:
    with pytest.raises(InvalidInputError, match="must have at most 100 item"):
        parse({"seeds": ["https://x.example/"], "scope": {"exclude": ["/a"] * 101}})


def test_a_pattern_of_the_path_holds_for_every_host_and_another_for_its_own() -> None:
    patterns = UrlPatterns(exclude=["/private/*", "https://a.example:8443/*"])
    assert not patterns.ruling("http://b.example/private/").admitted
    assert not patterns.ruling("https://a.example:8443/").admitted
    assert patterns.ruling("https://a.example/").admitted


def test_exclude_goes_before_include_and_the_first_that_matches_decides() -> None:
    patterns = UrlPatterns(["/docs/*", "/docs/a"], ["/*.pdf", "/docs/a.pdf", "/docs/old/*"])
    assert patterns.ruling(f"{SITE}/docs/a") == Ruling(True, "/docs/*")
    assert patterns.ruling(f"{SITE}/docs/a.pdf") == Ruling(False, "/*.pdf")
    assert patterns.ruling(f"{SITE}/docs/old/a") == Ruling(False, "/docs/old/*")
    assert patterns.ruling(f"{SITE}/blog") == Ruling(False, None)
    assert UrlPatterns(exclude=["/a"]).ruling(f"{SITE}/b") == Ruling(True, None)
    assert UrlPatterns().ruling(f"{SITE}/b") == Ruling(True, None)


@given(st.text("ab*", max_size=12), st.text("ab", max_size=20))
def test_it_is_what_the_obvious_regular_expression_is(pattern: str, path: str) -> None:
    obvious = ".*".join(map(re.escape, f"/{pattern}".split("*")))
    expected = re.fullmatch(obvious, f"/{path}") is not None
    assert UrlPatterns([f"/{pattern}"]).ruling(f"{SITE}/{path}").admitted is expected


@pytest.mark.parametrize(
    "hostile",
    [
        "/" + "*a" * 125 + "*c*",
        "/*" + "a" * 252 + "c*",
        "/*c" + "a" * 252 + "*",
        "/*" + "ab" * 126 + "c*",
        "/*" + "ab*" * 83 + "c*",
        "/" + "*" * 252 + "c*",
        "/" + "*a" * 126 + "c",
    ],
)
def test_a_hostile_pattern_costs_no_more_than_its_length_and_the_urls(hostile: str) -> None:
    """A hundred times on a hundred of the longest URLs: trying again would take for ever."""
    urls = [SITE + "/" + filler for filler in ("a" * 2030, "ab" * 1015) for _ in range(50)]
    patterns = UrlPatterns(include=[hostile] * 100)
    started = time.process_time()
    assert not any(patterns.ruling(url).admitted for url in urls)
    assert time.process_time() - started < 5


def test_an_excluded_seed_is_refused_by_its_path() -> None:
    seeds = ["https://x.example/", "https://x.example/private/../PRIVATE/", "https://x.example/a/../private/x#y"]
    with pytest.raises(InvalidInputError) as refused:
        parse({"seeds": seeds, "scope": {"include": ["/docs/*"], "exclude": ["/private/*", "/p*"]}})
    (problem,) = refused.value.problems
    assert problem.path == "spec.seeds[2]"
    assert problem.message.startswith("is excluded by /private/* of scope.exclude")


def test_a_thousand_seeds_and_a_hundred_hostile_patterns_are_judged_soon() -> None:
    """The operator does that, too, and must go on answering."""
    seeds = [f"https://x.example/{'a' * 170}{number}" for number in range(1000)]
    started = time.process_time()
    parse({"seeds": seeds, "scope": {"exclude": ["/*" + "a" * 252 + "b*"] * 50 + ["/" + "*a" * 126 + "*b*"] * 50}})
    assert time.process_time() - started < 5
