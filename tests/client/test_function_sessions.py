"""Custom Functions in a session: errors in their backward, round trips, and what stays behind."""

from __future__ import annotations

import gc
import traceback
from typing import Any

import pytest

import telegrad as tg

from .custom_functions import cube, exponential, function, leaf, nothing_waits
from .parity import held


def test_an_error_of_the_users_backward_is_theirs_and_ends_the_pass(session: tg.Session) -> None:
    def backward(ctx: Any, grad: Any) -> Any:
        (grad * 2).sum().item()
        raise KeyError("mine")

    x = leaf(tg)
    y = function(tg, forward=lambda ctx, x: x * 2, backward=backward).apply(x)
    for create_graph in (False, True):
        with pytest.raises(KeyError, match="mine") as caught:
            (y * x).sum().backward(create_graph=create_graph, retain_graph=True)
        assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "backward"
    nothing_waits(session)
    assert tg.is_grad_enabled()
    (x * 2).sum().backward()
    assert (x * 3).sum().item() == 18


def test_an_error_of_the_session_in_the_users_backward_is_raised_there(session: tg.Session) -> None:
    def backward(ctx: Any, grad: Any) -> Any:
        with pytest.raises(RuntimeError):
            tg.linalg.inv(tg.zeros(2, 2)).sum().item()
        return grad * 5

    x = leaf(tg)
    function(tg, forward=lambda ctx, x: x * 2, backward=backward).apply(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [5, 5, 5]

    def broken(ctx: Any, grad: Any) -> Any:
        return grad * tg.linalg.inv(tg.zeros(3, 3, dtype=tg.float64)).sum()

    y = function(tg, forward=lambda ctx, x: x * 2, backward=broken).apply(x)
    with pytest.raises(RuntimeError, match="singular"):
        cube(tg).apply(y).sum().backward()
        x.grad.tolist()
    nothing_waits(session)


def test_a_function_that_asks_for_no_values_takes_no_round_trip(session: tg.Session) -> None:
    x = leaf(tg)
    y = cube(tg).apply(cube(tg).apply(x))
    before = session.recorder.waits
    y.sum().backward()
    assert session.recorder.waits == before
    assert x.grad is not None
    x.grad.tolist()
    assert session.recorder.waits == before + 1


def test_nothing_is_left_in_the_session(session: tg.Session) -> None:
    x = leaf(tg)
    before = held(session)

    def run() -> None:
        y = exponential(tg).apply(cube(tg).apply(x * 0.1) * 2)
        y.sum().backward()
        exponential(tg).apply(cube(tg).apply(x * 2))  # and one without a backward pass
        x.grad = None

    gc.collect()
    gc.disable()
    try:
        run()
        assert held(session) == before
    finally:
        gc.enable()


def test_stops_in_another_order_than_the_shadow_expects(session: tg.Session) -> None:
    """A view's history is rebuilt when it is needed, which the session does later than the client."""
    x = leaf(tg)
    base = x * 1
    view = base[0:2]
    base.mul_(2)
    assert view.requires_grad  # the client rebuilds the history here, before y's node exists
    y = cube(tg).apply(x)
    seen: list[str] = []
    view.register_hook(lambda grad: seen.append("view"))
    y.register_hook(lambda grad: seen.append("y"))
    (view.sum() + y.sum()).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [5, 14, 27]
    assert sorted(seen) == ["view", "y"]
    nothing_waits(session)
