"""The live graph in a notebook: the console's view in a page like a notebook's, and the kernel's end of the widget.

The page has a model like anywidget's, whose messages go to the widget in this process and back.

Internals: what stands in for the view where it is not built.
"""

from __future__ import annotations

import gc
import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import comm
import pytest
from comm.base_comm import BaseComm
from playwright.sync_api import Page, Route, expect

import telegrad as tg
from telegrad.notebook.widget import NOT_BUILT

NOTEBOOK = "http://notebook.test/"
BOX_PITCH = 78
"""The pixels from one box to the one below."""
NASTY = "<i onclick=alert(1)>x</i>"
PAGE = """<!doctype html><title>A notebook</title><style>button { color: rgb(1, 2, 3) }</style>
<button>The notebook's own</button><div id="output"></div><script type="module">
    import widget from "./widget.js";
    const state = await window.kernelState();
    const listeners = new Map();
    let changed = {};
    const tell = (event, ...values) => (listeners.get(event) ?? []).forEach((each) => each(...values));
    const model = {
        get: (name) => state[name],
        set(name, value) { state[name] = changed[name] = value; tell(`change:${name}`); },
        save_changes() { window.toKernel({ method: "update", state: changed }); changed = {}; },
        send: (content) => window.toKernel({ method: "custom", content }),
        on: (event, callback) => listeners.set(event, [...(listeners.get(event) ?? []), callback]),
        off: (event, callback) => listeners.set(event, listeners.get(event).filter((each) => each !== callback)),
    };
    window.end = widget.render({ model, el: document.getElementById("output") });
    window.listening = () => [...listeners.values()].flat().length;
    for (;;) {
        for (const message of await window.fromKernel()) {
            if (message.method === "custom") tell("msg:custom", message.content);
            else for (const [name, value] of Object.entries(message.state ?? {})) {
                state[name] = value;
                tell(`change:${name}`);
            }
        }
        await new Promise((resolve) => setTimeout(resolve, 30));
    }
</script>"""


