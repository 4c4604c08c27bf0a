"""In which encoding a page is written, and its text. Called by ``parse`` only; pure, and never raises.

The labels are those of the WHATWG Encoding standard, not Python's: ``iso-8859-1`` is windows-1252 there, and ``utf-7``,
``zlib`` or ``rot13`` are no encodings of pages.
"""

from __future__ import annotations

import codecs
import re
from functools import partial

_PRESCAN_BYTES = 1024  # WHATWG HTML section 13.2.3.2
_LATE_PRESCAN_BYTES = 4096  # the patterns below are quadratic at worst, in what they are given

# Python's codec of each encoding, by its WHATWG name, then the labels in use besides the name itself.
_ENCODINGS = {
    "utf-8": ("utf-8", "utf8 unicode-1-1-utf-8 x-unicode20utf8"),
    "utf-16le": ("utf-16-le", "utf-16 ucs-2 unicode iso-10646-ucs-2 csunicode unicodefeff"),
    "utf-16be": ("utf-16-be", "unicodefffe"),
    "ibm866": ("cp866", "866 cp866 csibm866"),
    "iso-8859-2": ("iso8859-2", "latin2 l2 iso8859-2 iso_8859-2 iso88592 csisolatin2"),
    "iso-8859-3": ("iso8859-3", "latin3 l3 iso8859-3 iso_8859-3"),
    "iso-8859-4": ("iso8859-4", "latin4 l4 iso8859-4 iso_8859-4"),
    "iso-8859-5": ("iso8859-5", "cyrillic iso8859-5 iso_8859-5"),
    "iso-8859-6": ("iso8859-6", "arabic iso8859-6 iso_8859-6 ecma-114 asmo-708"),
    "iso-8859-7": ("iso8859-7", "greek greek8 iso8859-7 iso_8859-7 ecma-118 elot_928"),
    "iso-8859-8": ("iso8859-8", "hebrew visual iso8859-8 iso_8859-8 iso-8859-8-e iso-8859-8-i logical"),
    "iso-8859-10": ("iso8859-10", "latin6 l6 iso8859-10"),
    "iso-8859-13": ("iso8859-13", "iso8859-13 iso885913"),
    "iso-8859-14": ("iso8859-14", "iso8859-14 iso885914"),
    "iso-8859-15": ("iso8859-15", "latin9 l9 iso8859-15 iso_8859-15 csisolatin9"),
    "iso-8859-16": ("iso8859-16", ""),
    "koi8-r": ("koi8-r", "koi koi8 koi8_r cskoi8r"),
    "koi8-u": ("koi8-u", "koi8-ru"),
    "macintosh": ("mac-roman", "mac x-mac-roman csmacintosh"),
    "x-mac-cyrillic": ("mac-cyrillic", "x-mac-ukrainian"),
    "windows-874": ("cp874", "tis-620 iso-8859-11 iso8859-11 dos-874"),
    "windows-1250": ("cp1250", "cp1250 x-cp1250"),
    "windows-1251": ("cp1251", "cp1251 x-cp1251"),
    "windows-1252": ("cp1252", "cp1252 x-cp1252 iso-8859-1 iso8859-1 iso_8859-1 latin1 l1 ascii us-ascii cp819 ibm819"),
    "windows-1253": ("cp1253", "cp1253 x-cp1253"),
    "windows-1254": ("cp1254", "cp1254 x-cp1254 iso-8859-9 iso8859-9 iso_8859-9 latin5 l5"),
    "windows-1255": ("cp1255", "cp1255 x-cp1255"),
    "windows-1256": ("cp1256", "cp1256 x-cp1256"),
    "windows-1257": ("cp1257", "cp1257 x-cp1257"),
    "windows-1258": ("cp1258", "cp1258 x-cp1258"),
    "gbk": ("gb18030", "gb2312 gb_2312 gb_2312-80 x-gbk chinese csgb2312 iso-ir-58"),
    "gb18030": ("gb18030", ""),
    "big5": ("big5hkscs", "big5-hkscs cn-big5 x-x-big5 csbig5"),
    "euc-jp": ("euc-jp", "x-euc-jp cseucpkdfmtjapanese"),
    "iso-2022-jp": ("iso2022-jp", "csiso2022jp"),
    "shift_jis": ("cp932", "shift-jis sjis x-sjis ms_kanji ms932 windows-31j csshiftjis"),
    "euc-kr": ("cp949", "ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 korean windows-949 cseuckr"),
}
_LABELS = {label: name for name, (_, labels) in _ENCODINGS.items() for label in (name, *labels.split())}

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16le"), (codecs.BOM_UTF16_BE, "utf-16be"))
_HEADER_CHARSET = re.compile(r";\s*charset\s*=\s*(?:\"([^\"]*)\"|([^\s;,\"]+))", re.IGNORECASE)
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_META = re.compile(rb"<meta[\s/]+((?:[^<>\"']++|\"[^\"]*\"|'[^']*')*)>", re.IGNORECASE)
_ATTRIBUTE = re.compile(rb"([^\s=/>]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")
_CONTENT_CHARSET = re.compile(rb"charset\s*=\s*[\"']?([^\s;\"']+)", re.IGNORECASE)


