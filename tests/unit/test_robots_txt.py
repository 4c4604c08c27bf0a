"""What a robots.txt says: whose group holds, what is evidence, how bytes become lines."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from durable_crawler.robots import PARSED_BYTES, Robots, product_token, whole_lines

URL = "https://a.example/private/page"


@pytest.mark.parametrize(
    ("user_agent", "token"),
    [
        ("durable-crawler/1.2 (+https://example.org)", "durable-crawler"),
        ("DocsBot/1.0", "docsbot"),
        ("docs_bot", "docs_bot"),
        ("Bot2000 (x)", "bot2000"),
        ("(nothing)", ""),
        ("", ""),
    ],
)
def test_the_product_token(user_agent: str, token: str) -> None:
    assert product_token(user_agent) == token


@pytest.mark.parametrize(
    ("group", "token", "allowed"),
    [
        # Scenario 39: a part of a name is another name, and case does not count.
        ("bot", "docsbot", True),
        ("docs", "docsbot", True),
        ("docsbot-news", "docsbot", True),
        ("DocsBot", "docsbot", False),
        ("DocsBot/1.0", "docsbot", False),
        ("docsbot", "DocsBot", False),
        ("*", "docsbot", False),
    ],
)
def test_scenario_39_groups_are_matched_by_the_whole_token(group: str, token: str, allowed: bool) -> None:
    assert Robots(f"User-agent: {group}\nDisallow: /\n".encode(), token).allows(URL) is allowed


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_scenario_15_a_byte_order_mark_hides_nothing(end: str) -> None:
    assert not Robots(f"\ufeffUser-agent: *{end}Disallow: /{end}".encode(), "bot").allows(URL)


@pytest.mark.parametrize("character", ["\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_only_cr_and_lf_end_a_line(character: str) -> None:
    assert Robots(f"User-agent: *\n# x{character}Disallow: /\n".encode(), "bot").allows(URL)


@pytest.mark.parametrize("body", [b"", b"\x00\xff\xfe", b"<!doctype html><p>Not found", b"User-agent: *\nDisallow:\n"])
def test_what_says_nothing_forbids_nothing(body: bytes) -> None:
    robots = Robots(body, "bot")
    assert robots.allows(URL)
    assert robots.crawl_delay is None


def test_of_several_rules_the_longest_counts_and_allow_wins_a_tie() -> None:
    robots = Robots(b"User-agent: *\nDisallow: /private\nAllow: /private/page\n", "bot")
    assert robots.allows(URL)
    assert not robots.allows("https://a.example/private/other")
    assert Robots(b"User-agent: *\nDisallow: /page\nAllow: /page\n", "bot").allows("https://a.example/page")


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("User-agent: *\nDisallow: /\n", "2: Disallow: /"),
        ("# hello\r\nUser-agent: *\r\n\r\ndisallow:/private # secret\r\n", "4: disallow:/private"),
        ("User-agent: *\nDisallow: /\nDisallow: /private/\nDisallow: /p\n", "3: Disallow: /private/"),
        ("User-agent: *\nDisallow: /x\nDisallow: /*/page$\n", "3: Disallow: /*/page$"),
    ],
)
def test_the_line_that_denies_is_named(body: str, line: str) -> None:
    robots = Robots(body.encode(), "bot")
    assert not robots.allows(URL)
    assert robots.denying_line(URL) == line


def test_the_line_is_one_of_our_own_group() -> None:
    body = b"User-agent: other\nDisallow: /private/page\n\nUser-agent: bot\nDisallow: /private\n"
    assert Robots(body, "bot").denying_line(URL) == "5: Disallow: /private"


def test_a_long_line_is_cut() -> None:
    robots = Robots(b"User-agent: *\nDisallow: /" + b"*" * 900 + b"\n", "bot")
    assert len(robots.denying_line(URL)) < 250


@pytest.mark.parametrize(
    ("body", "delay"),
    [
        (b"User-agent: *\nCrawl-delay: 0.5\n", 0.5),
        (b"User-agent: *\nCrawl-delay: 10\nDisallow: /x\n", 10),
        (b"User-agent: bot\nCrawl-delay: 2\n\nUser-agent: *\nCrawl-delay: 9\n", 2),
        (b"User-agent: other\nCrawl-delay: 9\n", None),
        (b"User-agent: *\nCrawl-delay: soon\n", None),
        (b"User-agent: *\nCrawl-delay: -1\n", None),
        (b"User-agent: *\nCrawl-delay: nan\n", None),
        (b"User-agent: *\nCrawl-delay: inf\n", None),
    ],
)
def test_crawl_delay(body: bytes, delay: float | None) -> None:
    assert Robots(body, "bot").crawl_delay == delay


def test_what_is_behind_the_limit_is_not_read_and_a_cut_line_is_none() -> None:
    head = b"User-agent: *\nDisallow: /x\n"
    filling = b"#" * (PARSED_BYTES - len(head) - len(b"\nDisallow: /"))
    robots = Robots(head + filling + b"\nDisallow: /private\nDisallow: /y\n", "bot")
    assert not robots.allows("https://a.example/x")
    assert robots.allows(URL)
    assert robots.allows("https://a.example/y")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_a_file_in_utf_16_is_read_by_its_mark(encoding: str, end: str) -> None:
    file = f"\ufeffUser-agent: *{end}Disallow: /private{end}Disallow: /\u010a{end}"
    robots = Robots(file.encode(encoding), "bot")
    assert robots.denying_line(URL) == "2: Disallow: /private"
    assert not robots.allows("https://a.example/%C4%8A")
    assert robots.allows("https://a.example/y")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_a_cut_file_has_whole_lines(encoding: str, end: str) -> None:
    kept = f"\ufeffUser-agent: *{end}Disallow: /x{end}"
    whole, tail = kept.encode(encoding), f"Disallow: /\u010a\u0a0d{'p' * 9}{end}".encode(encoding)
    for shown in range(len(tail)):  # the last byte of the last end is not there
        read = whole_lines(whole + tail[:shown])
        text = read.decode("utf-16" if encoding != "utf-8" else "utf-8-sig")
        assert text in {kept[1:], f"{kept[1:]}Disallow: /\u010a\u0a0d{'p' * 9}\r"}, shown


# Hostile files: each line is a unit that is repeated up to the limit, with its number in it.

COST_SECONDS = 2.0
"""Of CPU time for the largest file there is; some 0.15 where this was written, and hours where it is quadratic."""

LOOKUP_SECONDS = 0.1
"""Of CPU time for one URL; at most 0.007 where this was written."""


def filled(head: str, line: Callable[[int], str], size: int = PARSED_BYTES) -> str:
    """``head`` and as many lines as there is room for."""
    lines, left, number = [head], size - len(head), 0
    while (left := left - len(text := line(number))) >= 0:
        lines.append(text)
        number += 1
    return "".join(lines)


AGENTS = {
    "agents": filled("", lambda n: f"user-agent: {n:x}\n", PARSED_BYTES // 2),
    "agents of a laxer spelling": filled("", lambda n: f"user \t agent {n:x}\n", PARSED_BYTES // 2),
}


@pytest.mark.parametrize(
    "file",
    [
        *(filled("User-agent: *\n", lambda _, unit=unit: unit) for unit in ("\n", " ", "\t\n", "\r", "\r\n", "\x1f")),  # type: ignore[misc]
        *(
            filled("User-agent: *\n", lambda _, unit=unit: unit)  # type: ignore[misc]
            for unit in ("user-agent", "user agent ", "user ", "dis", "disallow", "disallow ", ": ", "#", "allow:/%")
        ),
        *(filled(agents, lambda n: f"disallow:/{n:x}\n") for agents in AGENTS.values()),
        filled("", lambda n: f"user-agent:{n:x}\nallow:/{n:x}\n"),
        filled("", lambda n: f"user-agent:*\nallow:/{n:x}\n"),
        filled("User-agent: *\ndisallow:/\n", lambda n: f"allow:/{n:x}\n"),
        filled("User-agent: *\n", lambda n: f"allow:/{n:x}/index.html\n"),
        filled("User-agent: *\n", lambda n: f"crawl-delay:{n}\n"),
        filled("User-agent: *\n", lambda n: f"disallow:*a{n:x}*z\n"),
        filled("User-agent: *\n", lambda n: f"allow:*a{n:x}$\n"),
        filled("User-agent: *\n", lambda n: f"disallow:/$a{n:x}$\n"),
        filled("User-agent: *\n", lambda n: f"disallow:/{'*a' * 40}*b{n:x}\n"),
        filled("User-agent: *\n", lambda n: f"disallow:/*{'a' * 500}b{'a' * 500}*{n:x}\n"),
        "User-agent: *\ndisallow:/" + "*a" * (PARSED_BYTES // 2 - 20) + "*b\n",
        "User-agent: *\ndisallow:/" + "%" * (PARSED_BYTES - 40) + "\n",
    ],
    ids=lambda file: repr(file[:8] + ".." + file[14:30] + ".." + file[-24:]),
)
def test_no_file_costs_more_than_its_length(file: str) -> None:
    assert len(file) <= PARSED_BYTES
    started = time.process_time()
    robots = Robots(file.encode(), "bot")
    robots.denying_line("https://a.example/")
    assert time.process_time() - started < COST_SECONDS
    for path in ("a" * 2000, "a1" * 1000, "ab/" * 600, "%41" * 600):
        started = time.process_time()
        for _ in range(5):
            robots.allows(f"https://a.example/{path}")
            robots.denying_line(f"https://a.example/{path}")
        assert time.process_time() - started < 5 * LOOKUP_SECONDS


def test_of_very_many_wildcards_the_later_forbid_more_and_allow_nothing() -> None:
    many = filled("User-agent: *\nDisallow: /first*end\n", lambda n: f"Disallow: /x{n}*y\n", 30_000)
    rules = "Disallow: /p*/never$\nAllow: /private*\nDisallow: /$\nAllow: /q\n"
    robots = Robots(f"User-agent: *\n{rules}{many}".encode(), "bot")
    assert robots.allows(URL), "few of them mean what they say"
    robots = Robots(f"{many}{rules}".encode(), "bot")
    assert robots.allows("https://a.example/first/")
    assert not robots.allows("https://a.example/first/end")
    assert not robots.allows(URL)
    assert not robots.allows("https://a.example/")
    assert robots.allows("https://a.example/q")
    assert robots.denying_line(URL).endswith(": Disallow: /p*/never$"), "as it is written"
    assert not Robots(f"{many}Disallow: *z\n".encode(), "bot").allows("https://a.example/q"), "as / would"
    others = Robots(f"{many.replace('*', 'x', 1)}User-agent: bot\nDisallow: /p*q\n".encode(), "bot")
    assert others.allows(URL), "the rules of others count for nothing"


def test_an_agent_line_without_a_name_takes_none_from_the_next_line() -> None:
    assert not Robots(b"User-agent: *\nUser-agent:\nDisallow: /private\n", "bot").allows(URL)
