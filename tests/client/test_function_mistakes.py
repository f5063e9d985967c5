"""Mistakes in custom Functions, which are told in torch's words."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import telegrad as tg

from .custom_functions import (
    adding,
    double,
    exponential,
    first_two,
    function,
    leaf,
    nothing_waits,
    saving,
)
from .parity import bodies, same, same_error
from .test_function_client import Bodies


def refused(everywhere: tg.Session | None, body: Callable[[Any], Any]) -> None:
    """Compare the error with torch's, after which everything works as before."""
    same_error(body, whole=True)
    same(Bodies.twice_over_a_retained_graph)
    nothing_waits(everywhere)


@pytest.mark.parametrize(
    ("returned", "extra"),
    [
        (lambda grad: (), ()),
        (lambda grad: (grad, grad), ()),
        (lambda grad: grad, (1.0,)),
        (lambda grad: (grad, grad), (1.0,)),
        (lambda grad: [grad], ()),
        (lambda grad: 3, ()),
        (lambda grad: grad[:2], ()),
        (lambda grad: grad.sum().expand(2), ()),
        (lambda grad: grad.sum(), ()),
        (lambda grad: grad[:0], ()),
    ],
)
def test_wrong_gradients(everywhere: tg.Session | None, returned: Any, extra: Any) -> None:
    def body(lib: Any) -> None:
        fn = function(lib, forward=double, backward=lambda ctx, grad: returned(grad))
        fn.apply(leaf(lib), *extra).sum().backward()

    refused(everywhere, body)


CALLS: list[Callable[[Any], Any]] = [
    lambda lib: function(lib, forward=lambda ctx, x, k=2, more=0: x).apply(leaf(lib), z=1),
    lambda lib: function(lib, forward=lambda ctx, x, k=2, more=0: x).apply(leaf(lib), x=1),
    lambda lib: function(lib, forward=lambda ctx, x, k=2, more=0: x).apply(leaf(lib), more=1),
    lambda lib: function(lib, forward=lambda ctx, x, k=2: x).apply(k=1),
    lambda lib: function(lib, forward=lambda x: x, setup_context=print).apply(leaf(lib), z=1),
    lambda lib: function(lib, forward=lambda x: x, setup_context=print).apply(),
    lambda lib: function(lib).apply(leaf(lib)),
    lambda lib: lib.autograd.Function.apply(leaf(lib)),
    lambda lib: function(lib, forward=double).apply(leaf(lib)).sum().backward(),
    lambda lib: function(lib).jvp(None),
    lambda lib: function(lib).setup_context(None, (), None),
    lambda lib: adding(lib).apply(leaf(lib)),
    lambda lib: adding(lib).apply(leaf(lib)[:2]),
]
"""Calls that must raise the same error in both libraries."""