class Comm(BaseComm):
    """A channel to a page: what the kernel says waits until the page asks for it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.said: deque[Any] = deque()
        super().__init__(*args, **options)

    def publish_msg(self, msg_type: str, data: Any = None, *rest: Any, **more: Any) -> None:
        if data is not None:
            self.said.append(json.loads(json.dumps(data, default=str)))

    def take(self) -> list[Any]:
        return [self.said.popleft() for _ in range(len(self.said))]


@pytest.fixture(params=["http", "local"])
def session(request: pytest.FixtureRequest, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tg.Session]:
    monkeypatch.setattr(comm, "create_comm", Comm)
    with tg.connect(url if request.param == "http" else "local://") as session:
        yield session


@pytest.fixture
def show(open_page: Callable[..., Page]) -> Iterator[Callable[..., Page]]:
    """Shows a widget in a page."""
    widgets: list[Any] = []

    def shown(widget: Any, script: Any = None) -> Page:
        widgets.append(widget)
        page = open_page()
        page.set_default_timeout(25_000)
        contents = {NOTEBOOK: ("text/html", PAGE), f"{NOTEBOOK}widget.js": ("text/javascript", script or widget._esm)}

        def answer(route: Route) -> None:
            kind, body = contents[route.request.url]
            route.fulfill(body=str(body), content_type=kind)

        def receive(data: Any) -> None:
            if widget.comm is not None:  # else it was closed meanwhile
                widget.comm.handle_msg({"content": {"data": data}, "buffers": []})

        page.route(f"{NOTEBOOK}**", answer)
        page.expose_function(
            "kernelState", lambda: {name: widget.get_state()[name] for name in ("query", "picture", "title", "ended")}
        )
        page.expose_function("fromKernel", widget.comm.take)
        page.expose_function("toKernel", receive)
        page.goto(NOTEBOOK)
        return page

    yield shown
    for widget in widgets:
        widget.close()


def nodes(page: Page, count: int) -> None:
    expect(page.locator(".legend")).to_contain_text(f"{count} node")


def details(page: Page) -> Any:
    return page.get_by_role("complementary", name="Details of the selected box")


def test_the_graph_follows_the_session_and_a_node_shows_its_gradient(
    session: tg.Session, show: Callable[..., Page]
) -> None:
    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    squares = x * x
    page = show(tg.notebook.live_graph(names={NASTY: x}, every_s=0.05))
    nodes(page, 2)
    loss = squares.sum()
    nodes(page, 3)
    loss.backward(retain_graph=True)
    page.get_by_label("Search the graph").fill(NASTY)
    page.locator(".found").get_by_role("button").first.click()
    expect(details(page)).to_contain_text("2 4 6")
    expect(details(page).get_by_role("heading", level=2)).to_have_text(NASTY)
    page.get_by_label("Search the graph").fill("")
    page.get_by_role("button", name="Step through backward").click()
    bar = page.get_by_role("region", name="Backward pass")
    expect(bar).to_contain_text("0 / 3")
    page.get_by_role("button", name="One step", exact=True).click()
    expect(bar).to_contain_text("received 1 and sends")
    page.keyboard.press("ArrowRight")
    expect(bar).to_contain_text("2 / 3")
    page.get_by_role("button", name="The notebook's own").focus()
    page.keyboard.press("ArrowRight")  # a key of the notebook's
    expect(bar).to_contain_text("2 / 3")


class Network(tg.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = tg.nn.Linear(3, 4)

    def forward(self, x: tg.Tensor) -> tg.Tensor:
        found: tg.Tensor = self.encoder(x)
        return found


def test_the_last_step_of_a_loop_is_folded_by_module(session: tg.Session, show: Callable[..., Page]) -> None:
    gc.collect()  # beside modules of other tests, this one's paths would begin with its class
    model = Network()
    page = show(tg.notebook.live_graph(every_s=0.05))
    page.get_by_role("button", name="last step").click()
    page.get_by_label("fold by").select_option("module")
    page.get_by_label("Search the graph").fill("encoder")
    until = time.monotonic() + 60
    while page.locator(".found").get_by_role("button").count() == 0:
        assert time.monotonic() < until, page.locator(".graph-view").inner_text()
        model(tg.ones(2, 3)).sum().backward()
        _ = model.encoder.weight.grad.sum().item()
        page.wait_for_timeout(100)
    page.get_by_label("Search the graph").fill("")
    expect(page.locator(".legend")).to_contain_text("5 nodes, drawn as 2 boxes, folded by module")
    expect(page.locator(".legend")).to_contain_text("gradient norm")
    stage = page.get_by_role("application").bounding_box()
    upper = (stage["x"] + stage["width"] / 2, stage["y"] + stage["height"] / 2 - BOX_PITCH / 2)
    page.mouse.click(*upper)
    expect(details(page)).to_contain_text("4 nodes folded into one box")
    page.get_by_role("button", name="Open the group").click()
    expect(page.locator(".legend")).to_contain_text("5 nodes, folded by module")


def test_styles_stay_apart_and_nothing_is_left(session: tg.Session, show: Callable[..., Page]) -> None:
    x = tg.ones(2, requires_grad=True)
    y = x * 2
    page = show(tg.notebook.live_graph(every_s=0.05))
    nodes(page, 2)
    own, others = (page.get_by_role("button", name=name) for name in ("The notebook's own", "SVG"))
    colours = [each.evaluate("(element) => getComputedStyle(element).color") for each in (own, others)]
    assert colours[0] == "rgb(1, 2, 3)" != colours[1]
    session.close()
    expect(page.get_by_text("Not up to date: the session is closed.")).to_be_visible()
    nodes(page, 2)
    page.evaluate("window.end()")
    assert page.evaluate("window.listening()") == 0
    expect(page.locator(".legend")).to_have_count(0)
    del y


def test_a_view_that_is_not_built_says_how_to_build_it(session: tg.Session, show: Callable[..., Page]) -> None:
    page = show(tg.notebook.live_graph(), NOT_BUILT)
    expect(page.get_by_text("run `make console` at the root of the repository")).to_be_visible()
