"""Display: tensors and graphs in a notebook, large tensors in print, and progress of long transfers.

Internals: when progress is shown is no setting, and tests cannot wait for it.
"""

from __future__ import annotations

import io
import re
import sys
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad.transport import progress

pytestmark = pytest.mark.usefixtures("session")
NASTY = "<script>alert('&')</script>\"]]>"


def parsed(html: str) -> ElementTree.Element:
    """Parse our HTML as XML, which fails if a tag is left open."""
    return ElementTree.fromstring(html)


def texts(html: str) -> str:
    return " ".join(text.strip() for text in parsed(html).itertext() if text.strip())


# Tensors ------------------------------------------------------------------------------------------


def test_a_tensor_shows_its_values_and_what_is_known_of_it() -> None:
    x = tg.tensor([[1.5, -2.0], [0.0, 4.0]], requires_grad=True)
    shown = texts(x._repr_html_())
    for part in ("Tensor", "2 × 2", "float32", "cpu", "requires_grad True", "grad none yet", "1.5000, -2.0000"):
        assert part in shown
    (x * 2).sum().backward()
    assert "grad there" in texts(x._repr_html_())
    assert "grad_fn MulBackward0" in texts((x * 2)._repr_html_())
    assert "a single number" in texts(x.sum()._repr_html_())
    assert "Parameter" in texts(tg.nn.Linear(2, 1).weight._repr_html_())


def test_what_a_user_named_is_escaped() -> None:
    class Named(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0] * 2

    function: Any = type(NASTY, (Named,), {})
    x = tg.ones(2, requires_grad=True)
    y = function.apply(x)
    for html in (y._repr_html_(), tg.graph(y, names={NASTY: x, "<b>": y})._repr_html_()):
        assert NASTY[:20] in texts(html)
        assert not {tag.tag.rpartition("}")[2] for tag in parsed(html).iter()} & {
            "script",
            "b",
            "a",
            "image",
            "use",
        } - {"b" if "telegrad-tensor" in html else ""}
        assert not re.search(r"""(?<!xmlns=")https?://|javascript:|\son\w+=""", html)


@pytest.mark.parametrize("shape", [(2000,), (40, 50), (7, 3, 100), (1001, 1), (3, 0, 500), (10, 100), (1500, 2, 2)])
def test_a_large_tensor_prints_as_torchs_though_only_its_ends_are_fetched(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).standard_normal(shape)
    ours, theirs = tg.tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    for lib in (torch, tg):
        lib.set_printoptions(linewidth=80)
    for mine, other in ((ours, theirs), (ours * 2, theirs * 2)):
        assert " ".join(repr(mine).replace("telegrad.", "torch.").split()) == " ".join(repr(other).split())
    assert repr(tg.arange(5000).reshape(50, 100)) == repr(torch.arange(5000).reshape(50, 100))


def test_how_much_of_a_large_tensor_travels(session: tg.Session) -> None:
    x, fetched = tg.zeros(300, 400), []
    session.flush()
    fetch = type(session.recorder).fetch

    def watched(self: Any, names: Any, values: bool = True) -> Any:
        found = fetch(self, names, values)
        fetched.extend([value.array.size for value in found.values() if values])
        return found

    session.recorder.fetch = watched.__get__(session.recorder)  # type: ignore[method-assign]
    before = session.requests
    assert "..." in x._repr_html_()
    assert (fetched, session.requests - before) == ([36], 1)


def test_a_number_formats_as_torchs() -> None:
    for lib in (torch, tg):
        x, row = lib.tensor(2.5, requires_grad=True), lib.tensor([1.0, 2.0])
        assert f"{x} {x * 2:.3f} {x.sum():>8} {lib.tensor(3):04d}" == "2.5 5.000      2.5 0003"
        assert f"{row}" == "tensor([1., 2.])"
        with pytest.raises(TypeError, match=r"unsupported format string passed to Tensor\.__format__"):
            f"{row:.2f}"


# Graphs -------------------------------------------------------------------------------------------


def a_loss() -> tuple[Any, dict[str, Any]]:
    model = tg.nn.Sequential(tg.nn.Linear(4, 8), tg.nn.ReLU(), tg.nn.Linear(8, 1))
    loss = ((model(tg.ones(5, 4)) - 1) ** 2).mean()
    return loss, {**dict(model.named_parameters()), "loss": loss}


def test_a_graph_is_drawn_without_asking_the_session(session: tg.Session) -> None:
    loss, names = a_loss()
    before = session.requests
    graph = tg.graph(loss, names=names)
    shown = texts(graph._repr_html_())
    assert session.requests == before
    for part in ("0.weight", "2.bias", "linear", "relu", "float32 [5, 8]", "loss", "MeanBackward0"):
        assert part in shown
    assert repr(graph) == "<graph of 6 operations and 4 leaves>"
    assert str(graph).splitlines()[0].startswith("loss: float32 [] = mean(")
    assert "digraph" in graph.to_dot()
    assert "flowchart" in graph.to_mermaid()


