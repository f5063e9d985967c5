"""``telegrad.autograd.graph`` compared with torch's: nodes, edges, multi-tensor hooks and saved-tensor hooks.

Internals: the table of excluded names is what is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import telegrad as tg
from telegrad import exclusions

from .parity import ours, same, same_error


def leaf(t: Any, *values: float) -> Any:
    return t.tensor(list(values) or [1.0, 2.0], dtype=t.float64, requires_grad=True)


# Nodes and edges -----------------------------------------------------------------------------------


def nodes(t: Any) -> Any:
    y = (leaf(t) * 2).exp()
    node = y.grad_fn
    leafs = node.next_functions[0][0].next_functions[0][0]
    node.metadata["note"] = 1
    found = [isinstance(n, t.autograd.graph.Node) for n in (node, leafs, y)]
    return found, y.grad_fn.metadata, node.name(), t.autograd.graph.get_gradient_edge(y).output_nr


def edges(t: Any) -> Any:
    x = leaf(t)
    y = x * 2
    z = y.exp()
    edge, of_leaf = t.autograd.graph.get_gradient_edge(y), t.autograd.graph.get_gradient_edge(x)
    ones = t.ones(2, dtype=t.float64)
    found = t.autograd.grad(z.sum(), edge, retain_graph=True), t.autograd.grad(edge, x, ones, retain_graph=True)
    t.autograd.backward(edge, ones, retain_graph=True)
    first = x.grad.clone()
    z.sum().backward(inputs=[of_leaf])
    return found, first, x.grad, edge.node is y.grad_fn


def dict_of_inputs(t: Any) -> Any:
    a, b = leaf(t), leaf(t)
    return t.autograd.grad((a * b * b).sum(), {"a": a, "b": b})


def versions(t: Any) -> Any:
    a = t.ones(2)
    t.autograd.graph.increment_version(a)
    t.autograd.graph.increment_version([a, a])
    return a._version


# Hooks on several tensors ------------------------------------------------------------------------------


def hooked(mode: str) -> Callable[[Any], Any]:
    def run(t: Any) -> Any:
        a, b, c = leaf(t), leaf(t, 3.0, 4.0), leaf(t)
        d = a * b
        seen: list[Any] = []

        def note(grads: Any) -> None:
            grads = grads if mode == "all" else [grads]
            seen.append([None if g is None else g.tolist() for g in grads])

        handle = t.autograd.graph.register_multi_grad_hook((a, b, c, d), note, mode=mode)
        (d * 2).sum().backward(retain_graph=True)
        (d + c).sum().backward(retain_graph=True)
        (d * c).sum().backward(inputs=[c, d], retain_graph=True)
        handle.remove()
        (d * 2).sum().backward()
        return seen, a.grad

    return run


# Saved tensors -------------------------------------------------------------------------------------------


def doubled(t: Any) -> Any:
    seen: list[Any] = []

    def pack(x: Any) -> Any:
        seen.append(tuple(x.shape))
        return x * 2

    w = leaf(t)
    with t.autograd.graph.saved_tensors_hooks(pack, lambda x: x + 7):
        y = (w * w * 3).exp()
    z = y * 5
    z.sum().backward()
    return y, w.grad, len(seen)


def to_text(t: Any) -> Any:
    def pack(x: Any) -> Any:
        return x.tolist(), x.dtype

    def unpack(kept: Any) -> Any:
        return t.tensor(kept[0], dtype=kept[1])

    w, x = leaf(t), t.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=t.float64)
    with t.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = t.nn.functional.softmax(x @ w, 0)
        z = t.cat([y, w.sin(), (w / y)]).prod(0)
        z = z + (w.max(0)[0] * w.sort()[0]).sum() + t.where(w > 1, w * w, w).sum()
        z = z + (t.stack([w, w * w]).unbind()[1] * w).sum() + (w[1:] * 2 + w[t.tensor([0, 1])]).sum()
    z.backward()
    return z, w.grad


def activations(t: Any) -> Any:
    w = t.tensor([[1.0, -2.0], [3.0, 0.5]], dtype=t.float64, requires_grad=True)
    with t.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        y = t.relu(w) * t.tanh(w) + t.sigmoid(w[0]) + t.nn.functional.gelu(w).amax(1)
    (g,) = t.autograd.grad(y.sum(), w, create_graph=True)
    return g, t.autograd.grad(g.sum(), w)


def second_order(t: Any) -> Any:
    w = leaf(t)
    with t.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        y = (w**3).sum()
    (g,) = t.autograd.grad(y, w, create_graph=True)
    return g, t.autograd.grad(g.sum(), w)


def innermost(t: Any) -> Any:
    w, seen = leaf(t), []
    hooks = [(lambda x, i=i: seen.append(i) or x) for i in range(2)]
    with t.autograd.graph.saved_tensors_hooks(hooks[0], lambda x: x):
        a = w.exp()
        with t.autograd.graph.saved_tensors_hooks(hooks[1], lambda x: x):
            b = w.exp()
    (a + b).sum().backward()
    return seen, w.grad


def changed_after_a_copy_was_packed(t: Any) -> Any:
    w = leaf(t)
    y = w.sin()
    with t.autograd.graph.saved_tensors_hooks(lambda x: x.clone(), lambda x: x):
        z = y.exp()
    y.add_(1)
    (z * 2).sum().backward()
    return w.grad


def on_cpu(t: Any) -> Any:
    w = leaf(t)
    with t.autograd.graph.save_on_cpu(pin_memory=True):
        y = w.exp()
    y.sum().backward()
    return w.grad


def mutated(t: Any) -> Any:
    with t.autograd.graph.allow_mutation_on_saved_tensors():
        a = leaf(t)
        b = a.clone()
        square = (b**2).sum()
        b.sin_()
        square.backward()
        c = leaf(t)
        e = c.exp()
        total = e.sum()
        e.mul_(3)
        (total + e.sum()).backward()
    return a.grad, c.grad


def threads(t: Any) -> Any:
    before = t.autograd.is_multithreading_enabled()
    with t.autograd.set_multithreading_enabled(False):
        within = t.autograd.is_multithreading_enabled()
    return before, within, t.autograd.is_multithreading_enabled()


@pytest.mark.parametrize(
    "run",
    [
        nodes,
        edges,
        dict_of_inputs,
        versions,
        hooked("all"),
        hooked("any"),
        on_cpu,
        mutated,
        threads,
    ],
    ids=lambda run: run.__qualname__,
)
@pytest.mark.usefixtures("session")
def test_graphs(run: Callable[[Any], Any]) -> None:
    same(run)


@pytest.mark.every
@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize(
    "run", [doubled, to_text, activations, second_order, innermost, changed_after_a_copy_was_packed]
)
def test_saved_tensors(run: Callable[[Any], Any]) -> None:
    same(run)


# Wrong uses ------------------------------------------------------------------------------------------------


def modified(t: Any) -> Any:
    b = leaf(t)
    c = b * b
    with t.no_grad():
        t.autograd.graph.increment_version(b)
    c.sum().backward()


def packed(pack: Callable[[Any], Any], unpack: Callable[[Any], Any] = lambda x: x) -> Callable[[Any], Any]:
    def run(t: Any) -> Any:
        w = leaf(t)
        with t.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = (w * 1).exp() * w
        y.sum().backward()

    return run


def raising(x: Any) -> Any:
    raise KeyError("mine")


def disabled(t: Any) -> Any:
    hooks = t.autograd.graph.saved_tensors_hooks
    with t.autograd.graph.disable_saved_tensors_hooks("not now"), hooks(lambda x: x, lambda x: x):
        pass


@pytest.mark.every
@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize(
    "run",
    [
        packed(lambda x: None),
        packed(lambda x: x.add_(1)),
        packed(lambda x: x.detach().mul_(2)),
        packed(raising),
        disabled,
    ],
)
def test_wrong_hooks_on_saved_tensors(run: Callable[[Any], Any]) -> None:
    same_error(run, whole=True)


WRONG: dict[str, Callable[[Any], Any]] = {
    "no grad": lambda t: t.autograd.graph.get_gradient_edge(t.ones(2)),
    "a node": lambda t: t.autograd.graph.Node(),
    "no tensors": lambda t: t.autograd.graph.increment_version(3),
    "modified": modified,
    "untracked": lambda t: t.autograd.graph.register_multi_grad_hook((t.ones(2),), print),
    "not all tensors": lambda t: t.autograd.graph.increment_version([t.ones(1), 3]),
    "mode": lambda t: t.autograd.graph.register_multi_grad_hook((t.ones(2),), print, mode="some"),
}


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("name", WRONG)
def test_wrong_uses_raise_as_in_torch(name: str) -> None:
    if name == "a node":
        with pytest.raises(TypeError, match="abstract class Node"):
            WRONG[name](tg)
    else:
        same_error(WRONG[name], whole=name != "modified")


@pytest.mark.usefixtures("session")
def test_a_hook_on_any_of_several_passes_over_those_without_a_gradient() -> None:
    def run(t: Any) -> Any:
        w = leaf(t)
        seen: list[Any] = []
        t.autograd.graph.register_multi_grad_hook((t.ones(2), w), seen.append, mode="any")
        (w * 2).sum().backward()
        return seen

    same(run)


@pytest.mark.usefixtures("session")
def test_an_inference_tensor_has_no_version_to_count() -> None:
    with tg.inference_mode():
        x = tg.ones(2)
    tg.autograd.graph.increment_version(x)


@pytest.mark.usefixtures("everywhere")
def test_an_unpack_hook_returns_a_tensor() -> None:
    with pytest.raises(TypeError, match="unpack_hook expected to be a Tensor"):
        packed(lambda x: x, lambda x: 3)(ours())


@pytest.mark.usefixtures("session")
def test_a_loop_notices_each_modification() -> None:
    for _ in range(5):
        b = leaf(tg)
        c = (b * b).sum()
        tg.autograd.graph.increment_version(b)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            c.backward()


def test_every_public_name_is_there() -> None:
    excluded = set(torch.autograd.graph.__all__) - set(tg.autograd.graph.__all__)
    assert all(exclusions.explain("autograd.graph", name) for name in excluded)
    for name in excluded:
        with pytest.raises(AttributeError, match="not in Telegrad"):
            getattr(tg.autograd.graph, name)
