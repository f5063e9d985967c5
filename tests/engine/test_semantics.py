"""The semantics that a user of torch relies on: each is run on torch and on ours, and must agree.

``both`` runs one function on both libraries; what it returns, or the error it raises, is compared.
"""

from __future__ import annotations

import gc
import re
import sys
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import telegrad_engine as tg
import torch
from telegrad_engine import autograd

from . import oracle

OURS = SimpleNamespace(
    tensor=tg.tensor,
    no_grad=tg.no_grad,
    enable_grad=tg.enable_grad,
    set_grad_enabled=tg.set_grad_enabled,
    is_grad_enabled=tg.is_grad_enabled,
    autograd=autograd,
    F=tg.functions,
    float64=tg.dtypes.float64,
    int64=tg.dtypes.int64,
)
THEIRS = SimpleNamespace(
    tensor=torch.tensor,
    no_grad=torch.no_grad,
    enable_grad=torch.enable_grad,
    set_grad_enabled=torch.set_grad_enabled,
    is_grad_enabled=torch.is_grad_enabled,
    autograd=torch.autograd,
    F=torch,
    float64=torch.float64,
    int64=torch.int64,
)


def plain(value: Any) -> Any:
    """A result that can be compared: tensors as lists, containers through and through."""
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if torch.is_tensor(value) or isinstance(value, tg.Tensor):
        return plain(value.detach().tolist())
    return float(f"{value:.5g}") if isinstance(value, float) else value


def both(function: Callable[[Any], Any]) -> Any:
    """What ``function`` gives on ours, after asserting that torch gives the same."""
    expected = plain(function(THEIRS))
    found = plain(function(OURS))
    assert found == expected
    return found


def both_or_neither(function: Callable[[Any], Any]) -> None:
    """``function`` gives the same on both; where torch raises, ours raises the same class."""
    theirs = oracle.attempt(lambda: function(THEIRS))
    if isinstance(theirs, oracle.Failure):
        with pytest.raises(theirs.kind):
            function(OURS)
    else:
        both(function)


def both_raise(function: Callable[[Any], Any], essential: str | None = None) -> None:
    """Both raise the same built-in class with the same text, or with this essential part of it."""
    with pytest.raises(oracle.ERROR_BASES) as theirs:
        function(THEIRS)
    kind = next(base for base in oracle.ERROR_BASES if isinstance(theirs.value, base))
    with pytest.raises(oracle.ERROR_BASES) as ours:
        function(OURS)
    assert isinstance(ours.value, kind), f"{ours.value!r} is not a {kind.__name__}"
    if essential is None:
        assert str(ours.value) == str(theirs.value)
    else:
        assert essential in str(theirs.value)
        assert essential in str(ours.value)


def leaf(t: Any, values: Any = (1.0, 2.0, 3.0)) -> Any:
    return t.tensor(list(values) if isinstance(values, tuple) else values, requires_grad=True)


# 1 to 5: what can be differentiated -------------------------------------------------------------------


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


# 6 to 8: versions and leaves ----------------------------------------------------------------------------


def test_a_modified_saved_result_raises_when_it_is_used() -> None:
    def run(t: Any) -> None:
        y = leaf(t).sigmoid()
        y.add_(1)
        y.sum().backward()

    both_raise(run)


def test_a_modified_saved_input_raises() -> None:
    def run(t: Any) -> None:
        w = t.tensor([1.0, 2.0, 3.0])
        y = leaf(t) * w
        w.mul_(2)
        y.sum().backward()

    both_raise(run, "[torch.FloatTensor [3]] is at version 1; expected version 0 instead")


def test_a_modified_tensor_that_nothing_saved_is_fine() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        y = x + 1
        y.mul_(2)
        z = y.sum()
        y.detach().zero_()
        z.backward()
        return x.grad

    both(run)


def test_in_place_under_no_grad_bumps_the_version() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        with t.no_grad():
            x.add_(1)
            x[0] = 5.0
        return x._version, x.is_leaf, x.requires_grad, x

    assert both(run)[0] == 2


