"""Custom Functions: each body runs on torch's ``autograd.Function`` and on ours, and must come to the same."""

from __future__ import annotations

from typing import Any

import pytest

from .twins import both, both_raise, leaf


def function(t: Any, **methods: Any) -> Any:
    """A Function called MyFn with these static methods."""
    return type("MyFn", (t.autograd.Function,), {name: staticmethod(method) for name, method in methods.items()})


def double(ctx: Any, x: Any, *_rest: Any) -> Any:
    return x * 2


def cube(t: Any) -> Any:
    """x ** 3 with a backward that can be differentiated."""

    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**3

    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x

    return function(t, forward=forward, backward=backward)


def backward_of(t: Any, forward: Any, backward: Any, *args: Any) -> Any:
    """What x's gradient is after a backward through a Function, of x and further arguments."""
    x = leaf(t)
    result = function(t, forward=forward, backward=backward).apply(x, *args)
    (result[0] if isinstance(result, tuple) else result).sum().backward()
    return x.grad


# What a call leaves in the graph ---------------------------------------------------------------


def test_the_node_has_torchs_name_and_one_edge_per_tensor() -> None:
    def body(t: Any) -> Any:
        x, c = leaf(t), t.tensor([1.0, 1.0, 1.0])
        node = cube(t).apply(x).grad_fn
        several = function(t, forward=double).apply(x * 1, 2.0, c, [x]).grad_fn
        return (
            node.name(),
            [after.name() for after, _ in node.next_functions],
            [(after and after.name(), slot) for after, slot in several.next_functions],
            "grad_fn=<MyFnBackward>" in repr(cube(t).apply(x)),
        )

    both(body)


def test_ctx_takes_any_attribute_and_the_node_shows_it() -> None:
    def body(t: Any) -> Any:
        def forward(ctx: Any, x: Any, k: Any) -> Any:
            ctx.k, ctx.next, ctx.op, ctx.saved, ctx.hooks, ctx.plan = k, 1, 2, 3, 4, 5
            ctx.shape, ctx.dtype, ctx.width = "s", "d", "w"
            return x * k

        def backward(ctx: Any, grad: Any) -> Any:
            assert (ctx.next, ctx.op, ctx.saved, ctx.hooks, ctx.plan) == (1, 2, 3, 4, 5)
            assert (ctx.shape, ctx.dtype, ctx.width) == ("s", "d", "w")
            return grad * ctx.k, None

        x = leaf(t)
        y = function(t, forward=forward, backward=backward).apply(x, 3)
        y.sum().backward()
        return x.grad, y.grad_fn.k, y.grad_fn.name(), hasattr(y.grad_fn, "nothing")

    both(body)


def test_needs_input_grad_and_grad_mode() -> None:
    def body(t: Any) -> Any:
        seen = []

        def forward(ctx: Any, *args: Any) -> Any:
            seen.append((ctx.needs_input_grad, t.is_grad_enabled()))
            return args[0] * args[1]

        def backward(ctx: Any, grad: Any) -> Any:
            seen.append((ctx.needs_input_grad, t.is_grad_enabled(), grad.requires_grad))
            return grad, None, None, None

        x = leaf(t)
        fn = function(t, forward=forward, backward=backward)
        fn.apply(x, t.tensor([1.0, 1.0, 1.0]), 3, [x]).sum().backward()
        t.autograd.grad(fn.apply(x, x * 1, 3, None).sum(), x, create_graph=True)
        with t.no_grad():
            quiet = fn.apply(x, x, 1, 1)
        return seen, quiet.requires_grad, quiet.grad_fn, t.is_grad_enabled()

    both(body)


def test_arguments_by_name() -> None:
    def body(t: Any) -> Any:
        def forward(ctx: Any, x: Any, k: Any = 2, more: Any = 0) -> Any:
            ctx.k = k
            return x * k + more

        fn = function(t, forward=forward, backward=lambda ctx, grad: (grad * ctx.k, None))
        x = leaf(t)
        fn.apply(x, k=5).sum().backward()
        function(t, forward=forward, backward=lambda ctx, grad: grad * ctx.k).apply(x=x).sum().backward()
        return x.grad

    both(body)
    for kwargs in ({"z": 1}, {"x": 1}, {"more": 1}):
        both_raise(lambda t, kwargs=kwargs: function(t, forward=lambda ctx, x, k=2, more=0: x).apply(leaf(t), **kwargs))
    both_raise(lambda t: function(t, forward=lambda ctx, x, k=2: x).apply(k=1))


# Outputs ----------------------------------------------------------------------------------------


