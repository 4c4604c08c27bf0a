"""A page's bytes to its links and title. Called by the engine with what ``fetch`` brought; pure, and never raises.

The tree is Lexbor's, that is, the WHATWG parser's. A link is the ``href`` of an HTML ``a`` or ``area`` element,
resolved against the first HTML ``base`` that has one; what stands in SVG, MathML, templates or script text is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from selectolax.lexbor import LexborHTMLParser, LexborNode

from durable_crawler.charsets import decode, encode_query
from durable_crawler.urls import Refusal, Resolver, document_base

TITLE_MAX = 512
"""Characters of a title that are kept."""

_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})

_NO_HREF = "\0"  # no attribute has it: the HTML tokenizer replaces NUL

# Elements of SVG and MathML whose children are HTML again (WHATWG HTML section 13.1.2, integration points).
_HTML_AGAIN = frozenset({"foreignObject", "desc", "title", "mi", "mo", "mn", "ms", "mtext"})


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a page says."""

    links: tuple[str, ...]
    """Canonical and distinct, in document order."""
    truncated_links: int
    """Distinct links beyond ``max_links``, which were dropped."""
    refused: dict[Refusal, int]
    """References that are no URLs of a crawl, by reason."""
    title: str
    """The first ``title`` element's text, white space collapsed, at most ``TITLE_MAX`` characters."""
    charset: str
    """The encoding that was used, by its WHATWG name in lower case."""


def media_type(content_type: str) -> str:
    """The type in a Content-Type value, lower case, without parameters; of several the last that is one."""
    types = [part.partition(";")[0].strip(" \t").lower() for part in content_type.split(",")]
    return next((name for name in reversed(types) if "/" in name), "")


def is_html(content_type: str) -> bool:
    """Whether a response of this Content-Type is read and parsed. A missing one is not guessed at."""
    return media_type(content_type) in _HTML_TYPES


def parse(body: bytes, content_type: str, url: str, max_links: int) -> Parsed:
    """Reads an HTML document that came from the canonical ``url``. At most ``max_links`` links are kept."""
    text, charset = decode(body, content_type)
    tree = LexborHTMLParser(text)
    page = _Page(tree)
    resolver = Resolver(page.base(url))
    seen: set[str] = set()  # raw references: pages repeat their navigation, and a set is cheaper than a resolution
    links: dict[str, None] = {}
    refused: Counter[Refusal] = Counter()
    dropped: set[str] = set()
    for node in page.anchors():
        raw = node.attrs.sget("href", _NO_HREF)  # an href without a value is an empty one
        if raw in seen or raw == _NO_HREF:
            continue
        seen.add(raw)
        link = resolver.canonical(raw if charset == "utf-8" else encode_query(raw, charset))
        if isinstance(link, Refusal):
            refused[link] += 1
        elif link not in links:
            if len(links) < max_links:
                links[link] = None
            else:
                dropped.add(link)
    return Parsed(tuple(links), len(dropped), dict(refused), page.title(), charset)


class _Page:
    """The elements of a tree that count. Looking for a tag that a page does not have costs next to nothing."""

    def __init__(self, tree: LexborHTMLParser) -> None:
        self._tree = tree
        self._foreign = bool(tree.tags("svg") or tree.tags("math"))
        self._known: dict[int, bool] = {}

    def base(self, url: str) -> str:
        """The document's base URL: that of the first HTML ``base`` with an href, or ``url``."""
        for node in self._tree.tags("base"):
            if "href" in node.attrs and self.is_html(node):
                return document_base(node.attrs.sget("href"), url)
        return url

    def title(self) -> str:
        """The text of the first HTML ``title``, as ``document.title`` gives it, cut to ``TITLE_MAX``."""
        for node in self._tree.tags("title"):
            if self.is_html(node):
                return " ".join(node.text()[: 16 * TITLE_MAX].split())[:TITLE_MAX].rstrip()
        return ""

    def anchors(self) -> Iterable[LexborNode]:
        """``a`` and ``area`` elements in document order."""
        nodes = self._tree.css("a[href], area[href]") if self._tree.tags("area") else self._tree.tags("a")
        return filter(self.is_html, nodes) if self._foreign else nodes

    def is_html(self, node: LexborNode) -> bool:
        """Whether the element is in the HTML namespace, told from its ancestors: selectolax does not say.

        Every ancestor is judged once, or deep trees with many links would cost their product.
        """
        if not self._foreign:
            return True
        path: list[int] = []
        answer = True
        child, parent = node, node.parent
        while parent is not None:
            known = self._known.get(child.mem_id)
            if known is not None:
                answer = known
                break
            path.append(child.mem_id)
            if parent.tag in ("svg", "math"):
                answer = False
                break
            if parent.tag in _HTML_AGAIN or (parent.tag == "annotation-xml" and _holds_html(parent)):
                break
            child, parent = parent, parent.parent
        self._known.update(dict.fromkeys(path, answer))
        return answer


def _holds_html(annotation: LexborNode) -> bool:
    return (annotation.attrs.get("encoding") or "").lower() in _HTML_TYPES
