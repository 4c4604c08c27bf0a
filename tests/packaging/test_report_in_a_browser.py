"""The report in a real Chromium: what it does for who reads it, and what a hostile site cannot do in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright
from tests.support.browser import keep
from tests.support.website import Website, page
from tests.unit.test_report import HOSTILE
from tests.unit.test_results_stored import html, run

from durable_crawler.cli import cli

pytestmark = pytest.mark.timeout(600)  # the first time, a browser is installed

TARGETS = 10_000
PATIENCE_SECONDS = 3.0
"""For what a browser does at once on a machine that does nothing else."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a crawl with 10,000 broken links, among them hostile ones."""
    folder = tmp_path_factory.mktemp("report")
    db, report = folder / "frontier.db", folder / "report.html"

    async def crawled() -> None:
        hostile = HOSTILE.replace("&", "&amp;").replace("<", "&lt;").replace("\x1b", "&#27;")
        links = "".join(f"<a href=/gone/{number}>{number}</a>" for number in range(TARGETS // 10))
        answers = {
            "/": html(f"<title>{hostile}</title><a href='/bad?<script>alert(2)</script>'>{hostile}</a><a href=/0></a>"),
            "/10": page(status=403),
        }
        for number in range(10):
            there = links.replace("/gone/", f"/gone/{number}/")
            answers[f"/{number}"] = html(f"{there}<a href=/{number + 1}></a>")
        async with Website(answers) as site:
            await run(db, site.url, scope={"maxPages": 20_000}, fetch={"perHost": 16})

    asyncio.run(crawled())
    done = CliRunner().invoke(cli, ["report", "--db", str(db), "--output", str(report)])
    assert done.exit_code == 0, done.stderr
    return report


@pytest.fixture(scope="module")
def browser(file: Path, chromium: Path) -> Iterator[Browser]:
    """Chromium. After the report is made: a crawl needs an event loop of its own, and so does Playwright."""
    with sync_playwright() as playwright:
        # As root a sandbox cannot be had; what is shown here is a file of ours.
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Shown:
    """A report in a tab, and what the tab complained of."""

    tab: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def rows(self) -> int:
        """Rows of the table of problems that can be seen."""
        return self.tab.locator("#problems tbody tr:visible").count()


@pytest.fixture
def shown(browser: Browser, file: Path) -> Iterator[Shown]:
    tab = browser.new_page()
    found = Shown(tab)

    def said(message: ConsoleMessage) -> None:
        found.complaints.append(message.text)

    tab.on("console", said)
    tab.on("pageerror", lambda error: found.complaints.append(str(error)))
    tab.on("dialog", lambda dialog: found.complaints.append(f"dialog: {dialog.message}"))
    tab.on("request", lambda request: found.requests.append(request.url))
    tab.goto(file.as_uri())
    yield found
    assert found.complaints == []
    assert found.requests == [file.as_uri()], "it needs no network"
    tab.close()


def test_it_opens_at_once_and_shows_a_page_of_rows(shown: Shown) -> None:
    assert shown.tab.title() == "Crawl report"
    assert shown.rows() == 200
    expect(shown.tab.get_by_role("status").first).to_have_text(f"1 to 200 of {TARGETS + 2}")
    keep(shown.tab, "report")


def test_it_is_used_by_keyboard(shown: Shown) -> None:
    tab = shown.tab
    head = tab.get_by_role("columnheader", name="Target")
    tab.get_by_role("button", name="Target").focus()
    tab.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "ascending")
    first = tab.locator("#problems tbody tr").first.inner_text()
    tab.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "descending")
    assert tab.locator("#problems tbody tr").first.inner_text() != first
    tab.get_by_label("that contain").focus()
    tab.keyboard.type("/gone/7/77")
    assert 0 < shown.rows() < 200
    tab.get_by_label("that contain").fill("")
    tab.get_by_label("Show").select_option("blocked")
    assert shown.rows() == 1
    tab.locator("#problems tbody tr:visible summary").focus()
    tab.keyboard.press("Enter")
    expect(tab.locator("#problems tbody tr:visible li").first).to_be_visible()


def test_sizes_are_sorted_as_numbers(shown: Shown) -> None:
    table = shown.tab.get_by_role("region", name="Largest pages").get_by_role("table")
    for _ in ("ascending", "descending"):
        table.get_by_role("button", name="Why").click()
    sizes = [int(text.split()[0].replace(",", "")) for text in table.locator("tbody td.number").all_inner_texts()]
    assert len({len(str(size)) for size in sizes}) > 1, "else their words would be in the same order"
    assert sizes == sorted(sizes, reverse=True)


def test_ten_thousand_rows_do_not_freeze_it(shown: Shown) -> None:
    tab = shown.tab
    for step in (
        tab.get_by_role("button", name="Next").first.click,
        tab.get_by_role("button", name="Target").click,
        lambda: tab.get_by_label("that contain").fill("gone/9"),
        lambda: tab.mouse.wheel(0, 5000),
        lambda: tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"),
    ):
        began = time.monotonic()
        step()
        assert time.monotonic() - began < PATIENCE_SECONDS
    expect(tab.get_by_role("status").first).to_have_text("1 to 200 of 1000")


def test_what_a_site_says_is_text_and_runs_nowhere(shown: Shown) -> None:
    tab = shown.tab
    tab.get_by_label("that contain").fill("bad?")
    tab.locator("#problems tbody tr:visible summary").click()
    row = tab.locator("#problems tbody tr:visible")
    assert "<script>alert(1)</script>" in row.inner_text()
    assert tab.locator("script").count() == 1
    keep(tab, "hostile")


def test_it_is_read_without_its_script_and_on_paper(browser: Browser, file: Path) -> None:
    context = browser.new_context(java_script_enabled=False, color_scheme="dark")
    tab = context.new_page()
    tab.goto(file.as_uri())
    assert tab.locator("#problems tbody tr").count() == TARGETS + 2
    assert tab.locator("#problems-tools").is_hidden()
    keep(tab, "dark")
    context.close()