def test_modification_under_no_grad_is_noticed() -> None:
    def run(t: Any) -> None:
        w = leaf(t)
        y = leaf(t) * w
        with t.no_grad():
            w.zero_()
        y.sum().backward()

    both_raise(run, "is at version 1; expected version 0 instead")


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.add_(1),
        lambda x: x.__setitem__(0, 1.0),
        lambda x: x.zero_(),
        lambda x: x.fill_(2.0),
        lambda x: x.copy_(x.detach()),
        lambda x: x.__imul__(2),
        lambda x: x[0:2].mul_(2),
        lambda x: x.view(3, 1).add_(1),
        lambda x: x.view(3, 1)[0].add_(1),
        lambda x: x.reshape(-1).__setitem__(1, 0.0),
    ],
)
def test_in_place_on_a_leaf_raises(change: Any) -> None:
    both_raise(lambda t: change(leaf(t)))

    def allowed(t: Any) -> Any:
        x = leaf(t)
        with t.no_grad():
            change(x)
        return x, x._version, x.is_leaf

    both(allowed)


def test_an_untracked_leaf_becomes_part_of_the_graph_by_a_change() -> None:
    def run(t: Any) -> Any:
        x, w = t.tensor([1.0, 2.0, 3.0]), leaf(t)
        x.mul_(w)
        x.sum().backward()
        return x.is_leaf, x.requires_grad, w.grad

    both(run)


# 9: in place on views --------------------------------------------------------------------------------------


def run_both_orders(change: Callable[[Any, Any], Any], shape: tuple[int, ...] = (2, 3)) -> None:
    """Change ``y`` (made from leaf ``x``) with the help of ``w``; first and second derivatives of all agree."""

    def run(t: Any) -> Any:
        values = np.linspace(0.5, 2.0, int(np.prod(shape))).reshape(shape)
        x = t.tensor(values.tolist(), dtype=t.float64, requires_grad=True)
        w = t.tensor((values[::-1] * 1.5).tolist(), dtype=t.float64, requires_grad=True)
        y = x * 1.0
        out = change(y, w)
        out = y if out is None else out
        total = (y * y * w).sum() + (out * out).sum()
        grads = t.autograd.grad(total, [x, w], create_graph=True)
        seconds = t.autograd.grad(sum((g * g).sum() for g in grads), [x, w])
        return y, out, y._version, grads, seconds

    both_or_neither(run)


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "whole": lambda y, w: y.mul_(2),
    "by a tracked": lambda y, w: y.mul_(w),
    "chained": lambda y, w: y.mul_(w).add_(w).exp_(),
    "row": lambda y, w: y[0].mul_(w[1]),
    "set row": lambda y, w: y.__setitem__(0, w[0] * 2),
    "set number": lambda y, w: y.__setitem__((slice(None), 1), 3.0),
    "set by index": lambda y, w: y.__setitem__([0, 1], w * 2),
    "set by mask": lambda y, w: y.__setitem__(y > 1.0, 0.5),
    "set element": lambda y, w: y.__setitem__((1, 2), w[0, 0] * 3),
    "reshape then set": lambda y, w: y.reshape(-1).__setitem__(1, w[0, 0]),
    "view of a view": lambda y, w: y.view(3, 2)[1].mul_(w[0, :2]),
    "transposed": lambda y, w: y.t()[0].add_(w[:, 0]),
    "returns the view": lambda y, w: y[1].mul_(3.0),
    "returns the view times tracked": lambda y, w: y[1:].mul_(w[:1]),
    "narrow": lambda y, w: y.narrow(1, 0, 2).exp_(),
    "select": lambda y, w: y.select(1, 2).copy_(w[:, 0]),
    "expand source": lambda y, w: y.copy_(w[0]),
    "fill by tracked": lambda y, w: y[0].fill_(w[0, 0]),
    "zero": lambda y, w: y[0].zero_(),
    "masked_fill": lambda y, w: y.masked_fill_(y > 1.2, 0.3),
    "index_put accumulate": lambda y, w: y.index_put_((_index(y, [0, 0]),), w, accumulate=True),
    "scatter_add": lambda y, w: y.scatter_add_(0, _index(y, [[0, 1, 0]]), w[:1]),
    "squeeze": lambda y, w: y.unsqueeze(0)[0, 0].mul_(w[0]),
    "itself": lambda y, w: y.mul_(y),
    "own row": lambda y, w: y[0].mul_(y[1]),
    "row by itself": lambda y, w: y[0].copy_(y[1] * w[0]),
    "sqrt": lambda y, w: y.sqrt_(),
    "sigmoid of a row": lambda y, w: y[0].sigmoid_(),
    "pow": lambda y, w: y.pow_(2),
    "clamp": lambda y, w: y.clamp_(0.8, 1.5),
    "twice": lambda y, w: (y[0].mul_(2), y[1].mul_(w[0]))[1],
}  # fmt: skip


