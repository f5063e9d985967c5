"""Nodes of ``grad_fn``, and hooks on them, which run in the client, in torch's order.

Internals: an instruction that the SDK never makes names its tensor by its id.
"""

from __future__ import annotations

from typing import Any

import pytest

import telegrad as tg

from .parity import bodies, same, same_error
from .test_function_client import cube, leaf, nothing_waits

pytestmark = pytest.mark.usefixtures("session")


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
        (first,) = lib.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = lib.autograd.grad(first.sum(), x)
        return first, second


@pytest.mark.parametrize("body", bodies(Bodies))
def test_torchs(body: Any, session: tg.Session) -> None:
    same(body)
    nothing_waits(session)


class Mistakes:
    """Functions that must raise the same error in both libraries."""

    def too_many(lib: Any) -> None:
        x = leaf(lib)
        y = x.exp()
        y.grad_fn.register_hook(lambda ins, outs: (ins[0], ins[0]))
        y.sum().backward()

    def no_tuple(lib: Any) -> None:
        x = leaf(lib)
        y = x.exp()
        y.grad_fn.register_prehook(lambda outs: 3)
        y.sum().backward()

    def another_shape(lib: Any) -> None:
        x = leaf(lib)
        y = x.exp()
        y.grad_fn.register_prehook(lambda outs: (outs[0].sum(),))
        y.sum().backward()

    def its_own_error(lib: Any) -> None:
        x = leaf(lib)
        y = x.exp()

        def hook(ins: Any, outs: Any) -> None:
            raise KeyError("mine")

        y.grad_fn.register_hook(hook)
        y.sum().backward()


@pytest.mark.parametrize("body", bodies(Mistakes))
def test_mistakes_are_torchs(body: Any, session: tg.Session) -> None:
    same_error(body)
    nothing_waits(session)


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
