"""Gradients through the SDK, compared with torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from .parity import same, same_error

pytestmark = pytest.mark.usefixtures("session")


def leaf(lib: Any, *values: float) -> Any:
    return lib.tensor(list(values), dtype=lib.float64, requires_grad=True)


def accumulates(lib: Any) -> Any:
    x = leaf(lib, 1, 2, 3)
    seen = []
    for _ in range(3):
        (x * x).sum().backward()
        seen.append(x.grad.tolist())
    return seen, x.grad


def zeroed_between(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    (x * 3).sum().backward()
    x.grad.zero_()
    (x * 5).sum().backward()
    first = x.grad.tolist()
    x.grad = None
    (x * 7).sum().backward()
    return first, x.grad


def replaced(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    x.grad = lib.tensor([10.0, 20.0], dtype=lib.float64)
    held = x.grad
    (x * 3).sum().backward()
    return held, x.grad, held is x.grad


def held_across_backwards(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    (x * 3).sum().backward()
    grad = x.grad
    (x * 3).sum().backward()
    return grad, grad is x.grad, grad._version


def two_leaves_do_not_share(lib: Any) -> Any:
    a, b = leaf(lib, 1, 2), leaf(lib, 3, 4)
    (a + b).sum().backward()
    a.grad.mul_(10)
    return a.grad, b.grad


def retained(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = x * x
    y.retain_grad()
    y.retain_grad()
    assert y.retains_grad
    z = (y * 3).sum()
    z.backward(retain_graph=True)
    first = y.grad.tolist()
    z.backward()
    return first, y.grad, x.grad


def second_order(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    (g,) = lib.autograd.grad((x**4).sum(), x, create_graph=True)
    (h,) = lib.autograd.grad(g.sum(), x, create_graph=True)
    (t,) = lib.autograd.grad(h.sum(), x)
    return g, h, t, x.grad


def cubed_gradient(lib: Any) -> Any:
    x = leaf(lib, 1)
    (g,) = lib.autograd.grad((x**2).sum(), x, create_graph=True)
    (g**3).sum().backward()
    return x.grad


def penalty(lib: Any) -> Any:
    x, w = lib.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=lib.float64), leaf(lib, 0.5, -0.5)
    loss = lib.tanh(x @ w).sum()
    (g,) = lib.autograd.grad(loss, w, create_graph=True)
    (loss + (g * g).sum()).backward()
    return g, w.grad


def backward_with_graph(lib: Any) -> Any:
    x = leaf(lib, 2)
    (x**3).sum().backward(create_graph=True)
    first = x.grad
    first.sum().backward()
    return first, x.grad


def requires_grad_of_gradients(lib: Any) -> Any:
    x, y = leaf(lib, 1, 2), leaf(lib, 3, 4)
    out = []
    for z in (x * 2, x * y, x * x, x + y, x.exp(), (x * y.detach()).sum(), lib.relu(x), x.sum(), x / y):
        grads = lib.autograd.grad(z.sum(), [x, y], create_graph=True, allow_unused=True)
        out.append([None if g is None else (g.requires_grad, g.is_leaf, g) for g in grads])
    return out


def without_graph_no_history(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    (g,) = lib.autograd.grad((x * x).sum(), x)
    return g, g.requires_grad, g.grad_fn is None


def seeded(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    v = lib.tensor([3.0, 5.0], dtype=lib.float64, requires_grad=True)
    (g,) = lib.autograd.grad(x * x, x, v, create_graph=True)
    g.sum().backward()
    return g, x.grad, v.grad


def several_outputs(lib: Any) -> Any:
    x, y = leaf(lib, 1, 2), leaf(lib, 3, 4)
    grads = lib.autograd.grad([x.sum(), (x * y).sum()], [x, y], allow_unused=True)
    more = lib.autograd.grad(x.sum(), [x, y], materialize_grads=True)
    none = lib.autograd.grad(x.sum(), [x, y], allow_unused=True)
    return grads, more, none[1] is None


def only_inputs(lib: Any) -> Any:
    x, y = leaf(lib, 1, 2), leaf(lib, 3, 4)
    z = x * y
    (z * z).sum().backward(inputs=[y])
    return x.grad is None, y.grad


def into_a_non_leaf(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = x * 2
    (y * y).sum().backward(inputs=[y])
    return x.grad is None, y.grad


def no_graph(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    with lib.no_grad():
        y = x * 2
        with lib.enable_grad():
            z = x * 3
        x.mul_(2)
    return y, z, x, x._version, lib.is_grad_enabled()


def decorated(lib: Any) -> Any:
    @lib.no_grad()
    def double(x: Any) -> Any:
        return x * 2

    with lib.set_grad_enabled(False):
        inside = lib.is_grad_enabled()
    return double(leaf(lib, 1)), inside


def detached(lib: Any) -> Any:
    a, b = leaf(lib, 2, 3, 4), leaf(lib, 5, 7, 9)
    d = b * (a * b).detach()
    d.sum().backward()
    shared = a.detach()
    shared[0] = 100.0
    return a.grad is None, b.grad, a, shared.requires_grad, a._version


def in_place(lib: Any) -> Any:
    x = leaf(lib, 1, 2, 3)
    y = x * 2
    y += 1
    y.mul_(x)
    y.sin_()
    y[1] = 0.0
    y[0] *= 3
    y.sum().backward()
    return y, x.grad, y._version


def through_views(lib: Any) -> Any:
    x = leaf(lib, 1, 2, 3, 4)
    y = x * 1
    v = y.reshape(2, 2)
    v[0] = v[0] * 5
    v.t()[1, 1] = 7.0
    y.view(-1)[0] += 1
    (y * y).sum().backward()
    return y, v, x.grad, y._version, v._version


def view_before_its_base_changes(lib: Any) -> Any:
    x = leaf(lib, 1, 2, 3)
    y = x.clone()
    v = y[1:]
    y.mul_(10)
    (v * v).sum().backward()
    return v, x.grad


def broadcasting(lib: Any) -> Any:
    a = lib.ones(3, 1, dtype=lib.float64, requires_grad=True)
    b = lib.tensor([[1.0, 2.0]], dtype=lib.float64, requires_grad=True)
    c = lib.tensor(2.0, dtype=lib.float64, requires_grad=True)
    ((a * b + c) / b).sum().backward()
    return a.grad, b.grad, c.grad


def mixed_dtypes(lib: Any) -> Any:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    (x.double() * lib.tensor([3, 4])).sum().backward()
    return x.grad


def conditional(lib: Any) -> Any:
    x = leaf(lib, -1, 0, 1)
    y = x * 2 if x.sum() > 0 else x / 2
    y.sum().backward()
    return x.grad


def loops(lib: Any) -> Any:
    x = leaf(lib, 1.5)
    y, steps = x, 0
    while y.norm() < 100 if hasattr(y, "norm") else y.abs() < 100:
        y, steps = y * 2, steps + 1
    y.sum().backward()
    return steps, x.grad


def unpacked_outputs(lib: Any) -> Any:
    x = lib.tensor([[1.0, 5.0], [7.0, 2.0]], dtype=lib.float64, requires_grad=True)
    values, indices = x.max(dim=1)
    a, b = x.unbind(0)
    (values.sum() + (a * b).sum()).backward()
    return values, indices, x.grad


def many_uses(lib: Any) -> Any:
    x = leaf(lib, 1, 2)
    y = x
    for i in range(50):
        y = y + x * i
    lib.stack([y, x, y]).sum().backward()
    return x.grad


def frozen_before_its_pass(lib: Any) -> Any:
    """Hooks of a frozen leaf are still called."""
    x, had, held = leaf(lib, 1, 2), leaf(lib, 3, 4), leaf(lib, 5, 6)
    (had * had).sum().backward()
    seen = []
    x.register_hook(lambda grad: seen.append(grad.tolist()))
    x.register_post_accumulate_grad_hook(lambda tensor: seen.append(tensor.grad))
    y = (x * had * held).sum()
    x.requires_grad_(False)
    had.requires_grad_(False)
    y.backward(retain_graph=True)
    frozen = x.grad, had.grad.tolist(), held.grad.tolist()
    x.requires_grad_(True)
    y.backward(create_graph=True)
    return frozen, seen, x.grad.detach(), had.grad, held.grad.detach()


def frozen_in_one_of_many_rounds(lib: Any) -> Any:
    weight, bias, found = leaf(lib, 1, 2), leaf(lib, 0.5, 1), []
    for turn in range(12):
        loss = (weight * turn + bias).square().sum()
        weight.requires_grad_(turn != 8)
        loss.backward()
        found.append((None if weight.grad is None else weight.grad.tolist(), bias.grad.tolist()))
        weight.requires_grad_(True)
        weight.grad = bias.grad = None
    return found


PROGRAMS: list[Callable[[Any], Any]] = [
    accumulates,
    zeroed_between,
    replaced,
    held_across_backwards,
    frozen_before_its_pass,
    frozen_in_one_of_many_rounds,
    two_leaves_do_not_share,
    retained,
    second_order,
    cubed_gradient,
    penalty,
    backward_with_graph,
    requires_grad_of_gradients,
    without_graph_no_history,
    seeded,
    several_outputs,
    only_inputs,
    into_a_non_leaf,
    no_graph,
    decorated,
    detached,
    in_place,
    through_views,
    view_before_its_base_changes,
    broadcasting,
    mixed_dtypes,
    conditional,
    loops,
    unpacked_outputs,
    many_uses,
]


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_it_gives_what_torch_gives(program: Callable[[Any], Any]) -> None:
    same(program, rtol=1e-12 if program is not mixed_dtypes else 1e-6)


def test_the_cubed_gradient_is_24() -> None:
    assert same(cubed_gradient).item() == 24.0


def test_grad_is_none_until_there_is_one(session: tg.Session) -> None:
    x = tg.ones(2, requires_grad=True)
    assert x.grad is None
    y = (x * 2).sum()
    assert x.grad is None
    y.backward()
    assert x.grad is not None
    assert session.requests == 0


@pytest.mark.parametrize(
    "differentiate",
    [
        lambda lib, x: lib.autograd.grad(x.sum(), ()),
        lambda lib, x: lib.autograd.grad((), ()),
        lambda lib, x: lib.autograd.grad((), x),
        lambda lib, x: lib.autograd.backward(x.sum(), inputs=[]),
        lambda lib, x: lib.autograd.backward((), inputs=[]),
    ],
)
def test_nothing_to_differentiate(session: tg.Session, differentiate: Callable[[Any, Any], Any]) -> None:
    same_error(lambda lib: differentiate(lib, lib.ones(2, requires_grad=True)), "")
    assert tg.ones(2).sum().item() == 2  # and nothing was recorded


def test_nothing_to_differentiate_is_no_error(session: tg.Session) -> None:
    found = []
    for lib in (tg, torch):
        x = lib.tensor(3.0, requires_grad=True)
        lib.autograd.backward([])
        lib.autograd.backward((), inputs=x)
        assert x.grad is None and lib.autograd.grad((), x, allow_unused=True) == (None,)
        lib.autograd.backward(x * x, grad_tensors=lib.tensor(2.0))
        found.append(x.grad.item())  # type: ignore[attr-defined]
    assert found[0] == found[1]


def test_gradients_of_outputs_by_their_old_name(session: tg.Session) -> None:
    def passed(lib: Any) -> Any:
        x = lib.tensor([1.0, 2.0], requires_grad=True)
        with pytest.warns(FutureWarning, match="`grad_variables` is deprecated. Use `grad_tensors` instead."):
            lib.autograd.backward(x * x, grad_variables=[lib.tensor([3.0, 4.0])])
        return x.grad

    def twice(lib: Any) -> None:
        x, seed = lib.tensor(3.0, requires_grad=True), lib.tensor(1.0)
        with pytest.warns(FutureWarning):
            lib.autograd.backward(x * x, seed, grad_variables=seed)

    same(passed)
    same_error(twice, whole=True)


def test_a_wrong_grad_cannot_be_assigned() -> None:
    def shaped(lib: Any) -> None:
        lib.ones(2, requires_grad=True).grad = lib.ones(3)

    def typed(lib: Any) -> None:
        lib.ones(2, requires_grad=True).grad = lib.ones(2, dtype=lib.float64)

    def foreign(lib: Any) -> None:
        lib.ones(2, requires_grad=True).grad = 3.0

    for wrong in (shaped, typed, foreign):
        same_error(wrong)


def test_a_deep_graph_is_differentiated_and_freed() -> None:
    x = tg.ones((), dtype=tg.float64, requires_grad=True)
    y = x
    for _ in range(20_000):
        y = y * 1.0001
    y.backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.item(), 1.0001**20_000, rtol=1e-9)
    del y


def test_grad_frees_only_what_it_went_through(session: tg.Session) -> None:
    for lib in (tg, torch):
        x, y = lib.tensor([1.0, 2.0], requires_grad=True), lib.tensor([3.0, 4.0], requires_grad=True)
        a, b = x * x, y * y
        assert lib.autograd.grad((a + b).sum(), x)[0].tolist() == [2.0, 4.0]
        b.sum().backward()
        assert y.grad.tolist() == [6.0, 8.0]
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            a.sum().backward()


def test_data_can_be_assigned() -> None:
    def run(lib: Any) -> Any:
        w = leaf(lib, 1, 2)
        for _ in range(3):
            (w * w).sum().backward()
            w.data = w.data - 0.1 * w.grad
            w.data -= 0.1 * w.grad
            w.grad = None
        return w, w.is_leaf

    same(run)


@pytest.mark.parametrize("kind", ["int32", "int64", "bool", "float32"])
def test_a_pass_may_start_with_numbers_of_another_dtype(kind: str) -> None:
    def run(lib: Any) -> Any:
        x = leaf(lib, 1, 2, 3)
        seed = lib.tensor([1, 0, 2]).to(dtype=getattr(lib, kind))
        found = []
        for _ in range(3):
            (x * x).backward(seed)
            found.append(lib.autograd.grad(x * 2, x, seed)[0])
        return x.grad, found

    same(run)
