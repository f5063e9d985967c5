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
        for ours, theirs in zip(run(tg, number), run(torch, number), strict=True):
            np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-5)
            assert (ours.requires_grad, ours.is_leaf, *ours.shape) == (
                theirs.requires_grad,
                theirs.is_leaf,
                *theirs.shape,
            )


def leaf(lib: Any, number: int, requires_grad: bool = True) -> Any:
    return lib.tensor([0.5, -0.25 * number, 0.125], requires_grad=requires_grad)


def test_gradients(session: tg.Session) -> None:
    def run(lib: Any, number: int) -> Any:
        x, y = leaf(lib, number), leaf(lib, 2 - number)
        a, b = wide(lib, curve)(x, y)
        (a.sum() + b).backward()
        return a, b, x.grad, y.grad

    both(run)


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


def test_second_derivatives(session: tg.Session) -> None:
    def run(lib: Any, number: int) -> Any:
        x, y = leaf(lib, number), leaf(lib, 3)
        a, b = wide(lib, curve)(x, y)
        (first,) = lib.autograd.grad(a.sum() * b, x, create_graph=True)
        second = lib.autograd.grad(first.square().sum(), (x, y))
        return (first, *second)

    both(run)


def graph(tensor: Any) -> list[Any]:
    """The nodes of a tensor's graph, each with the outputs that its edges lead to."""
    nodes, found = [tensor.grad_fn], []
    for node in nodes:
        edges = [(each.name(), slot) for each, slot in node.next_functions if each is not None]
        found.append((node.name(), edges))
        nodes += [each for each, _ in node.next_functions if each is not None and each.next_functions]
    return found


def test_the_graph_is_torchs(session: tg.Session) -> None:
    def drawn(lib: Any, number: int) -> list[Any]:
        p, q = lib.linalg.qr(lib.tensor([[0.5, 1.0], [0.1, 0.2]], requires_grad=True))
        a, b = wide(lib, curve)(*((p, q) if number % 2 else (q, p)))
        return [graph(a), graph(b)]

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


def test_in_the_middle_of_a_graph_and_on_outputs_of_one_op(session: tg.Session) -> None:
    def run(lib: Any, number: int) -> Any:
        x = lib.tensor([[0.5, -0.25 * number, 0.125], [0.1, 0.2, 0.3]], requires_grad=True)
        p, q = x.tanh().unbind(0)
        a, b = wide(lib, curve)(*((p, q) if number % 2 else (q, p)))
        (a.sum() + b).backward()
        return a, b, x.grad

    both(run)


@pytest.mark.parametrize("first", [0, 1])
def test_one_tensor_twice(session: tg.Session, first: int) -> None:
    def run(lib: Any, number: int) -> Any:
        x, y = leaf(lib, number), leaf(lib, 2)
        pair = (x, x) if number % 2 == first else (x, y)
        a, b = wide(lib, curve)(*pair)
        (a.sum() + b).backward()
        return a, b, x.grad

    both(run)


def test_a_view_whose_base_has_a_history_since(session: tg.Session) -> None:
    def run(lib: Any, number: int) -> Any:
        w, base = leaf(lib, number), lib.ones(2, 3)
        view = base[1]
        before = wide(lib, scaled)(lib.ones(3))
        base.mul_(w)
        after = wide(lib, scaled)(view)
        after.backward()
        return before, after, w.grad

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


def test_parameters_shapes_and_modes(session: tg.Session) -> None:
    def run(lib: Any, number: int) -> Any:
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

    both(run)


def test_a_parameter_that_decides_the_shape(session: tg.Session) -> None:
    def run(lib: Any, number: int) -> Any:
        return [wide(lib, along)(lib.ones(2, 3, requires_grad=True), dim=dim) for dim in (0, 1, number % 2)]

    both(run)


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


def told(function: Callable[[], Any]) -> str:
    try:
        function()
    except RuntimeError as error:
        return str(error).partition(";")[0].partition(" [")[0][:60]
    return "no error"


def gone_through_twice(lib: Any, x: Any, y: Any, a: Any, b: Any) -> Any:
    b.backward()
    return told(b.backward), x.grad, y.grad


def gone_through_from_both(lib: Any, x: Any, y: Any, a: Any, b: Any) -> Any:
    b.backward()
    return told(a.sum().backward), x.grad, y.grad


