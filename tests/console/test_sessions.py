"""The list of sessions, and what the page says when sessions or the server go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from ..servers import free_port, running
from .console import Console

MARKUP = "<img src=x onerror=\"document.title='taken'\"><b>bold</b>"
MANY = 1000
MAX_ROWS = 80
"""Rows of a long list that are in the document: those in view, and a few around."""


def create(client: httpx.Client, **options: object) -> str:
    created = client.post("/v1/sessions", json=options)
    assert created.status_code == 201, created.text
    session: str = created.json()["id"]
    return session


def test_a_new_session_appears_and_is_closed_after_asking(console: Console, client: httpx.Client) -> None:
    console.open()
    session = create(client, name="appears")
    row = console.page.get_by_role("row").filter(has_text="appears")
    expect(row).to_contain_text("idle")
    expect(row).to_contain_text("cpu")
    console.button("Close session appears").click()
    console.button("Keep it").click()
    expect(row).to_be_visible()
    console.button("Close session appears").click()
    console.button("Close the session").click()
    expect(row).to_have_count(0)
    assert client.get(f"/v1/sessions/{session}").status_code == 404


def test_names_are_text(console: Console, client: httpx.Client) -> None:
    session = create(client, name=MARKUP)
    console.open()
    expect(console.page.get_by_role("link", name=MARKUP)).to_have_text(MARKUP)
    console.open_session(session)
    expect(console.page.get_by_role("heading", name=MARKUP)).to_have_text(MARKUP)
    assert "taken" not in console.page.title().split()
    assert console.page.locator("img, b").count() == 0


def test_sessions_are_searched_and_sorted(console: Console, client: httpx.Client) -> None:
    for name in ("sorted b", "sorted a", "other"):
        create(client, name=name)
    console.open()
    console.page.get_by_label("Search sessions").fill("sorted")
    rows = console.page.locator(".sessions-table .body").get_by_role("row")
    expect(rows).to_have_count(2)
    console.button("Name").click()
    expect(rows.first).to_contain_text("sorted a")
    console.page.get_by_role("button", name="Name").click()
    expect(rows.first).to_contain_text("sorted b")


def test_a_thousand_sessions(open_page: Callable[..., Page]) -> None:
    with running(f"--max-sessions={MANY + 10}", f"--max-sessions-per-peer={MANY + 10}") as (url, _):
        with httpx.Client(base_url=url, timeout=60) as client:
            for number in range(MANY):
                create(client, name=f"session #{number:04}")
        console = Console(open_page(), url)
        console.open()
        expect(console.page.get_by_text("1 000 sessions")).to_be_visible()
        table = console.page.get_by_role("table", name="Sessions")
        expect(table).to_have_attribute("aria-rowcount", str(MANY + 1))
        assert table.get_by_role("row").count() < MAX_ROWS
        rows = table.locator(".body").get_by_role("row")
        console.page.get_by_label("Search sessions").fill("session #05")
        expect(table).to_have_attribute("aria-rowcount", str(MANY // 10 + 1))
        expect(rows.first).to_contain_text("session #05")
        console.page.get_by_label("Search sessions").fill("session #0512")
        expect(rows).to_have_count(1)
        console.page.get_by_label("Search sessions").fill("")
        expect(table).to_have_attribute("aria-rowcount", str(MANY + 1))
        console.button("Name").click()
        table.evaluate("(element) => element.scrollTo(0, element.scrollHeight)")
        expect(table.get_by_text("session #0999")).to_be_visible()
        assert table.get_by_role("row").count() < MAX_ROWS


def test_a_server_without_what_the_page_reads(console: Console, client: httpx.Client) -> None:
    session = create(client, name="watched by another version")
    for missing in ("**/graph/folded?*", "**/events?*", "**/v1/workers?*", "**/v1/devices?*"):
        console.page.route(missing, lambda route: route.fulfill(status=404, json=client.get("/v1/nowhere").json()))
    console.open_session(session)
    page = console.page
    expect(page.get_by_role("alert").filter(has_text="The graph cannot be read")).to_be_visible()
    expect(page.locator(".badge")).to_have_text("not connected")
    expect(page.get_by_text("This session ended")).to_have_count(0)
    page.get_by_role("link", name="Try it").click()
    console.button("Program").click()
    console.button("Run").click()
    expect(page.get_by_label("Answer", exact=True)).to_contain_text("[2, 4, 6]")
    console.open("server")
    expect(page.get_by_role("heading", name="Health")).to_be_visible()
    expect(page.get_by_role("heading", name="Workers")).to_have_count(0)


def test_a_session_that_ends_while_its_backward_pass_is_stepped_through(console: Console, client: httpx.Client) -> None:
    session = create(client, name="ends while stepping")
    program = [
        {"op": "tensor", "outputs": ["x"], "attrs": {"data": [1.0], "requires_grad": True}},
        {"op": "exp", "inputs": ["x"], "outputs": ["y"]},
    ]
    client.post(f"/v1/sessions/{session}/programs", json={"instructions": program}).raise_for_status()
    console.open_session(session)
    console.expect_live()
    console.button("Step through backward").click()
    console.button("One step").click()
    client.delete(f"/v1/sessions/{session}")
    expect(console.page.get_by_text("This session ended")).to_be_visible()
    bar = console.page.get_by_role("region", name="Backward pass")
    console.button("One step back").click()
    expect(bar).to_contain_text("0 / 2")
    console.page.get_by_label("fold by").select_option("op")
    expect(console.page.get_by_role("alert").filter(has_text="no backward pass")).to_be_visible()


def test_an_unknown_session(console: Console) -> None:
    console.open("sessions/nowhere/graph")
    expect(console.page.get_by_text("There is no such session")).to_be_visible()


def test_an_unknown_view(console: Console) -> None:
    console.open("nowhere")
    expect(console.page.get_by_text("There is no such view")).to_be_visible()


def test_a_session_that_ends_while_it_is_watched(console: Console, client: httpx.Client) -> None:
    session = create(client, name="ends")
    console.open_session(session)
    console.expect_live()
    client.delete(f"/v1/sessions/{session}")
    expect(console.page.get_by_role("alert")).to_contain_text("This session ended")


def test_a_restart_of_the_server(open_page: Callable[..., Page], tmp_path: Path) -> None:
    port = free_port()
    flags = ("--data-dir", str(tmp_path))
    page = open_page()
    with running(*flags, port=port) as (url, _):
        with httpx.Client(base_url=url) as client:
            create(client, name="short-lived")
            session = create(client, name="lasting", durable=True)
        console = Console(page, url)
        console.open_session(session)
        console.expect_live()
    expect(page.get_by_role("alert").filter(has_text="has not answered since")).to_be_visible()
    with running(*flags, port=port):
        expect(page.get_by_text("The server restarted at")).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)
        console.expect_live()
        page.get_by_role("link", name="Sessions", exact=True).click()
        expect(page.get_by_role("row").filter(has_text="lasting")).to_be_visible()
        expect(page.get_by_text("short-lived")).to_have_count(0)


def test_a_server_of_another_version(console: Console) -> None:
    console.page.route("**/healthz", lambda route: route.fulfill(json={"status": "ok", "version": "9.9.9"}))
    console.open()
    expect(console.page.get_by_text("the server is 9.9.9")).to_be_visible()
    expect(console.button("Reload the page")).to_be_visible()


@pytest.mark.parametrize("path", ["", "server"])
def test_no_view_is_wider_than_a_phone(open_page: Callable[..., Page], url: str, path: str) -> None:
    console = Console(open_page(viewport={"width": 360, "height": 700}), url)
    console.open(path)
    expect(console.page.get_by_role("heading", level=1)).to_be_visible()
    assert console.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
