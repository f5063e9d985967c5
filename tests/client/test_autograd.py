"""What can be differentiated, and how gradients arrive and accumulate, compared with torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from .parity import bodies, ours, same, same_error

EVERYWHERE = pytest.mark.usefixtures("everywhere")


def leaf(lib: Any, *values: float) -> Any:
    return lib.tensor(list(values), dtype=lib.float64, requires_grad=True)


class Programs:
    """Functions whose results must be the same in both libraries."""

    def accumulates(lib: Any) -> Any:
        x = leaf(lib, 1, 2, 3)
        seen = []
        for _ in range(3):
            (x * x).sum().backward()
            seen.append(x.grad.tolist())
        return seen, x.grad

    def of_one_element(lib: Any) -> Any:
        roots = [lib.tensor(value, requires_grad=True) for value in (1.0, [1.0], [[1.0]])]
        for x in roots:
            (x * 2).backward()
        return [x.grad for x in roots]

    def again_where_nothing_was_saved(lib: Any) -> Any:
        x = leaf(lib, 1)
        y = x + 1
        y.backward()
        y.backward()
        return x.grad

    def a_graph_that_create_graph_retains(lib: Any) -> Any:
        x = leaf(lib, 2)
        y = x**3
        (first,) = lib.autograd.grad(y, x, create_graph=True)
        (second,) = lib.autograd.grad(y, x)
        return first, second, lib.autograd.grad(first, x)

    def accumulated_by_create_graph(lib: Any) -> Any:
        x = leaf(lib, 1, 2)
        (x * x).sum().backward()
        first = x.grad
        (x**3).sum().backward(create_graph=True, inputs=[x])
        return first is x.grad, first, x.grad

    def a_root_that_is_a_leaf(lib: Any) -> Any:
        x, seed = leaf(lib, 1, 2, 3), lib.tensor([1.0, 2.0, 3.0], dtype=lib.float64)
        x.backward(seed)
        x.grad.mul_(2)
        return x.grad, seed

    def several_roots(lib: Any) -> Any:
        x, z = leaf(lib, 1, 2, 3), leaf(lib, 3)
        y, square = x * 2, (z * z).sum()
        lib.autograd.backward([y.sum(), y], [None, lib.tensor([1.0, 2.0, 3.0], dtype=lib.float64)])
        lib.autograd.backward([square, square])
        return x.grad, z.grad

    def inputs_in_the_middle(lib: Any) -> Any:
        x, w = leaf(lib, 1, 2, 3), leaf(lib, 4, 5, 6)
        y = x * w
        z, total = y.exp(), y.sum()
        seed = lib.tensor([1.0, 0.5, 2.0], dtype=lib.float64)
        found = lib.autograd.grad([z, total], [y, x, w], [seed, None], retain_graph=True)
        return found, lib.autograd.grad(total, total)

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

    def retained(lib: Any) -> Any:
        x = leaf(lib, 1, 2)
        y = x * x
        x.retain_grad()
        y.retain_grad()
        y.retain_grad()
        flags = x.retains_grad, y.retains_grad, (x * 1).retains_grad
        z = (y * 3).sum()
        z.backward(retain_graph=True)
        first = y.grad.tolist()
        z.backward()
        return flags, first, y.grad, x.grad, (x * 2).grad

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
        (z * z).sum().backward(inputs=[y], retain_graph=True)
        first = x.grad is None, y.grad.tolist()
        (z * z).sum().backward(inputs=y)
        return first, x.grad, y.grad

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
        z = leaf(lib, 1, 2, 3)
        (z.view(3, 1) + z + z.expand(3, 3) * z[0] + z.sum()).sum().backward()
        return x.grad, z.grad

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

    def frozen_before_a_pass_with_create_graph(lib: Any) -> Any:
        x, w = leaf(lib, 1, 2), leaf(lib, 3, 4)
        y = (x * w).sum()
        x.requires_grad_(False)
        y.backward(create_graph=True)
        return x.grad is None, w.grad.detach()

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


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@EVERYWHERE
@pytest.mark.parametrize("program", bodies(Programs), ids=lambda program: program.__name__)
def test_it_gives_what_torch_gives(program: Callable[[Any], Any]) -> None:
    same(program, rtol=1e-12 if program is not Programs.mixed_dtypes else 1e-6)


@EVERYWHERE
def test_the_cubed_gradient_is_24() -> None:
    assert same(Programs.cubed_gradient).item() == 24.0


@EVERYWHERE
@pytest.mark.parametrize(
    "join",
    [
        lambda a, b: a + b,
        lambda a, b: a.view(3) + b,
        lambda a, b: a.reshape(3, 1).t()[0] + b.expand(3),
        lambda a, b: a + b + a,
        lambda a, b: (a.clone() + b) + a.view(3),
        lambda a, b: a - (-b),
    ],
)
def test_leaves_never_share_a_gradient_buffer(join: Callable[[Any, Any], Any]) -> None:
    """torch's share one in some of these cases."""
    a, b, seed = leaf(ours(), 1, 2, 3), leaf(ours(), 1, 2, 3), ours().ones(3, dtype=ours().float64)
    join(a, b).backward(seed)
    expected = [a.grad.mul(100).tolist(), b.grad.mul(10).tolist(), seed.tolist()]
    a.grad.mul_(100)
    b.grad.mul_(10)
    assert [a.grad.tolist(), b.grad.tolist(), seed.tolist()] == expected


