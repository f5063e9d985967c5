"""The graph of a registered function is cached; repeated calls produce the same graph as torch.

Internals: only the handle knows whether its graph is built.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from .parity import bodies, same
from .rounds import graph

TIMES = 4


def curve(x: Any, y: Any) -> Any:
    z = x * y + (x[1:] ** 2).sum()
    return z.exp() * 0.1, z.sum()


def scaled(x: Any, factor: float = 2.0) -> Any:
    return (x * factor).square().sum()


def along(x: Any, dim: int = 0) -> Any:
    return x.exp().sum(dim)


def pair(x: Any) -> Any:
    y = x.exp()
    return y, y


@pytest.fixture(autouse=True)
def registered(session: tg.Session) -> None:
    for function in (curve, scaled, along, pair):
        tg.register_function(function.__name__, function)


def wide(lib: Any, fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself in torch, else the registered function."""
    return fn if lib is torch else getattr(tg.ops, fn.__name__)


def both(run: Callable[[Any, int], Any]) -> None:
    """Run a function ``TIMES`` times in both libraries, and compare every result with torch's."""
    for number in range(TIMES):
        same(lambda lib: run(lib, number))  # noqa: B023


def leaf(lib: Any, number: int, requires_grad: bool = True) -> Any:
    return lib.tensor([0.5, -0.25 * number, 0.125], requires_grad=requires_grad)


class Uses:
    """Functions of a library and the number of the turn, whose results must be the same in both libraries."""

    def gradients(lib: Any, number: int) -> Any:
        x, y = leaf(lib, number), leaf(lib, 2 - number)
        a, b = wide(lib, curve)(x, y)
        (a.sum() + b).backward()
        return a, b, x.grad, y.grad

    def second_derivatives(lib: Any, number: int) -> Any:
        x, y = leaf(lib, number), leaf(lib, 3)
        a, b = wide(lib, curve)(x, y)
        (first,) = lib.autograd.grad(a.sum() * b, x, create_graph=True)
        second = lib.autograd.grad(first.square().sum(), (x, y))
        return (first, *second)

    def in_the_middle_of_a_graph_and_on_outputs_of_one_op(lib: Any, number: int) -> Any:
        x = lib.tensor([[0.5, -0.25 * number, 0.125], [0.1, 0.2, 0.3]], requires_grad=True)
        p, q = x.tanh().unbind(0)
        a, b = wide(lib, curve)(*((p, q) if number % 2 else (q, p)))
        (a.sum() + b).backward()
        return a, b, x.grad

    def a_view_whose_base_has_a_history_since(lib: Any, number: int) -> Any:
        w, base = leaf(lib, number), lib.ones(2, 3)
        view = base[1]
        before = wide(lib, scaled)(lib.ones(3))
        base.mul_(w)
        after = wide(lib, scaled)(view)
        after.backward()
        return before, after, w.grad

    def parameters_shapes_and_modes(lib: Any, number: int) -> Any:
        function = wide(lib, scaled)
        results = []
        for factor in (2.0, 3.0, 2.0):
            for shape in ((2,), (3, 2)):
                x = lib.full(shape, 0.5 + number, requires_grad=True)
                y = function(x, factor=factor)
                y.backward()
                with lib.no_grad():
                    results += [y, x.grad, function(x, factor=factor)]
        return results

    def a_parameter_that_decides_the_shape(lib: Any, number: int) -> Any:
        return [wide(lib, along)(lib.ones(2, 3, requires_grad=True), dim=dim) for dim in (0, 1, number % 2)]


@pytest.mark.every
@pytest.mark.parametrize("use", bodies(Uses))
def test_it_is_torchs(session: tg.Session, use: Callable[[Any, int], Any]) -> None:
    both(use)


@pytest.mark.parametrize("wants", [(True, False), (False, True), (False, False)])
def test_only_some_want_a_gradient(session: tg.Session, wants: tuple[bool, bool]) -> None:
    def run(lib: Any, number: int) -> Any:
        x, y = leaf(lib, 1), leaf(lib, 2)
        wide(lib, curve)(x, y)
        x, y = (leaf(lib, number, want) for want in wants)
        a, b = wide(lib, curve)(x, y)
        if any(wants):
            b.backward()
        assert [t.grad is not None for t in (x, y)] == [*wants]
        return a, b

    both(run)


