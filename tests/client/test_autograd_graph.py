"""``autograd.graph`` compared with torch's: nodes, edges, multi-tensor hooks and saved-tensor hooks.

Internals: the table of excluded names is what is checked, and a wrong instruction that the SDK would not send is
recorded by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import telegrad as tg
from telegrad import exclusions

from .parity import bodies, ours, same, same_error

IN_SESSIONS = pytest.mark.usefixtures("session")


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
@IN_SESSIONS
def test_graphs(run: Callable[[Any], Any]) -> None:
    same(run)


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


@IN_SESSIONS
@pytest.mark.parametrize("name", WRONG)
def test_wrong_uses_raise_as_in_torch(name: str) -> None:
    if name == "a node":
        with pytest.raises(TypeError, match="abstract class Node"):
            WRONG[name](tg)
    else:
        same_error(WRONG[name], whole=name != "modified")


@IN_SESSIONS
def test_a_hook_on_any_of_several_passes_over_those_without_a_gradient() -> None:
    def run(t: Any) -> Any:
        w = leaf(t)
        seen: list[Any] = []
        t.autograd.graph.register_multi_grad_hook((t.ones(2), w), seen.append, mode="any")
        (w * 2).sum().backward()
        return seen

    same(run)


@IN_SESSIONS
def test_an_inference_tensor_has_no_version_to_count() -> None:
    with tg.inference_mode():
        x = tg.ones(2)
    tg.autograd.graph.increment_version(x)


@pytest.mark.usefixtures("everywhere")
def test_an_unpack_hook_returns_a_tensor() -> None:
    with pytest.raises(TypeError, match="unpack_hook expected to be a Tensor"):
        packed(lambda x: x, lambda x: 3)(ours())


@IN_SESSIONS
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


# Edges as roots and as inputs: an edge stays where it was made -------------------------------------------------------


def edge_of(lib: Any, tensor: Any) -> Any:
    return lib.autograd.graph.get_gradient_edge(tensor)


def made(lib: Any, node: Any, output_nr: int = 0) -> Any:
    return lib.autograd.graph.GradientEdge(node, output_nr)


class Edges:
    """Programs with a leaf ``w``."""

    def an_input_that_is_changed(lib: Any, w: Any) -> Any:
        x = w * 3
        edge = edge_of(lib, x)
        x *= 2
        return lib.autograd.grad(x.sum(), (edge, x))

    def a_root_that_is_changed(lib: Any, w: Any) -> Any:
        x = w * 3
        edge = edge_of(lib, x)
        x *= 2
        return lib.autograd.grad(edge, w, lib.ones(4))

    def backward_from_a_root_that_is_changed(lib: Any, w: Any) -> Any:
        x = w * 3
        edge = edge_of(lib, x)
        x *= 2
        lib.autograd.backward(edge, lib.ones(4))
        return w.grad

    def a_view_whose_base_is_changed(lib: Any, w: Any) -> Any:
        y = w * 3
        edge = edge_of(lib, y[:2])
        y.mul_(2)
        unused = lib.autograd.grad(y.sum(), edge, allow_unused=True, retain_graph=True)
        return unused, lib.autograd.grad(edge, w, lib.ones(2))

    def a_stale_view_in_no_grad(lib: Any, w: Any) -> Any:
        y = w * w
        view = y[:2]
        y.mul_(2)
        with lib.no_grad():
            edge = edge_of(lib, view)
        return lib.autograd.grad(edge, w, lib.ones(2))

    def a_number(lib: Any, w: Any) -> Any:
        lib.autograd.backward(edge_of(lib, (w * 3).sum()))
        return w.grad

    def beside_a_tensor(lib: Any, w: Any) -> Any:
        lib.autograd.backward((edge_of(lib, (w * 3).sum()), (w * w).sum()))
        return w.grad

    def a_leaf(lib: Any, w: Any) -> Any:
        edge = edge_of(lib, w)
        lib.autograd.backward(edge, lib.ones(4))
        return w.grad, lib.autograd.grad(edge, w, lib.ones(4)), lib.autograd.grad((w * w).sum(), edge)

    def a_tensor_that_is_gone(lib: Any, w: Any) -> Any:
        y = w * w
        edge, z = edge_of(lib, y), (y * y).sum()
        del y
        found = lib.autograd.grad(z, edge, retain_graph=True)
        del z
        return found, lib.autograd.grad(edge, w, lib.ones(4))

    def of_a_node(lib: Any, w: Any) -> Any:
        y = w * 3
        edge = made(lib, y.grad_fn)
        return lib.autograd.grad((y * y).sum(), edge), lib.autograd.grad(edge, w, lib.ones(4))

    def of_a_node_along_the_graph(lib: Any, w: Any) -> Any:
        z = ((w * 3).exp() * w).sum()
        node = z.grad_fn.next_functions[0][0].next_functions[0][0]
        edge = made(lib, node)
        return lib.autograd.grad(z, edge, retain_graph=True), lib.autograd.grad(edge, w, lib.ones(4))

    def of_a_node_after_a_change(lib: Any, w: Any) -> Any:
        y = w * 3
        assert y.grad_fn is not None
        y.exp_()
        edge = made(lib, y.grad_fn.next_functions[0][0])
        return lib.autograd.grad(y.sum(), edge, retain_graph=True), lib.autograd.grad(edge, w, lib.ones(4))

    def of_the_accumulating_node(lib: Any, w: Any) -> Any:
        edge = lib.autograd.graph.GradientEdge(*(w * 3).grad_fn.next_functions[0])
        lib.autograd.backward(edge, lib.ones(4))
        return w.grad

    def of_another_output(lib: Any, w: Any) -> Any:
        first, _ = (w * 3).split([3, 1])
        lib.autograd.backward(made(lib, first.grad_fn, 1), lib.ones(1))
        return w.grad

    def of_a_function(lib: Any, w: Any) -> Any:
        class Doubled(lib.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 2

            @staticmethod
            def backward(ctx: Any, grad: Any) -> Any:
                return grad * 2

        y = Doubled.apply(w)
        edge = edge_of(lib, y)
        found = lib.autograd.grad((y * y).sum(), edge, retain_graph=True)
        return found, lib.autograd.grad(edge, w, lib.ones(4))

    def twice(lib: Any, w: Any) -> Any:
        (gradient,) = lib.autograd.grad(edge_of(lib, w * w), w, lib.ones(4), create_graph=True)
        gradient.sum().backward()
        return w.grad

    def among_inputs_of_backward(lib: Any, w: Any) -> Any:
        y = w * w
        lib.autograd.backward((y * y).sum(), inputs=(edge_of(lib, y), w))
        return w.grad

    def with_a_hook(lib: Any, w: Any) -> Any:
        y = w * w
        y.register_hook(lambda grad: grad * 2)
        lib.autograd.backward(edge_of(lib, y), lib.ones(4))
        return w.grad

    def batched(lib: Any, w: Any) -> Any:
        return lib.autograd.grad(edge_of(lib, w * 2), w, lib.eye(4), is_grads_batched=True)


class Refused:
    """Programs that raise."""

    def several_elements(lib: Any, w: Any) -> Any:
        lib.autograd.backward(edge_of(lib, w * 3))

    def another_shape(lib: Any, w: Any) -> Any:
        lib.autograd.grad(edge_of(lib, w * 3), w, lib.ones(3))

    def freed(lib: Any, w: Any) -> Any:
        edge = edge_of(lib, w * w)
        lib.autograd.backward(edge, lib.ones(4))
        lib.autograd.backward(edge, lib.ones(4))

    def unused(lib: Any, w: Any) -> Any:
        lib.autograd.grad((w * w).sum(), edge_of(lib, w * 2))


def with_leaf(body: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    return lambda lib: body(lib, lib.tensor([0.5, 1.0, 2.0, 3.0], requires_grad=True))


@pytest.mark.parametrize("body", bodies(Edges), ids=lambda body: body.__name__)
@IN_SESSIONS
def test_an_edge_stays_in_its_place(body: Callable[[Any, Any], Any]) -> None:
    same(with_leaf(body))


@pytest.mark.parametrize("body", bodies(Refused), ids=lambda body: body.__name__)
@IN_SESSIONS
def test_a_wrong_edge_raises(body: Callable[[Any, Any], Any]) -> None:
    same_error(with_leaf(body))


@IN_SESSIONS
def test_a_node_that_can_no_longer_be_found_is_refused() -> None:
    """torch's nodes are objects; ours are found by a path from a tensor."""
    w = tg.ones(2, requires_grad=True)
    y = w * 3
    node = y.grad_fn
    y.mul_(2)
    for use in (lambda: made(tg, node), lambda: node.register_prehook(print)):
        with pytest.raises(RuntimeError, match="was changed in place"):
            use()