def test_no_box_covers_another_and_edges_lead_down() -> None:
    loss, names = a_loss()
    x = tg.ones(3, requires_grad=True)
    wide = sum((x * i).exp() * x for i in range(12)).sum() + loss
    svg = parsed(tg.graph(wide, loss, names={**names, "a name that is long enough to be cut somewhere": x}).to_svg())
    width, height = float(svg.get("width", 0)), float(svg.get("height", 0))
    boxes: list[Any] = []
    for rect in svg.iter("{http://www.w3.org/2000/svg}rect"):
        x0, y0, w, h = (float(rect.get(name, 0)) for name in ("x", "y", "width", "height"))
        assert 0 <= x0 <= x0 + w <= width
        assert 0 <= y0 <= y0 + h <= height
        assert not any(x0 < x1 + w1 and x1 < x0 + w and y0 < y1 + h1 and y1 < y0 + h for x1, y1, w1, h1 in boxes)
        boxes.append((x0, y0, w, h))
    assert len(boxes) > 50
    paths = [p.get("d", "") for p in svg.iter("{http://www.w3.org/2000/svg}path") if p.get("fill") == "none"]
    for path in paths:
        numbers = [float(number) for number in re.findall(r"[\d.]+", path)]
        assert numbers[-1] > numbers[1]


def test_a_large_graph_is_cut() -> None:
    x = y = tg.ones(2, requires_grad=True)
    for _ in range(3000):
        y = y * 1.0
    graph = tg.graph(y)
    assert repr(graph) == "<graph of 200 operations and 0 leaves, 2800 older operations not drawn>"
    assert "2800 older operations are not drawn" in texts(graph._repr_html_())
    assert repr(tg.graph(x)) == "<graph of 0 operations and 1 leaf>"
    assert parsed(tg.graph()._repr_html_()) is not None


def test_what_sessions_and_functions_say_of_themselves(session: tg.Session) -> None:
    tg.ones(2)
    assert repr(session) == f"<telegrad session {session.id} at {session.url}: 0 programs sent, 1 instructions waiting>"
    tg.register_function("says_what_it_is", lambda x, by=2.0: x * by)
    assert repr(tg.ops.says_what_it_is) == "<telegrad function says_what_it_is(Tensor x, Number by = 2.0)>"
    assert repr(tg.ops.nobody_knows_this) == "<telegrad function nobody_knows_this, which is not registered>"


# Progress -----------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show progress immediately."""
    monkeypatch.setenv("TELEGRAD_PROGRESS", "1")
    monkeypatch.setattr(progress, "AFTER_S", 0.0)
    monkeypatch.setattr(progress, "EVERY_S", 0.0)


def moved(what: str, written: str) -> list[float]:
    """The successive amounts in MiB, of 24, that the progress bars show as sent or received."""
    bars = re.findall(rf"telegrad: {what} 127.0.0.1:\d+: +\d+%\|.*?\| ([\d.]+)([kM]?)/24.0M \[", written)
    return [float(done) / {"": 2**20, "k": 2**10, "M": 1}[unit] for done, unit in bars]


def erased(written: str) -> bool:
    """Whether nothing is left of the last bar."""
    *_, last, end = written.split("\r")
    return not last.strip() and not end


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("way", ["stream", "requests", "httpx"])
@pytest.mark.parametrize("compress", [None, "zstd"])
def test_a_large_tensor_shows_how_far_it_is_both_ways(
    server: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, way: str, compress: str | None
) -> None:
    if way == "httpx":  # the server acts as the proxy
        monkeypatch.setenv("http_proxy", server)
        monkeypatch.setenv("no_proxy", "")
    data = np.random.default_rng(0).random(3 * 2**20)  # random data is not worth compressing
    with tg.connect(server, stream=way == "stream", compress=compress):
        x = tg.tensor(data)
        assert x[-1].item() == data[-1]
        written = capsys.readouterr().err
        assert len(sent := moved("sending to", written)) > 48
        assert sent == sorted(sent) and sent[0] < 1 and sent[-1] == 24
        assert not moved("receiving from", written)
        np.testing.assert_array_equal(x.numpy(), data)
        written = capsys.readouterr().err
        assert len(received := moved("receiving from", written)) > 8
        assert received == sorted(received) and received[0] < 12 and received[-1] == 24
        assert not moved("sending to", written)
    assert erased(written)


@pytest.mark.usefixtures("impatient")
def test_waiting_for_an_answer_shows(
    server: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.001)
    with tg.connect(server):
        x = tg.rand(600, 600)
        for _ in range(60):
            x = (x @ x).sin()
        assert np.isfinite(x.sum().item())
    assert f"telegrad: waiting for {server.removeprefix('http://')}, 00:0" in capsys.readouterr().err


@pytest.mark.usefixtures("impatient")
def test_a_wait_that_does_not_come_back_shows(capsys: pytest.CaptureFixture[str]) -> None:
    written = ""
    with progress.waiting("connecting to nowhere"):
        while "connecting" not in written:
            written += capsys.readouterr().err
    assert "telegrad: connecting to nowhere, 00:0" in written
    assert erased(written + capsys.readouterr().err)


def test_nothing_is_shown_for_what_is_quick(
    server: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TELEGRAD_PROGRESS", "1")
    monkeypatch.setattr(progress, "AFTER_S", 3600.0)
    with tg.connect(server):
        assert tg.tensor(np.zeros(3 * 2**20)).sum().item() == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("choice", "tty", "expected"), [(None, True, True), ("0", True, False), ("1", False, True)])
def test_who_is_shown_progress(monkeypatch: pytest.MonkeyPatch, choice: str | None, tty: bool, expected: bool) -> None:
    stream: Any = io.StringIO()
    stream.isatty = lambda: tty
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    monkeypatch.delenv("TELEGRAD_PROGRESS", raising=False)
    if choice is not None:
        monkeypatch.setenv("TELEGRAD_PROGRESS", choice)
    assert progress.wanted() is expected
