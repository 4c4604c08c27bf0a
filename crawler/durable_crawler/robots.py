"""What a robots.txt says to us (RFC 9309): may this URL be requested, how long between requests, and by which line.

Pure. ``robots_gate`` fetches the files and keeps them; the grammar and the matching of paths are protego's. Ours is
what protego leaves to its caller: bytes to text, the size limit, the exact product token, and evidence for a denial.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from protego import Protego

PARSED_BYTES = 500 * 1024
"""Bytes of a robots.txt that are parsed; RFC 9309 section 2.5 asks for at least 500 KiB."""

_TOKEN = re.compile(r"[A-Za-z0-9_-]+")
_US, _OTHERS = "us", "others"
# RFC 9309 section 2.2: only CR and LF end a line; str.splitlines, which protego uses, knows eight more.
_NO_LINE_ENDS = dict.fromkeys(map(ord, "\v\f\x1c\x1d\x1e\x85\u2028\u2029"), " ")
_AGENT_LINE = re.compile(r"^(\s*user[- ]?agent\s*:?\s*)([^#\r\n]*)", re.IGNORECASE | re.MULTILINE)
_GROUP_LINE = re.compile(r"^\s*(?:user|allow|dis)[^\r\n]*", re.IGNORECASE | re.MULTILINE)
_DISALLOW_LINE = re.compile(r"^\s*dis[^:#]*:\s*([^#\r\n]*)", re.IGNORECASE | re.MULTILINE)
_EVIDENCE_LINES = 2000  # Disallow lines that are looked at for the one that denied; more are not worth the time
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
        text = _text(body)
        self._token = token.lower()
        self._source = text
        addressed = _AGENT_LINE.sub(self._addressed, text)
        # Other records do not end a group (section 2.2.4); protego lets them.
        self._rules = Protego.parse("\n".join(_GROUP_LINE.findall(addressed)))
        self._delays = Protego.parse(addressed) if "crawl" in addressed.lower() else self._rules

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
        found = [
            (len(pattern), number, line) for number, line, pattern, one in self._lines if not one.can_fetch(url, "*")
        ]
        if not found:
            return "Disallow"
        _, number, line = max(found, key=lambda item: (item[0], -item[1]))
        return f"{number}: {line[:_LINE_MAX]}"

    @cached_property
    def _lines(self) -> list[tuple[int, str, str, Protego]]:
        """Each Disallow line that is about us as a file of its own, to ask which one matches."""
        lines: list[tuple[int, str, str, Protego]] = []
        for number, line in self._about_us():
            match = _DISALLOW_LINE.match(line)
            if match is not None and (pattern := match[1].strip()):
                lines.append((number, match[0].strip(), pattern, Protego.parse(f"User-agent: *\nDisallow: {pattern}")))
            if len(lines) == _EVIDENCE_LINES:
                break
        return lines

    def _about_us(self) -> list[tuple[int, str]]:
        """The rules of our groups, each with its number; those for everybody where we have none."""
        rules: dict[str, list[tuple[int, str]]] = {_US: [], "*": [], _OTHERS: []}
        agents: list[str] = []
        named, in_rules = False, False
        for number, line in enumerate(self._source.split("\n"), start=1):
            agent = _AGENT_LINE.match(line)
            if agent is not None:
                agents = [] if in_rules else agents
                agents.append(self._addressee(agent[2]))
                named, in_rules = named or agents[-1] == _US, False
            elif _GROUP_LINE.match(line):
                in_rules = True
                for name in set(agents):
                    rules[name].append((number, line))
        return rules[_US if named else "*"]

    def _addressed(self, match: re.Match[str]) -> str:
        """Protego takes a token for a match when ours begins with it; only the exact one is ours."""
        return f"{match[1]}{self._addressee(match[2])}"

    def _addressee(self, name: str) -> str:
        name = name.strip()
        token = _TOKEN.match(name)
        if name.startswith("*"):
            return "*"
        ours = token is not None and token[0].lower() == self._token
        return _US if ours else _OTHERS


def _text(body: bytes) -> str:
    """The part of a file that is parsed. A line that the limit cuts is dropped: half a path would deny too much."""
    if len(body) > PARSED_BYTES:
        body = body[:PARSED_BYTES]
        body = body[: max(body.rfind(b"\n"), body.rfind(b"\r")) + 1]
    # utf-8-sig: protego would take a byte order mark for part of the first line, and so lose the first group.
    text = body.decode("utf-8-sig", errors="replace").translate(_NO_LINE_ENDS)
    return text.replace("\r\n", "\n").replace("\r", "\n")