def test_an_edge_that_does_not_exist_is_refused(session: tg.Session) -> None:
    x = tg.ones(2)
    y = (x.requires_grad_() * 3).sum()
    with pytest.raises(ValueError, match="SumBackward0 has no output 1"):
        made(tg, y.grad_fn, 1)
    session.recorder.emit("gradient_edge", [y._id], ["edge"], {"path": (0, 5)})
    with pytest.raises(ValueError, match="no node is at the end of the path"):
        session.flush()
        x.tolist()


@pytest.mark.parametrize("repeated", [1, 8])
@pytest.mark.parametrize("make", ["mul", "exp", "chunk", "function", "hooked"])
@IN_SESSIONS
def test_a_pass_frees_nothing_where_it_ends(make: str, repeated: int) -> None:
    """The graph before a tensor is differentiated after the graph behind it, as in a pipeline of stages."""

    def function(lib: Any) -> Any:
        class Squared(lib.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx: Any, grad: Any) -> Any:
                return grad * 2 * ctx.saved_tensors[0]

        found = []
        for _ in range(repeated):
            w = lib.tensor([0.5, 1.0, 2.0, 3.0], requires_grad=True)
            if make == "chunk":
                y = (w * w).chunk(2)[0] * w[:2]
            else:
                y = Squared.apply(w) if make == "function" else w.exp() if make == "exp" else w * w
            if make == "hooked":
                y.grad_fn.register_hook(lambda inputs, outputs: None)
                y.register_hook(lambda grad: grad * 2)
            (gradient,) = lib.autograd.grad((y * y).sum(), y)
            found.append((gradient, lib.autograd.grad(y, w, gradient)))
        return found

    same(function)


@IN_SESSIONS
def test_a_tensor_where_a_pass_ends_may_have_changed_inputs() -> None:
    def function(lib: Any) -> Any:
        x = lib.ones(2, requires_grad=True) * 1
        y = x * x
        z = (y * y).sum()
        x.add_(1)
        return lib.autograd.grad(z, y)

    same(function)
