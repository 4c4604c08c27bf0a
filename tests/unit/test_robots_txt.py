"""What a robots.txt says: whose group holds, what is evidence, how bytes become lines."""

from __future__ import annotations

import pytest

from durable_crawler.robots import PARSED_BYTES, Robots, product_token

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
