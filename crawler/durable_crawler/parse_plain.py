"""Whether a page is written so plainly that nothing in it can cost the parser much. Pure; asked by ``parse_guard``.

Most pages are: each element is closed by its own end tag, before what it stands in. To the parser (WHATWG HTML section
13.2.6) such a page never has more elements open than it says, but for those that tables imply. That is found out in
half the time that the parser itself takes. Only what has one reading is believed: all doubts are a no.
"""

from __future__ import annotations

import re

_SPACE = r"\t\n\f\r "
_NAME = rf"[a-zA-Z][^{_SPACE}/>]*+"
_REST = rf"(?:[{_SPACE}/][^>]*+)?>"
_COMMENT = r"!--(?!-?>)(?:[^-]++|-(?!-))*+-->"


def _whole(name: str, content: str) -> str:
    return rf"(?i:{name}){_REST}{content}</(?i:{name}){_REST}"


# There are most of these, and where they have only text they change nothing.
_LEAF = "|".join(f"{name}{_REST}[^<]*+</{name}>" for name in ("span", "code", "em", "strong"))


_SHAPES = r"/?(?:circle|defs|ellipse|g|line|path|poly(?:line|gon)|rect|t(?:ext|span)|use)"
# What is skipped as one: it has text, or elements that have no others, and ends where every reading says so.
_WHOLE = "|".join(
    [
        _whole("script", r"(?:[^<]++|<(?!(?i:/script)|!--))*+"),
        _whole("style", r"(?:[^<]++|<(?!(?i:/style)))*+"),
        *(_whole(name, "[^<]*+") for name in ("title", "textarea", "iframe")),
        _whole("select", rf"[^<]*+(?:</?opt(?:ion|group){_REST}[^<]*+)*+"),
        rf"svg{_REST}(?<!/>)[^<]*+(?:<(?:{_SHAPES}{_REST}|title>[^<]*+</title>|{_COMMENT})[^<]*+){{0,200}}+</svg>",
        _COMMENT,
        "![dD][^>]*+>",
    ]
)
_TAG = re.compile(
    rf"<(?:{_LEAF}"
    rf"|((?:/|(?![sStTiI](?i:cript|elect|tyle|vg|itle|extarea|frame)[{_SPACE}/>])){_NAME}"
    rf"|(?!{_WHOLE})[a-zA-Z/!?](?s:.*))[^>]*+"
    rf"|{_WHOLE})"
)
"""A tag and its name, with the slash of an end tag; no name for what is skipped, and where something is not understood
all the rest as one. A tag ends at the first ``>``."""


def _named(words: str) -> frozenset[str]:
    return frozenset(words.split())


_SKIPPED = _named(
    "area base basefont bgsound br col embed frame hr image img input keygen link meta param source track wbr "
    "html head body /html /head /body"
) | {""}
# The parser opens these again behind what closed them but their own end tags.
_FORMATTING = _named("a b big code em font i nobr s small strike strong tt u")
# These change nothing about what is open around them.
_PHRASING = _named(
    "abbr audio bdi bdo canvas cite data del ins kbd label legend map mark meter output picture progress q samp slot "
    "span sub sup time var video"
)
_OTHERS = _named("button caption colgroup dialog form hgroup noscript p pre search tbody td tfoot th thead tr")
# The end tags of these close what is open in them, as far as that needs no end tag of its own and would not have closed
# them by its start. Parts of tables are not among them: where there is no table, they are not opened.
_IMPLIED = dict.fromkeys(
    _named(
        "address article aside blockquote center dd details div dt fieldset figcaption figure footer h1 h2 h3 h4 h5 h6 "
        "header li main nav section summary"
    ),
    _named("/p"),
)
_IMPLIED |= dict.fromkeys(_named("dir menu ol ul"), _named("/p /li"))
_IMPLIED |= {"dl": _named("/p /dd /dt"), "table": _named("/p /td /th /tr /tbody")}
_END = {name: f"/{name}" for name in (*_FORMATTING, *_PHRASING, *_OTHERS, *_IMPLIED)}
_CLOSED_BY = {f"/{name}": implied for name, implied in _IMPLIED.items()}
_FORMATTING_ENDS = frozenset(map(_END.__getitem__, _FORMATTING))
_PHRASING_ENDS = frozenset(map(_END.__getitem__, _PHRASING))
_ALONE = _named("/a /nobr /form")
"""Two of these are not open in each other: one closes the other and moves what is in between, or is not opened."""
_CLOSE_THEIR_LIKE = _named("p li dd dt td th tr")

