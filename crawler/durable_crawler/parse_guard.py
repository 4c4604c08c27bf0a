"""How much of a page the HTML parser is given. Pure; called by ``parse`` before it, for every page.

The parser's time grows with the product of a page's depth and its tags, and with the square of a tag's number of
attributes. Its memory, half a kilobyte for each element, grows with the product of formatting elements that are never
closed and the blocks after them, in each of which they are opened again: 44 kilobytes can become gigabytes. All of it
is estimated from the text, on the safe side of what any honest page has. What a tag does to the open elements follows
WHATWG HTML section 13.2.6 where that closes something, and errs to the side of more depth elsewhere. A page that hides
from the estimate all the same is ended by the claims that it may cost (law L2).
"""

from __future__ import annotations

import re

from durable_crawler.parse_plain import IMPLIED, copies, tags_are_short

MAX_DEPTH = 5_100
"""Elements within each other; browsers stop at 512."""
MAX_STEPS = 100_000_000
"""Sum of the depths at which a page's tags stand: the parser may look through all open elements at each."""
MAX_ATTRIBUTES = 1_000
"""Of one tag."""
MAX_ELEMENTS = 250_000
"""Of a page."""
MAX_COPIES = 60_000
"""Of those that the parser adds: formatting elements, opened again in every block."""
FEW = 600
"""Start tags of a short page that is not looked at further: at their worst they make 90,000 elements, 45 MiB."""

SHORT = 32_768
"""Characters of a short page: as many attributes as it can have take a tenth of a second."""

_ATTRIBUTE = r"""[\s/]*+[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s"'>][^\s>]*+)?)?"""
_MARKUP = re.compile(
    r"<!--(?:-?>|(?:[^-]++|-(?!-!?>))*+(?:--!?>)?)|(?P<cdata><!\[CDATA\[)|<[!?][^>]*+>?|</[^a-zA-Z>][^>]*+>?|"
    rf"<(?P<end>/?)(?P<name>[a-zA-Z][^\s/>]*+)(?P<attributes>(?:{_ATTRIBUTE}){{0,{MAX_ATTRIBUTES}}}+)"
    rf"(?P<slash>[\s/]*+)(?:>|(?P<more>{_ATTRIBUTE})|\Z)"
)
_RAW_END = {
    name: re.compile(rf"</{name}[\s/>]", re.IGNORECASE)
    for name in ("script", "style", "title", "textarea", "xmp", "iframe", "noembed", "noframes")
}

_FORMATTING = frozenset(
    ["a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u"]
)
_VOID = frozenset(
    [
        "area",
        "base",
        "basefont",
        "bgsound",
        "br",
        "col",
        "embed",
        "frame",
        "hr",
        "image",
        "img",
        "input",
        "keygen",
        "link",
        "meta",
        "param",
        "source",
        "track",
        "wbr",
    ]
)
_IGNORED = frozenset({"html", "head", "body", "frameset"})
_CELLS = frozenset({"td", "th"})
_ROWS = _CELLS | {"tr"}
_GROUPS = _ROWS | {"tbody", "thead", "tfoot", "caption", "colgroup"}
_TERMS = frozenset({"dd", "dt"})
# What the start of an element closes, if nothing but formatting and paragraphs is open in it.
_CLOSES = {"p": frozenset({"p"}), "li": frozenset({"li"}), "option": frozenset({"option"}), "tr": _ROWS}
_CLOSES |= dict.fromkeys(_TERMS, _TERMS) | dict.fromkeys(_CELLS, _CELLS)
_CLOSES |= dict.fromkeys(_GROUPS - _ROWS, _GROUPS)
_MARKERS = _CELLS | {"applet", "caption", "marquee", "object", "template"}
_BARRIERS = _MARKERS | {"select", "table"}  # which hide from an end tag what is open around them
_SPECIAL = _BARRIERS | _GROUPS | _TERMS
_SPECIAL |= frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "button",
        "center",
        "details",
        "dialog",
        "dir",
        "div",
        "dl",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "header",
        "hgroup",
        "hr",
        "iframe",
        "li",
        "listing",
        "main",
        "menu",
        "nav",
        "noscript",
        "ol",
        "optgroup",
        "option",
        "p",
        "plaintext",
        "pre",
        "search",
        "section",
        "summary",
        "ul",
        "xmp",
    ]
)
_FOREIGN = frozenset({"svg", "math"})
_HTML_AGAIN = frozenset({"foreignobject", "desc", "title", "mi", "mo", "mn", "ms", "mtext", "annotation-xml"})
_LEAVES_FOREIGN = _FORMATTING - {"a", "font"} | frozenset(
    [
        "blockquote",
        "body",
        "br",
        "center",
        "dd",
        "div",
        "dl",
        "dt",
        "embed",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "head",
        "hr",
        "img",
        "li",
        "menu",
        "meta",
        "ol",
        "p",
        "pre",
        "ruby",
        "span",
        "sub",
        "sup",
        "table",
        "ul",
        "var",
    ]
)


