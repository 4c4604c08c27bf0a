"""The identity of a URL, as a table and as properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_crawler.urls import MAX_LENGTH, Refusal, Resolver, authority, canonical, document_base, url_hash

PIECES = (
    *("/", "//", ".", "..", "a", "b.c", "%2e", "%2F", "%41", "?", "#", ":", "@", "&", "=", "'", '"', "\\", "\t", " "),
    *(
        "é",
        "\x00",
        "^",
        "|",
        "(",
        "~",
        "-",
        ";",
        "http:",
        "https://h.example",
        "https://h.example/",
        "ftp://f/",
        "\ud800",
    ),
)
REFERENCES = st.lists(st.sampled_from(PIECES), max_size=8).map("".join) | st.text(max_size=20)
BASES = ("https://h.example/a/b?q=1", "http://h.example:8080/", "https://h.example/x/?", "http://h.example//a//b/")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("HTTP://Example.ORG:80", "http://example.org/"),
        ("https://x:80/", "https://x:80/"),
        (" https://x/a\n/b ", "https://x/a/b"),
        ("https://x/A/?b=1&a=2", "https://x/A/?b=1&a=2"),
        ("https://x/%2F%40%7e%E9?%2f%40", "https://x/%2F%40%7e%E9?%2f%40"),
        ("https://x/?", "https://x/?"),
        ("https://x/#", "https://x/"),
        ("https://x/?#a", "https://x/?"),
        ("https://:@x/", "https://x/"),
        ("https://x/@a", "https://x/@a"),
        ("http://x/\ud800", "http://x/%EF%BF%BD"),
        ("http://1.2.3", "http://1.2.0.3/"),
        ("http://[::0001]/", "http://[::1]/"),
        ("mailto:a@b.example", Refusal.SCHEME),
        ("java\nscript:x", Refusal.SCHEME),
        ("data:text/html," + "x" * 100_000, Refusal.SCHEME),
        ("ftp://x/", Refusal.SCHEME),
        ("https://user@x/", Refusal.CREDENTIALS),
        ("https://:secret@x/", Refusal.CREDENTIALS),
        ("http://", Refusal.EMPTY_HOST),
        ("http:///", Refusal.EMPTY_HOST),
        ("http://user@/", Refusal.EMPTY_HOST),
        ("http://:80/", Refusal.EMPTY_HOST),
        ("/relative", Refusal.INVALID),
        ("http://[::1", Refusal.INVALID),
        ("http://x:99999/", Refusal.INVALID),
        ("", Refusal.INVALID),
        ("http://x/" + "a" * (MAX_LENGTH - 9), "http://x/" + "a" * (MAX_LENGTH - 9)),
        ("http://x/" + "a" * (MAX_LENGTH - 8), Refusal.TOO_LONG),
        ("http://x/" + "a" * 1_000_000, Refusal.TOO_LONG),
    ],
)
def test_canonical(raw: str, expected: str) -> None:
    assert canonical(raw) == expected


@given(REFERENCES, st.sampled_from(BASES))
def test_canonical_never_raises_and_is_stable(raw: str, base: str) -> None:
    first = canonical(raw, base)
    if not isinstance(first, Refusal):
        assert canonical(first) == first
        assert first.isascii()
        assert "#" not in first


@given(REFERENCES, st.sampled_from([*BASES, "ftp://f.example/d/", "https://user:pw@h.example/", "mailto:x"]))
def test_the_short_cut_of_a_document_gives_the_parser_s_answer(raw: str, base: str) -> None:
    assert Resolver(base).canonical(raw) == canonical(raw, base)


WITHIN = st.sampled_from(
    [
        f"{scheme}://{host}{path}"
        for scheme in ("http", "https")
        for host in ("x.example", "y.example:81")
        for path in ("/", "/a", "/a/b", "/a/c?q", "/a/?q", "/a//b")
    ]
)
PARTS = st.lists(
    st.sampled_from(
        [
            "http:",
            "https:",
            "HTTP:",
            "ht\ntp:",
            "/",
            "//",
            "\\",
            "?",
            "?x",
            "#",
            "#f",
            "..",
            ".",
            "%2e",
            "a",
            "y.example",
            "C|",
            ":",
            "@",
            " ",
            "\t",
            "\x0b",
            "\u00a0",
            "é",
        ]
    ),
    max_size=4,
).map("".join)


@given(PARTS | st.text(max_size=5), WITHIN, WITHIN)
def test_what_depends_on_the_same_of_two_documents_is_the_same(raw: str, first: str, second: str) -> None:
    if Resolver(first).depends_on(raw) == Resolver(second).depends_on(raw) != "":
        assert canonical(raw, first) == canonical(raw, second)


@pytest.mark.parametrize("raw", ["http:", "http:?x", "HTTP:#f", "ht\ttp:", "?x", "", "#f", " "])
def test_what_may_be_the_document_itself_depends_on_all_of_it(raw: str) -> None:
    assert Resolver("http://x.example/a/b?q").depends_on(raw) == ""


@pytest.mark.parametrize(
    ("reference", "base"),
    [
        ("/b/", "https://x/b/"),
        ("", "https://x/a?q"),
        ("data:,x", "https://x/a?q"),
        ("JavaScript:x", "https://x/a?q"),
        ("http://[bad", "https://x/a?q"),
        ("ftp://f/d/", "ftp://f/d/"),
    ],
)
def test_document_base(reference: str, base: str) -> None:
    assert document_base(reference, "https://x/a?q") == base


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://x/", "x"),
        ("https://x/a?b", "x"),
        ("http://x:443/", "x:443"),
        ("https://x:8080/a/b:c@d", "x:8080"),
        ("http://[::1]:8080/", "[::1]:8080"),
        ("http://[::1]/", "[::1]"),
        ("http://x./", "x."),
    ],
)
def test_authority(url: str, expected: str) -> None:
    assert authority(url) == expected


def test_hash_is_the_same_for_ever() -> None:
    """It is stored: another value for the same URL would be another page after an upgrade."""
    assert url_hash("https://example.org/") == (4534805212106757940, -6881711865863166121)


@given(st.text(max_size=50).filter(str.isascii))
def test_hash_fits_sqlite(url: str) -> None:
    assert all(-(2**63) <= half < 2**63 for half in url_hash(url))
