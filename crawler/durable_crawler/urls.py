"""What a URL is to the crawl: its WHATWG href without the fragment, and nothing else (law L1).

Called by the engine for seeds, by ``parse`` for links and by ``fetch`` for redirects. Pure. Exactly the string that
``canonical`` returns is stored, compared and sent on the wire.
"""

from __future__ import annotations

import hashlib
import re
import struct
from enum import StrEnum

import ada_url

MAX_LENGTH = 2048
"""Characters of a canonical URL; a longer one is refused (L10)."""

_MAX_RAW_LENGTH = 65_536  # dot segments and tabs can only shrink a URL so far; a megabyte of href is not parsed at all

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_NO_HOST = re.compile(r"https?:[/\\]*+(?:[^/\\?#]*@)?(?::[0-9]*)?(?:[/\\?#].*)?", re.IGNORECASE | re.DOTALL)
_WEB = ("http://", "https://")
_NOTHING = "-"
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}

# References whose canonical form is known without a parser: what ada would return unchanged. No dot segments (no "."
# after a "/"), no escapes or backslashes in the path, and in the query only what its percent-encode set leaves alone.
_PLAIN = r"A-Za-z0-9_~!$&()*+,;=@\-"
_PLAIN_QUERY = rf"(?:\?[{_PLAIN}:/?.%]*)?"
_PLAIN_PATH = re.compile(rf"(?:/[{_PLAIN}][{_PLAIN}.:]*)*/?{_PLAIN_QUERY}")
_PLAIN_RELATIVE = re.compile(rf"[{_PLAIN}][{_PLAIN}.]*(?:/[{_PLAIN}][{_PLAIN}.:]*)*/?{_PLAIN_QUERY}")
_PLAIN_INSIDE = re.compile(rf"(?:[{_PLAIN}][{_PLAIN}.:]*(?:/[{_PLAIN}][{_PLAIN}.:]*)*/?)?{_PLAIN_QUERY}")
_UP = "../"


class Refusal(StrEnum):
    """Why a string is no URL of a crawl."""

    INVALID = "invalid"
    """The WHATWG parser fails."""
    SCHEME = "scheme"
    """Neither http nor https."""
    CREDENTIALS = "credentials"
    """A user name or a password is part of it."""
    EMPTY_HOST = "empty_host"
    TOO_LONG = "too_long"
    """More than ``MAX_LENGTH`` characters."""


def canonical(raw: str, base: str | None = None) -> str | Refusal:
    """The canonical form of ``raw``, resolved against ``base``, or why there is none.

    Trimming and the removal of tabs and line breaks are the WHATWG parser's. Never raises for any string.
    ``canonical(canonical(u)) == canonical(u)``.
    """
    scheme = _SCHEME.match(raw)
    if scheme is not None and scheme[1].lower() not in _DEFAULT_PORTS:
        return Refusal.SCHEME
    if len(raw) > _MAX_RAW_LENGTH:
        return Refusal.TOO_LONG
    try:
        href = ada_url.normalize_url(raw) if base is None else ada_url.join_url(base, raw)
    except ValueError:
        if not raw.isascii() and raw != (scalar := _scalar_values(raw)):
            return canonical(scalar, base)
        return Refusal.EMPTY_HOST if _NO_HOST.fullmatch(raw.strip()) else Refusal.INVALID
    return _without_fragment(href)


def _without_fragment(href: str) -> str | Refusal:
    """Judges what ada returned. In a href a ``#`` and, in the authority, an ``@`` can only be delimiters."""
    if not href.startswith(_WEB):
        return Refusal.SCHEME
    url = href.partition("#")[0]
    if "@" in url and "@" in url.split("/", 3)[2]:
        return Refusal.CREDENTIALS
    return url if len(url) <= MAX_LENGTH else Refusal.TOO_LONG