def _index(like: Any, values: Any) -> Any:
    return torch.tensor(values) if torch.is_tensor(like) else tg.tensor(values)


@pytest.mark.parametrize("name", CHANGES)
def test_in_place_changes_have_the_right_derivatives(name: str) -> None:
    run_both_orders(CHANGES[name])


def test_sibling_views_see_each_others_changes() -> None:
    def run(t: Any) -> Any:
        x, w = leaf(t, [[1.0, 2.0], [3.0, 4.0]]), leaf(t, (5.0, 6.0))
        y = x * 1.0
        first, all_of_it = y[0], y.view(4)
        first.mul_(w)
        names = [v.grad_fn.name() for v in (y, first, all_of_it)]
        (all_of_it * all_of_it).sum().backward()
        return y, first, all_of_it, x.grad, w.grad, first._version, len(names)

    both(run)


def test_a_view_made_before_a_change_of_the_base_follows_it() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        y = x * 2
        view = y[1:]
        y.mul_(x)
        view.sum().backward()
        return view, x.grad

    both(run)


def test_a_view_of_an_untracked_base_becomes_tracked() -> None:
    def run(t: Any) -> Any:
        base, w = t.tensor([1.0, 2.0, 3.0]), leaf(t, 2.0)
        view = base[1:]
        other = base[0]
        view.mul_(w)
        (base * base).sum().backward()
        return base.requires_grad, view.requires_grad, other.requires_grad, base.is_leaf, w.grad, base

    both(run)


def test_views_of_functions_with_several_outputs_cannot_be_changed() -> None:
    def run(t: Any) -> None:
        y = leaf(t) * 1.0
        y.unbind()[1].mul_(2)

    both_raise(run, "This view is the output of a function that returns multiple views. Such functions do not allow the output views to be modified inplace.")


def test_a_view_made_under_no_grad_can_be_changed_there() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        y = x * 1.0
        with t.no_grad():
            y[0].mul_(10)
        y.sum().backward()
        return y, x.grad, y._version

    both(run)


def test_an_in_place_result_must_fit() -> None:
    both_raise(lambda t: t.tensor([1.0]).add_(t.tensor([1.0, 2.0])))
    both_raise(lambda t: t.tensor([1, 2]).mul_(1.5))
    both_raise(lambda t: t.tensor([1, 2]).__itruediv__(2))
    both_raise(lambda t: t.tensor([True]).add_(t.tensor([1])))


# 10 to 12: requires_grad, retain_grad ---------------------------------------------------------------------


def test_integers_cannot_require_grad() -> None:
    both_raise(lambda t: t.tensor([1, 2]).requires_grad_(), "floating point")
    both_raise(lambda t: setattr(t.tensor([1, 2]), "requires_grad", True), "floating point")
    both_raise(lambda t: t.tensor([True], requires_grad=True), "floating point")
    both(lambda t: t.tensor([1]).requires_grad_(False).requires_grad)


def test_only_leaves_change_requires_grad() -> None:
    both_raise(lambda t: (leaf(t) * 2).requires_grad_(False))
    both_raise(lambda t: setattr(leaf(t) * 2, "requires_grad", False))
    both(lambda t: (leaf(t) * 2).requires_grad_().requires_grad)


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


