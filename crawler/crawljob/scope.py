"""The part of the spec that says which pages belong to a crawl."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from crawljob.model import Model
from crawljob.patterns import PATTERN_SYNTAX


def _url_pattern(pattern: str) -> str:
    if not re.fullmatch(PATTERN_SYNTAX, pattern):
        raise ValueError(
            "must begin with / (path and query), * or an http or https URL's lower-case host, "
            "and be escaped as a URL is (no spaces, no #, %C3%A9 for é)"
        )
    return pattern


# In whole canonical URLs: one that cannot match any is a mistake that nobody would notice.
Pattern = Annotated[
    str,
    Field(min_length=1, max_length=256, json_schema_extra={"pattern": PATTERN_SYNTAX}),
    AfterValidator(_url_pattern),
]


class Scope(Model):
    """Which pages belong to the crawl, besides the seeds' authorities."""

    include: tuple[Pattern, ...] = Field(
        (),
        max_length=100,
        description="If there are any, only URLs that one of these patterns matches, and the seeds. A pattern is "
        "compared with the whole URL or, beginning with /, with its path and query; * is any characters, everything "
        "else is itself: /docs/*, *.html, https://docs.example.org/*?lang=en.",
    )
    exclude: tuple[Pattern, ...] = Field(
        (),
        max_length=100,
        description="No URL that one of these patterns matches, whatever include says; a redirect to one is not "
        "followed. No seed may be excluded.",
    )
    max_depth: int = Field(16, ge=0, le=1000, description="Links followed from a seed; a seed has depth 0.")
    max_pages: int = Field(
        10_000,
        ge=1,
        le=100_000_000,
        description="Pages that are requested at most, exact across restarts; a page counts once, at its first claim.",
    )
    max_links_per_page: int = Field(
        5000,
        ge=0,
        le=100_000,
        description="Distinct links taken from one page; what is above is dropped and counted.",
    )
    follow: tuple[Literal["a", "area", "frame", "iframe", "next"], ...] = Field(
        ("a", "area"),
        min_length=1,
        max_length=5,
        json_schema_extra={"x-kubernetes-list-type": "set"},
        description="Elements whose references are links; next is <link rel=next>.",
    )

    @field_validator("follow")
    @classmethod
    def _each_once(cls, follow: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(follow)) < len(follow):
            raise ValueError("must name each element once")
        return follow
