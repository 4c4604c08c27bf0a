"""A page's bytes to its links and title. Called by the engine with what ``fetch`` brought; pure.

No page makes it raise; what one may cost in memory is ``parse_guard``'s estimate, not a proof.

The tree is Lexbor's, that is, the WHATWG parser's. A link is the ``href`` of an HTML ``a`` or ``area`` element (or of
what else ``scope.follow`` names), resolved against the first HTML ``base`` that has one; what stands in SVG, MathML,
templates or script text is none. What a site does not want to be followed is not among the links, but told.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

from durable_crawler.charsets import decode, encode_query
from durable_crawler.latest import Latest
from durable_crawler.parse_guard import harmless
from durable_crawler.robots_tags import directives
from durable_crawler.traps import Trap, trap
from durable_crawler.urls import Refusal, Resolver, document_base

TITLE_MAX = 512
"""Characters of a title that are kept."""

TEXT_MAX = 100
"""Characters of a link's text, and of its rel, that are kept."""

FRAGMENT_MAX = 256
"""Characters of a fragment; a longer one is not kept, as half of one is another."""

IDS_MAX = 20_000
"""Ids of one page; with more, none is kept, or a fragment that is there would seem not to be."""

_TEXT_NODES = 64  # of a link, that are looked through for its text: links can be nested, in spite of the standard

Digest = bytes

_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})

_MANY = 10_000  # nodes of which it pays to free each as soon as it was seen

_FEW_FOREIGN = 64  # svg and math elements, each of which is gone through when all are searched, one in the other

_LOOKED_AT = "[href], math, meta, svg, title"
_FRAMES = "frame, iframe"

_NO_REFERENCE = "\0"  # no attribute has it: the HTML tokenizer replaces NUL

# Elements of SVG and MathML whose children are HTML again (WHATWG HTML section 13.1.2, integration points).
_HTML_AGAIN = frozenset({"foreignObject", "desc", "title", "mi", "mo", "mn", "ms", "mtext"})


FOLLOWED = ("a", "area")
"""What is followed unless the spec names more: ``frame``, ``iframe`` and, for ``<link rel=next>``, ``next``."""
_REFERENCES = {"a": ("a", "href"), "area": ("area", "href"), "frame": ("frame", "src"), "iframe": ("iframe", "src")}
_REFERENCES["next"] = ("link", "href")


class Reference(NamedTuple):
    """A link as it stands in the page, for who reads about it; those that only repeat another are left out."""

    url: str
    """Canonical."""
    fragment: str
    """As it is written behind the ``#``; empty where there is none."""
    text: str
    """Of the element, white space collapsed, cut to ``TEXT_MAX``; without any, an image's alternative."""
    rel: str
    """Lower case."""
    position: int
    """Counts all references of the page from 0."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a page says."""

    links: tuple[str, ...]
    """Canonical and distinct, in document order: those to follow."""
    truncated_links: int
    """Distinct links beyond ``max_links``, which were dropped."""
    refused: Mapping[Refusal | Trap, int]
    """References that are no URLs of a crawl, or look like a trap, by reason; each spelling of them once."""
    title: str
    """The first ``title`` element's text, white space collapsed, at most ``TITLE_MAX`` characters."""
    charset: str
    """The encoding that was used, by its WHATWG name in lower case."""
    nofollow_links: tuple[str, ...] = ()
    """Links that the site does not want to be followed and that ``links`` does not have; not to be requested for it."""
    nofollow: bool = False
    """Whether the page (its meta elements, its X-Robots-Tag) does not want any of its links to be followed."""
    noindex: bool = False
    """Whether the page does not want to be found by searching; only recorded, a crawl makes no index."""
    cut: bool = False
    """Whether the end of the page was not read, since it would take the parser too long."""
    content_hash: Digest = b""
    """BLAKE2b-128 of the body."""
    references: tuple[Reference, ...] = ()
    """Of ``links`` and ``nofollow_links``, in document order; at most ``max_links``."""
    ids: tuple[str, ...] | None = None
    """Where a fragment can lead, if that was asked for, the whole page was read, and they are not too many."""
    canonical: str = ""
    """The canonical URL that ``<link rel=canonical>`` names; empty where there is none."""


_REASONS = (Refusal, Trap)

_REMEMBERED_MAX = 512
"""Characters of a reference in a memo: what is longer (a picture in a ``data:`` URL) is hardly said twice, and would
make it as large as the pages themselves."""

Memo = Latest[tuple[str, str], str | Refusal | Trap]
"""What references became, by what of their page's URL that depends on and as they are written: pages of one site have
most of them in common.
"""


def media_type(content_type: str) -> str:
    """The type in a Content-Type value, lower case, without parameters; of several the last that is one."""
    types = [part.partition(";")[0].strip(" \t").lower() for part in content_type.split(",")]
    return next((name for name in reversed(types) if "/" in name), "")


def is_html(content_type: str) -> bool:
    """Whether a response of this Content-Type is read and parsed. A missing one is not guessed at."""
    return media_type(content_type) in _HTML_TYPES


