"""What custom Functions modify, and inputs and views that they return, beside torch."""

from __future__ import annotations

import warnings
from typing import Any

from .test_function import function
from .twins import both, both_raise, leaf

# Inputs that were modified -------------------------------------------------------------------------


def adding(t: Any, *more: Any) -> Any:
    """A Function that adds one to its input in place; its gradient is times seven."""

    def forward(ctx: Any, x: Any) -> Any:
        x.add_(1)
        ctx.mark_dirty(x)
        return x

    return function(t, forward=forward, backward=lambda ctx, grad: grad * 7)


def test_dirty_inputs() -> None:
    def body(t: Any) -> Any:
        x = leaf(t)
        middle = x * 2
        middle.retain_grad()
        y = adding(t).apply(middle)
        facts = y is middle, middle._version, middle.output_nr, middle.grad_fn.name(), y.retains_grad
        before = middle.grad_fn.next_functions[0][0].name()
        (y * 2).sum().backward()
        return facts, before, middle.grad, x.grad, y

    both(body)

    def plain(t: Any) -> Any:
        def forward(ctx: Any, a: Any, x: Any) -> Any:
            a.add_(x)
            ctx.mark_dirty(a)
            return a

        x, a = leaf(t), t.tensor([1.0, 1.0, 1.0])
        y = function(t, forward=forward, backward=lambda ctx, grad: (grad, grad * 3)).apply(a, x)
        y.sum().backward()
        return y is a, a.requires_grad, a.is_leaf, a._version, x.grad

    both(plain)

    def untracked(t: Any) -> Any:
        a = t.tensor([1.0])
        y = adding(t).apply(a)
        return y is a, a._version, a.requires_grad, a

    both(untracked)

    def leaf_without_recording(t: Any) -> Any:
        x = leaf(t)
        with t.no_grad():
            y = adding(t).apply(x)
        return y is x, y.requires_grad, x.requires_grad, x._version, x

    both(leaf_without_recording)


def test_a_dirty_view_changes_its_base() -> None:
    def body(t: Any) -> Any:
        x = leaf(t)
        base = x * 2
        view = base[:2]
        y = adding(t).apply(view)
        (base * 3).sum().backward()
        return y is view, base, x.grad, view.requires_grad

    both(body)

    def plain(t: Any) -> Any:
        def forward(ctx: Any, a: Any, x: Any) -> Any:
            a.add_(x)
            ctx.mark_dirty(a)
            return a

        x, base = leaf(t), t.tensor([1.0, 1.0, 1.0, 1.0])
        function(t, forward=forward, backward=lambda ctx, grad: (grad, grad * 3)).apply(base[1:], x)
        (base * base).sum().backward()
        return base, base.requires_grad, x.grad

    both(plain)


def test_what_may_not_be_dirty() -> None:
    both_raise(lambda t: adding(t).apply(leaf(t)))
    both_raise(lambda t: adding(t).apply(leaf(t)[:2]))

    def two(ctx: Any, x: Any) -> Any:
        x.add_(1)
        ctx.mark_dirty(x)
        return x, x * 2

    both_raise(lambda t: function(t, forward=two).apply((leaf(t) * 2)[:2]))

    def kept_back(ctx: Any, x: Any) -> Any:
        x.add_(1)
        ctx.mark_dirty(x)
        return x * 2

    both_raise(lambda t: function(t, forward=kept_back).apply(leaf(t) * 2))


def test_marking_what_is_no_input_warns() -> None:
    def body(t: Any) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            y = x * 2
            ctx.mark_dirty(y)
            return y

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            y = function(t, forward=forward).apply(leaf(t))
        return y._version, [(w.category.__name__, str(w.message).split(" (Trigg")[0]) for w in caught]

    both(body)


# Inputs and views that are returned ------------------------------------------------------------------


def same(t: Any) -> Any:
    """A Function that returns its input; its gradient is times five."""
    return function(t, forward=lambda ctx, x: x, backward=lambda ctx, grad: grad * 5)


def first_two(t: Any) -> Any:
    """A Function that returns a view of its input."""
    return function(t, forward=lambda ctx, x: x[:2], backward=lambda ctx, grad: t.F.cat([grad * 5, t.tensor([0.0])]))


def test_a_returned_input_has_a_node_of_its_own() -> None:
    def body(t: Any) -> Any:
        x = leaf(t)
        y = same(t).apply(x)
        y.sum().backward()
        return y is x, y._base is x, y._version, y.grad_fn.name(), x.grad_fn, x.is_leaf, x.grad

    both(body)

    def untracked(t: Any) -> Any:
        a, x = t.tensor([1.0]), leaf(t)
        y = same(t).apply(a)
        y.add_(1)
        with t.no_grad():
            z = same(t).apply(x)
        return y is a, y._base is a, a, a._version, z is x, z.requires_grad, z.grad_fn

    both(untracked)


def test_the_same_output_twice() -> None:
    def body(t: Any) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            y = x * 2
            return y, y

        x = leaf(t)
        first, second = function(t, forward=forward, backward=lambda ctx, a, b: a + b * 10).apply(x)
        first.sum().backward()
        return first is second, first.output_nr, x.grad

    both(body)


def test_outputs_may_be_modified() -> None:
    def body(t: Any) -> Any:
        x = leaf(t)
        fn = function(t, forward=lambda ctx, x: (x * 2, x * 3), backward=lambda ctx, a, b: a * 2 + b * 3)
        first, second = fn.apply(x)
        first.mul_(3)
        second.add_(first)
        (first.sum() + second.sum()).backward()
        return first, second, x.grad, first.grad_fn.name()

    both(body)


def test_returned_views_may_not_be_modified() -> None:
    for fn in (same, first_two):

        def itself(t: Any, fn: Any = fn) -> Any:
            fn(t).apply(leaf(t) * 2).add_(1)

        def its_base(t: Any, fn: Any = fn) -> Any:
            middle = leaf(t) * 2
            y = fn(t).apply(middle)
            middle.add_(1)
            return y + 1

        def its_base_unrecorded(t: Any, fn: Any = fn) -> Any:
            middle = leaf(t) * 2
            y = fn(t).apply(middle)
            with t.no_grad():
                middle.add_(1)
            return y.grad_fn

        def itself_unrecorded(t: Any, fn: Any = fn) -> Any:
            y = fn(t).apply(leaf(t) * 2)
            with t.no_grad():
                y.add_(1)
            return y.grad_fn

        def a_view_of_it(t: Any, fn: Any = fn) -> Any:
            fn(t).apply(leaf(t) * 2).view(-1, 1).add_(1)

        for body in (itself, its_base, its_base_unrecorded, itself_unrecorded, a_view_of_it):
            both_raise(body)

    def one_of_two(t: Any) -> Any:
        fn = function(t, forward=lambda ctx, x: (x[:2], x[1:]), backward=lambda ctx, a, b: None)
        fn.apply(leaf(t) * 2)[1].add_(1)

    both_raise(one_of_two)

    def not_differentiable(t: Any) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            view = x[:2]
            ctx.mark_non_differentiable(view)
            return view

        function(t, forward=forward).apply(leaf(t) * 2).add_(1)

    both_raise(not_differentiable)

    def gradients_go_through(t: Any) -> Any:
        x = leaf(t)
        y = first_two(t).apply(x * 2)
        (y.view(2, 1) * 3).sum().backward()
        return x.grad, y.detach().add_(1)

    both(gradients_go_through)
