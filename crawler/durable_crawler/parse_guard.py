"""How much of a page the HTML parser is given. Pure; called by ``parse`` before it.

The parser's time grows with the square of a page's depth, and of a tag's number of attributes: four megabytes of
``<div>`` keep it, and with it the whole process, for ten minutes. Both are estimated from the text, on the safe side of
what any honest page has. A page that hides from the estimate is ended by the claims that it may cost (law L2). The
parser's memory, half a kilobyte for each element, is bounded as well.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice

MAX_DEPTH = 10_000
"""Elements within each other; browsers stop at 512."""
MAX_ATTRIBUTES = 10_000
"""Of one tag."""
MAX_ELEMENTS = 250_000
"""Of a page with less than ``DENSITY`` characters for each of them."""
DENSITY = 24
SMALL = 65_536
"""Characters of a page that is never looked at: it cannot cost a second."""

# Not counted: elements without an end, and those that the next of their kind ends. None of the latter stands directly
# within another of its kind, so that what lies deep between them is counted.
_UNCOUNTED = (
    "area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr|"
    "a|button|nobr|p|li|dt|dd|option|optgroup|tr|td|th|thead|tbody|tfoot|colgroup|caption|rt|rp"
)
_TAG = re.compile(rf"<(/?)(?!(?:{_UNCOUNTED})[\s/>])([a-z][a-z0-9-]*)", re.IGNORECASE)
_START = re.compile(r"<[a-zA-Z]")
_LONG_TAG = re.compile(rf"<[a-zA-Z][^>]{{{2 * MAX_ATTRIBUTES},}}")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")


def harmless(text: str) -> str:
    """``text``, or its beginning up to where it would take the parser too long."""
    if len(text) <= SMALL:
        return text
    return _without_many_attributes(_without_great_depth(_without_many_elements(text)))


def _without_many_elements(text: str) -> str:
    allowed = max(MAX_ELEMENTS, len(text) // DENSITY)
    if text.count("<") <= allowed:
        return text
    last = next(islice(_START.finditer(text), allowed, None), None)
    return text if last is None else text[: last.start()]


def _without_great_depth(text: str) -> str:
    opened: Counter[str] = Counter()
    depth = 0
    for tag in _TAG.finditer(text):
        name = tag[2].lower()
        if not tag[1]:
            opened[name] += 1
            depth += 1
        elif opened[name]:  # an end tag closes only what is open: others would hide the depth
            opened[name] -= 1
            depth -= 1
        if depth > MAX_DEPTH:
            return text[: tag.start()]
    return text


def _without_many_attributes(text: str) -> str:
    for tag in _LONG_TAG.finditer(text):
        if len(_QUOTED.sub(" ", tag[0]).split()) > MAX_ATTRIBUTES:
            return text[: tag.start()]
    return text
