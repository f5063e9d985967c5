"""What somebody does who learns or teaches gradients with nothing but the page."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from xml.etree import ElementTree

import httpx
import pytest
from playwright.sync_api import Page, expect

from ..servers import running
from .console import Console
from .test_graph import Session, op, tensor

NEURON = (
    tensor("w", 0.5), tensor("x", 2.0, requires_grad=False, dtype="float32"),
    tensor("target", 3.0, requires_grad=False, dtype="float32"),
    op("mul", "w", "x", out="y"), op("sub", "y", "target", out="error"), op("mul", "error", "error", out="loss"),
)  # fmt: skip


@pytest.fixture
def session(client: httpx.Client) -> Session:
    return Session(client, name="lesson")


def test_a_session_is_made_filled_and_differentiated_in_the_page(open_page: Callable[..., Page]) -> None:
    with running() as (url, _):
        console = Console(open_page(), url)
        console.open()
        expect(console.page.get_by_text("No sessions yet")).to_be_visible()
        console.button("New session").click()
        dialog = console.page.get_by_role("dialog", name="New session")
        dialog.get_by_label("Name").fill("lesson 1")
        dialog.get_by_role("button", name="Create").click()
        expect(console.page.get_by_role("heading", name="lesson 1")).to_be_visible()
        console.expect_live()
        expect(console.page.get_by_text("Choose an op before you run it.")).to_be_visible()
        console.button("New tensor").click()
        console.button("Run").click()
        answer = console.page.get_by_label("Answer", exact=True)
        expect(answer).to_contain_text("[1, 2, 3]")
        expect(console.page.locator(".metrics")).to_contain_text(re.compile(r"1\s*tensors"))
        choose = console.page.get_by_role("combobox", name="Op")
        choose.fill("sum")
        choose.press("Enter")
        console.page.get_by_label("input", exact=False).first.fill("x")
        console.page.get_by_label("Ids of the outputs").fill("loss")
        expect(answer).to_have_count(0)
        console.button("Run").click()
        expect(answer).to_contain_text('"data": 6')
        console.button("Backward").click()
        expect(console.page.get_by_label("Ids of the outputs")).to_have_value("")
        console.page.get_by_label("tensors", exact=False).first.fill("loss")
        shown = console.page.get_by_label("The request in curl")
        expect(shown).to_contain_text('"inputs":[["loss"]]')
        code = shown.inner_text()
        console.button("Run").click()
        expect(answer).to_be_visible()
        ran = subprocess.run(["sh", "-c", code], capture_output=True, text=True, check=True, timeout=60)
        assert json.loads(ran.stdout) == {"values": {}, "pending": None}
        console.page.get_by_role("link", name="Graph").click()
        console.find("x")
        expect(console.details).to_contain_text("2 2 2")


def test_common_ops_are_offered_first_and_the_list_opens_again(console: Console, session: Session) -> None:
    console.open_session(session.id, "try")
    choose = console.page.get_by_role("combobox", name="Op")
    choose.focus()
    options = console.page.get_by_role("option")
    expect(options.first).to_contain_text("tensor")
    expect(console.page.get_by_label("Op", exact=True)).to_be_focused()  # the list is no part of its name
    choose.press("Escape")
    expect(options).to_have_count(0)
    choose.press("ArrowDown")
    expect(options.first).to_contain_text("tensor")


def test_data_are_connected_and_numbers_have_signs(console: Console, session: Session) -> None:
    console.open_session(session.id)
    console.expect_live()
    session.run(*NEURON)
    console.expect_nodes(6)
    console.find("sub")
    expect(console.details.get_by_role("button", name="target")).to_be_visible()
    expect(console.details.locator("section").filter(has_text="Value")).to_contain_text("−2")
    expect(console.details.get_by_role("img")).to_have_count(0)
    console.button("Close the details").click()
    console.button("Step through backward").click()
    bar = console.page.get_by_role("region", name="Backward pass")
    console.button("One step").click()
    expect(bar).to_contain_text("loss (mul) received 1 and sends −2 to error (sub), −2 to error (sub).")
    console.button("One step").click()
    expect(bar).to_contain_text("error (sub) received −4 and sends −4 to y (mul).")
    console.page.get_by_label("Search the graph").fill("error")
    console.page.keyboard.press("Enter")
    gradient = console.details.locator("section").filter(has_text="Gradient in this pass")
    expect(gradient).to_contain_text("−2 + −2, together −4")


def test_only_what_leads_to_a_tensor(console: Console, session: Session) -> None:
    session.run(*NEURON, op("exp", "w", out="other"))
    console.open_session(session.id)
    console.expect_nodes(7)
    console.find("sub")
    console.button("Only what leads to error").click()
    expect(console.page.locator(".legend")).to_contain_text(re.compile(r"^[45] nodes"))
    console.page.get_by_title("Show everything again").click()
    console.expect_nodes(7)


def test_the_graph_is_drawn_from_left_to_right(console: Console, session: Session) -> None:
    console.open_session(session.id)
    console.expect_live()
    session.run(*NEURON)
    console.expect_nodes(6)
    console.button("→").click()
    console.graph.focus()
    for key, label in (("ArrowLeft", "mul"), ("ArrowLeft", "sub"), ("ArrowRight", "mul")):
        console.page.keyboard.press(key)
        expect(console.details.get_by_role("heading", name=label, exact=True)).to_be_visible()
    with console.page.expect_download() as download:
        console.button("SVG").click()
    drawn = ElementTree.parse(download.value.path()).getroot()
    assert float(drawn.attrib["width"]) > 2 * float(drawn.attrib["height"])


def test_no_step_yet_is_no_error(console: Console, session: Session) -> None:
    console.open_session(session.id)
    console.button("last step").click()
    expect(console.page.get_by_text("Run a step while this page is open")).to_be_visible()
    expect(console.page.get_by_role("alert")).to_have_count(0)
    console.page.get_by_role("link", name="Training").click()
    expect(console.page.get_by_text("No samples yet.").first).to_be_visible()
