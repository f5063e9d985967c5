"""The ways to write and to call a custom Function, and what is left of it afterwards, beside torch."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import pytest

import telegrad_engine as tg

from .test_function import cube, double, function
from .twins import OURS, both, both_raise, leaf


def test_setup_context() -> None:
    def body(t: Any) -> Any:
        seen = []

        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            seen.append((len(inputs), inputs[1], type(output).__name__, t.is_grad_enabled(), ctx.needs_input_grad))
            ctx.save_for_backward(inputs[0], output[0])
            ctx.k = inputs[1]

        def backward(ctx: Any, a: Any, b: Any) -> Any:
            x, y = ctx.saved_tensors
            return a * ctx.k + b * x * y, None

        fn = function(t, forward=lambda x, k=3: (x * k, x * 2), setup_context=setup_context, backward=backward)
        x = leaf(t)
        sum(o.sum() for o in fn.apply(x)).backward()
        fn.apply(x, k=4)[1].sum().backward()
        return x.grad, seen

    both(body)
    both_raise(lambda t: function(t, forward=lambda x: x, setup_context=print).apply(leaf(t), z=1))
    both_raise(lambda t: function(t, forward=lambda x: x, setup_context=print).apply())

    def saved_as_it_is(t: Any) -> Any:
        setup = lambda ctx, inputs, output: ctx.save_for_backward(inputs[0])  # noqa: E731
        function(t, forward=lambda x: x, setup_context=setup).apply(leaf(t))

    both_raise(saved_as_it_is)


def test_vjp_is_another_name_of_backward() -> None:
    def body(t: Any) -> Any:
        x = leaf(t)
        function(t, forward=double, vjp=lambda ctx, grad: grad * 3).apply(x).sum().backward()
        return x.grad

    both(body)
    both_raise(
        lambda t: (
            function(t, forward=double, vjp=lambda c, g: g, backward=lambda c, g: g).apply(leaf(t)).sum().backward()
        )
    )


def test_methods_that_are_missing() -> None:
    both_raise(lambda t: function(t).apply(leaf(t)))
    both_raise(lambda t: t.autograd.Function.apply(leaf(t)))
    both_raise(lambda t: function(t, forward=double).apply(leaf(t)).sum().backward())
    both_raise(lambda t: function(t).jvp(None))
    both_raise(lambda t: function(t).setup_context(None, (), None))


def test_instances_are_no_use() -> None:
    def body(t: Any) -> Any:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            function(t, forward=double)()
        return [(w.category.__name__, str(w.message).split("' ")[-1].split("> ")[-1]) for w in caught]

    both(body)

    def called(t: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(t, forward=double)()(leaf(t))

    both_raise(called)


def test_calls_inside_calls() -> None:
    def body(t: Any) -> Any:
        inner = cube(t)

        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return inner.apply(x) * 2

        def backward(ctx: Any, grad: Any) -> Any:
            with t.enable_grad():
                x = ctx.saved_tensors[0].detach().requires_grad_()
                return t.autograd.grad((inner.apply(x) * 2).sum(), x)[0] * grad

        x = leaf(t)
        y = function(t, forward=forward, backward=backward).apply(x)
        y.sum().backward()
        return y, x.grad, y.grad_fn.next_functions[0][0].name()

    both(body)


def test_hooks_and_retained_gradients() -> None:
    def body(t: Any) -> Any:
        x = leaf(t)
        seen: list[Any] = []
        y, z = function(t, forward=lambda ctx, x: (x * 2, x * 3), backward=lambda ctx, a, b: a * 2 + b * 3).apply(x)
        y.register_hook(lambda grad: cube(t).apply(grad * 2))
        z.register_hook(seen.append)
        y.retain_grad()
        z.retain_grad()
        (y.sum() + (z * 5).sum()).backward()
        return x.grad, y.grad, z.grad, seen

    both(body)


def test_errors_pass_through_and_modes_stay() -> None:
    def boom(*_args: Any) -> Any:
        raise KeyError("mine")

    def body(t: Any) -> Any:
        x, found = leaf(t), []
        for run in (
            lambda: function(t, forward=boom).apply(x),
            lambda: function(t, forward=double, backward=boom).apply(x).sum().backward(),
            lambda: t.autograd.grad(function(t, forward=double, backward=boom).apply(x).sum(), x, create_graph=True),
        ):
            with pytest.raises(KeyError, match="mine"):
                run()
            found.append(t.is_grad_enabled())
        return found

    both(body)


# Memory ------------------------------------------------------------------------------------------


def test_a_long_chain_runs_and_is_freed_without_recursion() -> None:
    fn = function(OURS, forward=lambda ctx, x: x * 1.0, backward=lambda ctx, grad: grad * 1.0)
    x = y = tg.tensor([1.0], requires_grad=True)
    for _ in range(100_000):
        y = fn.apply(y)
    y.backward()
    del y
    assert x.grad.tolist() == [1.0]


def test_nothing_is_left_for_the_garbage_collector() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        y = x.exp()
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(y)
        return y, x

    fn = function(OURS, forward=forward, backward=lambda ctx, a, b: a * ctx.saved_tensors[1])
    x = tg.tensor([1.0, 2.0], requires_grad=True)

    def run() -> None:
        y, _ = fn.apply(x * 2)
        y.sum().backward()
        fn.apply(x * 2)  # and one that no backward goes through

    run()
    gc.collect()
    gc.disable()
    try:
        run()
        assert gc.collect() == 0
    finally:
        gc.enable()
