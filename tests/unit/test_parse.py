"""Links, title and encoding of a page."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_crawler.latest import Latest
from durable_crawler.parse import FOLLOWED, Memo, Parsed, is_html, media_type, parse
from durable_crawler.robots_tags import directives
from durable_crawler.traps import Trap
from durable_crawler.urls import Refusal

URL = "https://x.example/dir/page?q"


def read(html: str | bytes, content_type: str = "text/html; charset=utf-8", max_links: int = 100) -> Parsed:
    return parse(html if isinstance(html, bytes) else html.encode(), content_type, URL, max_links)


def test_links_are_canonical_distinct_and_in_document_order() -> None:
    page = read(
        "<a href=b#1>1</a><a href=/a>2</a><map><area href=c></map><a href=b#2>3</a><a href>4</a><a name=n>5</a>"
        "<a href=https://X.example:443/a>6</a>"
    )
    assert page.links == (
        "https://x.example/dir/b",
        "https://x.example/a",
        "https://x.example/dir/c",
        "https://x.example/dir/page?q",
    )
    assert page.truncated_links == 0


def test_links_beyond_the_cap_are_counted_once_each() -> None:
    page = read("<a href=1></a><a href=2></a><a href=1></a><a href=3></a><a href=3#x></a><a href=4></a>", max_links=2)
    assert page.links == ("https://x.example/dir/1", "https://x.example/dir/2")
    assert page.truncated_links == 2


def test_a_cap_of_zero_keeps_none() -> None:
    assert read("<a href=1></a>", max_links=0).truncated_links == 1


def test_refused_references_are_counted_by_reason() -> None:
    page = read(
        "<a href=mailto:a@b></a><a href=javascript:x></a><a href=http://></a><a href=http://u:p@h/></a>"
        f"<a href=http://[></a><a href=/{'a' * 3000}></a><a href=ok></a>"
    )
    assert page.links == ("https://x.example/dir/ok",)
    assert page.refused == {
        Refusal.SCHEME: 2,
        Refusal.EMPTY_HOST: 1,
        Refusal.CREDENTIALS: 1,
        Refusal.INVALID: 1,
        Refusal.TOO_LONG: 1,
    }


@pytest.mark.parametrize(
    ("html", "links"),
    [
        ("<svg><a href=/s>x</a></svg><a href=/h></a>", ["/h"]),
        ("<svg><a xlink:href=/s>x</a></svg>", []),
        ("<svg><foreignObject><a href=/h></a></foreignObject><a href=/s></a></svg>", ["/h"]),
        ("<svg><desc><a href=/h></a></desc></svg>", ["/h"]),
        ("<svg><foreignObject><svg><a href=/s></a></svg><p><a href=/h></a></p></foreignObject></svg>", ["/h"]),
        ("<math><a href=/m></a></math><math><mi><a href=/h></a></mi></math>", ["/h"]),
        ("<math><annotation-xml encoding=text/html><a href=/h></a></annotation-xml></math>", ["/h"]),
        ("<math><annotation-xml><a href=/m></a></annotation-xml></math>", []),
        ("<svg><p><a href=/h></a>", ["/h"]),
        ("<template><a href=/t></a></template>", []),
        ("<script>'<a href=/n></a>'</script>", []),
        ("<a href='/&copy;'></a>", ["/%C2%A9"]),
    ],
)
def test_only_html_elements_are_links(html: str, links: list[str]) -> None:
    assert read(html).links == tuple(f"https://x.example{link}" for link in links)


def test_links_that_look_like_a_trap_are_counted_by_its_name() -> None:
    page = read("<a href=/a/a/a></a><a href=/b/b/b></a><a href=/b/b/b></a><a href='/?a&a&a&a&a&a'></a><a href=ok></a>")
    assert page.links == ("https://x.example/dir/ok",)
    assert page.refused == {Trap.REPETITION: 2, Trap.SAME_PARAMETER: 1}


# What a site does not want


def test_a_link_that_is_not_to_be_followed_is_told_apart() -> None:
    page = read("<a href=1 rel='external NoFollow'></a><a href=2 rel=nofollow-not></a><a href=3></a>")
    assert page.links == ("https://x.example/dir/2", "https://x.example/dir/3")
    assert page.nofollow_links == ("https://x.example/dir/1",)
    assert (page.nofollow, page.noindex) == (False, False)


@pytest.mark.parametrize("html", ["<a href=1 rel=nofollow></a><a href=1>", "<a href=1></a><a href=1 rel=nofollow>"])
def test_a_link_that_one_element_follows_is_followed(html: str) -> None:
    page = read(f"{html}<a href=1#x rel=nofollow>")
    assert (page.links, page.nofollow_links) == (("https://x.example/dir/1",), ())


def test_links_of_both_kinds_share_the_cap() -> None:
    page = read("<a href=1 rel=nofollow></a><a href=2></a><a href=3></a><a href=4 rel=nofollow></a>", max_links=2)
    assert (len(page.links), len(page.nofollow_links), page.truncated_links) == (1, 1, 2)


@pytest.mark.parametrize(
    ("html", "nofollow", "noindex"),
    [
        ("<meta name=robots content='noindex, nofollow'>", True, True),
        ("<meta name=ROBOTS content='NOFOLLOW'>", True, False),
        ("<meta name=robots content=none>", True, True),
        ("<meta name=robots content='index,follow'>", False, False),
        ("<meta name=robots content=noindex><meta name=robots content=nofollow>", True, True),
        ("<meta name=our-bot content=nofollow>", True, False),
        ("<meta name=other-bot content=none>", False, False),
        ("<meta name=description content=nofollow>", False, False),
        ("<meta name=robots>", False, False),
        ("<template><meta name=robots content=none></template>", False, False),
        ("<!-- <meta name=robots content=none> -->", False, False),
        ("<body><p><meta name=robots content=nofollow>", True, False),
    ],
)
def test_meta_robots(html: str, nofollow: bool, noindex: bool) -> None:
    page = parse(f"{html}<a href=/l>".encode(), "text/html", URL, 10, product="our-bot")
    assert (page.nofollow, page.noindex) == (nofollow, noindex)
    assert (page.links == (), page.nofollow_links == ("https://x.example/l",)) == (nofollow, nofollow)


@pytest.mark.parametrize(
    ("tags", "asked"),
    [
        ([], ""),
        (["noindex"], "noindex"),
        (["NoIndex, NoFollow"], "noindex nofollow"),
        (["none"], "noindex nofollow"),
        (["all"], ""),
        (["our-bot: nofollow"], "nofollow"),
        (["OUR-BOT:nofollow , noindex"], "noindex nofollow"),
        (["other-bot: nofollow, noindex"], ""),
        (["other-bot: none", "noindex"], "noindex"),
        (["other-bot: noindex, our-bot: nofollow"], "nofollow"),
        (["our-bot: nofollow, other-bot: noindex"], "nofollow"),
        (["*: nofollow", "robots: noindex"], "noindex nofollow"),
        (["unavailable_after: 25 Jun 2010 15:00:00 PST, nofollow"], "nofollow"),
        (["max-snippet: 20, nofollow"], "nofollow"),
        (["unavailable_after: Fri, 25 Jun 2010 15:00:00 GMT"], ""),
        (["our-bot-news: nofollow"], ""),
        (["", ",", ":", ": nofollow", "nofollow:"], ""),
    ],
)
def test_x_robots_tag(tags: list[str], asked: str) -> None:
    assert directives(tags, [], "our-bot") == set(asked.split())
    page = parse(b"<a href=/l>", "text/html", URL, 10, robots_tags=tags, product="our-bot")
    assert (page.nofollow, page.noindex) == ("nofollow" in asked, "noindex" in asked)


def test_header_and_elements_add_up() -> None:
    page = parse(b"<meta name=robots content=follow>", "text/html", URL, 10, robots_tags=["nofollow"])
    assert page.nofollow


# Other elements


def test_frames_and_next_pages_are_links_where_the_spec_says_so() -> None:
    html = (
        "<link rel=next href=/2><link rel=stylesheet href=/s><a href=/a></a><iframe src=/i></iframe><iframe></iframe>"
        "<map><area href=/r></map><iframe src=about:blank></iframe>"
    )
    assert read(html).links == ("https://x.example/a", "https://x.example/r")
    page = parse(html.encode(), "text/html", URL, 10, follow=(*FOLLOWED, "frame", "iframe", "next"))
    assert [link.removeprefix("https://x.example/") for link in page.links] == ["2", "a", "i", "r"]
    assert page.refused == {Refusal.SCHEME: 1}
    assert parse(html.encode(), "text/html", URL, 10, follow=("next",)).links == ("https://x.example/2",)
    frames = b"<frameset><frame src=/f></frameset>"
    assert parse(frames, "text/html", URL, 10, follow=("a", "frame")).links == ("https://x.example/f",)


@pytest.mark.parametrize(
    ("base", "link"),
    [
        ("<base href=/b/>", "https://x.example/b/l"),
        ("<base target=_blank><base href=/b/><base href=/c/>", "https://x.example/b/l"),
        ("<svg><base href=/s/></svg>", "https://x.example/dir/l"),
        ("<base href=https://cdn.example/>", "https://cdn.example/l"),
        ("<base href=javascript:x>", "https://x.example/dir/l"),
        ("<base href=http://[>", "https://x.example/dir/l"),
    ],
)
def test_base(base: str, link: str) -> None:
    assert read(f"{base}<a href=l></a>").links == (link,)


def test_a_base_of_another_scheme_takes_relative_links_with_it() -> None:
    page = read("<base href=ftp://f.example/><a href=l></a><a href=https://o.example/></a>")
    assert page.links == ("https://o.example/",)
    assert page.refused == {Refusal.SCHEME: 1}


def test_a_deep_page_costs_no_more_than_its_size() -> None:
    page = read("<svg></svg>" + "<div>" * 2000 + "".join(f"<p><a href={n}></a>" for n in range(2000)), max_links=5000)
    assert len(page.links) == 2000


@pytest.mark.parametrize(
    ("html", "title"),
    [
        ("<title>\n A  &amp;\tB </title><title>C</title>", "A & B"),
        ("<svg><title>S</title></svg><p>x", ""),
        ("<p>none", ""),
        (f"<title>{'long ' * 1000}</title>", ("long " * 103)[:512].rstrip()),
    ],
)
def test_title(html: str, title: str) -> None:
    assert read(html).title == title


@pytest.mark.parametrize(
    ("body", "content_type", "charset", "title"),
    [
        ("<title>é</title>".encode(), "text/html", "utf-8", "é"),
        ("<title>é</title>".encode("cp1252"), "text/html", "windows-1252", "é"),
        ("<title>é</title>".encode("cp1252"), "text/html; charset=ISO-8859-1", "windows-1252", "é"),
        ("<title>\u20ac</title>".encode("cp1252"), 'text/html; charset="latin1"', "windows-1252", "\u20ac"),
        (b"\xef\xbb\xbf" + "<title>é</title>".encode(), "text/html; charset=latin1", "utf-8", "é"),
        (b"\xff\xfe" + "<title>é</title>".encode("utf-16-le"), "text/html", "utf-16le", "é"),
        ("<meta charset=shift_jis><title>ツ</title>".encode("cp932"), "text/html", "shift_jis", "ツ"),
        ("<meta charset=utf-16><title>é</title>".encode(), "text/html", "utf-8", "é"),
        (b"<meta charset=utf-7><title>+AGE-</title>", "text/html", "utf-8", "+AGE-"),
        (b"<meta charset=rot13><title>a</title>", "text/html; charset=zlib", "utf-8", "a"),
        ("<!-- <meta charset=koi8-r> --><title>é</title>".encode(), "text/html", "utf-8", "é"),
        (b"<title>a\xff</title>", "text/html; charset=utf-8", "utf-8", "a\ufffd"),
        (b"<!--" + b"x" * 1100 + b"--><meta charset=koi8-r><title>\xc1</title>", "text/html", "koi8-r", "а"),
    ],
)
def test_encoding(body: bytes, content_type: str, charset: str, title: str) -> None:
    page = read(body, content_type)
    assert (page.charset, page.title) == (charset, title)


def test_queries_are_escaped_in_the_encoding_of_the_page() -> None:
    page = read(
        "<a href='/é?é&\u20ac#é'></a><a href='/?ж'></a>".encode("cp1252", "xmlcharrefreplace"), "text/html; charset=l1"
    )
    assert page.links == ("https://x.example/%C3%A9?%E9&%80", "https://x.example/?%26%231078%3B")


@pytest.mark.parametrize(
    ("content_type", "name", "html"),
    [
        ("text/html", "text/html", True),
        ('Text/HTML;Charset="UTF-8"', "text/html", True),
        ("application/xhtml+xml; q=1", "application/xhtml+xml", True),
        ("text/plain, text/html", "text/html", True),
        ("text/html, nonsense", "text/html", True),
        ("text/plain", "text/plain", False),
        ("", "", False),
        ("html", "", False),
    ],
)
def test_media_type(content_type: str, name: str, html: bool) -> None:
    assert media_type(content_type) == name
    assert is_html(content_type) is html


MARKUP = st.lists(
    st.sampled_from(
        [
            "<a href=x>",
            "<a href='",
            "<svg>",
            "</svg>",
            "<base href=//[>",
            "<template>",
            "<title>",
            "<meta charset=big5>",
        ]
    )
    | st.text(max_size=5)
).map("".join)


@given(MARKUP.map(lambda text: text.encode("utf-8", "replace")) | st.binary(), st.text(max_size=30))
def test_no_page_breaks_the_parser(body: bytes, content_type: str) -> None:
    page = parse(body, content_type, URL, 10)
    assert len(page.links) <= 10
    assert len(page.title) <= 512


def test_a_memo_keeps_what_is_said_again_and_no_pictures() -> None:
    memo: Memo = Latest()
    picture = "data:image/png;base64," + "A" * 10_000
    body = f"<a href=/a><a href='{picture}'><a href=/{'b' * 1000}>".encode()
    first = parse(body, "text/html", URL, 10, memo=memo)
    assert parse(body, "text/html", URL, 10, memo=memo) == first == parse(body, "text/html", URL, 10)
    assert len(first.links) == 2
    assert [raw for _, raw in memo._young] == ["/a"]


def test_a_memo_knows_the_document_itself_from_its_neighbours() -> None:
    memo: Memo = Latest()
    for url in ("http://x.example/d/a", "http://x.example/d/b"):
        assert parse(b"<a href='http:'>", "text/html", url, 10, memo=memo).links == (url,)