def parse(
    body: bytes,
    content_type: str,
    url: str,
    max_links: int,
    *,
    robots_tags: Sequence[str] = (),
    product: str = "",
    follow: Collection[str] = FOLLOWED,
    references: bool = False,
    ids: bool = False,
    memo: Memo | None = None,
) -> Parsed:
    """Reads an HTML document that came from the canonical ``url``. At most ``max_links`` links are kept.

    ``robots_tags`` are the values of its X-Robots-Tag; ``product`` is the token by which it may address us.
    ``references`` and ``ids`` ask for what is called so in ``Parsed``. ``memo`` changes nothing but the time it takes.
    """
    text, charset = decode(body, content_type)
    given = harmless(text)
    page = _Page(LexborHTMLParser(given), follow)
    wishes = directives(robots_tags, page.robots_metas(), product)
    resolver = Resolver(page.base(url))
    found = _Links(resolver, charset, max_links, references=references, memo=memo)
    for position, (raw, rel, node) in enumerate(page.references()):
        found.add(raw, rel, node, position, followed="nofollow" not in rel and "nofollow" not in wishes)
    cut = len(given) < len(text)
    return Parsed(
        links=tuple(link for link, followed in found.links.items() if followed),
        truncated_links=len(found.dropped),
        refused=dict(found.refused),
        title=page.title(),
        charset=charset,
        nofollow_links=tuple(link for link, followed in found.links.items() if not followed),
        nofollow="nofollow" in wishes,
        noindex="noindex" in wishes,
        cut=cut,
        content_hash=hashlib.blake2b(body, digest_size=16).digest(),
        references=tuple(found.references),
        ids=page.ids() if ids and not cut else None,
        canonical=page.canonical(resolver),
    )


class _Links:
    """Collects the distinct links of a page. A link that one reference wants to be followed is followed."""

    def __init__(
        self, resolver: Resolver, charset: str, max_links: int, *, references: bool, memo: Memo | None
    ) -> None:
        self._resolver = resolver
        self._memo = memo if charset == "utf-8" else None  # in others, a query has other bytes
        self._charset = charset
        self._max_links = max_links
        # Raw references: pages repeat their navigation, and a look-up is cheaper than a resolution.
        self._seen: dict[str, bool] = {}
        self.links: dict[str, bool] = {}
        self.dropped: set[int] = set()
        self.refused: Counter[Refusal | Trap] = Counter()
        self._tell = references
        self._told: set[tuple[str, str]] = set()
        self.references: list[Reference] = []

    def add(self, raw: str, rel: Sequence[str], node: LexborNode, position: int, *, followed: bool) -> None:
        """Takes a reference as it stands in the page."""
        before = self._seen.get(raw)
        if before or (before is not None and not followed):
            return
        self._seen[raw] = followed
        link = self._resolved(raw)
        if isinstance(link, _REASONS):
            self.refused[link] += before is None
            return
        if link in self.links:
            self.links[link] = self.links[link] or followed
        elif len(self.links) < self._max_links:
            self.links[link] = followed
        else:
            self.dropped.add(hash(link))
            return
        if self._tell and len(self.references) < self._max_links:
            self._refer(link, raw, rel, node, position)

    def _resolved(self, raw: str) -> str | Refusal | Trap:
        if self._memo is None or len(raw) > _REMEMBERED_MAX or not (depends_on := self._resolver.depends_on(raw)):
            return self._judged(raw)
        key = (depends_on, raw)
        link = self._memo.get(key)
        if link is None:
            link = self._judged(raw)
            self._memo.put(key, link)
        return link

    def _judged(self, raw: str) -> str | Refusal | Trap:
        link = self._resolver.canonical(raw if self._charset == "utf-8" else encode_query(raw, self._charset))
        return link if isinstance(link, Refusal) else trap(link) or link

    def _refer(self, url: str, raw: str, rel: Sequence[str], node: LexborNode, position: int) -> None:
        fragment = ""
        if "#" in raw:
            fragment = raw.partition("#")[2].translate(_NOT_IN_URLS).strip(_TRIMMED)
            fragment = fragment if len(fragment) <= FRAGMENT_MAX else ""
        if (url, fragment) not in self._told:
            self._told.add((url, fragment))
            words = " ".join(rel)[:TEXT_MAX] if rel else ""
            self.references.append(Reference(url, fragment, _text(node), words, position))


# What the WHATWG URL parser takes out of its input, and away from its ends.
_NOT_IN_URLS = dict.fromkeys(map(ord, "\t\n\r"))
_TRIMMED = "".join(map(chr, range(0x21)))


def _text(node: LexborNode) -> str:
    """The text of a link, from as many of its nodes as it takes."""
    first = node.first_child
    if first is None:
        return ""
    if first.is_text_node and first.next is None:
        return _short(first.text_content or "")
    parts: list[str] = []
    instead = ""
    for inner in islice(node.traverse(include_text=True), _TEXT_NODES):
        if inner.is_text_node:
            parts.append((inner.text_content or "")[: 16 * TEXT_MAX])
        elif not instead and inner.tag == "img":
            instead = inner.attrs.sget("alt", "")
    return _short("".join(parts)) or _short(instead)


