"""The pages for people: ``/``, ``/docs`` and ``/redoc``, on a network without a CDN."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import httpx
import pytest

LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src"}
KINDS = {"js": "text/javascript", "css": "text/css", "png": "image/png", "svg": "image/svg+xml"}


class Assets(HTMLParser):
    """The addresses that a browser loads for a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(LOADED.get(tag, ""))
        if address:
            self.found.append(address)


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
def test_the_server_itself_has_every_asset_of_a_page(client: httpx.Client, path: str) -> None:
    page = client.get(path)
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    assets = Assets(page.text).found
    assert any(address.endswith(".js") for address in assets)
    for address in assets:
        assert re.match(r"/\w", address), f"{address} is on another server"
        asset = client.get(address)
        assert asset.status_code == 200 and len(asset.content) > 100
        assert asset.headers["content-type"].startswith(KINDS[address.rpartition(".")[2]])
    assert "/openapi.json" in page.text


def test_the_logo_that_redoc_shows_is_the_servers_too(client: httpx.Client) -> None:
    assert "cdn." not in client.get("/redoc/redoc.standalone.js").text
    assert client.get("/redoc/logo-mini.svg").status_code == 200


def test_a_browser_is_led_from_the_root_to_the_docs(client: httpx.Client) -> None:
    answer = client.get("/", headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert (answer.status_code, answer.headers["location"]) == (307, "/docs")


def test_another_client_is_told_where_things_are(client: httpx.Client) -> None:
    answer = client.get("/")
    links = {name: path for name, path in answer.json().items() if path.startswith("/")}
    assert {"docs", "openapi", "sessions", "health"} <= set(links)
    for path in links.values():
        assert client.get(path).status_code == 200
