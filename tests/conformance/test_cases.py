"""URLs, links, dates and redirects as the standards and other programs' suites have them."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.conformance.cases import CASES, NOT_OF_A_HEADER, published, read, rows

from durable_crawler import redirects
from durable_crawler.outcomes import Fetched, Outcome
from durable_crawler.parse import is_html, parse
from durable_crawler.settle import (
    MAX_RETRY_AFTER,
    Done,
    RetryLater,
    classify,
    parse_http_date,
    parse_retry_after,
    settle,
)
from durable_crawler.urls import Refusal, canonical

if TYPE_CHECKING:
    from tests.conformance.conftest import Judge

MANY = 1_000_000
REFUSED = "refused"


def identity(raw: str, base: str | None = None) -> str:
    url = canonical(raw, base)
    if isinstance(url, Refusal):
        return REFUSED
    assert canonical(url) == url
    return str(url)


@rows("url/http_canonical.jsonl")
def test_canonical(row: dict[str, Any], judge: Judge) -> None:
    refused = not row["crawlable"] or row["has_credentials"]  # rows that L1 refuses are marked in the data
    judge(row, identity(row["input"], row["base"]), REFUSED if refused else row["expected"])


@rows("url/idna_hosts.jsonl")
def test_idna(row: dict[str, Any], judge: Judge) -> None:
    judge(row, identity(row["input"], row["base"]), row["expected"] or REFUSED)


@rows("url/equivalence.jsonl")
def test_equivalence(row: dict[str, Any], judge: Judge) -> None:
    first, second = identity(row["a"]), identity(row["b"])
    judge(row, [first, second, first == second], [row["canonical_a"], row["canonical_b"], row["same"]])


@rows("url/resolve_peer.jsonl")
def test_resolution(row: dict[str, Any], judge: Judge) -> None:
    judge(row, identity(row["input"], row["base"]), row["expected"])


@rows("url/normalizer_peer.jsonl")
def test_no_url_is_normalised_beyond_the_standard(row: dict[str, Any], judge: Judge) -> None:
    judge(row, identity(row["input"]), row["whatwg_canonical"] or REFUSED)


@published("url/urltestdata.json")
def test_the_standards_own_urls(row: dict[str, Any], judge: Judge) -> None:
    """Everything that is not http or https, or has credentials, is refused (L1)."""
    crawlable = not row.get("failure") and row["protocol"] in ("http:", "https:")
    crawlable = crawlable and not (row["username"] or row["password"])
    judge(row, identity(row["input"], row.get("base")), row["href"].partition("#")[0] if crawlable else REFUSED)


@published("url/IdnaTestV2.json", lambda row: row["input"] != "")
def test_the_standards_own_hosts(row: dict[str, Any], judge: Judge) -> None:
    expected = REFUSED if row["output"] is None else f"https://{row['output']}/"
    judge(row, identity(f"https://{row['input']}/"), expected)


@rows("html/links.jsonl")
def test_links(row: dict[str, Any], judge: Judge) -> None:
    body = row["html"].encode() if "html" in row else base64.b64decode(row["html_b64"])
    base, other = identity(row["base_url"]), row.get("other", {})
    page = parse(body, row["content_type"], base, MANY) if is_html(row["content_type"]) else None
    links = [*page.links, *page.nofollow_links] if page else []
    if "expected_count" in other:
        judge(row, len(links), other["expected_count"])
        links = links[: len(row["expected_links"])]
    # An area is a link for us as well; where a page has some, their place among the others is not in the data. Nor have
    # links that are told apart from those to follow a place among these.
    areas = other.get("area", [])
    ordered = not areas and not (page and page.nofollow_links)
    expected = [*row["expected_links"], *areas]
    accepted = [expected if ordered else sorted(expected), *other.get("also_accepted", [])]
    judge(row, links if ordered else sorted(links), *accepted)


@rows("html/html5lib_links.jsonl")
def test_links_of_the_tree_builder(row: dict[str, Any], judge: Judge) -> None:
    links = parse(row["html"].encode(), "text/html; charset=utf-8", row["base_url"], MANY).links
    judge(row, list(links), row["expected_links"])


@rows("http/httpdate.jsonl")
def test_http_date(row: dict[str, Any], judge: Judge) -> None:
    date = parse_http_date(row["input"], datetime.fromisoformat(row["now"]))
    expected = row["expected"]
    if expected is not None:
        leap = expected.endswith(":60Z")  # datetime knows no leap second: it is the next minute's first
        instant = datetime.fromisoformat(expected.replace(":60Z", ":59Z")) + timedelta(seconds=leap)
        expected = instant.isoformat()
    judge(row, None if date is None else date.isoformat(), expected)


@rows("http/retry_after.jsonl")
def test_retry_after(row: dict[str, Any], judge: Judge) -> None:
    now = datetime.fromisoformat(row["now"]).astimezone(UTC)
    asked = parse_retry_after(dict(row["headers"])["Retry-After"], now)
    outcome = Outcome.OK if row["status"] < 300 else Outcome.HTTP_ERROR
    retryable, incident = classify(outcome, row["status"], asked)
    fetched = Fetched("u", "u", outcome, row["status"], retryable=retryable, retry_after=asked, host_incident=incident)
    expected = row["expected"]
    match expected["kind"]:
        case "delay":
            judge(row, asked, expected["seconds"])
        case "one_of":
            judge(row, asked, *expected["seconds"])
        case "one_of_or_default":
            judge(row, asked, None, *expected["seconds"])
        case "default_backoff":
            judge(row, asked, None)
        case "capped":
            judge(row, settle(fetched, 0, 3, lambda: 0.0), RetryLater(MAX_RETRY_AFTER, MAX_RETRY_AFTER))
        case "ignored":
            judge(row, settle(fetched, 0, 3, lambda: 0.0), Done(outcome))
        case "attempts_exhausted":
            judge(row, isinstance(settle(fetched, 3, 3, lambda: 0.0), Done), True)
        case other:
            pytest.fail(f"unknown kind {other}")


REDIRECTS = [row for row in read("http/redirects.jsonl") if row["id"] not in NOT_OF_A_HEADER]


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in REDIRECTS if "status" in row])
def test_redirect(row: dict[str, Any], judge: Judge) -> None:
    location = row["location"]
    if row["location_raw_b64"]:
        location = base64.b64decode(row["location_raw_b64"]).decode("utf-8", "surrogateescape")
    expected = row["expected"]
    if row["status"] not in redirects.STATUSES:
        judge(row, "terminal", expected["action"])
        return
    match redirects.judge(location, [row["request"]]):
        case redirects.Follow(target):
            # That http and https of one host are one authority is the policy that two of the rows ask to be written.
            judge(
                row,
                ["follow", target],
                [expected["action"].replace("out_of_scope_or_policy", "follow"), expected["url"]],
            )
        case redirects.OutOfScope(target):
            # What is on another authority is not contacted, whatever the reason is that a row gives.
            allowed = expected["action"] in ("out_of_scope", "out_of_scope_or_policy", "blocked_ssrf")
            judge(
                row,
                ["out_of_scope", target],
                ["out_of_scope" if allowed else expected["action"], expected.get("url", target)],
            )
        case redirects.Invalid(reason, shown):
            judge(row, "loop" if reason == "loop" else "terminal", expected["action"].replace("policy", "terminal"))
            assert "u:p" not in shown


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in REDIRECTS if "chain" in row])
def test_redirect_chain(row: dict[str, Any], judge: Judge) -> None:
    first, *locations = (step.partition(" ")[0] for step in row["chain"])
    asked = [f"https://site.example{first}"]
    answer: object = "end"
    for location in locations:
        match redirects.judge(location, asked):
            case redirects.Follow(target):
                asked.append(target)
            case redirects.Invalid(reason, _):
                answer = reason
    if row["expected"]["action"] == "links":
        page = parse(row["body"].encode(), "text/html", asked[-1], MANY)
        judge(row, list(page.links), row["expected"]["links"])
    else:
        judge(row, answer, row["expected"]["action"])
        assert len(asked) <= row["expected"].get("requests_max", len(asked))


def test_deviations_are_of_rows_that_exist(judge: Judge) -> None:
    known = {row["id"] for file in CASES.rglob("*.jsonl") for row in read(str(file.relative_to(CASES)))}
    strange = sorted(set(judge.deviations) - known)
    if strange:
        pytest.skip(f"these cases have no rows for the deviations {', '.join(strange)}")