def _short(text: str) -> str:
    if len(text) <= TEXT_MAX and text.isprintable() and "  " not in text:  # a space is the one white space it can have
        return text.strip()
    return " ".join(text[: 16 * TEXT_MAX].split())[:TEXT_MAX].rstrip()


class _Page:
    """The elements of a tree that count."""

    def __init__(self, tree: LexborHTMLParser, follow: Collection[str]) -> None:
        self._tree = tree
        self._followed: list[LexborNode] = []
        self._others: dict[str, list[LexborNode]] = {}
        tags = {_REFERENCES[kind][0] for kind in follow}
        self._looked_at = _LOOKED_AT if tags.isdisjoint(("frame", "iframe")) else f"{_LOOKED_AT}, {_FRAMES}"
        for node in tree.css(self._looked_at):  # one walk of the tree, and few kinds to compare each node with
            tag = node.tag or ""
            if tag in tags:
                self._followed.append(node)
            if tag != "a":
                self._others.setdefault(tag, []).append(node)
        self._followed_tags = tags
        self._foreign = (*self._tagged("svg"), *self._tagged("math"))
        self._in_foreign: set[str] | None = None
        self._known: dict[int, bool] = {}

    def _tagged(self, tag: str) -> Sequence[LexborNode]:
        return self._others.get(tag, ())

    def base(self, url: str) -> str:
        """The document's base URL: that of the first HTML ``base`` with an href, or ``url``."""
        for node in self._tagged("base"):
            if "href" in node.attrs and self.is_html(node):
                return document_base(node.attrs.sget("href"), url)
        return url

    def title(self) -> str:
        """The text of the first HTML ``title``, as ``document.title`` gives it, cut to ``TITLE_MAX``."""
        for node in self._tagged("title"):
            if self.is_html(node):
                return " ".join(node.text()[: 16 * TITLE_MAX].split())[:TITLE_MAX].rstrip()
        return ""

    def robots_metas(self) -> Iterable[tuple[str, str]]:
        """Name and content of each HTML ``meta`` that has both."""
        for node in self._tagged("meta"):
            name, content = node.attrs.sget("name", ""), node.attrs.sget("content", "")
            if name and content and self.is_html(node):
                yield name, content

    def canonical(self, resolver: Resolver) -> str:
        """The first canonical URL that a ``link`` of the page names as its canonical one (RFC 6596)."""
        for node in self._tagged("link"):
            if "canonical" in node.attrs.sget("rel", "").lower().split() and self.is_html(node):
                url = resolver.canonical(node.attrs.sget("href", ""))
                if not isinstance(url, Refusal):
                    return url
        return ""

    def ids(self) -> tuple[str, ...] | None:
        """Ids of all elements, and names of ``a`` elements: what a fragment is looked up in (WHATWG HTML 7.4.6.4)."""
        nodes = self._tree.css("[id], a[name]")
        if len(nodes) > IDS_MAX:
            return None
        found: dict[str, None] = {}
        for node in nodes:
            attributes = node.attrs
            found[attributes.sget("id")] = None
            if node.tag == "a":
                found[attributes.sget("name")] = None
        found.pop("", None)
        return tuple(found)

    def references(self) -> Iterable[tuple[str, Sequence[str], LexborNode]]:
        """The references of the followed kinds in document order, each with the words of its rel and its element.

        To be asked for once: nodes of a page with very many links are freed as soon as each was seen.
        """
        many = len(self._followed) > _MANY
        foreign = any(self._may_be_foreign(tag) for tag in self._followed_tags)
        for node in _each(self._followed) if many else self._followed:
            if foreign and not self.is_html(node):
                continue
            attributes, tag = node.attrs, node.tag
            raw = attributes.sget("src" if tag in ("frame", "iframe") else "href", _NO_REFERENCE)
            if raw == _NO_REFERENCE:  # an href without a value is an empty one
                continue
            words = attributes.sget("rel").lower().split() if "rel" in attributes else ()
            if tag != "link" or "next" in words:
                yield raw, words, node

    def is_html(self, node: LexborNode) -> bool:
        """Whether the element is in the HTML namespace, told from its ancestors: selectolax does not say.

        Every ancestor is judged once, or deep trees with many links would cost their product.
        """
        if not self._may_be_foreign(str(node.tag)):
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

    def _may_be_foreign(self, tag: str) -> bool:
        """Whether any element of this name is in SVG or MathML: most pictures have neither links nor titles."""
        if not self._foreign or len(self._foreign) > _FEW_FOREIGN:
            return bool(self._foreign)
        if self._in_foreign is None:
            self._in_foreign = {str(node.tag) for picture in self._foreign for node in picture.css(self._looked_at)}
        return tag in self._in_foreign


def _each(nodes: list[LexborNode]) -> Iterable[LexborNode]:
    """The nodes in their order; each is freed when it was seen."""
    nodes.reverse()
    while nodes:
        yield nodes.pop()


def _holds_html(annotation: LexborNode) -> bool:
    return (annotation.attrs.get("encoding") or "").lower() in _HTML_TYPES
