"""Custom Functions, compared with torch's: what they compute.

Internals: torch has no public name for the switch of gradients that are filled though nobody asked for them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from .custom_functions import adding, adding_the_second, cube, double, exponential, first_two, function, leaf, saving
from .parity import bodies, same


class Bodies:
    """Functions whose results must be the same in both libraries."""

    def python_that_asks_for_values(lib: Any) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            ctx.positive = x.sum().item() > 0
            return x * 2 if ctx.positive else x.exp()

        def backward(ctx: Any, grad: Any) -> Any:
            largest = float(grad.max())
            scaled = [g * largest for g in grad.tolist()]
            return lib.tensor(scaled, dtype=lib.float64) if ctx.positive else grad * largest

        x = leaf(lib)
        fn = function(lib, forward=forward, backward=backward)
        (fn.apply(x) * x).sum().backward()
        (fn.apply(-x) * 2).sum().backward()
        return x.grad

    def between_ops_of_the_session(lib: Any) -> Any:
        x, w = leaf(lib), leaf(lib, 4, 5, 6)
        y = cube(lib).apply((x * w).sin()).cos()
        loss = (y * w).sum()
        loss.backward()
        return loss, x.grad, w.grad, y.grad_fn is not None

    def arguments_that_are_no_tensors(lib: Any) -> Any:
        def forward(ctx: Any, k: Any, x: Any, names: Any, w: Any) -> Any:
            ctx.k, ctx.needs = k, ctx.needs_input_grad
            return x * k + w.sum(), names

        seen = []

        def backward(ctx: Any, grad: Any, none: Any) -> Any:
            seen.append((ctx.needs, none, ctx.needs_input_grad))
            return None, grad * ctx.k, None, None

        x, w = leaf(lib), lib.tensor([1.0, 2.0], dtype=lib.float64)
        y, names = function(lib, forward=forward, backward=backward).apply(3, x, ["a"], w)
        y.sum().backward()
        return y, names, x.grad, seen

    def the_node(lib: Any) -> Any:
        x, c = leaf(lib), lib.ones(3)
        node = cube(lib).apply(x).grad_fn
        several = function(lib, forward=double).apply(x * 1, 2.0, c, [x]).grad_fn
        return (
            node.name(),
            [after.name() for after, _ in node.next_functions],
            [(after and after.name(), slot) for after, slot in several.next_functions],
            "grad_fn=<MyFnBackward>" in repr(cube(lib).apply(x)),
        )

    def attributes_of_ctx(lib: Any) -> Any:
        def forward(ctx: Any, x: Any, k: Any) -> Any:
            ctx.k, ctx.next, ctx.op, ctx.saved, ctx.hooks, ctx.plan = k, 1, 2, 3, 4, 5
            ctx.shape, ctx.dtype, ctx.width = "s", "d", "w"
            return x * k

        def backward(ctx: Any, grad: Any) -> Any:
            assert (ctx.next, ctx.op, ctx.saved, ctx.hooks, ctx.plan) == (1, 2, 3, 4, 5)
            assert (ctx.shape, ctx.dtype, ctx.width) == ("s", "d", "w")
            return grad * ctx.k, None

        x = leaf(lib)
        y = function(lib, forward=forward, backward=backward).apply(x, 3)
        y.sum().backward()
        return x.grad, y.grad_fn.k, y.grad_fn.name(), hasattr(y.grad_fn, "nothing")

    def arguments_by_name(lib: Any) -> Any:
        def forward(ctx: Any, x: Any, k: Any = 2, more: Any = 0) -> Any:
            ctx.k = k
            return x * k + more

        x = leaf(lib)
        function(lib, forward=forward, backward=lambda ctx, grad: (grad * ctx.k, None)).apply(x, k=5).sum().backward()
        function(lib, forward=forward, backward=lambda ctx, grad: grad * ctx.k).apply(x=x).sum().backward()
        return x.grad

    def results_that_are_no_tensors(lib: Any) -> Any:
        return [function(lib, forward=lambda ctx, x, r=r: r).apply(leaf(lib)) for r in (None, 3, (), ([1], "a"))]

    def several_outputs(lib: Any) -> Any:
        seen = []

        def forward(ctx: Any, x: Any) -> Any:
            return x * 2, 7, x + 1, x.long(), x * 3

        def backward(ctx: Any, *grads: Any) -> Any:
            seen.append([g if g is None else g.tolist() for g in grads])
            return grads[0] * 2 + grads[2] + grads[4] * 3

        x = leaf(lib)
        outputs = function(lib, forward=forward, backward=backward).apply(x)
        outputs[0].sum().backward(retain_graph=True)
        (outputs[2] * outputs[4]).sum().backward()
        return outputs, [getattr(o, "output_nr", None) for o in outputs], seen, x.grad

    def absent_gradients_as_none(lib: Any) -> Any:
        seen = []

        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        def backward(ctx: Any, a: Any, b: Any) -> Any:
            seen.append((a is None, b is None))
            return (a if b is None else b) * 10

        x = leaf(lib)
        first, second = function(lib, forward=forward, backward=backward).apply(x)
        first.sum().backward(retain_graph=True)
        second.sum().backward()
        return seen, x.grad

    def no_gradient_at_all(lib: Any) -> Any:
        x, w = leaf(lib), leaf(lib)
        fn = function(lib, forward=lambda ctx, a, b: a * b, backward=lambda ctx, grad: (None, grad))
        fn.apply(x * 1, w).sum().backward()
        grads = lib.autograd.grad(fn.apply(x, w).sum(), [x, w], allow_unused=True)
        return x.grad, w.grad, grads

    def outputs_that_are_constant(lib: Any) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            y, mask = x * 2, x * 3
            ctx.mark_non_differentiable(mask, x)
            return y, mask, x

        x = leaf(lib)
        outputs = function(lib, forward=forward, backward=lambda ctx, *grads: grads[0] * 2).apply(x)
        outputs[0].sum().backward()
        return outputs, outputs[2] is x, x.grad

    def a_backward_that_no_gradient_arrived_at(lib: Any) -> Any:
        x, seen = leaf(lib), []
        y = function(lib, forward=double, backward=lambda ctx, grad: seen.append(grad) or grad).apply(x)
        function(lib, forward=double, backward=lambda ctx, grad: None).apply(y.exp()).sum().backward()
        return seen, x.grad

    def dirty_inputs(lib: Any) -> Any:
        x = leaf(lib)
        middle = x * 2
        middle.retain_grad()
        y = adding(lib).apply(middle)
        facts = y is middle, middle._version, middle.output_nr, middle.grad_fn.name(), y.retains_grad
        before = middle.grad_fn.next_functions[0][0].name()
        (y * 2).sum().backward()
        return facts, before, middle.grad, x.grad, y

    def dirty_inputs_without_a_history(lib: Any) -> Any:
        x, a, b = leaf(lib), lib.tensor([1.0]), leaf(lib)
        made, other = adding(lib).apply(a), lib.ones(3, dtype=lib.float64)
        with lib.no_grad():
            unrecorded = adding(lib).apply(b)
        summed = adding_the_second(lib).apply(other, x)
        summed.sum().backward()
        return [
            [t is u, t.requires_grad, t.is_leaf, t._version, t]
            for t, u in ((made, a), (unrecorded, b), (summed, other))
        ], x.grad

    def dirty_views(lib: Any) -> Any:
        x, base = leaf(lib), lib.ones(4, dtype=lib.float64)
        adding_the_second(lib).apply(base[1:], x)
        (base * base).sum().backward()
        second = leaf(lib)
        tracked = second * 2
        view = tracked[:2]
        y = adding(lib).apply(view)
        (tracked * 3).sum().backward()
        return base, base.requires_grad, x.grad, y is view, tracked, second.grad, view.requires_grad

    def marked_dirty_though_no_input(lib: Any) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            y = x * 2
            ctx.mark_dirty(y)
            return y

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            y = function(lib, forward=forward).apply(leaf(lib))
        return y._version, [(w.category.__name__, str(w.message).split(" (Trigg")[0]) for w in caught]

    def input_returned_as_it_is(lib: Any) -> Any:
        x, a = leaf(lib), lib.tensor([1.0])
        fn = function(lib, forward=lambda ctx, x: x, backward=lambda ctx, grad: grad * 5)
        y = fn.apply(x)
        (y * y).sum().backward()
        plain = fn.apply(a)
        plain.add_(1)
        with lib.no_grad():
            z = fn.apply(x)
        names = y.grad_fn.name(), x.grad_fn, x.is_leaf
        others = plain is a, plain._base is a, a, a._version, z is x, z.requires_grad, z.grad_fn
        return y is x, y._base is x, y._version, names, y, x.grad, others

    def views_that_are_returned(lib: Any) -> Any:
        x = leaf(lib)
        y = first_two(lib).apply(x * 2)
        (y.view(2, 1) * 3).sum().backward()
        return x.grad, y.detach().add_(1)

    def the_same_output_twice(lib: Any) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            y = x * 2
            return y, y

        x = leaf(lib)
        first, second = function(lib, forward=forward, backward=lambda ctx, a, b: a + b * 10).apply(x)
        first.sum().backward()
        return first is second, first.output_nr, x.grad

    def outputs_that_are_modified(lib: Any) -> Any:
        x = leaf(lib)
        fn = function(lib, forward=lambda ctx, x: (x * 2, x * 3), backward=lambda ctx, a, b: a * 2 + b * 3)
        first, second = fn.apply(x)
        first.mul_(3)
        second.add_(first)
        (first.sum() + second.sum()).backward()
        return first, second, x.grad, first.grad_fn.name()

    def separate_setup(lib: Any) -> Any:
        seen = []

        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            seen.append((len(inputs), inputs[1], type(output).__name__, lib.is_grad_enabled(), ctx.needs_input_grad))
            ctx.save_for_backward(inputs[0], output[0])
            ctx.k = inputs[1]

        def backward(ctx: Any, a: Any, b: Any) -> Any:
            x, y = ctx.saved_tensors
            return a * ctx.k + b * x * y, None

        fn = function(lib, forward=lambda x, k=3: (x * k, x * 2), setup_context=setup_context, backward=backward)
        x = leaf(lib)
        sum(o.sum() for o in fn.apply(x)).backward()
        fn.apply(x, k=4)[1].sum().backward()
        return x.grad, seen

    def vjp_as_another_name_of_backward(lib: Any) -> Any:
        x = leaf(lib)
        function(lib, forward=double, vjp=lambda ctx, grad: grad * 3).apply(x).sum().backward()
        return x.grad

    def instances(lib: Any) -> Any:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            function(lib, forward=double)()
        return [(w.category.__name__, str(w.message).split("' ")[-1].split("> ")[-1]) for w in caught]

    def errors_that_leave_the_grad_mode(lib: Any) -> Any:
        def boom(*_args: Any) -> Any:
            raise KeyError("mine")

        x, found = leaf(lib), []
        for run in (
            lambda: function(lib, forward=boom).apply(x),
            lambda: function(lib, forward=double, backward=boom).apply(x).sum().backward(),
            lambda: lib.autograd.grad(
                function(lib, forward=double, backward=boom).apply(x).sum(), x, create_graph=True
            ),
        ):
            with pytest.raises(KeyError, match="mine"):
                run()
            found.append(lib.is_grad_enabled())
        return found

    def saved_tensors_of_the_node(lib: Any) -> Any:
        x = leaf(lib)
        middle = x * 2
        nodes = [saving(lib).apply(x).grad_fn, saving(lib).apply(middle).grad_fn]
        y = exponential(lib).apply(x)
        (kept,) = y.grad_fn.saved_tensors
        same_ones = [nodes[0].saved_tensors[0] is x, nodes[1].saved_tensors[0] is middle, kept is y]
        return same_ones, [kept.grad_fn is y.grad_fn, kept.requires_grad], nodes[0].saved_tensors

    def saved_by_nobody_and_modified(lib: Any) -> Any:
        x = leaf(lib)
        middle = x * 2
        fn = function(lib, forward=lambda ctx, x: ctx.save_for_backward(x) or x * 2, backward=lambda ctx, grad: grad)
        y = fn.apply(middle)
        middle.add_(1)
        y.sum().backward()
        return x.grad

    def a_second_pass_where_nothing_was_saved(lib: Any) -> Any:
        x = leaf(lib)
        y = function(lib, forward=double, backward=lambda ctx, grad: grad).apply(x).sum()
        y.backward()
        y.backward()
        return x.grad

    def numbers_saved_where_nothing_is_recorded(lib: Any) -> Any:
        return function(lib, forward=lambda ctx, x: ctx.save_for_backward(3) or x * 2).apply(lib.ones(1))

    def saving_under_no_grad(lib: Any) -> Any:
        kept = []
        with lib.no_grad():
            fn = function(lib, forward=lambda ctx, x: ctx.save_for_backward(x) or kept.append(ctx) or x)
            fn.apply(leaf(lib))
        return kept[0].saved_tensors

    def a_leaf_that_comes_out_of_hooks(lib: Any) -> Any:
        seen: list[Any] = []
        texts: list[str] = []

        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            seen.append((x.is_leaf, x.grad_fn is None, x.requires_grad))
            texts.append(repr(x))
            return grad * x

        fn = function(lib, forward=lambda ctx, x: ctx.save_for_backward(x) or x * 2, backward=backward)
        x = leaf(lib)
        with lib.autograd.graph.saved_tensors_hooks(lambda kept: kept.detach().clone(), lambda kept: kept):
            results = fn.apply(x), fn.apply(x * 1)
        (first,) = lib.autograd.grad(results[0].sum(), x, create_graph=True)
        (second,) = lib.autograd.grad(first.sum(), x)
        results[1].sum().backward()
        return seen, texts[0], first, second, x.grad

    def twice_over_a_retained_graph(lib: Any) -> Any:
        x = leaf(lib)
        y = cube(lib).apply(x * 2).sum()
        y.backward(retain_graph=True)
        y.backward()
        return x.grad

    def many_in_a_row(lib: Any) -> Any:
        x = leaf(lib)
        y = x
        for _ in range(5):
            y = cube(lib).apply(y * 0.7) + exponential(lib).apply(y * 0.1)
        y.sum().backward()
        return y, x.grad

    def called_inside_forward_and_backward(lib: Any) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return cube(lib).apply(x) * 2

        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            with lib.enable_grad():
                inner = x.detach().requires_grad_()
                (found,) = lib.autograd.grad(cube(lib).apply(inner).sum(), inner)
            return grad * found * 2

        x = leaf(lib)
        fn = function(lib, forward=forward, backward=backward)
        fn.apply(fn.apply(x)).sum().backward()
        return x.grad

    def second_and_third_order(lib: Any) -> Any:
        x = leaf(lib)
        y = exponential(lib).apply(cube(lib).apply(x * 0.5)).sum()
        found = []
        for _ in range(3):
            (g,) = lib.autograd.grad(y, x, create_graph=True)
            found.append(g)
            y = (g * x).sum()
        return found

    def second_order_into_the_leaves(lib: Any) -> Any:
        x, w = leaf(lib), leaf(lib, 2, 3, 4)
        y = cube(lib).apply(x * w).sum()
        y.backward(create_graph=True)
        penalty = (x.grad**2).sum() + w.grad.sum()
        first = x.grad.detach().clone()
        x.grad, w.grad = None, None
        penalty.backward()
        return first, x.grad, w.grad

    def gradient_that_is_a_leaf(lib: Any) -> Any:
        x, v = leaf(lib), leaf(lib, 5, 6, 7)
        y = function(lib, forward=lambda ctx, x: x * 2, backward=lambda ctx, grad: grad * grad).apply(x)
        (g,) = lib.autograd.grad(y, x, v, create_graph=True)
        return g, lib.autograd.grad(g.sum(), v)

    def only_some_inputs(lib: Any) -> Any:
        x, w = leaf(lib), leaf(lib)
        calls = []

        def backward(ctx: Any, grad: Any) -> Any:
            calls.append(1)
            return grad * 3

        fn = function(lib, forward=lambda ctx, x: x * 3, backward=backward)
        y = fn.apply(x) * w
        only = lib.autograd.grad(y.sum(), w, retain_graph=True)
        y.sum().backward(inputs=[x])
        return only, x.grad, w.grad, len(calls)

    def grad_modes(lib: Any) -> Any:
        seen: list[Any] = []
        x, w = leaf(lib), leaf(lib)

        def forward(ctx: Any, x: Any) -> Any:
            seen.append(lib.is_grad_enabled())
            return x * 2

        def backward(ctx: Any, grad: Any) -> Any:
            seen.append((lib.is_grad_enabled(), grad.requires_grad, (grad * w).requires_grad))
            return grad * 2

        fn = function(lib, forward=forward, backward=backward)
        y = fn.apply(x)
        y.sum().backward(retain_graph=True)
        lib.autograd.grad(y.sum(), x, create_graph=True)
        with lib.no_grad():
            quiet = fn.apply(x)
        return seen, quiet

    def once_differentiable(lib: Any) -> Any:
        backward = lib.autograd.function.once_differentiable(lambda ctx, grad: grad * float(grad.sum()))
        x = leaf(lib)
        y = function(lib, forward=lambda ctx, x: x * 2, backward=backward).apply(x)
        y.sum().backward(retain_graph=True)
        (quiet,) = lib.autograd.grad(y.sum(), x, create_graph=True)
        (loud,) = lib.autograd.grad((y * y).sum(), x, create_graph=True)
        return x.grad, quiet, loud.detach(), "grad_fn=<Error>" in repr(loud), lib.is_grad_enabled()

    def a_function_inside_a_backward(lib: Any) -> Any:
        forward = lambda ctx, x: ctx.save_for_backward(x) or x * 0  # noqa: E731
        backward = lambda ctx, grad: grad * cube(lib).apply(ctx.saved_tensors[0])  # noqa: E731
        x = leaf(lib)
        (first,) = lib.autograd.grad(
            function(lib, forward=forward, backward=backward).apply(x).sum(), x, create_graph=True
        )
        return first, lib.autograd.grad(first.sum(), x)

    def gradients_that_are_summed_and_differentiated(lib: Any) -> Any:
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            return lib.stack([grad * x, grad * x * x]).to(dtype=lib.float32), None

        x = leaf(lib)
        fn = function(lib, forward=lambda ctx, x, k: ctx.save_for_backward(x) or x * k, backward=backward)
        (first,) = lib.autograd.grad(fn.apply(x, 2).sum(), x, create_graph=True)
        return first, lib.autograd.grad(first.sum(), x), first.dtype == x.dtype

    def a_gradient_of_an_input_that_needs_none(lib: Any) -> Any:
        x = leaf(lib)
        fn = function(lib, forward=double, backward=lambda ctx, grad: (grad, grad[:2]))
        fn.apply(x, lib.ones(3)).sum().backward()
        return x.grad

    def a_batch_of_gradients(lib: Any) -> Any:
        x, rows = leaf(lib), lib.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 1.0]], dtype=lib.float64)
        return lib.autograd.grad(cube(lib).apply(x * 2), x, rows, is_grads_batched=True)

    def retained_in_the_middle(lib: Any) -> Any:
        x = leaf(lib)
        a = x * 2
        b = cube(lib).apply(a)
        a.retain_grad()
        b.register_hook(lambda grad: cube(lib).apply(grad * 2))
        b.retain_grad()
        b.sum().backward()
        return a.grad, b.grad, x.grad

    def leaves_show_their_gradients_meanwhile(lib: Any) -> Any:
        x, w = leaf(lib), leaf(lib)
        seen = []

        def backward(ctx: Any, grad: Any) -> Any:
            seen.append((None if w.grad is None else w.grad.tolist(), x.grad is None))
            return grad * 2

        y = function(lib, forward=lambda ctx, x: x * 2, backward=backward).apply(x)
        (y * w).sum().backward()
        return seen, x.grad

    def under_inference_mode(lib: Any) -> Any:
        x = leaf(lib)
        with lib.inference_mode():
            y = cube(lib).apply(x)
        return y.requires_grad, y.is_inference(), y.grad_fn is None, y


@pytest.mark.usefixtures("everywhere")
@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("body", bodies(Bodies), ids=lambda body: body.__name__)
def test_it_is_as_in_torch(body: Callable[[Any], Any]) -> None:
    same(body)


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize(
    "returned",
    [
        lambda grad: grad.expand(4, 3).float(),
        lambda grad: (grad * 2).long(),
        lambda grad: grad > 0,
        lambda grad: (grad, None, None),
    ],
)
def test_a_gradient_is_summed_and_cast_to_its_input(returned: Callable[[Any], Any]) -> None:
    def body(lib: Any) -> Any:
        x = leaf(lib)
        function(lib, forward=double, backward=lambda ctx, grad: returned(grad)).apply(x).sum().backward()
        return x.grad

    same(body)


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("materialize", [True, False])
@pytest.mark.parametrize("filled", [True, False])
def test_outputs_without_a_gradient_give_zeros_or_none(filled: bool, materialize: bool) -> None:
    def function(lib: Any) -> Any:
        seen = []

        class Several(lib.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                first, second = x.clone(), x.clone()
                ctx.mark_non_differentiable(second)
                ctx.set_materialize_grads(materialize)
                ctx._materialize_non_diff_grads = filled
                return first, second, (x * 2).long(), x * 3

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                seen.append([None if grad is None else grad.tolist() for grad in grads])
                return grads[0] * 2

        x = lib.ones(3, requires_grad=True)
        Several.apply(x)[0].sum().backward()
        return seen, x.grad

    same(function)