TIES: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "max": ([1.0, 3.0, 3.0], lambda x: x.max()),
    "min": ([1.0, 1.0, 3.0], lambda x: x.min()),
    "amax": ([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]], lambda x: x.amax(1).sum()),
    "amin": ([1.0, 1.0, 3.0], lambda x: x.amin()),
    "max(dim)": ([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]], lambda x: x.max(1).values.sum()),
    "min(dim)": ([1.0, 1.0, 3.0], lambda x: x.min(0)[0]),
    "maximum": ([1.0, 2.0, 3.0], lambda x: (x.maximum(x * 1.0) * 2).sum()),
    "minimum": ([1.0, 2.0, 3.0], lambda x: x.minimum(x.detach()).sum()),
    "clamp": ([-1.0, 0.0, 1.0, 2.0], lambda x: x.clamp(0.0, 1.0).sum()),
    "relu": ([-1.0, 0.0, 1.0], lambda x: x.relu().sum()),
    "abs": ([-1.0, 0.0, 1.0], lambda x: x.abs().sum()),
    "std of equals": ([2.0, 2.0, 2.0], lambda x: x.std()),
    "pow 0": ([0.0, 1.0, 2.0], lambda x: (x**0).sum()),
    "pow 1": ([0.0, 1.0, 2.0], lambda x: (x**1).sum()),
    "pow of zero": ([0.0, 1.0, 2.0], lambda x: (x**2.0).sum() + (x ** x.detach()).sum()),
    "prod with a zero": ([0.0, 2.0, 3.0], lambda x: x.prod()),
    "prod with two zeros": ([0.0, 2.0, 0.0], lambda x: x.prod()),
    "remainder": ([5.0, -5.0, 7.5], lambda x: (x % 3.0).sum() + (x.detach() * 0 + 7.0).remainder(x).sum()),
    "sqrt of zero": ([0.0, 1.0], lambda x: x.sqrt().sum()),
}  # fmt: skip


@EVERYWHERE
@pytest.mark.parametrize("name", TIES)
def test_ties_and_edges(name: str) -> None:
    values, function = TIES[name]

    def run(lib: Any) -> Any:
        x = lib.tensor(values, requires_grad=True)
        out = function(x)
        out.backward()
        return out, x.grad

    same(run)


CALLS: list[Callable[[Any], Any]] = [
    lambda lib: (leaf(lib, 1, 2) * 2).backward(),
    lambda lib: (leaf(lib) * 2).backward(),
    lambda lib: (leaf(lib, 1, 2, 3) * 2).backward(lib.ones(2)),
    lambda lib: (leaf(lib, 1, 2, 3) * 2).backward(lib.tensor(1.0)),
    lambda lib: (leaf(lib, 1, 2, 3) * 2).backward(lib.ones(1, 3)),
    lambda lib: lib.tensor(1.0).backward(),
    lambda lib: lib.autograd.backward([leaf(lib, 1).sum() * 2, lib.tensor(1.0)]),
    lambda lib: (leaf(lib, 1) * 2).requires_grad_(False),
    lambda lib: lib.tensor([1.0]).retain_grad(),
    lambda lib: lib.autograd.grad(leaf(lib, 1).sum(), [leaf(lib, 1)]),
    lambda lib: lib.autograd.grad(leaf(lib, 1).sum(), [leaf(lib, 1)], allow_unused=False, materialize_grads=True),
    lambda lib: lib.autograd.grad(leaf(lib, 1).sum(), lib.tensor(1.0)),
    lambda lib: lib.autograd.grad(leaf(lib, 1).sum(), ()),
    lambda lib: lib.autograd.grad((), ()),
    lambda lib: lib.autograd.grad((), leaf(lib, 1)),
    lambda lib: lib.autograd.backward(leaf(lib, 1).sum(), inputs=[]),
    lambda lib: lib.autograd.backward((), inputs=[]),
    lambda lib: lib.autograd.backward([leaf(lib, 1) * 2], [1.0]),
]
"""Calls that must raise the same error in both libraries."""


