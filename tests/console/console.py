"""The console as somebody uses it: by the names of what is on the page."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

expect.set_options(timeout=25_000)


class Console:
    """A page with the console of a server."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url.rstrip("/")
        page.set_default_timeout(25_000)

    def open(self, path: str = "") -> None:
        """Open a view, such as ``sessions/ID/graph``."""
        self.page.goto(f"{self.url}/#/{path}")

    def open_session(self, session: str, view: str = "graph") -> None:
        self.open(f"sessions/{session}/{view}")
        expect(self.page.get_by_role("navigation", name="Views of the session")).to_be_visible()

    def open_session_with_key(self, session: str, view: str, key: str) -> None:
        self.open(f"sessions/{session}/{view}")
        self.enter_key(key)
        expect(self.page.get_by_role("navigation", name="Views of the session")).to_be_visible()

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def expect_live(self) -> None:
        """Wait until the page listens to the session."""
        expect(self.page.locator(".badge")).to_have_text("live")

    @property
    def graph(self) -> Locator:
        """The drawing, which takes keys."""
        return self.page.get_by_role("application")

    @property
    def details(self) -> Locator:
        return self.page.get_by_role("complementary", name="Details of the selected box")

    def expect_nodes(self, count: int) -> None:
        expect(self.page.locator(".legend")).to_contain_text(f"{count} node")

    def step_through(self) -> Locator:
        """Begin to step through a backward pass; its controls."""
        self.button("Step through backward").click()
        return self.page.get_by_role("region", name="Backward pass")

    def find(self, text: str) -> None:
        """Search the graph, and open the first box found."""
        self.page.get_by_label("Search the graph").fill(text)
        self.page.locator(".found").get_by_role("button").first.click()
        self.page.get_by_label("Search the graph").fill("")

    def enter_key(self, key: str) -> None:
        dialog = self.page.get_by_role("dialog", name="API key")
        dialog.get_by_label("Key").fill(key)
        dialog.get_by_role("button", name="Continue").click()
