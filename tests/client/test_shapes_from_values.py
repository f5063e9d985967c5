"""Results whose shape depends on values, and tensors that change their own shape, compared with torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import telegrad as tg

pytestmark = pytest.mark.usefixtures("session")


def plain(value: Any) -> Any:
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value.detach().tolist()


CALLS = {
    "unique": lambda t, x: t.unique(x),
    "unique with counts": lambda t, x: t.unique(x, return_inverse=True, return_counts=True),
    "unique_consecutive": lambda t, x: t.unique_consecutive(x, return_counts=True),
    "nonzero": lambda t, x: t.nonzero(x),
    "nonzero as_tuple": lambda t, x: t.nonzero(x, as_tuple=True),
    "masked_select": lambda t, x: t.masked_select(x, x > 0),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_shape_is_asked_for(name: str) -> None:
    values = [[1.0, 1.0, 0.0], [3.0, -2.0, -2.0]]
    theirs, ours = (CALLS[name](t, t.tensor(values)) for t in (torch, tg))
    assert plain(ours) == plain(theirs)


def test_gradients_flow_through_it() -> None:
    def run(t: Any) -> Any:
        x = t.tensor([1.0, -2.0, 3.0], requires_grad=True)
        picked = t.masked_select(x, x > 0)
        (picked * picked).sum().backward()
        with t.no_grad():
            outside = t.masked_select(x, x > 0)
        return picked.requires_grad, outside.requires_grad, x.grad.tolist()

    assert run(tg) == run(torch)


def test_a_tensor_changes_its_own_geometry() -> None:
    def run(t: Any) -> Any:
        x = t.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
        y = x * 2
        row = y[0]
        y.t_().unsqueeze_(0)
        row.mul_(3)
        shape = tuple(y.shape)
        y.squeeze_()[1].mul_(5)
        (y * y).sum().backward()
        return shape, y.detach().tolist(), row.detach().tolist(), x.grad.tolist(), y._version

    assert run(tg) == run(torch)


def test_in_place_functions() -> None:
    def run(t: Any) -> Any:
        x = t.tensor([-1.0, 2.0])
        t.nn.functional.relu_(x)
        t.exp_(x)
        return [round(v, 4) for v in x.tolist()], x._version

    assert run(tg) == run(torch)