def test_several_outputs_and_things_that_are_no_tensors() -> None:
    def body(t: Any) -> Any:
        seen = []

        def backward(ctx: Any, *grads: Any) -> Any:
            seen.append(grads)
            return grads[0] * 2 + grads[3]

        def forward(ctx: Any, x: Any) -> Any:
            return x * 2, 3, None, x + 1, x.long(), [x]

        fn = function(t, forward=forward, backward=backward)
        x = leaf(t)
        outputs = fn.apply(x)
        outputs[0].sum().backward(retain_graph=True)
        (outputs[3] * 2).sum().backward()
        flags = [getattr(o, "requires_grad", None) for o in outputs]
        return outputs, flags, [o.output_nr for o in (outputs[0], outputs[3])], seen, x.grad

    both(body)
    both(lambda t: function(t, forward=lambda ctx, x: None).apply(leaf(t)))
    both(lambda t: function(t, forward=lambda ctx, x: 3).apply(leaf(t)))
    both(lambda t: function(t, forward=lambda ctx, x: ()).apply(leaf(t)))


def test_outputs_that_are_not_differentiable() -> None:
    def body(t: Any) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            first, second = x * 2, x * 3
            ctx.mark_non_differentiable(second)
            return first, second

        seen = []
        fn = function(t, forward=forward, backward=lambda ctx, *grads: seen.append(grads) or grads[0])
        x = leaf(t)
        first, second = fn.apply(x)
        first.sum().backward()
        return second.requires_grad, second.grad_fn, seen, x.grad

    both(body)

    def returned_input(t: Any) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_non_differentiable(x)
            return x

        x = leaf(t)
        y = function(t, forward=forward).apply(x)
        return y is x, y.requires_grad, x.requires_grad

    both(returned_input)


def test_absent_gradients_are_zeros_or_none() -> None:
    def body(t: Any) -> Any:
        seen = []

        def quiet(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(False)
            return x * 2, x[:2] * 3

        backward = lambda ctx, *grads: seen.append(grads) or grads[0]  # noqa: E731
        x = leaf(t)
        function(t, forward=quiet, backward=backward).apply(x)[0].sum().backward()
        function(t, forward=lambda ctx, x: (x * 2, x[:2] * 3), backward=backward).apply(x)[0].sum().backward()
        return seen, x.grad

    both(body)


def test_a_backward_runs_even_where_no_gradient_arrived() -> None:
    def body(t: Any) -> Any:
        x, seen = leaf(t), []
        y = function(t, forward=double, backward=lambda ctx, grad: seen.append(grad) or grad).apply(x)
        function(t, forward=double, backward=lambda ctx, grad: None).apply(y.exp()).sum().backward()
        return seen, x.grad

    both(body)


def test_no_gradient_at_all() -> None:
    def body(t: Any) -> Any:
        x = leaf(t)
        function(t, forward=double, backward=lambda ctx, grad: None).apply(x).sum().backward()
        return x.grad

    both(body)
    both_raise(
        lambda t: t.autograd.grad(
            function(t, forward=double, backward=lambda ctx, grad: None).apply(x := leaf(t)).sum(), x
        )
    )

    def unused_output(t: Any) -> Any:
        first, second = function(t, forward=lambda ctx, x: (x * 2, x * 3), backward=lambda ctx, a, b: a).apply(leaf(t))
        return t.autograd.grad(first.sum(), second)

    both_raise(unused_output)


def test_only_what_is_asked_for_is_evaluated() -> None:
    def body(t: Any) -> Any:
        called = []
        y = function(t, forward=double, backward=lambda ctx, grad: called.append(1) or grad).apply(leaf(t))
        return t.autograd.grad(y.sum(), y), called

    both(body)


# Gradients that backward returns ----------------------------------------------------------------


def test_a_gradient_is_summed_and_cast_to_its_inputs() -> None:
    both(lambda t: backward_of(t, double, lambda ctx, g: t.F.stack([g, g]).to(t.float64)))
    both(lambda t: backward_of(t, double, lambda ctx, g: (g * 2).long()))
    both(lambda t: backward_of(t, double, lambda ctx, g: g > 0))
    both(lambda t: backward_of(t, double, lambda ctx, g: (g, None, None)))
    both(lambda t: backward_of(t, double, lambda ctx, g: (g, g[:2]), t.tensor([1.0, 2.0, 3.0])))


@pytest.mark.parametrize(
    ("returned", "extra"),
    [
        (lambda g: (), ()),
        (lambda g: (g, g), ()),
        (lambda g: g, (1.0,)),
        (lambda g: (g, g), (1.0,)),
        (lambda g: [g], ()),
        (lambda g: 3, ()),
        (lambda g: g[:2], ()),
        (lambda g: g.sum(), ()),
        (lambda g: g[:0], ()),
    ],
)
def test_wrong_gradients(returned: Any, extra: Any) -> None:
    both_raise(lambda t: backward_of(t, double, lambda ctx, g: returned(g), *extra))


def test_the_index_of_a_wrong_gradient_counts_tensors() -> None:
    def body(t: Any) -> Any:
        fn = function(t, forward=lambda ctx, k, a, b: a * b, backward=lambda ctx, g: (None, g, g[:2]))
        fn.apply(3, leaf(t), leaf(t)).sum().backward()

    both_raise(body)
