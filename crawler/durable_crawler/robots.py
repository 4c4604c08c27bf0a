"""What a robots.txt says to us (RFC 9309): may this URL be requested, how long between requests, and by which line.

Pure. ``robots_gate`` fetches the files and keeps them; the grammar and the matching of paths are protego's. Ours is
what protego leaves to its caller: bytes to text, the size limit, the exact product token, and evidence for a denial.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from dataclasses import dataclass
from functools import cached_property

from protego import Protego

PARSED_BYTES = 500 * 1024
"""Bytes of a robots.txt that are parsed; RFC 9309 section 2.5 asks for at least 500 KiB."""

_TOKEN = re.compile(r"[A-Za-z0-9_-]+")
_US, _OTHERS = "us", "others"
_UTF_16 = "utf-16"
# RFC 9309 section 2.2: only CR and LF end a line; str.splitlines, which protego uses, knows eight more.
_NO_LINE_ENDS = dict.fromkeys(map(ord, "\v\f\x1c\x1d\x1e\x85\u2028\u2029"), " ")
# Matched with one stripped line each. Nothing that may fail follows what may be long: a hostile file costs its length.
_AGENT_LINE = re.compile(r"(user(?:-?|\s+)agent\s*:?\s*)([^#]*)", re.IGNORECASE)
_DISALLOW_LINE = re.compile(r"dis[^:#]*:\s*([^#]*)", re.IGNORECASE)
_GROUP_LINES = ("user", "allow", "dis")
_EVIDENCE_LINES = 2000  # Disallow lines that are looked at for the one that denied; more are not worth the time
_TOGETHER = 64
_PATTERN_MAX = 4096
_FOR_ALL = "User-agent: *\nDisallow: "
_WILD_BYTES, _WILD_EACH = 32 * 1024, 32  # of rules with wildcards, and what each counts besides its length
_LINE_MAX = 200


def product_token(user_agent: str) -> str:
    """The product token of a User-Agent header: what groups of a robots.txt are matched with (section 2.2.1)."""
    match = _TOKEN.match(user_agent)
    return match[0].lower() if match else ""


@dataclass(frozen=True, slots=True)
class KnownRobots:
    """What is known of an origin's robots.txt, as the frontier keeps it. Times are milliseconds since the epoch.

    ``body`` is the file as it was at ``answered_ms``, empty where there is none and all is allowed. With ``failures``
    it has not been reached that many times in a row. It is not asked for again before ``expires_ms``.
    """

    origin: str
    body: bytes
    failures: int
    expires_ms: int
    answered_ms: int = 0


class Robots:
    """One robots.txt as it reads to the crawler with ``token``."""

    def __init__(self, body: bytes, token: str) -> None:
        self._token = token.lower()
        self._ours: dict[str, list[tuple[int, str, str]]] = {_US: [], "*": []}
        self._named = False
        addressed = self._addressed(_text(body))
        # Other records do not end a group (section 2.2.4); protego lets them.
        self._rules = Protego.parse("\n".join(line for line in addressed if line.lower().startswith(_GROUP_LINES)))
        delays = any(line.lower().startswith("crawl") for line in addressed)
        self._delays = Protego.parse("\n".join(addressed)) if delays else self._rules

    def allows(self, url: str) -> bool:
        """Whether the canonical ``url`` may be requested."""
        return bool(self._rules.can_fetch(url, _US))

    @property
    def crawl_delay(self) -> float | None:
        """Seconds between requests, fractions included; an extension of the RFC that many sites use."""
        delay: float | None = self._delays.crawl_delay(_US)
        return delay

    def denying_line(self, url: str) -> str:
        """The line of the file that denies ``url``, with its number: ``12: Disallow: /private``."""
        for together, lines in self._evidence:
            if together.can_fetch(url, "*"):
                continue
            for number, pattern, line in lines:
                if not Protego.parse(_FOR_ALL + pattern).can_fetch(url, "*"):
                    return f"{number}: {line[:_LINE_MAX]}"
        return "Disallow"

    @cached_property
    def _evidence(self) -> list[tuple[Protego, list[tuple[int, str, str]]]]:
        """Each Disallow line that is about us, longest pattern first: some at a time as a file of their own.

        Which one matches takes one question for each such file, then one for each line of the first that denies.
        """
        found = []
        for number, whole, line in self._ours[_US if self._named else "*"]:
            match = _DISALLOW_LINE.match(line)
            if match is not None and (pattern := match[1].strip()) and len(pattern) <= _PATTERN_MAX:
                found.append((number, pattern, whole.partition("#")[0].strip()))
            if len(found) == _EVIDENCE_LINES:
                break
        found.sort(key=lambda item: (-len(item[1]), item[0]))
        parts = [found[start : start + _TOGETHER] for start in range(0, len(found), _TOGETHER)]
        return [(Protego.parse("\n".join(_FOR_ALL + pattern for _, pattern, _ in part)), part) for part in parts]

    def _addressed(self, text: str) -> list[str]:
        """The lines for protego, which takes a token for a match when ours begins with it: only the exact one is ours.

        Notes the rules that are about us or about everybody, with their numbers and as written; bounds what they cost.
        """
        lines: list[str] = []
        agents: set[str] = set()
        in_rules, wild = False, 0
        for number, whole in enumerate(text.split("\n"), start=1):
            line = whole.strip()
            agent = _AGENT_LINE.match(line)
            if agent is not None:
                name = self._addressee(agent[2])
                agents = {name} if in_rules else agents | {name}
                self._named, in_rules = self._named or name == _US, False
                line = f"{agent[1]}{name}"
            elif line[:5].lower().startswith(_GROUP_LINES):
                in_rules = True
                addressed = agents - {_OTHERS}
                if addressed and "*" in line:
                    wild += len(line) + _WILD_EACH
                    line = line if wild <= _WILD_BYTES else _tame(line)
                for name in addressed:
                    self._ours[name].append((number, whole, line))
            lines.append(line)
        return lines

    def _addressee(self, name: str) -> str:
        name = name.strip()
        token = _TOKEN.match(name)
        if name.startswith("*"):
            return "*"
        ours = token is not None and token[0].lower() == self._token
        return _US if ours else _OTHERS


def _tame(line: str) -> str:
    """A rule without its wildcards, for files with very many: each of them is searched for in each URL.

    Such a Disallow forbids all that begins as it does, and such an Allow allows nothing: asking less is polite.
    """
    line = line.partition("#")[0]
    if "*" not in line:
        return line
    if line[:5].lower() == "allow":
        return ""
    head = line.partition("*")[0].rstrip()
    return head if "/" in head else f"{head} /"


def whole_lines(body: bytes) -> bytes:
    """The beginning of a file, up to its last line end: half a path would deny too much."""
    if _encoding(body) == _UTF_16:
        text = body.decode(_UTF_16, errors="ignore")
        return text[: max(text.rfind("\n"), text.rfind("\r")) + 1].encode(_UTF_16)
    return body[: max(body.rfind(b"\n"), body.rfind(b"\r")) + 1]


def _encoding(body: bytes) -> str:
    """UTF-8 by the RFC, UTF-16 where the file begins like that: what its owner forbids is clear. Both drop the mark.

    With one, protego would take it for part of the first line, and so lose the first group.
    """
    return _UTF_16 if body.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig"


def _text(body: bytes) -> str:
    """The part of a file that is parsed, in lines that end with LF."""
    if len(body) > PARSED_BYTES:
        body = whole_lines(body[:PARSED_BYTES])
    text = body.decode(_encoding(body), errors="replace").translate(_NO_LINE_ENDS)
    return text.replace("\r\n", "\n").replace("\r", "\n")