def _scalar_values(text: str) -> str:
    """``text`` with lone surrogates replaced by U+FFFD, as every web API does before it parses a URL."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def document_base(reference: str, document: str) -> str:
    """The base URL of a document that has ``<base href=reference>`` (WHATWG HTML section 4.2.3).

    One that is no URL, or of the schemes data and javascript, is ignored. The href of one that is no canonical URL is
    returned all the same: what is relative to it is refused when it is resolved.
    """
    try:
        href = ada_url.join_url(document, reference[:_MAX_RAW_LENGTH])
    except ValueError:
        return document
    return document if href.startswith(("data:", "javascript:")) else href


class Resolver:
    """``canonical`` for the many references of one document: most of them need no parser at all.

    ``base`` must be a canonical URL, or the href of any other URL (such as an ftp ``<base>``).
    """

    __slots__ = ("_base", "_directory", "_document", "_origin", "_root")

    def __init__(self, base: str) -> None:
        self._base = base
        self._document = _without_fragment(base)
        self._origin = self._root = self._directory = ""
        if not isinstance(self._document, Refusal):
            scheme, _, host, _ = (self._document + "/").split("/", 3)
            self._origin = f"{scheme}//{host}"
            self._root = f"{self._origin}/"
            path = self._document.partition("?")[0]
            self._directory = path[: path.rindex("/") + 1]

    def depends_on(self, raw: str) -> str:
        """What of the base the answer for ``raw`` depends on: its origin, its directory, nothing; empty for all of it.

        References that are resolved for one page are so for all pages of which this is the same.
        """
        if raw[:1] == "/":
            return self._origin
        if raw.startswith(_WEB) and self._origin:
            return _NOTHING
        if ":" in raw:  # "http:" and "http:?x" are the document itself to a document of this scheme
            return ""
        # What is trimmed from the front, "?" and "#": behind these, it may be a part of the document's own URL.
        return self._directory if raw > "@" or "-" <= raw[:1] <= "9" else ""

    def canonical(self, raw: str) -> str | Refusal:
        """The same answer as ``canonical(raw, base)``."""
        reference = raw.partition("#")[0]
        url = ""
        if self._origin:
            if not reference:
                return self._document
            if reference[0] == "/":
                if _PLAIN_PATH.fullmatch(reference):
                    url = self._origin + reference
            elif reference.startswith(self._root):
                if _PLAIN_PATH.fullmatch(reference, len(self._origin)):
                    url = reference
            elif _PLAIN_RELATIVE.fullmatch(reference):
                url = self._directory + reference
            elif reference.startswith(_UP):
                url = self._from_above(reference)
        if not url:
            return canonical(raw, self._base)
        return url if len(url) <= MAX_LENGTH else Refusal.TOO_LONG

    def _from_above(self, reference: str) -> str:
        """The URL of a reference that begins with ``../``, where that is plain; empty where it is not."""
        directory, begin = self._directory, 0
        while reference.startswith(_UP, begin):
            begin += len(_UP)
            if directory != self._root:  # above which there is nothing
                directory = directory[: directory.rindex("/", 0, -1) + 1]
        return directory + reference[begin:] if _PLAIN_INSIDE.fullmatch(reference, begin) else ""


def authority(canonical_url: str) -> str:
    """Host and non-default port of a canonical URL: the unit of scope, politeness and concurrency.

    http and https of one host are one authority: ``http://x/`` and ``https://x/`` give ``x``, any explicit port stays.
    """
    return canonical_url.split("/", 3)[2]


def origin(canonical_url: str) -> str:
    """Scheme, host and non-default port of a canonical URL (RFC 6454): for exactly these a robots.txt holds (RFC 9309
    section 2.3), and a header of ``fetch.headers`` is meant.
    """
    scheme, _, host, _ = canonical_url.split("/", 3)
    return f"{scheme}//{host}"


def url_hash(url: str) -> tuple[int, int]:
    """128 bits of BLAKE2b over the URL as two signed 64-bit integers, the largest that SQLite stores."""
    high, low = struct.unpack(">qq", hashlib.blake2b(url.encode(), digest_size=16).digest())
    return high, low