class Mistakes:
    """Functions that must raise the same error in both libraries."""

    def the_index_of_a_wrong_gradient_counts_tensors(lib: Any) -> None:
        fn = function(lib, forward=lambda ctx, k, a, b: a * b, backward=lambda ctx, grad: (None, grad, grad[:2]))
        fn.apply(3, leaf(lib), leaf(lib)).sum().backward()

    def no_gradient(lib: Any) -> None:
        x = leaf(lib)
        lib.autograd.grad(function(lib, forward=double, backward=lambda ctx, grad: None).apply(x).sum(), x)

    def no_gradient_of_an_unused_output(lib: Any) -> None:
        fn = function(lib, forward=lambda ctx, x: (x * 2, x * 3), backward=lambda ctx, a, b: a)
        first, second = fn.apply(leaf(lib))
        lib.autograd.grad(first.sum(), second)

    def a_setup_that_saves_what_is_returned(lib: Any) -> None:
        setup = lambda ctx, inputs, output: ctx.save_for_backward(inputs[0])  # noqa: E731
        function(lib, forward=lambda x: x, setup_context=setup).apply(leaf(lib))

    def vjp_beside_backward(lib: Any) -> None:
        fn = function(lib, forward=double, vjp=lambda ctx, grad: grad, backward=lambda ctx, grad: grad)
        fn.apply(leaf(lib)).sum().backward()

    def a_called_instance(lib: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(lib, forward=double)()(leaf(lib))

    def a_second_pass_of_saved_inputs(lib: Any) -> None:
        y = saving(lib).apply(leaf(lib)).sum()
        y.backward()
        y.backward()

    def a_second_pass_of_a_saved_output(lib: Any) -> None:
        y = exponential(lib).apply(leaf(lib)).sum()
        y.backward()
        y.backward()

    def saved_tensors_after_a_pass(lib: Any) -> None:
        y = function(lib, forward=double, backward=lambda ctx, grad: grad).apply(leaf(lib))
        assert y.grad_fn.saved_tensors == ()
        y.sum().backward()
        y.grad_fn.saved_tensors  # noqa: B018

    def saved_and_modified(lib: Any) -> None:
        middle = leaf(lib) * 2
        y = saving(lib).apply(middle)
        middle.add_(1)
        y.sum().backward()

    def saved_and_modified_without_a_record(lib: Any) -> None:
        middle = leaf(lib) * 2
        y = saving(lib).apply(middle)
        with lib.no_grad():
            middle.add_(1)
        y.sum().backward()

    def a_saved_constant_that_was_modified(lib: Any) -> None:
        other = lib.ones(3, dtype=lib.float64)
        y = saving(lib).apply(leaf(lib), other)
        other.add_(1)
        y.sum().backward()

    def a_saved_output_that_was_modified(lib: Any) -> None:
        y = exponential(lib).apply(leaf(lib))
        y.add_(1)
        y.sum().backward()

    def an_inference_tensor_saved_beside_an_input(lib: Any) -> None:
        with lib.inference_mode():
            other = lib.ones(3, dtype=lib.float64) * 1
        saving(lib).apply(leaf(lib), other)

    def an_inference_tensor_saved_alone(lib: Any) -> None:
        with lib.inference_mode():
            made = lib.ones(3)
        fn = function(lib, forward=lambda ctx, x, y: ctx.save_for_backward(y) or x * y)
        fn.apply(leaf(lib), made)

    def differentiated_twice(lib: Any) -> None:
        x = leaf(lib)
        backward = lib.autograd.function.once_differentiable(lambda ctx, grad: grad * 2)
        y = function(lib, forward=double, backward=backward).apply(x)
        (first,) = lib.autograd.grad((y * y).sum(), x, create_graph=True)
        first.sum().backward()

    def a_dirty_view_beside_another_output(lib: Any) -> None:
        def forward(ctx: Any, x: Any) -> Any:
            x.add_(1)
            ctx.mark_dirty(x)
            return x, x * 2

        function(lib, forward=forward).apply((leaf(lib) * 2)[:2])

    def a_dirty_input_that_is_not_returned(lib: Any) -> None:
        def forward(ctx: Any, x: Any) -> Any:
            x.add_(1)
            ctx.mark_dirty(x)
            return x * 2

        function(lib, forward=forward).apply(leaf(lib) * 2)

    def one_of_two_views_modified(lib: Any) -> None:
        fn = function(lib, forward=lambda ctx, x: (x[:2], x[1:]), backward=lambda ctx, a, b: None)
        fn.apply(leaf(lib) * 2)[1].add_(1)

    def a_constant_view_modified(lib: Any) -> None:
        def forward(ctx: Any, x: Any) -> Any:
            view = x[:2]
            ctx.mark_non_differentiable(view)
            return view

        function(lib, forward=forward).apply(leaf(lib) * 2).add_(1)


@pytest.mark.parametrize("body", [*CALLS, *bodies(Mistakes)], ids=lambda body: body.__name__)
def test_mistakes(everywhere: tg.Session | None, body: Callable[[Any], Any]) -> None:
    refused(everywhere, body)


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("value", [3, [1.0]])
@pytest.mark.parametrize("method", ["save_for_backward", "mark_dirty", "mark_non_differentiable", "save_for_forward"])
def test_what_cannot_be_saved_or_marked(method: str, value: Any) -> None:
    same_error(
        lambda lib: function(lib, forward=lambda ctx, x: getattr(ctx, method)(value) or x * 2).apply(leaf(lib)),
        whole=True,
    )


class Modifying:
    """What may not be done to a view that a Function returned, or to its base."""

    def itself(lib: Any, fn: Any) -> None:
        fn.apply(leaf(lib) * 2).add_(1)

    def its_base(lib: Any, fn: Any) -> Any:
        middle = leaf(lib) * 2
        y = fn.apply(middle)
        middle.add_(1)
        return y + 1

    def its_base_unrecorded(lib: Any, fn: Any) -> Any:
        middle = leaf(lib) * 2
        y = fn.apply(middle)
        with lib.no_grad():
            middle.add_(1)
        return y.grad_fn

    def itself_unrecorded(lib: Any, fn: Any) -> Any:
        y = fn.apply(leaf(lib) * 2)
        with lib.no_grad():
            y.add_(1)
        return y.grad_fn

    def a_view_of_it(lib: Any, fn: Any) -> None:
        fn.apply(leaf(lib) * 2).view(-1, 1).add_(1)


def unchanged(lib: Any) -> Any:
    """A Function that returns its input."""
    return function(lib, forward=lambda ctx, x: x, backward=lambda ctx, grad: grad * 5)


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("fn", [unchanged, first_two])
@pytest.mark.parametrize("body", bodies(Modifying), ids=lambda body: body.__name__)
def test_returned_views_may_not_be_modified(body: Callable[..., Any], fn: Callable[[Any], Any]) -> None:
    same_error(lambda lib: body(lib, fn(lib)), whole=True)
