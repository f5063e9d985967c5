"""The graph: what it shows of itself, how deep it may be, and when it is freed.

Internals: when an array is freed is seen by a weak reference to it, and tensors without values, with which the SDK
predicts graphs, have no public name.
"""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import pytest

import telegrad_engine as tg
from telegrad_engine import autograd
from telegrad_engine.tensor.abstract import Meta

from ..client.test_function_client import cube, function
from .twins import OURS, both, leaf

# Depth and memory ----------------------------------------------------------------------------------------


def test_a_deep_graph_runs_and_is_freed_without_recursion() -> None:
    depth = 100_000
    x = leaf(OURS, 1.0)
    y = x
    for _ in range(depth):
        y = y + x
    last = weakref.ref(y.grad_fn)
    y.backward()
    assert x.grad.item() == depth + 1
    del y
    gc.collect()
    assert last() is None


@pytest.mark.full
def test_a_deep_graph_that_saved_values_is_freed_without_backward() -> None:
    x = leaf(OURS, 1.0)
    y = x
    for _ in range(100_000):
        y = y * x
    (g,) = autograd.grad(y, x, retain_graph=True)
    assert g.item() == 100_001
    del y, g
    gc.collect()


def test_a_deep_differentiable_backward() -> None:
    x = tg.tensor(1.0, dtype="float64", requires_grad=True)
    y = x
    for _ in range(5_000):
        y = y * x
    (g,) = autograd.grad(y, x, create_graph=True)
    (second,) = autograd.grad(g, x)
    assert second.item() == 5001 * 5000


@pytest.mark.parametrize("create_graph", [False, True])
def test_no_reference_cycle_remains(create_graph: bool) -> None:
    def differentiate() -> list[weakref.ref[Any]]:
        x = leaf(OURS)
        y = x * 2
        y.retain_grad()
        z = (y * y.exp()).sum()
        node = weakref.ref(z.grad_fn)
        (grad,) = autograd.grad(z, x, retain_graph=True, create_graph=create_graph)
        z.backward()
        return [node, *(weakref.ref(tensor._data) for tensor in (x, y, z, grad, x.grad, y.grad))]

    gc.collect()
    gc.disable()
    try:
        assert not any(reference() is not None for reference in differentiate())
    finally:
        gc.enable()


def test_in_place_and_views_leave_no_cycle() -> None:
    gc.collect()
    gc.disable()
    try:
        x = leaf(OURS)
        y = x * 2
        y[0].mul_(3)
        view = y[1:]
        view.add_(1)
        node = weakref.ref(y.grad_fn)
        view.sum().backward()
        del y, view
        assert node() is None
    finally:
        gc.enable()


def test_a_long_chain_of_custom_functions_runs_and_is_freed_without_recursion() -> None:
    fn = function(tg, forward=lambda ctx, x: x * 1.0, backward=lambda ctx, grad: grad * 1.0)
    x = y = tg.tensor([1.0], requires_grad=True)
    for _ in range(30_000):
        y = fn.apply(y)
    y.backward()
    del y
    assert x.grad.tolist() == [1.0]


def test_custom_functions_leave_no_cycle() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        y = x.exp()
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(y)
        return y, x

    fn = function(tg, forward=forward, backward=lambda ctx, a, b: a * ctx.saved_tensors[1])
    x = tg.tensor([1.0, 2.0], requires_grad=True)

    def run() -> None:
        y, _ = fn.apply(x * 2)
        y.sum().backward()
        fn.apply(x * 2)  # and one that no backward goes through

    run()
    gc.collect()
    gc.disable()
    try:
        run()
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_custom_functions_run_on_tensors_without_values() -> None:
    """On shapes alone a Function gives the graph, and gradients of the shapes, that it gives on values."""

    def history(x: Any) -> Any:
        y = cube(tg).apply(x * 2)
        (grad,) = autograd.grad(y, x, y * 3, create_graph=True)
        (second,) = autograd.grad(grad, x, grad * 1)
        return y.grad_fn.name(), list(grad.shape), grad.grad_fn.name(), list(second.shape)

    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    assert history(Meta(x.detach().numpy()).requires_grad_()) == history(x)


def test_saved_values_go_as_the_pass_goes() -> None:
    x = leaf(OURS)
    y = x.exp()
    value = weakref.ref(y._data)
    z = y.sum()
    del y
    assert value() is not None
    z.backward()
    assert value() is None


def test_zero_size_tensors_differentiate() -> None:
    def run(t: Any) -> Any:
        x = t.tensor([[]], requires_grad=True)
        w = t.tensor([[2.0], [3.0]], requires_grad=True)
        y = (x * w).sum() + w.sum()
        y.backward()
        return list(x.grad.shape), w.grad, y

    both(run)


# The graph as seen ---------------------------------------------------------------------------------------


NAMES = {
    "matrix product": lambda t, x: x.view(1, 3) @ x.view(3, 1),
    "vector product": lambda t, x: x @ x,
    "matrix and vector": lambda t, x: x.view(1, 3) @ x,
    "T": lambda t, x: x.view(3, 1).T,
    "select": lambda t, x: x[0],
    "slice": lambda t, x: x[1:],
    "index": lambda t, x: x[t.tensor([0])],
    "new axis": lambda t, x: x[None],
    "to": lambda t, x: x.to(t.float64),
    "double": lambda t, x: x.double(),
    "in place": lambda t, x: x.clone().mul_(2),
}
"""Calls with names that :mod:`test_inspection` does not compare: it goes through the ops of the catalogue."""


@pytest.mark.parametrize("name", NAMES)
def test_nodes_have_torchs_names(name: str) -> None:
    both(lambda t: NAMES[name](t, leaf(t)).grad_fn.name())


def test_a_leaf_lives_as_long_as_a_graph_leads_to_it() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        y = (x * x).sum()
        dead, alive = weakref.ref(x.detach()), weakref.ref(x)
        del x
        kept = dead() is None, alive() is None
        y.backward()
        grad = y.grad_fn.next_functions[0][0].next_functions[0][0].variable.grad
        return kept, grad

    both(run)


def test_backward_leaves_no_trace_in_recursion_limit() -> None:
    assert sys.getrecursionlimit() <= 10_000
