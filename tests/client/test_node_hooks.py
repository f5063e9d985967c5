"""Nodes of ``grad_fn``, and hooks on them, in torch's order.

Internals: an instruction that the SDK never makes names its tensor by its id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import telegrad as tg

from .custom_functions import cube, leaf, nothing_waits
from .parity import ENGINE, bodies, same, same_error


def seen(grads: Any) -> Any:
    return [None if g is None else g.tolist() for g in grads]


class Bodies:
    """Functions whose results must be the same in both libraries."""

    def names_and_edges(lib: Any) -> Any:
        x, w = leaf(lib), leaf(lib, 4, 5, 6)
        y = (x * w + 2).sum()
        found = []
        node = y.grad_fn
        while node is not None:
            following = node.next_functions
            found.append((node.name(), [(f and f.name(), slot) for f, slot in following]))
            node = following[0][0] if following else None
        product = y.grad_fn.next_functions[0][0].next_functions[0][0]
        return found, y.grad_fn is y.grad_fn, product.next_functions[1][0].variable is w

    def the_node_of_a_leaf(lib: Any) -> Any:
        x = leaf(lib)
        y, z = x * 2, x.exp()
        ends = [w.grad_fn.next_functions[0][0] for w in (y, y, z)]
        other = (x.detach().requires_grad_() * 2).grad_fn.next_functions[0][0]
        shared = ends[0] is ends[1] is ends[2], other is ends[0], ends[0].variable is x, hasattr(y.grad_fn, "variable")
        return shared, ends[0].next_functions, ends[0].metadata is ends[2].metadata, x.grad_fn, x.output_nr

    def one_node_of_several_outputs(lib: Any) -> Any:
        parts = leaf(lib).unbind()
        product = (leaf(lib) * 2 + lib.ones(3, dtype=lib.float64) * leaf(lib)).split(1)[2]
        return (
            [part.output_nr for part in parts],
            [part.grad_fn is parts[0].grad_fn for part in parts],
            leaf(lib).max(0)[1].requires_grad,
            product.output_nr,
            [(n and n.name(), slot) for n, slot in product.grad_fn.next_functions[0][0].next_functions],
        )

    def metadata_is_kept(lib: Any) -> Any:
        y = leaf(lib).exp()
        y.grad_fn.metadata["who"] = "me"
        return y.grad_fn.metadata["who"], (y * 2).grad_fn.next_functions[0][0].metadata

    def hook_on_a_result(lib: Any) -> Any:
        log: list[Any] = []
        x, w = leaf(lib), leaf(lib, 4, 5, 6)
        y = x * w
        y.grad_fn.register_hook(lambda ins, outs: log.append((seen(ins), seen(outs))))
        y.grad_fn.register_prehook(lambda outs: log.append(seen(outs)))
        y.sum().backward()
        return log, x.grad, w.grad

    def replaced(lib: Any) -> Any:
        x, w = leaf(lib), leaf(lib, 4, 5, 6)
        y = x * w
        y.grad_fn.register_hook(lambda ins, outs: (ins[0] * 10, ins[1] + outs[0]))
        y.grad_fn.register_prehook(lambda outs: (outs[0] * 2,))
        y.grad_fn.register_prehook(lambda outs: (outs[0] + 1,))
        y.grad_fn.register_hook(lambda ins, outs: (ins[0], ins[1] * 100))
        y.sin().sum().backward()
        return x.grad, w.grad

    def further_back(lib: Any) -> Any:
        log: list[Any] = []
        x, c = leaf(lib), lib.ones(3, dtype=lib.float64)
        loss = ((x.exp() * c).sin() + 1).sum()
        node = loss.grad_fn.next_functions[0][0].next_functions[0][0].next_functions[0][0]
        node.register_hook(lambda ins, outs: log.append((node.name(), seen(ins), seen(outs))))
        node.next_functions[0][0].register_prehook(lambda outs: (outs[0] * 3,))
        loss.backward()
        return log, x.grad

    def leaves(lib: Any) -> Any:
        log: list[Any] = []
        x = leaf(lib)
        y = x * 2
        node = y.grad_fn.next_functions[0][0]
        node.register_prehook(lambda outs: log.append(("before", seen(outs), x.grad is None)))
        node.register_hook(lambda ins, outs: log.append(("after", ins, seen(outs), x.grad.tolist())))
        x.register_hook(lambda grad: grad + 5)
        x.register_post_accumulate_grad_hook(lambda p: log.append("stored"))
        node.register_prehook(lambda outs: (outs[0] * 7,))
        y.sum().backward()
        (x * 3).sum().backward()
        return log, x.grad

    def order_of_all(lib: Any) -> Any:
        log: list[Any] = []
        x, w = leaf(lib), leaf(lib, 4, 5, 6)
        y = x * w
        z = y.exp()
        for name, t in (("y", y), ("z", z)):
            t.grad_fn.register_hook(lambda ins, outs, name=name: log.append(("after", name)))
            t.grad_fn.register_prehook(lambda outs, name=name: log.append(("before", name)))
            t.register_hook(lambda grad, name=name: log.append(("tensor", name)))
        for name, t in (("x", x), ("w", w)):
            t.register_hook(lambda grad, name=name: log.append(("leaf", name)))
        y.retain_grad()
        z.sum().backward()
        return log, y.grad

    def several_outputs(lib: Any) -> Any:
        log: list[Any] = []
        x = leaf(lib)
        a, b, c = x.unbind()
        a.grad_fn.register_prehook(lambda outs: log.append(seen(outs)))
        a.grad_fn.register_hook(lambda ins, outs: log.append((seen(ins), seen(outs))))
        (b * 2 + c * 3).backward()
        return log, x.grad

    def on_a_function_of_ones_own(lib: Any) -> Any:
        log: list[Any] = []
        x = leaf(lib)
        y = cube(lib).apply(x)
        y.grad_fn.register_prehook(lambda outs: (outs[0] * 2,))
        y.grad_fn.register_hook(lambda ins, outs: log.append((seen(ins), seen(outs))))
        y.grad_fn.register_hook(lambda ins, outs: (ins[0] + 1,))
        y.sum().backward()
        return log, x.grad

    def removed(lib: Any) -> Any:
        x = leaf(lib)
        y = x * 2
        first = y.grad_fn.register_hook(lambda ins, outs: (ins[0] * 10, None))
        with y.grad_fn.register_prehook(lambda outs: (outs[0] * 3,)):
            y.sum().backward(retain_graph=True)
        got = [x.grad.tolist()]
        first.remove()
        y.sum().backward()
        return got, x.grad

    def for_chosen_inputs(lib: Any) -> Any:
        log: list[Any] = []
        x, w = leaf(lib), leaf(lib, 4, 5, 6)
        h = x.sin()
        y = h * w
        y.grad_fn.register_hook(lambda ins, outs: log.append(seen(ins)))
        h.grad_fn.register_hook(lambda ins, outs: log.append("not reached"))
        (only,) = lib.autograd.grad(y.sum(), h)
        return log, only

    def with_second_derivatives(lib: Any) -> Any:
        x = leaf(lib)
        y = x.sin()
        y.grad_fn.register_hook(lambda ins, outs: (ins[0] * x,))
        y.grad_fn.register_prehook(lambda outs: (outs[0] * x,))
        (first,) = lib.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = lib.autograd.grad(first.sum(), x)
        return first, second

    def replaced_by_nothing(lib: Any) -> Any:
        found = []
        for register in (
            lambda node: node.register_hook(lambda ins, outs: (ins[0] * 7, None)),
            lambda node: node.register_hook(lambda ins, outs: (None, None)),
            lambda node: node.register_prehook(lambda outs: (None,)),
        ):
            x, y = leaf(lib), leaf(lib)
            z = x * 2
            register(z.grad_fn)
            (z + y).sum().backward()
            found.append(x.grad)
        return found

    def gradients_have_the_shapes_of_the_inputs(lib: Any) -> Any:
        log: list[Any] = []
        x, w = leaf(lib), lib.tensor([[1.0], [2.0]], dtype=lib.float64, requires_grad=True)
        for y in (x + w, x * w, x.sum(), x.exp(), lib.stack([x, x * 2]), x @ x):
            y.grad_fn.register_hook(lambda ins, outs: log.append((seen(ins), seen(outs))))
            y.sum().backward()
        return log, x.grad, w.grad


def ends(lib: Any, chosen: Callable[[Any, Any], Any]) -> Any:
    """Run hooks where ``backward`` with chosen inputs evaluates the node of an input, and ``grad`` does not."""
    log: list[Any] = []
    x = leaf(lib)
    y = x * 2
    y.register_hook(lambda grad: log.append(("tensor", grad.tolist())))
    y.grad_fn.register_prehook(lambda outs: log.append(("before", seen(outs))))
    y.grad_fn.register_hook(lambda ins, outs: log.append(("after", seen(ins), seen(outs))))
    (y * 3).sum().backward(inputs=chosen(x, y), retain_graph=True)
    log.append("grad")
    lib.autograd.grad((y * 3).sum(), chosen(x, y), retain_graph=True)
    return log, y.grad, x.grad


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("body", bodies(Bodies))
def test_torchs(body: Any, everywhere: tg.Session | None) -> None:
    same(body)
    nothing_waits(everywhere)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("chosen", [lambda x, y: [y], lambda x, y: [y, x]], ids=["in the middle", "and passed"])
def test_hooks_where_backward_ends(chosen: Callable[[Any, Any], Any]) -> None:
    same(lambda lib: ends(lib, chosen), lib=ENGINE)


def raising(ins: Any, outs: Any) -> None:
    raise KeyError("mine")


@pytest.mark.parametrize(
    "register",
    [
        lambda node: node.register_prehook(lambda outs: 3),
        lambda node: node.register_prehook(lambda outs: outs[0]),
        lambda node: node.register_prehook(lambda outs: (outs[0], outs[0])),
        lambda node: node.register_prehook(lambda outs: (5,)),
        lambda node: node.register_prehook(lambda outs: (outs[0].sum(),)),
        lambda node: node.register_prehook(lambda outs: (outs[0][:1],)),
        lambda node: node.register_hook(lambda ins, outs: ins[0]),
        lambda node: node.register_hook(lambda ins, outs: list(ins)),
        lambda node: node.register_hook(lambda ins, outs: (ins[0],)),
        lambda node: node.register_hook(lambda ins, outs: (ins[0][:1], None)),
        lambda node: node.register_hook(lambda ins, outs: (ins[0], ins[0])),
        lambda node: node.register_hook(lambda ins, outs: (ins[0].float(), None)),
        lambda node: node.register_hook(raising),
    ],
)
def test_mistakes_are_torchs(register: Any, everywhere: tg.Session | None) -> None:
    def body(lib: Any) -> None:
        y = leaf(lib) * 2
        register(y.grad_fn)
        y.sum().backward()

    same_error(body, whole=True)
    nothing_waits(everywhere)


@pytest.mark.usefixtures("session")
def test_a_node_that_was_found_from_a_tensor_that_is_gone() -> None:
    x = tg.ones(2, requires_grad=True)
    node = (x * 2).exp().grad_fn
    with pytest.raises(RuntimeError, match="the one that it was found from is gone"):
        node.register_hook(lambda ins, outs: None)


def test_a_hook_in_another_language(session: tg.Session) -> None:
    """A wrong path to a node, as the SDK would send it, is refused, and the session stays usable."""
    x = tg.ones(2, requires_grad=True)
    y = x.exp() * 2
    for path in ([0, 0, 0], [1], [-1]):
        session.recorder.emit("client_node_hook", [y._id], (), {"hook": "h", "path": path})
        with pytest.raises(ValueError, match="no node is at the end of the path"):
            session.flush()
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == (2,)