IMPLIED = 3
"""Times as many elements as are said to be open may be so: to a table belong a body and a row."""

_LONG = re.compile(r"<[a-zA-Z][^>]{1000,}+")
_BETWEEN = re.compile(rf"""[{_SPACE}/"']""")
"""What stands between two attributes."""
_QUOTED_END = re.compile(rf"""=[{_SPACE}]*+(?:"[^">]*+>|'[^'>]*+>)""")
"""What may be a value that the end of its tag stands in, anywhere in the text."""
_QUOTES = re.compile(
    rf"""</?+[a-zA-Z][^>"'=]*+(?:(?<![{_SPACE}/"'])=[{_SPACE}]*+"""
    rf"""(?:"[^">]*+"|'[^'>]*+'|[^{_SPACE}>"']++|(?=>))[^>"'=]*+)*+(["'=]?)"""
)
"""A tag, and what is odd in it: a quote that stands not around a whole value, or around one with a ``>``."""
_ROOTS_MAX = 4
"""Tags of the root and the body: whatever they say that is new is added to the one element that there is of each."""


def copies(text: str, max_open: int) -> int | None:  # noqa: PLR0912 - one loop, as there are very many tags
    """How many elements at most the parser adds to those that the tags of ``text`` start: formatting, opened again.

    Bodies and rows of tables are not counted, of which there are at most half as many as tags.

    ``None`` where nothing is known: more than ``max_open`` elements are open in each other, or not all is closed in its
    order, or there is anything whose end can be read in two ways. Of ``text``, ``tags_are_short`` must be true.
    """
    names = _TAG.findall(text)
    if names.count("html") + names.count("body") > _ROOTS_MAX:
        return None
    outer: list[str] = []
    awaited = ""
    alone: set[str] = set()
    formatting = again = 0
    for name in [name for name in names if name not in _SKIPPED]:
        if name == awaited:
            awaited = outer.pop()
            if name in _ALONE:
                alone.discard(name)
            if formatting:
                if name in _FORMATTING_ENDS:
                    formatting -= 1
                elif name not in _PHRASING_ENDS:
                    again += formatting
            continue
        if name[0] == "/":
            again += formatting
            if name != "/p":  # which makes another where there is none to close
                implied = _CLOSED_BY.get(name, ())
                while awaited in implied:
                    awaited = outer.pop()
                if awaited != name:
                    return None
                awaited = outer.pop()
            continue
        end = _END.get(name) or _end_of_custom(name)
        if end is None:
            return None
        if end in _ALONE:
            if end in alone:
                return None
            alone.add(end)
        if name in _FORMATTING:
            formatting += 1
            again += 1  # an hr closes a paragraph, and with it what is open there
        elif name not in _PHRASING:
            again += formatting
            if end == awaited and name in _CLOSE_THEIR_LIKE:
                continue
        outer.append(awaited)
        awaited = end
        if len(outer) > max_open:
            return None
    return again


def _end_of_custom(name: str) -> str | None:
    """The end tag of a custom element, whose name has a hyphen (WHATWG HTML section 4.13.2)."""
    return f"/{name}" if "-" in name and name.isascii() and name.replace("-", "").isalnum() and name.islower() else None


def tags_are_short(text: str, most: int) -> bool:
    """Whether no tag has more than ``most`` attributes, and each ends at its first ``>``."""
    if _QUOTED_END.search(text) is not None and any(_QUOTES.findall(text)):
        return False
    return all(len(_BETWEEN.findall(tag)) < most for tag in _LONG.findall(text))
