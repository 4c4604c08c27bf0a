"""A page that is called plain costs the real parser no more than that promises."""

from __future__ import annotations

import time
import timeit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser, LexborNode

from durable_crawler.parse_guard import MAX_ATTRIBUTES
from durable_crawler.parse_plain import IMPLIED, copies, tags_are_short

REPEATS = 200
MAX_OPEN = 12
"""More than the pieces of one repetition can open in each other, and less than one left open in each makes."""

FORMATTING = ("a", "b", "i", "code", "font", "nobr")
BLOCKS = ("p", "div", "li", "ul", "dd", "dt", "dl", "h1", "form", "button", "section", "address", "noscript", "search")
TABLES = ("table", "tbody", "thead", "tr", "td", "th", "caption", "colgroup")
OTHERS = ("span", "q", "label", "x-y", "select", "option", "svg", "g", "template", "object", "script", "style", "title")
NAMES = (*FORMATTING, *BLOCKS, *TABLES, *OTHERS, "body", "html", "head", "frameset", "plaintext", "rt", "rp", "ruby")
PIECES = [
    *(f"<{name}>" for name in NAMES),
    *(f"</{name}>" for name in NAMES),
    *("<b x=1>", "<i y='<'>", "<a href=x>", '<font a="</font>">', '<span title="</b>">', "<span title=>", '">', "<p/>"),
    *("<b\0>", "</b\0>", "<b\u00a0>", "<b\x0b>", "< b>", "</ b>", "<B>", "</B>", "<dIv>", "</dIv>", "<g/>", "<svg/>"),
    *("<!-- ", " -->", "-->", "--!>", "<!-->", "<!doctype x>", "<?x", "<![CDATA[", "]]>", "text", "<br>", "<hr>"),
    *("<input>", "<col>", "<image>", "</br>", "<p a=b=\"c d='>'>", '<p ="x b=\'" c=d>', "<p a=x\"b c='>'>", "'>"),
]
ELEMENTS = (*FORMATTING, *BLOCKS, *TABLES, "span", "q", "label", "x-y", "select", "option", "ruby", "rt")

trees = st.recursive(
    st.sampled_from(["text", "<br>", "<hr>", "<input>", "<col>", "<svg><path/></svg>", "<p>", "<li>", "<dd>", "<td>"]),
    lambda inner: st.builds(
        lambda name, within: f"<{name}>{''.join(within)}</{name}>",
        st.sampled_from(ELEMENTS),
        st.lists(inner, max_size=4),
    ),
    max_leaves=8,
)


def cost(text: str) -> tuple[int, int]:
    """How many elements the parser makes of ``text``, and how many of them are in each other."""
    elements = depth = deepest = 0
    node: LexborNode | None = LexborHTMLParser(text).root
    while node is not None:
        elements += node.is_element_node
        deepest = max(deepest, depth)
        if node.first_child is not None:
            node, depth = node.first_child, depth + 1
            continue
        while node is not None and node.next is None:
            node, depth = node.parent, depth - 1
        node = None if node is None or depth <= 0 else node.next
    return elements, deepest


def of_their_own(piece: str) -> str:
    """Formatting elements of which no two are the same: of the same, the parser opens three again."""
    return "".join(
        piece.replace("<b>", f"<b b={n}>").replace("<i>", f"<i i={n}>").replace("<code>", f"<code c={n}>")
        for n in range(REPEATS)
    )


def holds(text: str) -> bool:
    """Whether ``text`` is plain; asserts that it is then as cheap as it should be."""
    added = copies(text, MAX_OPEN)
    if added is None or not tags_are_short(text, MAX_ATTRIBUTES):
        return False
    elements, depth = cost(text)
    assert elements <= 1.5 * text.count("<") + added + 10  # bodies and rows of tables are implied
    assert depth <= IMPLIED * (MAX_OPEN + 2)
    return True


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=8))
def test_whatever_is_called_plain_is_cheap(pieces: list[str]) -> None:
    holds(of_their_own("".join(pieces)))


@settings(max_examples=500, deadline=None)
@given(st.lists(trees, min_size=1, max_size=4))
def test_whatever_is_closed_in_its_order_is_cheap(pieces: list[str]) -> None:
    """One element that stays open in each repetition, or one that is opened again in each, would be told."""
    holds(of_their_own("".join(pieces)))


@pytest.mark.parametrize("first", ELEMENTS)
@pytest.mark.parametrize("second", ELEMENTS)
def test_what_an_end_tag_is_believed_to_close_is_closed(first: str, second: str) -> None:
    piece = f"<{first}><{second}></{first}>"
    holds(of_their_own(piece))
    for third in ("li", "dt", "td", "p", "form"):
        holds(of_their_own(f"{piece}<{third}></{third}>"))
        holds(of_their_own(f"<p><b>{piece}x</b><{third}></{third}>"))