def test_the_graph_is_torchs(session: tg.Session) -> None:
    def drawn(lib: Any, number: int) -> list[str]:
        p, q = lib.linalg.qr(lib.tensor([[0.5, 1.0], [0.1, 0.2]], requires_grad=True))
        a, b = wide(lib, curve)(*((p, q) if number % 2 else (q, p)))
        return [graph(each).replace(" -:0", "") for each in (a, b)]  # torch has no edges for numbers

    for number in range(TIMES):
        assert drawn(tg, number) == drawn(torch, number)


def test_results_that_are_one(session: tg.Session) -> None:
    x, y = leaf(tg, 1), leaf(tg, 2)
    for _ in range(TIMES):
        one, other = tg.ops.pair(x)
        tg.ops.curve(one, other)[1].backward()
    x.grad = None
    for _ in range(TIMES):
        tg.ops.curve(x * 1.0, y * 1.0)[1].backward()
        assert x.grad is not None and y.grad is not None
        x.grad = y.grad = None


@pytest.mark.parametrize("first", [0, 1])
def test_one_tensor_twice(session: tg.Session, first: int) -> None:
    def run(lib: Any, number: int) -> Any:
        x, y = leaf(lib, number), leaf(lib, 2)
        pair = (x, x) if number % 2 == first else (x, y)
        a, b = wide(lib, curve)(*pair)
        (a.sum() + b).backward()
        return a, b, x.grad

    both(run)


def test_what_is_given_back_as_it_was(session: tg.Session) -> None:
    tg.register_function("same", lambda x: (x, x.exp()))
    for _ in range(TIMES):
        x = tg.tensor(0.5, requires_grad=True)
        y, z = tg.ops.same(x)
        y.backward()
        z.backward()
        y.backward()
        assert x.grad.item() == pytest.approx(2 + np.exp(0.5))


def test_under_autocast_it_is_another(session: tg.Session) -> None:
    tg.register_function("product", lambda x, y: x @ y)
    x, y = tg.ones(2, 2, requires_grad=True), tg.ones(2, 2)
    for _ in range(TIMES):
        assert tg.ops.product(x, y).dtype == tg.float32
        with tg.autocast("cpu"):
            assert tg.ops.product(x, y).dtype == tg.bfloat16


def test_a_graph_is_freed_once_and_watches_its_tensors(session: tg.Session) -> None:
    function = wide(tg, scaled)
    tg.register_function("squared", lambda x: x.square().sum())
    for _ in range(TIMES):
        x = tg.ones(3, requires_grad=True)
        y = function(x)
        y.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            y.backward()
        z = x * 1.0
        y = function(z)
        z.add_(1.0)
        y.backward()  # the saved tensor is not z, but twice z
        saved = tg.ones(3, requires_grad=True) * 1.0
        y = tg.ops.squared(saved)
        saved.add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()


def test_hooks_on_what_it_leaves(session: tg.Session) -> None:
    function = wide(tg, scaled)
    for number in range(TIMES):
        x = tg.ones(3, requires_grad=True)
        seen: list[Any] = []
        y = function(x)
        if number % 2:
            y.register_hook(lambda grad, seen=seen: seen.append(grad.item()))
        y.backward()
        assert seen == [1.0] * (number % 2) and x.grad.tolist() == [8.0] * 3
        assert str(y.grad_fn) == "<SumBackward0>"


def test_a_graph_that_is_not_looked_at_is_not_built(session: tg.Session) -> None:
    unbuilt = []
    for number in range(TIMES):
        x = leaf(tg, number)
        y = tg.ops.scaled(x)
        if number % 2:
            y.backward()
        else:
            tg.autograd.grad(y, x)
        unbuilt.append(y._lazy is not None and y._lazy.nodes is None)
    assert unbuilt == [False, False, *[True] * (TIMES - 2)]


def test_registered_anew(session: tg.Session) -> None:
    x = tg.ones(3, requires_grad=True)
    for factor in (1.0, 2.0, 3.0):
        tg.register_function("grown", lambda x, factor=factor: (x * factor).sum(), example=[tg.ones(3)])
        for _ in range(TIMES):
            (grad,) = tg.autograd.grad(tg.ops.grown(x), x)
            assert grad.tolist() == [factor] * 3
