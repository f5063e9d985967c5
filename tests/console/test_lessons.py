"""What somebody does who learns or teaches gradients with nothing but the page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from xml.etree import ElementTree

import httpx
import pytest
from playwright.sync_api import Page, expect

from ..servers import running
from . import browsers
from .console import Console
from .test_graph import SVG, Session, op, tensor

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


def test_the_python_that_is_offered_makes_a_graph_that_can_be_stepped_through(open_page: Callable[..., Page]) -> None:
    with running() as (url, _):
        console = Console(open_page(), url)
        console.open()
        code = console.page.locator("pre").inner_text()
        command = [sys.executable, "-i", "-c", code]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=browsers.environment({}), text=True
        ) as python:
            console.page.get_by_role("link", name="unnamed").click()
            console.expect_nodes(4)
            expect(console.step_through()).to_contain_text("0 / 3")
            python.communicate("exit()\n", timeout=60)


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
    bar = console.step_through()
    console.button("One step").click()
    expect(bar).to_contain_text("loss (mul) received 1 and sends −2 to error (sub), −2 to error (sub).")
    console.button("One step").click()
    expect(bar).to_contain_text("error (sub) received −4 and sends −4 to y (mul).")
    console.page.get_by_label("Search the graph").fill("error")
    console.page.keyboard.press("Enter")
    gradient = console.details.locator("section").filter(has_text="Gradient in this pass")
    expect(gradient).to_contain_text("−2 + −2, together −4")


SUM = (tensor("u", 3.0), op("mul", "u", "u", out="square"), op("add", "square", "u", out="g"))


def saved(console: Console) -> ElementTree.Element:
    """The picture that the button SVG saves."""
    with console.page.expect_download() as download:
        console.button("SVG").click()
    return ElementTree.parse(download.value.path()).getroot()


def test_the_last_step_of_a_leaf_is_its_sum(console: Console, session: Session) -> None:
    session.run(*SUM)
    console.open_session(session.id)
    console.expect_nodes(3)
    bar = console.step_through()
    for said in ("sends 1 to square (mul), 1 to u.", "square (mul) received 1 and sends 3 to u, 3 to u."):
        console.button("One step").click()
        expect(bar).to_contain_text(said)
    assert "= 3" in {text.text for text in saved(console).iter(f"{SVG}text")}
    console.button("One step").click()
    expect(bar).to_contain_text("u has 7 = 1 + 3 + 3.")
    expect(bar).to_contain_text("3 / 3")
    expect(console.page.locator(".legend")).to_contain_text("gradient norm, logarithmic: 17")  # 1 to 7
    assert "= 3, grad 7" in {text.text for text in saved(console).iter(f"{SVG}text")}
    console.find("u")
    expect(console.details.locator("section").first).to_contain_text("1 + 3 + 3, together 7")
    console.button("End the stepping").click()
    assert "= 3" in {text.text for text in saved(console).iter(f"{SVG}text")}


def test_a_leaf_is_done_when_its_last_addend_has_arrived(console: Console, session: Session) -> None:
    session.run(tensor("w", [1.0, 2.0]), tensor("b", 0.5), op("sum", "w", out="s"), op("add", "s", "b", out="z"))
    console.open_session(session.id)
    console.expect_nodes(4)
    bar = console.step_through()
    for said in ("sends 1 to s (sum), 1 to b.", "b has 1.", "s (sum) received 1", "w has a gradient of norm 1.41."):
        console.button("One step").click()
        expect(bar).to_contain_text(said)
    assert "grad norm 1.41" in {text.text for text in saved(console).iter(f"{SVG}text")}


@pytest.mark.parametrize("direction", ["↓", "→"])
def test_a_saved_picture_shows_both_gradients_of_a_step(console: Console, session: Session, direction: str) -> None:
    session.run(tensor("w", 0.5), tensor("x", 2.0), op("mul", "w", "x", out="wx"), op("sigmoid", "wx", out="p"))
    console.open_session(session.id)
    console.expect_nodes(4)
    console.button(direction).click()
    console.step_through()
    console.button("One step").click()
    console.button("One step").click()
    drawn = saved(console)
    boxes = [each.attrib for each in drawn.iter(f"{SVG}rect") if "rx" in each.attrib]
    places = {
        text.text: (float(text.attrib["x"]), float(text.attrib["y"]))
        for text in drawn.iter(f"{SVG}text")
        if text.text in ("0.3932", "0.09831")
    }
    (x1, y1), (x2, y2) = places.values()
    assert abs(x1 - x2) > 60 or abs(y1 - y2) > 15, places
    for x, y in places.values():
        inside = [
            box
            for box in boxes
            if 0 < x - float(box["x"]) < float(box["width"]) and 0 < y - float(box["y"]) < float(box["height"])
        ]
        assert inside == []
    back = [path.attrib for path in drawn.iter(f"{SVG}path") if path.attrib.get("marker-start")]
    assert [path["marker-end"] for path in back] == ["none", "none"]
    heads = {marker.attrib["id"]: marker[0].attrib["fill"] for marker in drawn.iter(f"{SVG}marker")}
    assert {path["marker-start"] for path in back} == {"url(#back)"} and heads["back"] != heads["arrow"]


def test_arrow_keys_step_unless_a_field_or_the_graph_takes_them(console: Console, session: Session) -> None:
    session.run(*SUM)
    console.open_session(session.id)
    console.expect_nodes(3)
    bar = console.step_through()
    expect(bar).to_contain_text("0 / 3")
    press = console.page.keyboard.press
    for key, position in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1)):
        press(key)
        expect(bar).to_contain_text(f"{position} / 3")
    console.page.get_by_label("follow").focus()
    press("ArrowRight")
    expect(bar).to_contain_text("2 / 3")
    console.page.get_by_role("heading", level=1).click()  # takes the focus from everything
    press("ArrowRight")
    expect(bar).to_contain_text("3 / 3")
    console.page.get_by_label("Step of the backward pass").focus()
    press("ArrowLeft")
    expect(bar).to_contain_text("2 / 3")
    for field in (console.page.get_by_label("Search the graph"), console.page.get_by_label("fold by")):
        field.focus()
        press("ArrowLeft")
        expect(bar).to_contain_text("2 / 3")
    console.graph.focus()
    press("ArrowUp")
    expect(console.details).to_be_visible()
    press("ArrowLeft")
    press("Shift+ArrowLeft")
    expect(bar).to_contain_text("2 / 3")
    console.button("One step").focus()
    press("Alt+ArrowLeft")
    expect(bar).to_contain_text("2 / 3")
    press("ArrowLeft")
    expect(bar).to_contain_text("1 / 3")
    console.button("End the stepping").click()
    press("ArrowRight")
    expect(bar).to_have_count(0)


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
