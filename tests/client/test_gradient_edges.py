"""Gradient edges as roots and as inputs of ``backward`` and ``grad``: an edge stays where it was made.

Internals: a wrong instruction that the SDK would not send is recorded by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import telegrad as tg

from .parity import bodies, same, same_error

pytestmark = pytest.mark.usefixtures("session")


def edge_of(lib: Any, tensor: Any) -> Any:
    return lib.autograd.graph.get_gradient_edge(tensor)


def made(lib: Any, node: Any, output_nr: int = 0) -> Any:
    return lib.autograd.graph.GradientEdge(node, output_nr)


class Bodies:
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


@pytest.mark.parametrize("body", bodies(Bodies), ids=lambda body: body.__name__)
def test_an_edge_stays_in_its_place(body: Callable[[Any, Any], Any]) -> None:
    same(with_leaf(body))


@pytest.mark.parametrize("body", bodies(Refused), ids=lambda body: body.__name__)
def test_a_wrong_edge_raises(body: Callable[[Any, Any], Any]) -> None:
    same_error(with_leaf(body))


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


def test_a_tensor_where_a_pass_ends_may_have_changed_inputs() -> None:
    def function(lib: Any) -> Any:
        x = lib.ones(2, requires_grad=True) * 1
        y = x * x
        z = (y * y).sum()
        x.add_(1)
        return lib.autograd.grad(z, y)

    same(function)
