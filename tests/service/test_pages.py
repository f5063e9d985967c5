"""The pages for people: ``/``, ``/docs`` and ``/redoc``, on a network without a CDN.

Internals: an application serves a console that was built elsewhere.
"""

from __future__ import annotations

import asyncio
import re
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from telegrad_service import console
from telegrad_service.app import create_app
from telegrad_service.settings import Settings

from .conftest import problem

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


BROWSER = {"accept": "text/html,application/xhtml+xml,image/avif,*/*;q=0.8"}


def test_a_browser_gets_the_console(client: httpx.Client) -> None:
    answer = client.get("/", headers=BROWSER)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert (answer.headers["x-content-type-options"], answer.headers["referrer-policy"]) == ("nosniff", "no-referrer")
    assert "accept" in answer.headers["vary"]
    for address in Assets(answer.text).found:
        assert address.startswith(("/", "./")) and client.get(address).status_code == 200
    problem(client.get("/console/../../secret"), 404, "not-found")
    problem(client.get("/console/assets/nothing.js"), 404, "not-found")


def test_a_console_that_is_built_and_one_that_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "FILES", console.Files(tmp_path / "static"))
    app = create_app(Settings())

    def get(path: str, **headers: str) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as asking:
                return await asking.get(path, headers=headers)

        return asyncio.run(ask())

    unbuilt = get("/", **BROWSER)
    assert "make console" in unbuilt.text and '"/docs"' in unbuilt.text and "<script" not in unbuilt.text
    (tmp_path / "static/assets").mkdir(parents=True)
    (tmp_path / "secret.js").write_text("secret")
    script = "export const answer = 42;\n" * 1000
    for name, text in {"index.html": "<p>built</p>", "assets/main-1f2e.js": script, "icon.svg": "<svg/>"}.items():
        (tmp_path / "static" / name).write_text(text)
    built = get("/", **BROWSER)
    assert built.text == "<p>built</p>" and "unsafe" not in built.headers["content-security-policy"]
    assert built.headers["cache-control"] == "no-cache"
    asset = get("/console/assets/main-1f2e.js", **{"accept-encoding": "zstd"})
    assert asset.headers["content-type"].startswith("text/javascript") and "immutable" in asset.headers["cache-control"]
    assert asset.headers["content-encoding"] == "zstd" and len(asset.content) < len(script) / 10
    assert get("/console/icon.svg").headers["cache-control"] == "no-cache"
    for path in ("/console/..%2fsecret.js", "/console/%2e%2e/secret.js", "/console/assets", "/console/"):
        problem(get(path), 404, "not-found")
    assert get("/").json()["name"] == "Telegrad"


def test_another_client_is_told_where_things_are(client: httpx.Client) -> None:
    answer = client.get("/")
    links = {name: path for name, path in answer.json().items() if path.startswith("/")}
    assert {"docs", "openapi", "sessions", "health"} <= set(links)
    for path in links.values():
        assert client.get(path).status_code == 200