@pytest.mark.parametrize(
    "page",
    [
        "<b><p></b>",
        "<b><i></b><p></i>",
        "<div><!-- </div> --!></div>",
        "<div><!--></div>-->",
        "<b><script><!--</script></b>",
        "<b x='</b>'",
        "<b x='>'></b>",
        '<p ="x b=\'" c=d></p>',
        "<p a=x\"b c='d>'></p>",
        "<bIg></big>",
        "<select><p></select>",
        "<svg><p></svg>",
        "<svg/><g/></svg>",
        "<b><q></b></q>",
        "<dd><dt></dd>",
        "<form><p></form>",
        "<span><p></span>",
        "<q><td><p></td></q>",
        "<a><p><a></a></p></a>",
        "<form><table><form></form></table></form>",
        "<font\u00a0></font><font></font\u00a0>",
        "<div\x0b></div>",
        "<body>" * 5,
        "<template></template>",
        "<plaintext></plaintext>",
        "<![CDATA[</b>]]>",
    ],
)
def test_doubts_are_a_no(page: str) -> None:
    assert copies(page + "<p></p>", 99) is None or not tags_are_short(page, MAX_ATTRIBUTES)


@pytest.mark.parametrize(
    ("page", "again"),
    [
        ("<p>text <b>bold</b> and <span>a <a href='/x' class=\"y\"><q>c</q></a></span></p>", 2),
        ("<!doctype html><html><head><title>a</title><meta x><script>a<b</script></head><body><div></div></body>", 0),
        ("<ul><li>one<li>two<p>three<p>four</ul><dl><dd><p></dl><table><tr><td>x<td>y</table>", 0),
        ("<b><b><div></div></b></b>", 6),
        ("<!-- <b> --><svg class=x><path d='M0'/><g></g></svg><select><option>a<option>b</select>", 0),
        ("<img src=x><br/><base><my-element></my-element></p>", 0),
        ("x = 1 < 2 and c='<span>y</span>', d='</p>", 0),
    ],
)
def test_plain_pages_are_told(page: str, again: int) -> None:
    assert tags_are_short(page, MAX_ATTRIBUTES)
    assert copies(page, 9) == again


def test_what_is_open_in_each_other_is_counted() -> None:
    page = "<div>" * 9 + "</div>" * 9
    assert copies(page, 9) == 0
    assert copies(page, 8) is None


@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_tag_with_many_attributes_is_told(quote: str) -> None:
    many = MAX_ATTRIBUTES + 1
    assert not tags_are_short("<p " + "a " * many + ">", MAX_ATTRIBUTES)
    assert not tags_are_short("<p" + "/a" * many + ">", MAX_ATTRIBUTES)
    assert not tags_are_short(f"<p a={quote}>{quote} " + f"a= \t{quote}>{quote} " * many + ">", MAX_ATTRIBUTES)
    assert not tags_are_short("<p " + f"a={quote}{quote}" * many + ">", MAX_ATTRIBUTES)
    assert tags_are_short(f"<a href={quote}/{'x' * 10_000}{quote}>", MAX_ATTRIBUTES)
    assert tags_are_short("<p a=1 b='2' c=\"3\"></p>" * many, MAX_ATTRIBUTES)


@pytest.mark.parametrize("name", ["body", "html", "BoDy"])
def test_many_attributes_of_one_element_in_many_tags_are_told(name: str) -> None:
    """A quarter of a megabyte of them takes the parser 4 s, and four times as much sixteen times as long."""
    tags = [f"<{name} " + " ".join(f"{tag}x{number}" for number in range(200)) + ">" for tag in range(160)]
    assert copies("".join(tags), 9) is None


SIZE = 1_000_000
PADDING = "<p>x</p>" * 700


@pytest.mark.parametrize(
    "page",
    [
        "<script>" * (SIZE // 8),
        "<style>" * (SIZE // 7),
        "<!-- a" * (SIZE // 6),
        "<select>" + "<option>" * (SIZE // 8),
        "<svg><g>" * (SIZE // 8),
        "<p x='>'>" + "<a " * (SIZE // 3),
        "<p x='>'>" + '<a ="' * (SIZE // 5),
        "<p " + '="' * (SIZE // 2),
        ("<a " * 333 + ">") * (SIZE // 1000),
        "<script>" + "< " * (SIZE // 2) + "</script>" + PADDING,
        "<" * SIZE,
        "<b>" + "<div>" * 300 + "<a></a>" * (SIZE // 7),
        "<span x" * (SIZE // 7),
    ],
    ids=lambda page: page[:12],
)
def test_to_tell_takes_no_longer_than_the_page_is_long(page: str) -> None:
    """Four times the page, four times the time; a search that begins anew at each tag would take sixteen."""

    def seconds(text: str) -> float:
        def call() -> None:
            if tags_are_short(text, MAX_ATTRIBUTES):
                copies(text, 1000)

        return min(timeit.repeat(call, number=1, repeat=3, timer=time.process_time))

    assert seconds(page) <= 10 * seconds(page[: SIZE // 4]) + 0.05
