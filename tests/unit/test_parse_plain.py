"""A page that is called plain costs the real parser no more than that promises."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from durable_crawler.parse_guard import MAX_ATTRIBUTES
from durable_crawler.parse_plain import NESTED, formatting_is_closed, tags_are_short

REPEATS = 600

PIECES = [
    *("<b>", "<b x=1>", "</b>", "<i y='<'>", "<i>", "</i>", "<B>", "</B>", "<a href=x>", "</a>", '<font a="</font>">'),
    *("</font>", "<font>", "<code>", "</code>", "<span>", "</span>", '<span title="</b>">', "<span title=>", '">'),
    *("<p>", "</p>", "<div>", "</div>", "<table>", "<td>", "</td>", "</table>", "<select>", "</select>", "<svg>"),
    *("</svg>", "<script>", "</script>", "<!-- ", " -->", "<title>", "</title>", "text", "<br>", "<li>", "<h1>"),
    *("<template>", "</template>", "<object>", "</object>", "<nobr>", "</nobr>", "<![CDATA[", "]]>", "<b\0>", "< b>"),
]


def elements(text: str) -> int:
    return len(LexborHTMLParser(text).css("*"))


def of_their_own(piece: str) -> str:
    """Formatting elements of which no two are the same: of the same, the parser opens three again."""
    return "".join(
        piece.replace("<b>", f"<b b={n}>").replace("<i>", f"<i i={n}>").replace("<code>", f"<code c={n}>")
        for n in range(REPEATS)
    )


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6))
def test_a_page_whose_formatting_is_closed_has_few_elements(pieces: list[str]) -> None:
    """One that leaves but one open would have 180,000 of them where it is said 600 times."""
    text = of_their_own("".join(pieces))
    if formatting_is_closed(text):
        assert elements(text) <= (NESTED + 1) * text.count("<") + 10


@pytest.mark.parametrize(
    "page",
    [
        "<b><p></p></b>",
        "<b>text",
        "<b><i></b><p></i>",
        "<b><!-- </b> --><p>",
        "<b><script></b></script>",
        "<b><span title='</b>'></span>",
        '<b><span title="></b>"></span>',
        "<b x='</b>",
        "<B></B>",
        "<bIg></big>",
        "<b><select></b></select></b>",
        "<b><i><q><u></u></q></i></b>",
        "<b><q></b></q>",
        "<font\u00a0></font><font></font\u00a0>",
    ],
)
def test_formatting_that_may_be_open_for_longer_is_told(page: str) -> None:
    assert not formatting_is_closed(page)


@pytest.mark.parametrize(
    "page",
    [
        "<p>text <b>bold</b> and <a href='/x' class=\"y\"><code class=z><span>c</span></code></a></p>",
        "<div><p><div></p>",
        "<b><b></b></b><code>" + "<span>a <q>b</q></span><br>" * 100 + "</code>",
        "<img src=x><br/><body><base>",
    ],
)
def test_plain_pages_are_told(page: str) -> None:
    assert formatting_is_closed(page)
    assert tags_are_short(page)


@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_tag_with_many_attributes_is_told(quote: str) -> None:
    many = MAX_ATTRIBUTES + 1
    assert not tags_are_short("<p " + "a " * many + ">")
    assert not tags_are_short(f"<p a={quote}>{quote} " + f"a= \t{quote}>{quote} " * many + ">")
    assert tags_are_short("<p a=1 b='2' c=\"3\"></p>" * many)


@pytest.mark.parametrize("name", ["body", "html", "BoDy"])
def test_many_attributes_of_one_element_in_many_tags_are_told(name: str) -> None:
    """A quarter of a megabyte of them takes the parser 4 s, and four times as much sixteen times as long."""
    tags = [f"<{name} " + " ".join(f"{tag}x{number}" for number in range(200)) + ">" for tag in range(160)]
    assert not tags_are_short("".join(tags))
    assert tags_are_short(tags[0])
