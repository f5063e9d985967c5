"""Training curves, programs, the form for ops; and that every view can be used by everybody."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from .console import Console
from .test_graph import BACKWARD, SQUARES, Session, op, tensor

VIEWS = ("graph", "training", "programs", "try")
SERIOUS = {"serious", "critical"}


@pytest.fixture
def session(client: httpx.Client) -> Session:
    return Session(client, name="views")


def test_the_loss_curve_moves(console: Console, training: str) -> None:
    console.open_session(training, "training")
    card = console.page.get_by_role("article").filter(has_text="loss").first
    last = card.locator(".last-value")
    expect(last).to_be_visible()
    before = last.inner_text()
    expect(last).not_to_have_text(before)
    expect(card.get_by_role("img")).to_be_visible()
    console.page.get_by_label("Logarithmic scale").check()
    console.page.get_by_label("Smoothing").fill("0.9")
    expect(last).not_to_have_text(before)
    expect(console.page.get_by_role("img", name="Memory of the session over time")).to_be_visible()


def test_a_curve_with_nan_has_a_gap(console: Console, session: Session) -> None:
    console.open_session(session.id, "training")
    console.expect_live()
    for value in (1.0, "NaN", "Infinity", 2.0):
        session.run(tensor("loss", value), {"op": "fetch", "inputs": [["loss"]]}, {"op": "free", "inputs": [["loss"]]})
    card = console.page.get_by_role("article").filter(has_text="2 values NaN or infinite")
    expect(card.locator(".last-value")).to_have_text("2")


def test_the_timeline_and_the_profile(console: Console, training: str) -> None:
    console.open_session(training, "programs")
    expect(console.page.get_by_role("heading", name="Timeline")).to_be_visible()
    expect(console.page.get_by_text("no program: the client was busy")).to_be_visible()
    expect(console.page.get_by_role("heading", name="Why a program is slow")).to_be_visible()
    console.button("1 s").click()
    console.button("Record").click()
    table = console.page.get_by_role("table", name="Time by op")
    expect(table.get_by_role("row").nth(1)).to_be_visible()
    expect(table).to_contain_text("aten::linear")
    expect(console.page.get_by_role("img", name="Flame chart")).to_be_visible()


def test_an_op_is_run_and_its_code_does_the_same(console: Console, session: Session) -> None:
    session.run(tensor("x", [1.0, 2.0]))
    console.open_session(session.id, "try")
    console.page.get_by_role("combobox", name="Op").fill("mul")
    expect(console.page.get_by_role("option").first).to_contain_text("mul")
    console.page.keyboard.press("ArrowDown")
    console.page.keyboard.press("Enter")
    expect(console.page.get_by_role("complementary", name="Documentation")).to_contain_text("mul(Tensor input")
    console.page.get_by_label("input", exact=False).first.fill("x")
    console.page.get_by_label("other", exact=False).first.fill("3")
    console.button("Run").click()
    answer = console.page.get_by_label("Answer", exact=True)
    expect(answer).to_contain_text("[3, 6]")
    code = console.page.get_by_label("The request in curl").inner_text()
    ran = subprocess.run(["sh", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(ran.stdout)["outputs"][0]["data"] == [3.0, 6.0]
    for language in ("JavaScript", "Python", "R"):
        console.button(language).click()
        expect(console.page.get_by_label(f"The request in {language}")).to_contain_text("/ops/mul?data=true")


def test_a_program_is_run(console: Console, session: Session) -> None:
    console.open_session(session.id, "try")
    console.button("Program").click()
    console.button("Run").click()
    expect(console.page.get_by_label("Answer", exact=True)).to_contain_text("[2, 4, 6]")
    console.page.get_by_label("Program", exact=True).fill("{")
    expect(console.page.get_by_text("This is not JSON yet")).to_be_visible()
    expect(console.button("Run")).to_be_disabled()


def test_a_mistake_is_told_in_the_servers_words(console: Console, session: Session) -> None:
    console.open_session(session.id, "try")
    console.button("Program").click()
    console.page.get_by_label("Program", exact=True).fill(
        '{"instructions": [{"op": "mul", "inputs": ["<i>no</i>", 2]}]}'
    )
    console.button("Run").click()
    expect(console.page.get_by_role("alert")).to_contain_text("<i>no</i>")
    expect(console.page.get_by_role("alert")).to_contain_text("Instruction 0 of the program (the first is 0), mul.")
    console.page.get_by_label("Program", exact=True).fill(
        '{"instructions": [{"op": "tensor", "outputs": ["nan"], "attrs": {"data": [null]}}]}'
    )
    console.button("Run").click()
    expect(console.page.get_by_role("alert")).to_contain_text("there is null at data[0]")
    console.button("One op").click()
    expect(console.page.get_by_role("alert")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_accessible(open_page: Callable[..., Page], url: str, session: Session, scheme: str) -> None:
    session.run(*SQUARES, BACKWARD)
    console = Console(open_page(color_scheme=scheme), url)
    console.open()
    expect(console.page.get_by_role("table", name="Sessions")).to_be_visible()
    check(console, "sessions")
    console.open("server")
    expect(console.page.get_by_role("heading", name="Health")).to_be_visible()
    check(console, "server")
    for view in VIEWS:
        console.open_session(session.id, view)
        console.expect_live()
        if view == "graph":
            console.find("mul")
            console.button("Step through backward").click()
            console.button("One step").click()
            console.find("mul")
        if view == "programs":
            session.run(op("exp", "x", out="y"))
            expect(console.page.get_by_role("heading", name="Timeline")).to_be_visible()
        check(console, view)


def check(console: Console, view: str) -> None:
    """Check with axe that a view has no serious fault."""
    found = Axe().run(console.page).response["violations"]
    serious = [(each["id"], [node["html"] for node in each["nodes"]]) for each in found if each["impact"] in SERIOUS]
    assert serious == [], view


@pytest.mark.parametrize("view", VIEWS)
def test_no_view_of_a_session_is_wider_than_a_phone(
    open_page: Callable[..., Page], url: str, session: Session, view: str
) -> None:
    session.run(*SQUARES, BACKWARD)
    console = Console(open_page(viewport={"width": 360, "height": 700}), url)
    console.open_session(session.id, view)
    console.expect_live()
    assert console.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
