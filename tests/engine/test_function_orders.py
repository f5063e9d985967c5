"""Custom Functions differentiated again, or not to be, beside torch.

Internals: tensors without values, with which the SDK predicts graphs, have no public name.
"""

from __future__ import annotations

from typing import Any

import telegrad_engine as tg
from telegrad_engine.tensor.abstract import Meta

from .test_function import cube, function
from .twins import OURS, both, both_raise, leaf


def once(t: Any) -> Any:
    """x ** 3 with a backward that cannot be differentiated."""

    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**3

    @t.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        assert not t.is_grad_enabled()
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x

    return function(t, forward=forward, backward=backward)


def test_the_users_backward_is_differentiated() -> None:
    def body(t: Any) -> Any:
        x = leaf(t)
        (first,) = t.autograd.grad(cube(t).apply(x).sum(), x, create_graph=True)
        (second,) = t.autograd.grad(first.sum(), x, create_graph=True)
        (third,) = t.autograd.grad(second.sum(), x)
        (slope,) = t.autograd.grad((cube(t).apply(x) ** 2).sum(), x, create_graph=True)
        penalty = (slope**2).sum()
        penalty.backward()
        return first, second, third, penalty, x.grad

    both(body)


def test_an_output_that_was_saved_is_differentiated() -> None:
    def body(t: Any) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        x = leaf(t)
        y = function(t, forward=forward, backward=lambda ctx, grad: grad * ctx.saved_tensors[0]).apply(x)
        (first,) = t.autograd.grad(y.sum(), x, create_graph=True)
        return first, t.autograd.grad((first * x).sum(), x)

    both(body)


def test_a_function_inside_a_backward_is_differentiated() -> None:
    def body(t: Any) -> Any:
        slope = cube(t)
        fn = function(
            t,
            forward=lambda ctx, x: ctx.save_for_backward(x) or x * 0,
            backward=lambda ctx, grad: grad * slope.apply(ctx.saved_tensors[0]),
        )
        x = leaf(t)
        (first,) = t.autograd.grad(fn.apply(x).sum(), x, create_graph=True)
        return first, t.autograd.grad(first.sum(), x)

    both(body)


def test_gradients_that_are_summed_to_shape_are_differentiated() -> None:
    def body(t: Any) -> Any:
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            return t.F.stack([grad * x, grad * x * x]).to(t.float64), None

        fn = function(t, forward=lambda ctx, x, k: ctx.save_for_backward(x) or x * k, backward=backward)
        x = leaf(t)
        (first,) = t.autograd.grad(fn.apply(x, 2).sum(), x, create_graph=True)
        return first, t.autograd.grad(first.sum(), x), first.dtype == x.dtype

    both(body)


def test_a_batch_of_gradients() -> None:
    def body(t: Any) -> Any:
        x, rows = leaf(t), t.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 1.0]])
        return t.autograd.grad(cube(t).apply(x * 2), x, rows, is_grads_batched=True)

    both(body)


def test_once_differentiable() -> None:
    def body(t: Any) -> Any:
        x = leaf(t)
        once(t).apply(x).sum().backward()
        (quiet,) = t.autograd.grad(once(t).apply(x).sum(), x, create_graph=True)
        (loud,) = t.autograd.grad((once(t).apply(x) ** 2).sum(), x, create_graph=True)
        return x.grad, quiet.requires_grad, loud, "grad_fn=<Error>" in repr(loud), t.is_grad_enabled()

    both(body)

    def again(t: Any) -> Any:
        x = leaf(t)
        (first,) = t.autograd.grad((once(t).apply(x) ** 2).sum(), x, create_graph=True)
        first.sum().backward()

    both_raise(again)


# Where there are no values -------------------------------------------------------------------------


def test_functions_run_on_tensors_without_values() -> None:
    """On shapes alone a Function gives the graph, and gradients of the shapes, that it gives on values."""

    def history(x: Any) -> Any:
        y = cube(OURS).apply(x * 2)
        (grad,) = tg.autograd.grad(y, x, y * 3, create_graph=True)
        (second,) = tg.autograd.grad(grad, x, grad * 1)
        return y.grad_fn.name(), list(grad.shape), grad.grad_fn.name(), list(second.shape)

    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    assert history(Meta(x.detach().numpy()).requires_grad_()) == history(x)
