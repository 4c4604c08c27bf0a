"""Whether a page is written so plainly that nothing in it can cost the parser much. Pure; asked by ``parse_guard``.

Most pages are, and are told by three searches, which take a third of the time of going through a page tag by tag. Only
what has one reading is believed: the patterns err to the side of saying no.
"""

from __future__ import annotations

import re

NESTED = 24
"""Tags that may stand in a formatting element, each end tag one: about what a highlighted line of code has."""

_ATTRIBUTES = r"""(?:[\s/]++[^\s<>"'=/]++(?:=(?:"[^"<>]*+"|'[^'<>]*+'|[^\s<>"'=]++))?){0,200}+[\s/]*+>"""
# a b big code em font i nobr s small strike strong tt u: the parser opens them again in blocks that follow.
_FORMATTING = r"(?:a|b(?:ig)?|code|em|font|i|nobr|s(?:mall|tr(?:ike|ong))?|tt|u)"
# The same, and other elements that change nothing about what is open around them.
_PHRASING = (
    r"(?:a(?:bbr)?|b(?:ig|di|r)?|c(?:ite|ode)|del|em|font|i(?:mg|ns)?|kbd|label|mark|nobr|q"
    r"|s(?:amp|mall|pan|tr(?:ike|ong)|u[bp])?|t(?:t|ime)|u|var|wbr)"
)
_UNCLOSED = re.compile(
    rf"<(?:({_FORMATTING})(?=[\s/>])"
    rf"(?!{_ATTRIBUTES}[^<]*+(?:<(?!/?\1[\s/>])/?{_PHRASING}{_ATTRIBUTES}[^<]*+){{0,{NESTED}}}+</\1>)"
    rf"|(?=[a-z]*+[A-Z])(?i:{_FORMATTING})(?=[\s/>]))",
    re.ASCII,
)
"""A formatting element that does not end, by its own end tag, before a block or an element of its kind begins."""

_LONG = re.compile(r"<[a-zA-Z][^>]{2000}")
_QUOTED_END = re.compile(r"""=\s*+(?:"[^">]*+>|'[^'>]*+>)""", re.ASCII)
"""A value that the end of its tag may stand in: without any, a tag ends at the first ``>``."""


def formatting_is_closed(text: str) -> bool:
    """Whether at most ``NESTED`` formatting elements are ever to be opened again, so that each tag adds as many."""
    return _UNCLOSED.search(text) is None


def tags_are_short(text: str) -> bool:
    """Whether no tag has more than 1,000 attributes."""
    return _LONG.search(text) is None and _QUOTED_END.search(text) is None
