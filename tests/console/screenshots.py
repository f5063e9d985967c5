"""Writes the pictures of the console that the documentation shows to ``docs/assets``: ``make screenshots``."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from ..servers import running
from .browsers import launched
from .conftest import trained
from .console import Console

ASSETS = Path(__file__).parents[2] / "docs/assets"
SIZE = {"width": 1280, "height": 800}
CURVE_MS = 6000
"""How long a curve grows before its picture is taken."""


def main() -> None:
    ASSETS.mkdir(exist_ok=True)
    with (
        running() as (url, _),
        trained(url) as session,
        sync_playwright() as playwright,
        launched(playwright) as browser,
    ):
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport=SIZE, color_scheme=scheme)
            console = Console(page, url)
            console.open_session(session)
            console.expect_live()
            console.button("last step").click()
            expect(page.locator(".legend")).to_contain_text("gradient norm")
            console.find("linear")
            expect(console.details).to_contain_text("grad_fn")
            page.screenshot(path=ASSETS / f"console-graph-{scheme}.png")
            console.open_session(session, "training")
            expect(page.locator(".last-value").first).to_be_visible()
            page.wait_for_timeout(CURVE_MS)
            page.screenshot(path=ASSETS / f"console-training-{scheme}.png")
            page.close()


if __name__ == "__main__":
    main()