# 13, 14: how gradients accumulate --------------------------------------------------------------------------


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

    import warnings

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
    both_raise(lambda t: setattr(leaf(t), "grad", t.tensor([1.0] * 3, dtype=t.float64)), "attempting to assign a gradient with dtype 'double' to a tensor with grad_dtype 'Float'. The gradient must match")


# 15, 16: grad and backward's arguments ----------------------------------------------------------------------


def test_grad_leaves_dot_grad_untouched() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        grads = t.autograd.grad((x * x).sum(), x)
        return grads, x.grad

    both(run)


def test_an_unused_input() -> None:
    def run(t: Any, **options: Any) -> Any:
        return t.autograd.grad(leaf(t).sum(), [leaf(t)], **options)

    both_raise(run, "appears to not have been used in the graph. Set allow_unused=True")
    both(lambda t: run(t, allow_unused=True))
    both(lambda t: run(t, materialize_grads=True))
    both_raise(lambda t: run(t, allow_unused=False, materialize_grads=True), "Expected allow_unused to be True or not passed when materialize_grads=True")


def test_an_input_that_does_not_require_grad() -> None:
    both_raise(lambda t: t.autograd.grad(leaf(t).sum(), t.tensor(1.0)), "One of the differentiated Tensors does not require grad")


def test_grad_of_several_outputs_and_non_leaves() -> None:
    def run(t: Any) -> Any:
        x, w = leaf(t), leaf(t)
        y = x * w
        z = y.exp()
        return t.autograd.grad([z, y.sum()], [y, x, w], [t.tensor([1.0, 0.5, 2.0]), None])

    both(run)


def test_grad_with_respect_to_the_output_itself() -> None:
    def run(t: Any) -> Any:
        y = (leaf(t) * 2).sum()
        return t.autograd.grad(y, y)

    both(run)


def test_backward_with_inputs() -> None:
    def run(t: Any) -> Any:
        x, w = leaf(t), leaf(t)
        y = x * w
        y.sum().backward(inputs=[y, w])
        return x.grad, w.grad, plain(y.grad)

    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both(run)
    both_raise(lambda t: leaf(t).sum().backward(inputs=[]))


def test_backward_with_one_input_given_bare() -> None:
    def run(t: Any) -> Any:
        x, w = leaf(t), leaf(t)
        (x * w).sum().backward(inputs=x)
        return x.grad, w.grad

    both(run)


def test_backward_of_several_roots() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        y = x * 2
        t.autograd.backward([y.sum(), y], [None, t.tensor([1.0, 2.0, 3.0])])
        return x.grad

    both(run)


def test_the_same_root_twice() -> None:
    def run(t: Any) -> Any:
        x = leaf(t, 3.0)
        y = x * x
        t.autograd.backward([y, y])
        return x.grad

    both(run)


def test_a_gradient_must_be_a_tensor() -> None:
    both_raise(lambda t: (leaf(t) * 2).backward([1.0, 1.0, 1.0]), "")
    both_raise(lambda t: t.autograd.backward([leaf(t) * 2], [1.0]), "gradients can be either Tensors or None, but got")


def test_a_tracked_seed_is_differentiated_too() -> None:
    def run(t: Any) -> Any:
        x, v = leaf(t), leaf(t)
        (g,) = t.autograd.grad(x * x, x, v, create_graph=True)
        return t.autograd.grad(g.sum(), [x, v])

    both(run)


# 17: hooks ------------------------------------------------------------------------------------------------------


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


# 23: detach --------------------------------------------------------------------------------------------------------


def test_detach_shares_memory_and_version() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        d = x.detach()
        d.mul_(2)
        d[0] = 9.0
        return x, x._version, d._version, d.requires_grad, d.is_leaf, x.requires_grad

    both(run)


def test_a_change_through_detach_is_noticed() -> None:
    def run(t: Any) -> None:
        w = leaf(t)
        y = w.exp()
        y.detach().zero_()
        y.sum().backward()

    both_raise(run, "is at version 1; expected version 0 instead")


