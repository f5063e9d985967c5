"""What a notebook shows of sessions, modules, optimizers and registered functions."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

import telegrad as tg
from telegrad import nn

NASTY = "<script>alert('&')</script>\"]]>"
TAGS = {"div", "span", "b", "table", "tr", "th", "td", "pre"}


def shown(value: Any) -> str:
    """The text of what is displayed, after a check that nothing else is in it."""
    html = value._repr_html_()
    root = ElementTree.fromstring(html)  # raises if a tag is left open
    assert {element.tag for element in root.iter()} <= TAGS
    assert {name for element in root.iter() for name in element.attrib} <= {"style", "class"}
    assert not re.search(r"color:#|background|url\(", html.split("<pre")[0]), "it looks the same in light and dark"
    return " ".join(text.strip() for text in root.itertext() if text.strip())


def test_a_session_shows_what_it_holds_until_it_is_closed(session: tg.Session) -> None:
    x = tg.ones(256, requires_grad=True)
    text = shown(session)
    for part in (session.id, session.url, "device cpu", "dtype float32", "instructions waiting 2", "tensors 0"):
        assert part in text
    assert x.sum().item() == 256
    assert re.search(r"tensors [1-9]\d* memory [\d.]+ (bytes|KiB) of 2.0 GiB", shown(session))
    session.close()
    assert "state closed" in shown(session)


@pytest.mark.full
def test_a_session_whose_server_has_ended_says_so() -> None:
    from telegrad_service.launch import running_server

    with running_server() as url:
        session = tg.connect(url, name=NASTY[:30], retry_s=0)
        assert NASTY[:30] in shown(session)
    assert re.search(r"state cannot reach http", shown(session))
    session.close()


@pytest.mark.usefixtures("session")
def test_a_module_shows_its_layers_with_shapes_and_counts() -> None:
    model = nn.Sequential(
        nn.Linear(64, 32), nn.ReLU(), nn.Sequential(nn.BatchNorm1d(32), nn.Linear(32, 10, bias=False))
    )
    model[0].weight.requires_grad_(False)
    text = shown(model)
    assert "Sequential parameters 2,464 trainable 416 memory 9.6 KiB mode training" in text
    assert "0 Linear(in_features=64, out_features=32, bias=True) weight 32 × 64, bias 32 2,080" in text
    assert "1 ReLU()" in text and "2.1 Linear(in_features=32, out_features=10, bias=False) weight 10 × 32 320" in text
    assert "mode evaluation" in shown(model.eval())
    assert "weight 1 × 3, bias 1 4" in shown(nn.Linear(3, 1))


@pytest.mark.usefixtures("session")
def test_a_lazy_module_shows_what_is_not_known_yet() -> None:
    model = nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 1))
    assert "parameters 4, more after the first call" in shown(model)
    assert "weight known after the first call" in shown(model)
    model(tg.ones(2, 5))
    assert "parameters 22 " in shown(model) and "weight 3 × 5, bias 3 18" in shown(model)


@pytest.mark.usefixtures("session")
def test_a_shared_parameter_counts_once_and_rows_are_limited() -> None:
    layer = nn.Linear(4, 4)
    assert "parameters 20 " in shown(nn.ModuleList([layer, layer]))
    text = shown(nn.Sequential(*(nn.ReLU() for _ in range(250))))
    assert "199 ReLU()" in text and "200 ReLU()" not in text
    assert "50 more rows are not shown" in text


@pytest.mark.usefixtures("session")
def test_names_with_markup_are_text() -> None:
    class Custom(nn.Module):
        def extra_repr(self) -> str:
            return NASTY

    model = nn.Module()
    kind: Any = type(NASTY, (Custom,), {})
    model.add_module(NASTY.replace(".", ""), kind())
    assert shown(model).count("<script>") == 3
    assert "<script>" in shown(tg.optim.SGD([{"params": [tg.ones(1)], NASTY: NASTY}], lr=0.1))


@pytest.mark.usefixtures("session")
def test_an_optimizer_shows_the_options_of_its_groups_side_by_side() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
    groups: list[Any] = [{"params": model[0].parameters()}, {"params": model[1].parameters(), "lr": 0.5}]
    optimizer = tg.optim.SGD(groups, lr=0.1, momentum=0.9)
    text = shown(optimizer)
    for part in ("SGD", "group 0 group 1", "parameters 72 in 2 9 in 2", "lr 0.1 0.5", "momentum 0.9 0.9"):
        assert part in text
    assert "parameters with a state 0" in text
    model(tg.ones(1, 8)).sum().backward()
    optimizer.step()
    assert "parameters with a state 4" in shown(optimizer)


@pytest.mark.usefixtures("session")
def test_a_registered_function_shows_its_programs() -> None:
    class Cube(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, by: float = 2.0) -> Any:
            ctx.save_for_backward(x)
            ctx.by = by
            return x * x * x * by

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            (x,) = ctx.saved_tensors
            return grads[0] * 3 * x * x * ctx.by, None

    tg.register_function("shown_cube", Cube)
    text = shown(tg.ops.shown_cube)
    assert "shown_cube(Tensor x, Number by = 2.0) backward its own jvp from the forward program" in text
    assert "v1 = mul(x, x)" in text and "mul(grad_0, 3)" in text and text.count("return") == 2
    tg.register_function("shown_clip", lambda x: x.clamp(min=0.0).sum(dim=[0]))
    assert "v1 = clamp(x, 0.0, None)\n  v2 = sum(v1, dim=[0])" in shown(tg.ops.shown_clip)
    assert tg.ops.nobody_registered_this._repr_html_() is None