def harmless(text: str) -> str:
    """``text``, or its beginning up to where it would cost the parser too much."""
    tags = text.count("<")
    if len(text) <= SHORT and (tags <= FEW or (tags <= 4 * FEW and tags - text.count("</") <= FEW)):
        return text
    return text if _is_plain(text, tags) else _affordable(text)


def _is_plain(text: str, tags: int) -> bool:
    """Whether all limits are kept because no element is open for longer than it says."""
    if tags > MAX_ELEMENTS and tags - text.count("</") + text.count("</p") > MAX_ELEMENTS:
        return False  # an end tag without a paragraph makes one
    if not tags_are_short(text, MAX_ATTRIBUTES):
        return False
    added = copies(text, min(MAX_DEPTH, MAX_STEPS // max(tags, 1)) // IMPLIED)
    return added is not None and added <= MAX_COPIES


def _affordable(text: str) -> str:
    """The beginning of ``text`` that is affordable."""
    tree = _Tree()
    at = root_attributes = 0
    while (tag := _MARKUP.search(text, at)) is not None:
        at = tag.end()
        if tag["name"] is None:
            tree.elements += 1
            if tag["cdata"] and tree.in_foreign:
                at = text.find("]]>", at) % (len(text) + 1)
            continue
        name = tag["name"].lower()
        if tag["end"]:
            tree.end(name)
        else:
            tree.start(name, tag["attributes"], closed=tag["slash"].endswith("/"))
            if name in _RAW_END:
                at = tree.raw(name, text, at)
            elif name in ("html", "body"):  # all of them are one tag to the parser
                root_attributes += len(tag["attributes"]) // 3
        if tag["more"] or tree.too_much() or root_attributes > 8 * MAX_ATTRIBUTES:
            return text[: tag.start()]
    return text


class _Tree:
    """The open elements, about as the parser would have them, and what they have cost it."""

    def __init__(self) -> None:
        self.elements = 0
        self.copies = 0
        self.steps = 0
        self._open: list[str] = []  # foreign ones begin with a colon
        self._formatting: list[tuple[str, str]] = []  # those to be opened again, by name and attributes
        self._markers: list[tuple[int, int]] = []  # for each open one its place, and the formatting before it
        self._trusted = True  # end tags are believed

    def too_much(self) -> bool:
        """Whether the tag before was too much."""
        depth = len(self._open) + len(self._formatting)
        self.steps += depth
        return depth > MAX_DEPTH or self.steps > MAX_STEPS or self.elements > MAX_ELEMENTS or self.copies > MAX_COPIES

    @property
    def in_foreign(self) -> bool:
        """Whether what comes is SVG or MathML."""
        return bool(self._open) and self._open[-1][0] == ":" and self._open[-1][1:] not in _HTML_AGAIN

    def start(self, name: str, attributes: str, *, closed: bool) -> None:
        """A start tag; ``closed`` is one that ends with a slash, which HTML itself ignores."""
        self.elements += 1
        if name in _LEAVES_FOREIGN:
            while self.in_foreign:
                self._cut(len(self._open) - 1)
        if name in _FOREIGN or self.in_foreign:
            if not closed:
                self._open.append(f":{name}")
            return
        if name in _SPECIAL:
            self._again()
        if name == "a":  # two are never open in each other
            self._end("a")
            self._forget("a")
        if name in _VOID or name in _IGNORED or (name in _GROUPS and not self._in_table()):
            return
        if closes := _CLOSES.get(name):
            self._close(closes)
        if name in _FORMATTING:
            self._format(name, attributes)
        if name in _MARKERS:
            self._markers.append((len(self._open), len(self._formatting)))
        self._open.append(name)

    def end(self, name: str) -> None:
        """An end tag closes only what it reaches: others would hide the depth."""
        if self._trusted:
            self._end(name)

    def _end(self, name: str) -> None:
        if name in _SPECIAL:
            self._again()
        if name in self._open or f":{name}" in self._open:
            self._close_one(name)
        elif any(other == name for other, _ in self._formatting) and not self._hides():
            self._forget(name)

    def _close_one(self, name: str) -> None:
        special = 0
        for at in range(len(self._open) - 1, -1, -1):
            other = self._open[at]
            if other.removeprefix(":") == name and (other[0] != ":" or special == 0):
                break
            if other[0] == ":" and self._open[-1][0] != ":":
                return
            if other in _BARRIERS and not (name in _GROUPS | {"table"} and other in _GROUPS) and name != "template":
                return
            special += other in _SPECIAL
            if special and name not in _SPECIAL and name not in _FORMATTING:
                return
        else:
            return
        self.steps += len(self._open) - at
        if name in _FORMATTING:
            self.copies += 4 * min(special, 8)  # the copies that the parser makes to straighten the nesting
            if special < 8:  # it gives up beyond that
                self._forget(name)
        if special and name in (*_FORMATTING, "form"):
            self._open[at] = "span"  # closed, but not what is in it
        else:
            self._cut(at)

    def _hides(self) -> bool:
        """Whether an end tag may not reach formatting that was opened first."""
        return any(other in _BARRIERS or other[0] == ":" for other in self._open)

    def raw(self, name: str, text: str, at: int) -> int:
        """Where the text of the element ends that has just begun, or ``at`` where it is markup like any other."""
        if self.in_foreign or self._open[-1] == f":{name}" or (name != "script" and "select" in self._open):
            self._trusted = self._trusted and "select" not in self._open  # parsers differ here
            return at
        end = _RAW_END[name].search(text, at)
        inside = text[at : len(text) if end is None else end.start()]
        # A comment in a script may hide its end.
        self._trusted = self._trusted and inside.rfind("<!--") <= inside.rfind("-->")
        return len(text) if end is None else end.start()

    def _again(self) -> None:
        self.copies += len(self._formatting) - (self._markers[-1][1] if self._markers else 0)

    def _in_table(self) -> bool:
        return next(
            (
                other in _GROUPS or other in ("table", "template")
                for other in reversed(self._open)
                if other in _BARRIERS or other in _GROUPS
            ),
            False,
        )

    def _close(self, names: frozenset[str]) -> None:
        """The outermost of ``names`` that are open one in the other."""
        found = None
        for at in range(len(self._open) - 1, -1, -1):
            if self._open[at] in names:
                found = at
            elif (
                names == _CLOSES["option"]
                or (self._open[at] not in _FORMATTING and self._open[at] != "p")
                or found is not None
            ):
                break
        if found is not None:
            self._cut(found)

    def _format(self, name: str, attributes: str) -> None:
        self.steps += len(self._formatting)
        if self._formatting[-3 * MAX_DEPTH :].count((name, attributes)) < 3:
            self._formatting.append((name, attributes))

    def _forget(self, name: str) -> None:
        first = self._markers[-1][1] if self._markers else 0
        for at in range(len(self._formatting) - 1, first - 1, -1):
            if self._formatting[at][0] == name:
                del self._formatting[at]
                return

    def _cut(self, at: int) -> None:
        del self._open[at:]
        while self._markers and self._markers[-1][0] >= at:
            del self._formatting[self._markers.pop()[1] :]
