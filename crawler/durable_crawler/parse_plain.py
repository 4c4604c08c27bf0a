"""Whether a page is written so plainly that nothing in it can cost the parser much. Pure; asked by ``parse_guard``.

Most pages are, and are told by three searches, which take a third of the time of going through a page tag by tag. Only
what has one reading is believed: the patterns err to the side of saying no.
"""

from __future__ import annotations

import re

NESTED = 3
"""Formatting elements that may be open in each other, or phrasing elements in one."""

_ATTRIBUTES = r"""(?:[\s/]++[^\s<>"'=/]++(?:=(?:"[^"<>]*+"|'[^'<>]*+'|[^\s<>"'=]++))?){0,200}+[\s/]*+>"""
# a b big code em font i nobr s small strike strong tt u: the parser opens them again in blocks that follow.
_FORMATTING = r"(?:a|b(?:ig)?|code|em|font|i|nobr|s(?:mall|tr(?:ike|ong))?|tt|u)"
# The same, and other elements that change nothing about what is open around them.
_PHRASING = (
    r"(?:a(?:bbr)?|b(?:ig|di)?|c(?:ite|ode)|del|em|font|i(?:ns)?|kbd|label|mark|nobr|q"
    r"|s(?:amp|mall|pan|tr(?:ike|ong)|u[bp])?|t(?:t|ime)|u|var)"
)
_VOID = rf"<(?:br|img|wbr){_ATTRIBUTES}"


def _content(elements: str) -> str:
    return rf"[^<]*+(?:(?:{elements})[^<]*+)*+"


_INNERMOST = rf"<(?P<inner>{_PHRASING}){_ATTRIBUTES}{_content(_VOID)}</(?P=inner)>"
_INNER = rf"<(?P<outer>{_PHRASING}){_ATTRIBUTES}{_content(f'{_VOID}|{_INNERMOST}')}</(?P=outer)>"
_UNCLOSED = re.compile(
    rf"<(?:(?P<formatting>{_FORMATTING})(?=[\s/>])"
    rf"(?!{_ATTRIBUTES}{_content(f'{_VOID}|{_INNER}')}</(?P=formatting)>)"
    rf"|(?=[a-z]*+[A-Z])(?i:{_FORMATTING})(?=[\s/>]))",
    re.ASCII,
)
"""A formatting element that has anything before its own end tag but text and closed phrasing elements, two deep."""

_LONG = re.compile(r"<[a-zA-Z][^>]{2000}")
_QUOTED_END = re.compile(r"""=\s*+(?:"[^">]*+>|'[^'>]*+>)""", re.ASCII)
"""A value that the end of its tag may stand in: without any, a tag ends at the first ``>``."""
_ROOT = re.compile(r"<(?:html|body)[\s/][^>]*+", re.ASCII | re.IGNORECASE)
_ROOTS_MAX = 4_000
"""Characters of all these tags: whatever they say that is new is added to the one element that there is of each."""


def formatting_is_closed(text: str) -> bool:
    """Whether a tag never makes the parser open more than ``NESTED`` formatting elements again."""
    return _UNCLOSED.search(text) is None


def tags_are_short(text: str) -> bool:
    """Whether no tag has more than 1,000 attributes, and the root and the body together not more than twice that."""
    if _LONG.search(text) is not None or _QUOTED_END.search(text) is not None:
        return False
    return sum(len(tag) for tag in _ROOT.findall(text)) <= _ROOTS_MAX