def looked_at_behind(lib: Any, x: Any, y: Any, a: Any, b: Any) -> Any:
    b.backward()
    return str(graph(a)), str(graph(b)), told(b.backward), x.grad


def gradients_alone(lib: Any, x: Any, y: Any, a: Any, b: Any) -> Any:
    return *lib.autograd.grad(b, (y, x)), x.grad is None, told(b.backward)


def one_of_two_gradients(lib: Any, x: Any, y: Any, a: Any, b: Any) -> Any:
    return *lib.autograd.grad(b, [y]), told(b.backward)


def one_gradient_twice(lib: Any, x: Any, y: Any, a: Any, b: Any) -> Any:
    return lib.autograd.grad(b, (x, y, x))


def gradients_kept_for_more(lib: Any, x: Any, y: Any, a: Any, b: Any) -> Any:
    (first,) = lib.autograd.grad(b, x, retain_graph=True)
    b.backward()
    return first, x.grad, y.grad


def gradients_times_something(lib: Any, x: Any, y: Any, a: Any, b: Any) -> Any:
    return lib.autograd.grad(b, (x, y), lib.tensor(2.0))


def gradients_times_what_does_not_fit(lib: Any, x: Any, y: Any, a: Any, b: Any) -> Any:
    return told(lambda: lib.autograd.grad(b, (x, y), lib.ones(2))), *lib.autograd.grad(b, (x, y))


def gradients_of_two_at_once(lib: Any, x: Any, y: Any, a: Any, b: Any) -> Any:
    c = wide(lib, scaled)(x)
    return *lib.autograd.grad((b, c), (x, y)), told(c.backward)


def gradients_of_many_elements(lib: Any, x: Any, y: Any, a: Any, b: Any) -> Any:
    return told(a.backward), told(lambda: lib.autograd.grad(a, (x, y))), x.grad is None


def younger_ones_beside_it(lib: Any, x: Any, y: Any, a: Any, b: Any) -> Any:
    z, order = (x * y).exp(), list[str]()
    for name, each in (("function", a), ("younger", z)):
        each.grad_fn.register_prehook(lambda grads, name=name: order.append(name))
    (a.sum() + z.sum()).backward()
    return order, x.grad


def gradient_of_what_was_not_used(lib: Any, x: Any, y: Any, a: Any, b: Any) -> Any:
    z = lib.ones(3, requires_grad=True)
    return told(lambda: lib.autograd.grad(b, (x, z)))


def frozen_in_between(lib: Any, x: Any, y: Any, a: Any, b: Any) -> Any:
    x.requires_grad_(False)
    b.backward()
    return x.grad is None, y.grad


def written_to_in_between(lib: Any, x: Any, y: Any, a: Any, b: Any) -> Any:
    with lib.no_grad():
        x.mul_(2.0)
    return told(b.backward), y.grad is None


def written_to_itself(lib: Any, x: Any, y: Any, a: Any, b: Any) -> Any:
    b.mul_(3.0)
    b.backward()
    return x.grad, y.grad, str(graph(b))


@pytest.mark.parametrize(
    "use",
    [
        gone_through_twice, gone_through_from_both, looked_at_behind, gradients_alone, one_of_two_gradients,
        one_gradient_twice, gradients_kept_for_more, gradients_times_something, gradients_times_what_does_not_fit,
        gradients_of_two_at_once, gradients_of_many_elements, gradient_of_what_was_not_used, younger_ones_beside_it,
        frozen_in_between, written_to_in_between, written_to_itself,
    ],
    ids=lambda use: use.__name__,
)  # fmt: skip
def test_it_is_as_if_it_were_drawn_at_once(session: tg.Session, use: Callable[..., Any]) -> None:
    def run(lib: Any, number: int) -> Any:
        x, y = leaf(lib, number), leaf(lib, 2)
        return use(lib, x, y, *wide(lib, curve)(x, y))

    for known in (False, True):  # whether a plain pass is known
        for number in range(TIMES):
            for ours, theirs in zip(run(tg, number), run(torch, number), strict=True):
                if isinstance(theirs, torch.Tensor):
                    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5)
                else:
                    assert ours == theirs
        if not known:
            for _ in range(TIMES):
                tg.ops.curve(leaf(tg, 1), leaf(tg, 2))[1].backward()


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