def decode(body: bytes, content_type: str) -> tuple[str, str]:
    """The text of an HTML page and the WHATWG name of its encoding, in lower case.

    A byte order mark wins, then the Content-Type header, then a ``meta`` element in the first 1,024 bytes. Without any
    of them, or with a label that nobody knows, the page is UTF-8 if it is valid as such, else windows-1252 unless a
    later ``meta`` element says otherwise.
    """
    for bom, name in _BOMS:
        if body.startswith(bom):
            return body[len(bom) :].decode(_ENCODINGS[name][0], "replace"), name
    declared = _from_header(content_type) or _from_meta(body[:_PRESCAN_BYTES])
    if declared is not None:
        return body.decode(_ENCODINGS[declared][0], "replace"), declared
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError:
        # Browsers start again when a meta element comes late.
        name = _from_meta(body[:_LATE_PRESCAN_BYTES]) or "windows-1252"
        return body.decode(_ENCODINGS[name][0], "replace"), name


def encode_query(reference: str, charset: str) -> str:
    """``reference`` with the query escaped in the page's own encoding, as WHATWG URL asks for pages that are not UTF-8.

    Everything else of a URL is UTF-8 whatever the page is.
    """
    if reference.isascii() or charset.startswith("utf-"):
        return reference
    before, mark, rest = reference.partition("?")
    if "#" in before:
        return reference
    query, hash_mark, fragment = rest.partition("#")
    if not query.isascii():
        query = "".join(map(partial(_escaped, _ENCODINGS[charset][0]), query))
    return f"{before}{mark}{query}{hash_mark}{fragment}"


def _escaped(codec: str, character: str) -> str:
    if character.isascii():
        return character
    try:
        encoded = character.encode(codec)
    except UnicodeEncodeError:
        return f"%26%23{ord(character)}%3B"
    # A trailing byte of a multi-byte character can be a letter: it stays one.
    return "".join(chr(byte) if chr(byte).isalnum() and byte < 0x80 else f"%{byte:02X}" for byte in encoded)


def _from_header(content_type: str) -> str | None:
    match = _HEADER_CHARSET.search(content_type)
    return _LABELS.get((match[1] or match[2] or "").strip().lower()) if match else None


def _from_meta(head: bytes) -> str | None:
    for meta in _META.finditer(_COMMENT.sub(b"", head) if b"<!--" in head else head):
        attributes: dict[bytes, bytes] = {}
        for name, *values in _ATTRIBUTE.findall(meta[1]):
            attributes.setdefault(name.lower(), b"".join(values))
        label = attributes.get(b"charset")
        if label is None and attributes.get(b"http-equiv", b"").lower() == b"content-type":
            content = _CONTENT_CHARSET.search(attributes.get(b"content", b""))
            label = content[1] if content else None
        if label is not None and (name := _LABELS.get(label.strip().lower().decode("latin-1"))) is not None:
            # A page whose meta element can be read as ASCII is not UTF-16, whatever it says.
            return "utf-8" if name.startswith("utf-16") else name
    return None
