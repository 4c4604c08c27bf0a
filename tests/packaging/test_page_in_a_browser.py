"""The page about a crawl in a real Chromium, while the crawl's database changes under it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright
from tests.support.browser import keep
from tests.support.website import Website, page
from tests.unit.test_report import HOSTILE
from tests.unit.test_results_stored import html, run

pytestmark = pytest.mark.timeout(600)  # the first time, a browser is installed


@pytest.fixture
def crawl(tmp_path: Path) -> Path:
    """A crawl that stopped at its limit, and went on when the page was open."""
    db = tmp_path / "frontier.db"
    asyncio.run(_crawl(db, 3))
    return db


async def _crawl(db: Path, pages: int) -> None:
    hostile = HOSTILE.replace("&", "&amp;").replace("<", "&lt;").replace("\x1b", "&#27;")
    home = html(
        f"<title>{hostile}</title><a href='/gone?<script>alert(2)</script>'>x</a><a href=/a></a><a href=/b></a>"
    )
    async with Website({"/": home, "/a": page(), "/b": page()}) as site:
        await run(db, site.url, scope={"maxPages": pages})


def test_it_is_live_used_by_keyboard_and_safe(crawl: Path, chromium: Path) -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "durable_crawler", "page", "--db", crawl, "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        url = server.stdout.readline().split()[0]
        with sync_playwright() as playwright:
            # As root a sandbox cannot be had; what is shown here is a server of ours.
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            tab = browser.new_page()
            complaints: list[str] = []
            tab.on("console", lambda message: complaints.append(message.text))
            tab.on("pageerror", lambda error: complaints.append(str(error)))
            tab.on("dialog", lambda dialog: complaints.append(dialog.message))
            tab.goto(url)
            expect(tab.locator('[data-key="done"]')).to_have_text("3")
            keep(tab, "page")

            tab.get_by_role("link", name="why?").focus()
            tab.keyboard.press("Enter")
            expect(tab.get_by_role("cell", name="http_error, status 404").first).to_be_visible()
            assert "alert(2)" in tab.get_by_role("heading", level=2).inner_text()
            assert tab.locator("main script").count() == 0
            keep(tab, "explain")
            tab.get_by_label("Explain a URL").fill("https://x.example/<script>alert(3)</script>")
            tab.keyboard.press("Enter")
            expect(tab.get_by_role("cell", name="no link to it was kept, and it is no seed").first).to_be_visible()

            tab.goto(url)
            with tab.expect_download() as download:
                tab.get_by_role("link", name="HTML").click()
            assert download.value.suggested_filename == "crawl-report.html"
            opened = tab.locator("#phase time").inner_text()
            with_sqlite(crawl)
            expect(tab.locator('[data-key="bytes"]')).to_have_text("1,234,567", timeout=10_000)
            expect(tab.locator("#phase time")).not_to_have_text(opened, timeout=20_000)
            assert complaints == []
            browser.close()
    finally:
        server.terminate()
        server.communicate(timeout=10)
    assert server.returncode == 0


def with_sqlite(db: Path) -> None:
    """Another number, as a crawl would write it."""
    import sqlite3  # noqa: PLC0415

    connection = sqlite3.connect(db)
    with connection:
        connection.execute("UPDATE counters SET bytes = 1234567")
    connection.close()