def test_detach_in_place() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        y = x * 2
        z = y * 3
        y.detach_()
        w = y * 5
        z.sum().backward()
        return x.grad, y.is_leaf, y.requires_grad, w.requires_grad

    both(run)
    both_raise(lambda t: (leaf(t) * 2)[0].detach_())


def test_setitem_through_detach_and_back() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        y = x * 2
        with t.no_grad():
            y[0] = 100.0
        y.sum().backward()
        return y, x.grad

    both(run)


# 25: ties and edges ------------------------------------------------------------------------------------------------

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


# 26: promotion -----------------------------------------------------------------------------------------------------

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
BINARY = ["add", "sub", "mul", "div", "floor_divide", "remainder", "pow", "maximum", "minimum", "eq", "lt", "bitwise_and", "logical_or", "where"]  # fmt: skip


def outcome(t: Any, name: str, a: Any, b: Any) -> Any:
    def call() -> Any:
        if name == "where":
            return t.F.where(t.tensor([True, False]), a, b)
        return getattr(t.F, name)(a, b)

    result = oracle.attempt(call)
    return result.kind if isinstance(result, oracle.Failure) else (oracle.dtype_name(result[0]), list(result[0].shape))


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("left", DTYPES)
def test_promotion_of_every_pair(name: str, left: str) -> None:
    wrong = []
    for right in DTYPES:
        for first in ([1, 1], 1):
            for second in ([1, 1], 1):
                results = []
                for t, dtypes in ((THEIRS, torch), (OURS, tg.dtypes)):
                    a = t.tensor(first, dtype=oracle.dtype_of(dtypes, left))
                    b = t.tensor(second, dtype=oracle.dtype_of(dtypes, right))
                    results.append(outcome(t, name, a, b))
                if results[0] != results[1]:
                    wrong.append((left, right, first, second, *results))
    assert not wrong


@pytest.mark.parametrize("name", [n for n in BINARY if n not in ("maximum", "minimum", "logical_or")])
@pytest.mark.parametrize("dtype", DTYPES)
def test_promotion_with_numbers(name: str, dtype: str) -> None:
    wrong = []
    for value in ([1, 1], 1):
        for number in (True, 2, 2.5):
            for swapped in (False, True):
                if swapped and name in ("eq", "lt", "bitwise_and"):
                    continue
                results = []
                for t, dtypes in ((THEIRS, torch), (OURS, tg.dtypes)):
                    a = t.tensor(value, dtype=oracle.dtype_of(dtypes, dtype))
                    results.append(outcome(t, name, *((number, a) if swapped else (a, number))))
                if results[0] != results[1]:
                    wrong.append((dtype, value, number, swapped, *results))
    assert not wrong


OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "==", "<", "&", "|", "^", "@"]


@pytest.mark.parametrize("operator", OPERATORS)
def test_operators_promote(operator: str) -> None:
    wrong = []
    for left in DTYPES:
        for number in (True, 3, 2.5):
            for expression in (f"x {operator} n", f"n {operator} x"):
                results = []
                for t, dtypes in ((THEIRS, torch), (OURS, tg.dtypes)):
                    x = t.tensor([1, 2], dtype=oracle.dtype_of(dtypes, left))
                    result = oracle.attempt(lambda x=x: eval(expression, {"x": x, "n": number}))
                    results.append(
                        result.kind
                        if isinstance(result, oracle.Failure)
                        else (oracle.dtype_name(result[0]), np.asarray(oracle.numpy(result[0].double())).tolist())
                    )
                if repr(results[0]) != repr(results[1]):
                    wrong.append((expression, left, number, *results))
    assert not wrong


