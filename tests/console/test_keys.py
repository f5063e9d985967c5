"""Servers with API keys, in one process and as a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import httpx
import pytest
from playwright.sync_api import Page, expect

from ..servers import running
from ..service.api_keys import client_with, command, create_key, id_of, sqlite
from .conftest import trained
from .console import Console

DAY_S, LASTS_S = 86_400, 6


class Closed(NamedTuple):
    """A server that needs keys."""

    url: str
    database: str
    key: str
    workers: bool
    """Whether it is a gateway with two workers."""


@pytest.fixture(scope="module", params=[(), ("--workers=2",)], ids=["server", "gateway"])
def closed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    folder = tmp_path_factory.mktemp("keys")
    database = sqlite(folder)
    key = create_key(database, "teacher")
    data = ("--data-dir", str(folder / "data")) if request.param else ()
    with running("--database-url", database, *data, *request.param) as (url, _):
        yield Closed(url, database, key, bool(request.param))


@pytest.fixture
def client(closed: Closed) -> Iterator[httpx.Client]:
    with client_with(closed.url, closed.key) as client:
        yield client


def test_the_key_is_asked_once_and_kept_in_memory(
    open_page: Callable[..., Page], closed: Closed, client: httpx.Client
) -> None:
    client.post("/v1/sessions", json={"name": "behind a key"}).raise_for_status()
    console = Console(open_page(), closed.url)
    console.open()
    console.enter_key("not a key")
    expect(console.page.get_by_text("The server does not take this API key.")).to_be_visible()
    console.enter_key(closed.key)
    link = console.page.get_by_role("link", name="behind a key").first
    expect(link).to_be_visible()
    link.click()
    console.expect_live()
    kept = console.page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
    assert kept == '[{},{},""]'
    assert closed.key not in console.page.content()
    console.page.reload()
    expect(console.page.get_by_role("dialog", name="API key")).to_be_visible()


def test_without_a_key_the_page_says_so(open_page: Callable[..., Page], closed: Closed) -> None:
    console = Console(open_page(), closed.url)
    console.open()
    console.page.get_by_role("dialog", name="API key").get_by_role("button", name="Cancel").click()
    expect(console.page.get_by_text("The server asks for an API key.")).to_be_visible()
    console.button("Enter a key").click()
    console.enter_key(closed.key)
    expect(console.page.get_by_role("heading", name="Sessions", exact=True)).to_be_visible()
    expect(console.button("Enter a key")).to_have_count(0)


def test_a_key_that_is_revoked_meanwhile(open_page: Callable[..., Page], closed: Closed) -> None:
    key = create_key(closed.database, "guest")
    console = Console(open_page(), closed.url)
    console.open()
    console.enter_key(key)
    expect(console.page.get_by_text("No sessions yet")).to_be_visible()
    command(closed.database, "revoke", id_of(key))
    expect(console.page.get_by_text("no longer takes this API key")).to_be_visible()


def test_a_key_that_expires_meanwhile(open_page: Callable[..., Page], closed: Closed) -> None:
    key = create_key(closed.database, "visitor", "read", f"--expires-days={LASTS_S / DAY_S}")
    console = Console(open_page(), closed.url)
    console.open()
    console.enter_key(key)
    expect(console.page.get_by_text("no longer takes this API key")).to_be_visible()
    console.enter_key(closed.key)
    expect(console.page.get_by_role("heading", name="Sessions", exact=True)).to_be_visible()
    expect(console.page.get_by_role("dialog")).to_have_count(0)


def test_training_with_a_key(open_page: Callable[..., Page], closed: Closed) -> None:
    with trained(closed.url, TELEGRAD_API_KEY=closed.key) as session:
        console = Console(open_page(), closed.url)
        console.open_session_with_key(session, "training", closed.key)
        expect(console.page.get_by_role("article").filter(has_text="loss")).to_be_visible()


def test_the_code_to_copy_names_the_key_but_does_not_have_it(
    open_page: Callable[..., Page], closed: Closed, client: httpx.Client
) -> None:
    session = client.post("/v1/sessions", json={}).json()["id"]
    console = Console(open_page(), closed.url)
    console.open_session_with_key(session, "try", closed.key)
    console.button("Program").click()
    code = console.page.get_by_label("The request in curl")
    expect(code).to_contain_text("$TELEGRAD_API_KEY")
    expect(code).not_to_contain_text(closed.key)


def test_the_server_view(open_page: Callable[..., Page], closed: Closed) -> None:
    console = Console(open_page(), closed.url)
    console.open("server")
    console.enter_key(closed.key)
    expect(console.page.get_by_text("The server takes work.")).to_be_visible()
    expect(console.page.get_by_role("cell", name="teacher")).to_be_visible()
    workers = console.page.get_by_role("article").filter(has=console.page.get_by_role("heading", name="Workers"))
    expect(workers.get_by_role("row")).to_have_count(3 if closed.workers else 2)
