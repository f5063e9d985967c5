"""What custom Functions save for backward, beside torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import telegrad_engine as tg
from telegrad_engine import saved

from .test_function import double, function
from .twins import OURS, both, both_raise, leaf


def saving(t: Any) -> Any:
    """A Function that saves its inputs, None between them, and uses them in backward."""

    def forward(ctx: Any, x: Any, *others: Any) -> Any:
        ctx.save_for_backward(x, None, *others)
        return x * 2

    def backward(ctx: Any, grad: Any) -> Any:
        x, nothing, *others = ctx.saved_tensors
        assert nothing is None
        return (grad * x, *[None for _ in others])

    return function(t, forward=forward, backward=backward)


def exponential(t: Any) -> Any:
    """A Function that saves its output."""

    def forward(ctx: Any, x: Any) -> Any:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    return function(t, forward=forward, backward=lambda ctx, grad: grad * ctx.saved_tensors[0])


def test_saved_tensors() -> None:
    def body(t: Any) -> Any:
        x = leaf(t)
        middle = x * 2
        nodes = [saving(t).apply(x).grad_fn, saving(t).apply(middle).grad_fn]
        y = exponential(t).apply(x)
        (kept,) = y.grad_fn.saved_tensors
        return (
            [nodes[0].saved_tensors[0] is x, nodes[1].saved_tensors[0] is middle, kept is y],
            [kept.grad_fn is y.grad_fn, kept.requires_grad],
            nodes[0].saved_tensors,
        )

    both(body)


def test_what_was_saved_is_freed() -> None:
    def twice(fn: Any) -> Any:
        def body(t: Any) -> Any:
            x = leaf(t)
            y = fn(t).apply(x).sum()
            y.backward()
            y.backward()
            return x.grad

        return body

    both_raise(twice(saving))
    both_raise(twice(exponential))
    both(twice(lambda t: function(t, forward=double, backward=lambda ctx, grad: grad)))

    def looked_at(t: Any) -> Any:
        y = function(t, forward=double, backward=lambda ctx, grad: grad).apply(leaf(t))
        assert y.grad_fn.saved_tensors == ()
        y.sum().backward()
        return y.grad_fn.saved_tensors

    both_raise(looked_at)

    def retained(t: Any) -> Any:
        x = leaf(t)
        y = exponential(t).apply(x)
        y.sum().backward(retain_graph=True)
        y.sum().backward()
        return x.grad

    both(retained)


def test_saved_tensors_that_were_modified() -> None:
    def non_leaf(t: Any) -> Any:
        middle = leaf(t) * 2
        y = saving(t).apply(middle)
        with t.no_grad():
            middle.add_(1)
        y.sum().backward()

    def recorded(t: Any) -> Any:
        middle = leaf(t) * 2
        y = saving(t).apply(middle)
        middle.add_(1)
        y.sum().backward()

    def plain(t: Any) -> Any:
        other = t.tensor([1.0, 1.0, 1.0])
        y = saving(t).apply(leaf(t), other)
        other.add_(1)
        y.sum().backward()

    def output(t: Any) -> Any:
        y = exponential(t).apply(leaf(t))
        y.add_(1)
        y.sum().backward()

    for body in (non_leaf, recorded, plain, output):
        both_raise(body)

    def unused(t: Any) -> Any:
        x = leaf(t)
        middle = x * 2
        y = function(t, forward=lambda ctx, x: ctx.save_for_backward(x) or x * 2, backward=lambda c, g: g).apply(middle)
        middle.add_(1)
        y.sum().backward()
        return x.grad

    both(unused)


def test_what_cannot_be_saved_or_marked() -> None:
    for value in (3, [1.0]):
        for method in ("save_for_backward", "mark_dirty", "mark_non_differentiable"):

            def body(t: Any, method: str = method, value: Any = value) -> Any:
                function(t, forward=lambda ctx, x: getattr(ctx, method)(value) or x * 2).apply(leaf(t))

            both_raise(body)

        def for_forward(t: Any, value: Any = value) -> Any:
            with pytest.raises(AssertionError) as error:
                function(t, forward=lambda ctx, x: ctx.save_for_forward(value)).apply(leaf(t))
            return str(error.value)

        both(for_forward)
    both(lambda t: function(t, forward=lambda ctx, x: ctx.save_for_backward(3) or x * 2).apply(t.tensor([1.0])))


def test_saved_tensors_go_through_hooks() -> None:
    def body(t: Any) -> Any:
        hooks = saved.saved_tensors_hooks if t is OURS else torch.autograd.graph.saved_tensors_hooks
        packed = []
        x = leaf(t)
        with hooks(lambda tensor: packed.append(tensor.tolist()) or len(packed) - 1, lambda at: t.tensor(packed[at])):
            y = exponential(t).apply(saving(t).apply(x))
        (first,) = t.autograd.grad(y.sum(), x, create_graph=True)
        return packed, first, t.autograd.grad(first.sum(), x)

    both(body)


def test_a_leaf_comes_out_of_hooks_as_a_leaf() -> None:
    def body(t: Any) -> Any:
        seen: list[Any] = []

        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            seen.append((x.is_leaf, x.grad_fn is None, x.requires_grad, repr(x)))
            return grad * x

        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        saving = function(t, forward=forward, backward=backward)
        x = leaf(t)
        with t.saved_tensors_hooks(lambda kept: kept.detach().clone(), lambda kept: kept):
            results = saving.apply(x), saving.apply(x * 1)
        (first,) = t.autograd.grad(results[0].sum(), x, create_graph=True)
        (second,) = t.autograd.grad(first.sum(), x)
        results[1].sum().backward()
        return [entry[:3] for entry in seen], seen[0][3], first, second, x.grad

    both(body)


def test_saving_under_no_grad() -> None:
    def body(t: Any) -> Any:
        kept = []
        with t.no_grad():
            function(t, forward=lambda ctx, x: ctx.save_for_backward(x) or kept.append(ctx) or x).apply(leaf(t))
        return kept[0].saved_tensors

    both(body)


def test_inference_tensors_cannot_be_saved() -> None:
    def body(t: Any) -> Any:
        with (tg if t is OURS else torch).inference_mode():
            other = t.tensor([1.0, 1.0, 1.0]) * 1
        saving(t).apply(leaf(t), other)

    both_raise(body)