@pytest.mark.parametrize("operator", ["+=", "-=", "*=", "/=", "//=", "%=", "**=", "&=", "|=", "^="])
def test_in_place_operators_promote(operator: str) -> None:
    wrong = []
    for left in DTYPES:
        for other in (True, 3, 2.5, *DTYPES):
            results = []
            for t, dtypes in ((THEIRS, torch), (OURS, tg.dtypes)):
                x = t.tensor([1, 2], dtype=oracle.dtype_of(dtypes, left))
                n = t.tensor([3, 2], dtype=oracle.dtype_of(dtypes, other)) if isinstance(other, str) else other
                scope = {"x": x, "n": n}
                result = oracle.attempt(lambda scope=scope: exec(f"x {operator} n", scope))
                results.append(
                    "raises"
                    if isinstance(result, oracle.Failure)
                    else (scope["x"] is x, oracle.dtype_name(x), oracle.numpy(x.double()).tolist())
                )
            if repr(results[0]) != repr(results[1]):
                wrong.append((operator, left, other, *results))
    assert not wrong


# 27: depth and memory -----------------------------------------------------------------------------------------------


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
    gc.collect()
    gc.disable()
    try:
        x = leaf(OURS)
        y = x * 2
        y.retain_grad()
        z = (y * y.exp()).sum()
        node = weakref.ref(z.grad_fn)
        autograd.grad(z, x, retain_graph=True, create_graph=create_graph)
        z.backward()
        del y, z
        assert node() is None
        before = gc.collect()
        assert before == 0
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


# 29: modes -------------------------------------------------------------------------------------------------------------


def test_modes_as_context_managers() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        seen = [t.is_grad_enabled()]
        with t.no_grad():
            seen.append((x * 2).requires_grad)
            with t.enable_grad():
                seen.append((x * 2).requires_grad)
            seen.append(t.is_grad_enabled())
            with t.set_grad_enabled(True):
                seen.append(t.is_grad_enabled())
        with pytest.raises(KeyError), t.no_grad():
            raise KeyError
        seen.append(t.is_grad_enabled())
        t.set_grad_enabled(False)
        seen.append(t.is_grad_enabled())
        t.set_grad_enabled(True)
        return seen

    both(run)


def test_modes_as_decorators() -> None:
    def run(t: Any) -> Any:
        @t.no_grad()
        def outer(x: Any) -> Any:
            """Documented."""
            return x * 2, t.enable_grad()(lambda: x * 2)()

        @t.no_grad
        def bare(x: Any) -> Any:
            return x * 2

        @t.set_grad_enabled(False)
        def switched(x: Any) -> Any:
            return x * 2

        plain_result, enabled = outer(leaf(t))
        return (
            plain_result.requires_grad, enabled.requires_grad, outer.__name__, outer.__doc__,
            bare(leaf(t)).requires_grad, switched(leaf(t)).requires_grad, t.is_grad_enabled(),
        )  # fmt: skip

    both(run)


def test_modes_on_generators_hold_only_while_they_run() -> None:
    def run(t: Any) -> Any:
        @t.no_grad()
        def generate() -> Any:
            seen = []
            received = yield t.is_grad_enabled()
            seen.append((received, t.is_grad_enabled()))
            try:
                yield t.is_grad_enabled()
            except ValueError:
                seen.append(("caught", t.is_grad_enabled()))
            yield t.is_grad_enabled()
            return seen

        generator = generate()
        inside = [next(generator)]
        outside = [t.is_grad_enabled()]
        inside.append(generator.send("hello"))
        outside.append(t.is_grad_enabled())
        inside.append(generator.throw(ValueError()))
        with pytest.raises(StopIteration) as stop:
            next(generator)
        return inside, outside, stop.value.value

    both(run)


def test_closing_a_generator_runs_its_cleanup_in_the_mode() -> None:
    def run(t: Any) -> Any:
        seen = []

        @t.no_grad()
        def generate() -> Any:
            try:
                yield 1
            finally:
                seen.append(t.is_grad_enabled())

        generator = generate()
        next(generator)
        generator.close()
        return seen

    both(run)


# The graph as seen -----------------------------------------------------------------------------------------------------

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


def test_several_outputs_have_their_numbers() -> None:
    def run(t: Any) -> Any:
        parts = leaf(t).unbind()
        values, indices = leaf(t).max(0)
        return [p.output_nr for p in parts], [p.grad_fn is parts[0].grad_fn for p in parts], indices.requires_grad

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
