"""The graph: what it shows of itself, how deep it may be, and when it is freed.

Internals: when an array is freed is seen by a weak reference to it.
"""

from __future__ import annotations

import gc
import re
import sys
import weakref
from typing import Any

import pytest

import telegrad_engine as tg
from telegrad_engine import autograd

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
    "add": lambda t, x: x + 1,
    "sub": lambda t, x: x - 1,
    "mul": lambda t, x: x * x,
    "div": lambda t, x: x / 2,
    "pow": lambda t, x: x**2,
    "neg": lambda t, x: -x,
    "exp": lambda t, x: x.exp(),
    "sum": lambda t, x: x.sum(),
    "sum of a dim": lambda t, x: x.sum(0),
    "mean": lambda t, x: x.mean(),
    "mean of a dim": lambda t, x: x.mean(0),
    "max": lambda t, x: x.max(),
    "max of a dim": lambda t, x: x.max(0)[0],
    "matrix product": lambda t, x: x.view(1, 3) @ x.view(3, 1),
    "batched product": lambda t, x: x.view(1, 1, 3).bmm(x.view(1, 3, 1)),
    "vector product": lambda t, x: x @ x,
    "matrix and vector": lambda t, x: x.view(1, 3) @ x,
    "view": lambda t, x: x.view(3, 1),
    "reshape": lambda t, x: x.reshape(3, 1),
    "flatten": lambda t, x: x.view(3, 1).flatten(),
    "t": lambda t, x: x.view(3, 1).t(),
    "T": lambda t, x: x.view(3, 1).T,
    "select": lambda t, x: x[0],
    "slice": lambda t, x: x[1:],
    "index": lambda t, x: x[t.tensor([0])],
    "new axis": lambda t, x: x[None],
    "squeeze": lambda t, x: x.view(3, 1).squeeze(),
    "squeeze of a dim": lambda t, x: x.view(3, 1).squeeze(1),
    "unsqueeze": lambda t, x: x.unsqueeze(0),
    "expand": lambda t, x: x.expand(2, 3),
    "broadcast_to": lambda t, x: x.broadcast_to(2, 3),
    "narrow": lambda t, x: x.narrow(0, 0, 1),
    "split": lambda t, x: x.split(1)[0],
    "split by sizes": lambda t, x: x.split([1, 2])[0],
    "chunk": lambda t, x: x.chunk(3)[0],
    "unbind": lambda t, x: x.unbind()[0],
    "to": lambda t, x: x.to(t.float64),
    "double": lambda t, x: x.double(),
    "clone": lambda t, x: x.clone(),
    "clamp": lambda t, x: x.clamp(0, 1),
    "softmax": lambda t, x: x.softmax(0),
    "log_softmax": lambda t, x: x.log_softmax(0),
    "where": lambda t, x: t.F.where(x > 0, x, x),
    "stack": lambda t, x: t.F.stack([x, x]),
    "cat": lambda t, x: t.F.cat([x, x]),
    "outer": lambda t, x: t.F.outer(x, x),
    "square": lambda t, x: x.square(),
    "in place": lambda t, x: x.clone().mul_(2),
    "div by mode": lambda t, x: t.F.div(x, 2, rounding_mode="floor"),
    "dot": lambda t, x: x.dot(x),
    "mv": lambda t, x: x.view(1, 3).mv(x),
    "transpose": lambda t, x: x.view(3, 1).transpose(0, 1),
    "permute": lambda t, x: x.view(3, 1).permute(1, 0),
    "min of a dim": lambda t, x: x.min(0).values,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_nodes_have_torchs_names(name: str) -> None:
    both(lambda t: NAMES[name](t, leaf(t)).grad_fn.name())


def test_next_functions() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        y = (x * 2 + t.tensor([1.0, 1.0, 1.0]) * x).split(1)[2]
        node = y.grad_fn
        found = [(node.name(), y.output_nr)]
        while node.next_functions:
            found.append([(n and n.name(), slot) for n, slot in node.next_functions])
            node = next(n for n, _ in node.next_functions if n is not None)
        return found, node.variable is x, x.grad_fn, x.output_nr

    both(run)


def test_a_leaf_has_one_node_which_all_of_its_edges_share() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        y, z = x * 2, x.exp()
        ends = [w.grad_fn.next_functions[0][0] for w in (y, y, z)]
        other = (x.detach().requires_grad_() * 2).grad_fn.next_functions[0][0]
        return (
            ends[0] is ends[1] is ends[2], other is ends[0], ends[0].variable is x,
            hasattr(y.grad_fn, "variable"), ends[0].next_functions, ends[0].metadata is ends[2].metadata,
        )  # fmt: skip

    both(run)


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


def test_several_outputs_have_their_numbers() -> None:
    def run(t: Any) -> Any:
        parts = leaf(t).unbind()
        _, indices = leaf(t).max(0)
        return (
            [p.output_nr for p in parts],
            [p.grad_fn is parts[0].grad_fn for p in parts],
            indices.requires_grad,
        )

    assert both(run)[0] == [0, 1, 2]
    assert re.match("<MaxBackward0", repr(leaf(OURS).max(0)[0].grad_fn))


def test_some_outputs_unused() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        a, _, c = x.unbind()
        (a * c).backward()
        return x.grad

    both(run)


def test_backward_leaves_no_trace_in_recursion_limit() -> None:
    assert sys.getrecursionlimit() <= 10_000
