"""The live graph: nodes that arrive, their details, stepping through backward, pictures."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
from playwright.sync_api import Page, expect

from .console import Console

SVG = "{http://www.w3.org/2000/svg}"
PNG = b"\x89PNG\r\n\x1a\n"
LARGE = 100_000
AT_ONCE = 5_000
HUGE = 10**8
MAX_BOXES = 1_500


class Session:
    """A session, and programs that run in it."""

    def __init__(self, client: httpx.Client, **options: Any) -> None:
        created = client.post("/v1/sessions", json=options)
        assert created.status_code == 201, created.text
        self.id: str = created.json()["id"]
        self.client, self.path = client, f"/v1/sessions/{self.id}"

    def run(self, *instructions: dict[str, Any]) -> dict[str, Any]:
        answer = self.client.post(f"{self.path}/programs", json={"instructions": instructions})
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result

    def get(self, path: str) -> httpx.Response:
        return self.client.get(self.path + path)


def tensor(id: str, data: Any, **attrs: Any) -> dict[str, Any]:
    return {"op": "tensor", "outputs": [id], "attrs": {"data": data, "requires_grad": True, **attrs}}


def op(name: str, *inputs: Any, out: str, **attrs: Any) -> dict[str, Any]:
    return {"op": name, "inputs": [*inputs], "outputs": [out], "attrs": attrs}


SQUARES = (tensor("x", [1.0, 2.0, 3.0]), op("mul", "x", "x", out="squares"), op("sum", "squares", out="loss"))
BACKWARD = {"op": "backward", "inputs": [["loss"]], "attrs": {"retain_graph": True}}


@pytest.fixture
def session(client: httpx.Client) -> Session:
    return Session(client, name="graph")


def test_nodes_appear_as_ops_arrive(console: Console, session: Session) -> None:
    console.open_session(session.id)
    expect(console.page.get_by_text("No graph at the moment")).to_be_visible()
    session.run(tensor("x", [1.0, 2.0]), op("exp", "x", out="y"))
    console.expect_nodes(2)
    session.run(op("sin", "y", out="z"))
    console.expect_nodes(3)
    session.run({"op": "free", "inputs": [["x", "y", "z"]]})
    expect(console.page.get_by_text("No graph at the moment")).to_be_visible()


def test_a_node_shows_its_value_its_gradient_and_its_derivative(console: Console, session: Session) -> None:
    session.run(*SQUARES, BACKWARD)
    console.open_session(session.id)
    console.find("x")
    expect(console.details).to_contain_text("1 2 3")
    gradient = console.details.locator("section").filter(
        has=console.page.get_by_role("heading", name=re.compile("Gradient"))
    )
    expect(gradient).to_contain_text("2 4 6")
    expect(gradient.get_by_role("img", name="Histogram of the gradient, from 2 to 6")).to_be_visible()
    console.find("mul")
    expect(console.details).to_contain_text("MulBackward0")
    expect(console.details).to_contain_text("grad * other")
    console.details.get_by_role("button", name=re.compile("sum")).click()
    expect(console.details.get_by_role("heading", name="sum")).to_be_visible()
    console.details.get_by_role("button", name=re.compile("mul")).click()
    expect(console.details.get_by_role("heading", name="mul")).to_be_visible()


def test_the_graph_is_read_with_the_keyboard(console: Console, session: Session) -> None:
    session.run(*SQUARES)
    console.open_session(session.id)
    console.expect_nodes(3)
    console.graph.focus()
    console.page.keyboard.press("ArrowUp")
    expect(console.details.get_by_role("heading", name="sum")).to_be_visible()
    console.page.keyboard.press("ArrowUp")
    expect(console.details.get_by_role("heading", name="mul")).to_be_visible()
    console.page.keyboard.press("ArrowDown")
    expect(console.details.get_by_role("heading", name="sum")).to_be_visible()
    for key in ("+", "-", "0", "Shift+ArrowLeft"):
        console.page.keyboard.press(key)
    console.page.keyboard.press("Escape")
    expect(console.details).to_have_count(0)
    console.page.keyboard.press("/")
    expect(console.page.get_by_label("Search the graph")).to_be_focused()


def test_stepping_through_backward_changes_nothing(console: Console, session: Session) -> None:
    session.run(*SQUARES)
    console.open_session(session.id)
    console.expect_nodes(3)
    bar = console.step_through()
    expect(bar).to_contain_text("The gradient of loss with respect to itself is 1")
    expect(bar).to_contain_text("0 / 3")
    console.button("One step").click()
    expect(bar).to_contain_text("loss (sum) received 1 and sends a gradient of norm 1.73 to squares (mul).")
    console.button("One step").click()
    expect(bar).to_contain_text("sends a gradient of norm 3.74 to x, a gradient of norm 3.74 to x")
    console.button("One step back").click()
    expect(bar).to_contain_text("1 / 3")
    console.button("Play").click()
    expect(bar).to_contain_text("x has a gradient of norm 7.48.")
    expect(bar).to_contain_text("3 / 3")
    console.button("End the stepping").click()
    expect(bar).to_have_count(0)
    assert session.get("/tensors/x/grad").json().get("data") is None
    assert session.run(
        BACKWARD, {"op": "grad_of", "inputs": ["x"], "outputs": ["g"]}, {"op": "fetch", "inputs": [["g"]]}
    )["values"]["g"]["data"] == [2.0, 4.0, 6.0]


def test_stepping_through_backward_in_a_folded_graph(console: Console, session: Session) -> None:
    session.run(*SQUARES, op("neg", "loss", out="a"), op("neg", "a", out="b"))
    console.open_session(session.id)
    console.page.get_by_label("fold by").select_option("op")
    legend = console.page.locator(".legend")
    expect(legend).to_contain_text("5 nodes, drawn as 3 boxes")
    bar = console.step_through()
    expect(bar).to_contain_text("The gradient of b with respect to itself is 1")
    console.button("One step").click()
    expect(bar).to_contain_text(re.compile(r"n\d+ in neg received 1 and sends −1 to n\d+ in neg"))
    console.button("One step").click()
    expect(bar).to_contain_text(re.compile(r"n\d+ in neg received .* to n\d+ in sum"))
    expect(legend).to_contain_text("gradient norm")
    expect(legend).to_contain_text("drawn as 3 boxes")
    console.find("neg")
    console.button("Open the group").click()
    expect(legend).to_contain_text("drawn as 4 boxes")
    expect(bar).to_contain_text("2 / 5")
    expect(bar).to_contain_text(re.compile(r"a \(neg\) received −1 and sends 1 to n\d+ in sum"))


def test_a_graph_that_was_freed_says_so(console: Console, session: Session) -> None:
    session.run(*SQUARES, {"op": "backward", "inputs": [["loss"]]})
    console.open_session(session.id)
    console.step_through()
    expect(console.page.get_by_role("alert")).to_contain_text("Trying to backward through the graph a second time")
    expect(console.page.get_by_text("Run the program again without backward")).to_be_visible()
    expect(console.page.get_by_role("combobox", name="from")).to_have_value("loss")
    console.button("Dismiss").click()
    expect(console.page.get_by_role("alert")).to_have_count(0)


def test_nan_and_infinities(console: Console, session: Session) -> None:
    session.run(
        tensor("x", [-1.0, 0.0, 4.0]), op("log", "x", out="logs"), op("sum", "logs", out="loss"),
        BACKWARD,
    )  # fmt: skip
    console.open_session(session.id)
    console.find("log")
    expect(console.details.get_by_text("1 NaN and 1 infinite of 3 elements")).to_be_visible()
    console.find("loss")
    expect(console.details).to_contain_text("NaN")


def test_names_with_markup_are_text_in_pictures(console: Console, session: Session, tmp_path: Path) -> None:
    session.run(*SQUARES)
    console.open_session(session.id)
    console.expect_nodes(3)
    with console.page.expect_download() as download:
        console.button("SVG").click()
    drawn = ElementTree.parse(download.value.path()).getroot()
    assert {"x", "mul", "squares [3]", "loss = 14", "×2"} <= {element.text for element in drawn.iter(f"{SVG}text")}
    assert re.fullmatch(r"graph-graph-\d+\.svg", download.value.suggested_filename)
    assert len([*drawn.iter(f"{SVG}path")]) >= 2
    with console.page.expect_download() as download:
        console.button("PNG").click()
    assert Path(download.value.path()).read_bytes().startswith(PNG)


def test_groups_open_and_close(console: Console, session: Session) -> None:
    session.run(*SQUARES, op("exp", "loss", out="a"), op("exp", "a", out="b"))
    console.open_session(session.id)
    console.page.get_by_label("fold by").select_option("op")
    console.find("exp")
    expect(console.details).to_contain_text("2 nodes folded into one box")
    console.button("Open the group").click()
    chips = console.page.get_by_label("Opened groups")
    expect(chips).to_contain_text("exp")
    console.graph.focus()
    console.page.keyboard.press("Escape")
    console.find("exp")
    expect(console.details).to_contain_text("ExpBackward0")
    chips.get_by_role("button").click()
    expect(chips).to_have_count(0)


def test_a_training_loop_is_observed(console: Console, training: str) -> None:
    console.open_session(training)
    console.expect_live()
    console.button("last step").click()
    expect(console.page.locator(".legend")).to_contain_text("gradient norm")
    console.page.get_by_label("fold by").select_option("module")
    console.find("encoder")
    expect(console.details).to_contain_text("encoder")


def test_a_huge_tensor(console: Console, session: Session) -> None:
    session.run({"op": "zeros", "outputs": ["huge"], "attrs": {"size": [HUGE], "dtype": "uint8"}})
    console.open_session(session.id)
    console.find("huge")
    expect(console.details).to_contain_text("100000000")
    expect(console.details).to_contain_text("Of a sample")


def test_a_graph_of_100_000_nodes(
    open_page: Callable[..., Page], url: str, session: Session, record_property: Callable[[str, object], None]
) -> None:
    session.run(tensor("y0", [1.0]))
    for first in range(0, LARGE, AT_ONCE):
        ops = [op("mul", f"y{i}", 1.0001, out=f"y{i + 1}") for i in range(first, first + AT_ONCE)]
        session.run(*ops, {"op": "free", "inputs": [[f"y{i}" for i in range(first, first + AT_ONCE)]]})
    console = Console(open_page(), url)
    console.open_session(session.id)
    expect(console.page.locator(".legend")).to_contain_text("100 001 nodes")
    drawn = console.page.evaluate("performance.getEntriesByName('telegrad:graph').map((entry) => entry.duration)")
    record_property("first picture after the answer, ms", drawn[0])
    console.graph.focus()
    console.page.keyboard.press("0")
    stalls = panned(console)
    record_property("longest stall while panning, ms", max(stalls, default=0))
    assert drawn
    console.page.keyboard.press("ArrowUp")
    expect(console.details).to_be_visible()


def panned(console: Console) -> list[float]:
    """The tasks of over 50 ms that the page had while somebody panned, in ms."""
    console.page.evaluate(
        """() => { window.stalls = []; new PerformanceObserver((list) => window.stalls.push(
             ...list.getEntries().map((entry) => entry.duration))).observe({ entryTypes: ["longtask"] }) }"""
    )
    box = console.graph.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    console.page.mouse.move(x, y)
    console.page.mouse.down()
    for step in range(60):
        console.page.mouse.move(x - 4 * step, y - 3 * step)
    console.page.mouse.up()
    found: list[float] = console.page.evaluate("() => window.stalls")
    return found
