"""What can be differentiated, how gradients arrive and accumulate, and what hooks see."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import telegrad_engine as tg

from .twins import OURS, both, both_raise, leaf, plain

# What can be differentiated ------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1.0, [1.0], [[1.0]]])
def test_an_implicit_gradient_needs_one_element(value: Any) -> None:
    def run(t: Any) -> Any:
        x = t.tensor(value, requires_grad=True)
        (x * 2).backward()
        return x.grad

    both(run)


@pytest.mark.parametrize("value", [(1.0, 2.0), []])
def test_an_implicit_gradient_of_several_elements_raises(value: Any) -> None:
    both_raise(lambda t: (leaf(t, value) * 2).backward())


@pytest.mark.parametrize("shape", [[1.0, 1.0], 1.0, [[1.0, 1.0, 1.0]]])
def test_a_gradient_of_the_wrong_shape_raises(shape: Any) -> None:
    both_raise(lambda t: (leaf(t) * 2).backward(t.tensor(shape)))


def test_an_untracked_root_raises() -> None:
    both_raise(lambda t: t.tensor(1.0).backward())
    both_raise(lambda t: t.autograd.backward([leaf(t, 1.0) * 2, t.tensor(1.0)]))


def test_a_second_backward_raises_if_something_was_saved() -> None:
    def run(t: Any) -> None:
        y = leaf(t, 1.0).exp()
        y.backward()
        y.backward()

    both_raise(run)


def test_a_second_backward_succeeds_if_nothing_was_saved() -> None:
    def run(t: Any) -> Any:
        x = leaf(t, 1.0)
        y = x + 1
        y.backward()
        y.backward()
        return x.grad

    assert both(run) == 2.0


def test_a_freed_part_of_a_graph_raises_through_another_root() -> None:
    def run(t: Any) -> None:
        shared = leaf(t, 1.0) ** 3
        (shared * 2).backward()
        (shared + 1).backward()

    both_raise(run)


def test_retain_graph_defaults_to_create_graph() -> None:
    def run(t: Any) -> Any:
        x = leaf(t, 2.0)
        y = x**3
        (first,) = t.autograd.grad(y, x, create_graph=True)
        (second,) = t.autograd.grad(y, x)
        (third,) = t.autograd.grad(first, x)
        return first, second, third

    assert both(run) == [12.0, 12.0, 12.0]


def test_create_graph_without_retain_graph_frees() -> None:
    def run(t: Any) -> None:
        x = leaf(t, 2.0)
        y = x**3
        t.autograd.grad(y, x, create_graph=True, retain_graph=False)
        t.autograd.grad(y, x)

    both_raise(run)


# Requires_grad, retain_grad ------------------------------------------------------------------------------


def test_integers_cannot_require_grad() -> None:
    both_raise(lambda t: t.tensor([1, 2]).requires_grad_(), "floating point")
    both_raise(lambda t: setattr(t.tensor([1, 2]), "requires_grad", True), "floating point")
    both_raise(lambda t: t.tensor([True], requires_grad=True), "floating point")
    both(lambda t: t.tensor([1]).requires_grad_(False).requires_grad)


def test_only_leaves_change_requires_grad() -> None:
    both_raise(lambda t: (leaf(t) * 2).requires_grad_(False))
    both_raise(lambda t: setattr(leaf(t) * 2, "requires_grad", False))
    both(lambda t: (leaf(t) * 2).requires_grad_().requires_grad)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
def test_a_leaf_that_is_frozen_before_its_pass_gets_nothing(create_graph: bool) -> None:
    def run(t: Any) -> Any:
        x, w = leaf(t), leaf(t)
        y = (x * w).sum()
        x.requires_grad_(False)
        y.backward(create_graph=create_graph)
        return x.grad is None, w.grad.detach()

    both(run)


def test_retain_grad() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        x.retain_grad()
        y = x * 2
        y.retain_grad()
        y.retain_grad()
        flags = x.retains_grad, y.retains_grad, (x * 1).retains_grad
        z = (y * y).sum()
        z.backward(retain_graph=True)
        once = y.grad.clone()
        z.backward()
        return flags, once, y.grad, x.grad

    both(run)
    both_raise(lambda t: t.tensor([1.0]).retain_grad())


def test_a_gradient_that_was_not_retained_is_none() -> None:
    x = leaf(OURS)
    y = x * 2
    y.sum().backward()
    assert y.grad is None


def test_retain_grad_survives_an_in_place_change() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        y = x * 2
        y.retain_grad()
        y.mul_(3)
        y.sum().backward()
        return y.grad, x.grad

    both(run)


# How gradients accumulate --------------------------------------------------------------------------------


def test_grad_accumulates_into_the_same_object() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        (x * x).sum().backward()
        first = x.grad
        (x * 3).sum().backward()
        return first is x.grad, x.grad

    assert both(run)[0] is True


def test_grad_accumulates_out_of_place_under_create_graph() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        t.autograd.backward((x * x).sum(), create_graph=False)
        first = x.grad
        (x**3).sum().backward(create_graph=True, inputs=[x])
        return first is x.grad, first, x.grad, x.grad.requires_grad

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of a reference cycle
        assert both(run)[0] is False


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
def test_leaves_never_share_a_gradient_buffer(join: Any) -> None:
    a, b = leaf(OURS), leaf(OURS)
    seed = tg.tensor([1.0, 1.0, 1.0])
    join(a, b).backward(seed)
    expected_a, expected_b = a.grad.tolist(), b.grad.tolist()
    a.grad.mul_(100)
    assert b.grad.tolist() == expected_b
    b.grad.mul_(100)
    assert a.grad.tolist() == [100 * v for v in expected_a]
    assert seed.tolist() == [1.0, 1.0, 1.0]


def test_a_leaf_that_is_the_root_gets_the_seed() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        seed = t.tensor([1.0, 2.0, 3.0])
        x.backward(seed)
        x.grad.mul_(2)
        return x.grad, seed

    both(run)


def test_many_paths_into_one_leaf_add_up() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        y = x.view(3, 1) + x + x.expand(3, 3) * x[0] + x.sum()
        y.sum().backward()
        return x.grad

    both(run)


def test_grad_can_be_assigned_if_it_fits() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        x.grad = t.tensor([1.0, 1.0, 1.0])
        (x * 2).sum().backward()
        kept = x.grad.clone()
        x.grad = None
        return kept, x.grad

    both(run)
    both_raise(lambda t: setattr(leaf(t), "grad", t.tensor([1.0])))
    both_raise(lambda t: setattr(leaf(t), "grad", 1.0), "assigned grad expected to be a Tensor or None but got")
    both_raise(
        lambda t: setattr(leaf(t), "grad", t.tensor([1.0] * 3, dtype=t.float64)),
        "attempting to assign a gradient with dtype 'double' to a tensor with grad_dtype 'Float'. The "
        "gradient must match",
    )


# Hooks ---------------------------------------------------------------------------------------------------


def test_hooks_see_and_replace_the_gradient() -> None:
    def run(t: Any) -> Any:
        seen: list[Any] = []
        x = leaf(t)
        y = x * 2
        y.register_hook(lambda g: seen.append(g.tolist()))
        y.register_hook(lambda g: g * 10)
        handle = y.register_hook(lambda g: seen.append(g.tolist()))
        x.register_hook(lambda g: g + 1)
        y.retain_grad()
        z = (y * y).sum()
        z.backward(retain_graph=True)
        handle.remove()
        handle.remove()
        first = x.grad.clone(), y.grad.clone()
        z.backward()
        return seen, first, x.grad, y.grad

    both(run)


def test_a_leafs_hook_runs_once_for_the_whole_gradient() -> None:
    def run(t: Any) -> Any:
        seen: list[Any] = []
        x = leaf(t)
        x.register_hook(lambda g: seen.append(g.tolist()))
        (x * 2 + x.view(3) * x).sum().backward()
        return seen, x.grad

    both(run)


def test_hooks_under_grad_and_create_graph() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        y = x**2
        y.register_hook(lambda g: g * x.detach())
        (first,) = t.autograd.grad(y.sum(), x, create_graph=True)
        return first, t.autograd.grad(first.sum(), x)

    both(run)


def test_hooks_run_in_the_order_of_the_pass() -> None:
    def run(t: Any) -> Any:
        order: list[str] = []
        x = leaf(t)
        a = x * 2
        b = x * 3
        c = a * b
        for name, v in {"x": x, "a": a, "b": b, "c": c}.items():
            v.register_hook(lambda g, name=name: order.append(name))
        c.sum().backward()
        return order

    both(run)


def test_a_hook_needs_a_gradient() -> None:
    both_raise(lambda t: t.tensor([1.0]).register_hook(lambda g: g))


def test_post_accumulate_grad_hooks() -> None:
    def run(t: Any) -> Any:
        seen: list[Any] = []
        x = leaf(t)
        handle = x.register_post_accumulate_grad_hook(lambda v: seen.append((v is x, v.grad.tolist())))
        (x * 2).sum().backward()
        (x * 2).sum().backward()
        handle.remove()
        (x * 2).sum().backward()
        return seen, x.grad

    both(run)
    both_raise(lambda t: (leaf(t) * 2).register_post_accumulate_grad_hook(print))
    both_raise(lambda t: t.tensor([1.0]).register_post_accumulate_grad_hook(print))


# Ties and edges ------------------------------------------------------------------------------------------


TIES = {
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


@pytest.mark.parametrize("name", TIES)
def test_ties_and_edges(name: str) -> None:
    values, function = TIES[name]

    def run(t: Any) -> Any:
        x = t.tensor(values, requires_grad=True)
        out = function(x)
        out.backward()
        return repr(plain(out)), repr(plain(x.grad))

    both(run)