class Mistakes:
    """Functions that must raise the same error in both libraries."""

    def a_second_backward(lib: Any) -> None:
        y = leaf(lib, 1).exp()
        y.backward()
        y.backward()

    def a_freed_part_of_a_graph(lib: Any) -> None:
        shared = leaf(lib, 1) ** 3
        (shared * 2).backward()
        (shared + 1).backward()

    def a_graph_that_create_graph_does_not_retain(lib: Any) -> None:
        x = leaf(lib, 2)
        y = x**3
        lib.autograd.grad(y, x, create_graph=True, retain_graph=False)
        lib.autograd.grad(y, x)

    def a_result_that_is_frozen_by_assignment(lib: Any) -> None:
        (leaf(lib, 1) * 2).requires_grad = False

    def a_grad_of_another_shape(lib: Any) -> None:
        lib.ones(2, requires_grad=True).grad = lib.ones(3)

    def a_grad_that_is_a_number(lib: Any) -> None:
        lib.ones(2, requires_grad=True).grad = 3.0


@pytest.mark.parametrize("body", [*CALLS, *bodies(Mistakes)], ids=lambda body: body.__name__)
def test_mistakes_are_told_in_torchs_words(everywhere: tg.Session | None, body: Callable[[Any], Any]) -> None:
    same_error(body, whole=True)
    same(Programs.in_place)  # and nothing was recorded


@EVERYWHERE
@pytest.mark.parametrize(
    "make",
    [
        lambda lib: lib.tensor([1, 2]).requires_grad_(),
        lambda lib: setattr(lib.tensor([1, 2]), "requires_grad", True),
        lambda lib: lib.tensor([True], requires_grad=True),
    ],
)
def test_only_floating_point_numbers_require_grad(make: Callable[[Any], Any]) -> None:
    for lib in (torch, ours()):
        with pytest.raises(RuntimeError, match="floating point"):
            make(lib)
    same(lambda lib: lib.tensor([1]).requires_grad_(False))


@EVERYWHERE
def test_a_list_of_numbers_is_no_gradient() -> None:
    for lib in (torch, ours()):
        with pytest.raises(TypeError):
            (leaf(lib, 1, 2, 3) * 2).backward([1.0, 1.0, 1.0])


@EVERYWHERE
def test_a_grad_has_its_tensors_dtype() -> None:
    def run(lib: Any) -> None:
        lib.ones(2, requires_grad=True).grad = lib.ones(2, dtype=lib.float64)

    same_error(run, "to a tensor with grad_dtype 'Float'. The gradient must match")


def test_grad_is_none_until_there_is_one(session: tg.Session) -> None:
    x = tg.ones(2, requires_grad=True)
    assert x.grad is None
    y = (x * 2).sum()
    assert x.grad is None
    y.backward()
    assert x.grad is not None
    assert session.requests == 0


@EVERYWHERE
def test_nothing_to_differentiate_is_no_error() -> None:
    def run(lib: Any) -> Any:
        x = lib.tensor(3.0, requires_grad=True)
        lib.autograd.backward([])
        lib.autograd.backward((), inputs=x)
        assert x.grad is None and lib.autograd.grad((), x, allow_unused=True) == (None,)
        lib.autograd.backward(x * x, grad_tensors=lib.tensor(2.0))
        return x.grad

    same(run)


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


@pytest.mark.usefixtures("session")
def test_a_deep_graph_is_differentiated_and_freed() -> None:
    x = tg.ones((), dtype=tg.float64, requires_grad=True)
    y = x
    for _ in range(10_000):
        y = y * 1.0001
    y.backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.item(), 1.0001**10_000, rtol=1e-9)
    del y


@pytest.mark.usefixtures("session")
def test_grad_frees_only_what_it_went_through() -> None:
    for lib in (tg, torch):
        x, y = lib.tensor([1.0, 2.0], requires_grad=True), lib.tensor([3.0, 4.0], requires_grad=True)
        a, b = x * x, y * y
        assert lib.autograd.grad((a + b).sum(), x)[0].tolist() == [2.0, 4.0]
        b.sum().backward()
        assert y.grad.tolist() == [6.0, 8.0]
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            a.sum().backward()


@pytest.mark.usefixtures("session")
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


@EVERYWHERE
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
