"""Client-evaluated functions, compared with torch's ``autograd.Function``.

Internals: what waits in a session is asked with the session's own HTTP client, which has its key.
"""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import telegrad as tg
from telegrad_engine.errors import GraphFreed

from .parity import held, same, same_error

pytestmark = pytest.mark.usefixtures("session")


def leaf(lib: Any, *values: float) -> Any:
    return lib.tensor(list(values or (1.0, 2.0, 3.0)), dtype=lib.float64, requires_grad=True)


def function(lib: Any, **methods: Any) -> Any:
    """A Function called MyFn with these static methods."""
    return type("MyFn", (lib.autograd.Function,), {name: staticmethod(method) for name, method in methods.items()})


def cube(lib: Any) -> Any:
    """x ** 3, whose backward can be differentiated."""

    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**3

    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x

    return function(lib, forward=forward, backward=backward)


def exponential(lib: Any) -> Any:
    """exp(x), whose backward needs the output."""

    def forward(ctx: Any, x: Any) -> Any:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    return function(lib, forward=forward, backward=lambda ctx, grad: grad * ctx.saved_tensors[0])


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
        return outputs, x.grad

    def changed_in_place(lib: Any) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x)
            x.mul_(2)
            return x

        x = leaf(lib)
        base = x * 1
        view = base[:2]
        y = function(lib, forward=forward, backward=lambda ctx, grad: grad * 20).apply(view)
        assert y is view
        (base * lib.tensor([1.0, 2.0, 3.0], dtype=lib.float64)).sum().backward()
        return base, y, base._version, x.grad

    def input_returned_as_it_is(lib: Any) -> Any:
        x = leaf(lib)
        y = function(lib, forward=lambda ctx, x: x, backward=lambda ctx, grad: grad * 5).apply(x)
        (y * y).sum().backward()
        return y is x, y, x.grad

    def separate_setup(lib: Any) -> Any:
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs[:1], output)
            ctx.k = inputs[1]

        def backward(ctx: Any, grad: Any) -> Any:
            x, y = ctx.saved_tensors
            return grad * (x + y) * ctx.k, None

        x = leaf(lib)
        fn = function(lib, forward=lambda x, k=3: x * k, setup_context=setup_context, backward=backward)
        fn.apply(x).sum().backward()
        return x.grad

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
        seen = []

        def forward(ctx: Any, x: Any) -> Any:
            seen.append(lib.is_grad_enabled())  # type: ignore[attr-defined]
            return x * 2

        def backward(ctx: Any, grad: Any) -> Any:
            seen.append((lib.is_grad_enabled(), grad.requires_grad, (grad * w).requires_grad))  # type: ignore[attr-defined]
            return grad * 2

        x, w = leaf(lib), leaf(lib)
        fn = function(lib, forward=forward, backward=backward)
        y = fn.apply(x)
        y.sum().backward(retain_graph=True)
        lib.autograd.grad(y.sum(), x, create_graph=True)  # type: ignore[attr-defined]
        with lib.no_grad():  # type: ignore[attr-defined]
            quiet = fn.apply(x)
        return seen, quiet

    def once_differentiable(lib: Any) -> Any:
        backward = lib.autograd.function.once_differentiable(lambda ctx, grad: grad * float(grad.sum()))
        x = leaf(lib)
        y = function(lib, forward=lambda ctx, x: x * 2, backward=backward).apply(x)
        y.sum().backward(retain_graph=True)
        (g,) = lib.autograd.grad(y.sum(), x, create_graph=True)
        return x.grad, g.detach(), g.requires_grad

    def gradients_that_are_summed_and_cast(lib: Any) -> Any:
        x = leaf(lib)
        fn = function(
            lib, forward=lambda ctx, x: x * 2, backward=lambda ctx, grad: grad.expand(4, 3).to(dtype=lib.float32)
        )
        fn.apply(x).sum().backward()
        return x.grad

    def retained_in_the_middle(lib: Any) -> Any:
        x = leaf(lib)
        a = x * 2
        b = cube(lib).apply(a)
        a.retain_grad()
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


BODIES = [body for name, body in vars(Bodies).items() if not name.startswith("_")]


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_it_is_as_in_torch(body: Callable[[Any], Any]) -> None:
    same(body)


def of(backward: Any, forward: Any = lambda ctx, x, *rest: x * 2, *args: Any) -> Callable[[Any], Any]:
    def body(lib: Any) -> Any:
        x = leaf(lib)
        function(lib, forward=forward, backward=backward).apply(x, *args).sum().backward()
        return x.grad

    return body


def saved_and_modified(lib: Any) -> Any:
    x = leaf(lib)
    a = x * 2
    y = cube(lib).apply(a)
    a.add_(1)
    y.sum().backward()


def a_second_time(lib: Any) -> Any:
    y = cube(lib).apply(leaf(lib)).sum()
    y.backward()
    y.backward()


def differentiated_twice(lib: Any) -> Any:
    x = leaf(lib)
    backward = lib.autograd.function.once_differentiable(lambda ctx, grad: grad * 2)
    y = function(lib, forward=lambda ctx, x: x * 2, backward=backward).apply(x)
    (g,) = lib.autograd.grad((y * y).sum(), x, create_graph=True)
    lib.autograd.grad(g.sum(), x)


@pytest.mark.parametrize(
    "body",
    [
        of(lambda ctx, grad: (grad, grad)),
        of(lambda ctx, grad: ()),
        of(lambda ctx, grad: grad.sum().expand(2)),
        of(lambda ctx, grad: 3.0),
        of(lambda ctx, grad: (grad, grad), lambda ctx, x, k: x * k, 2),
        saved_and_modified,
        a_second_time,
        differentiated_twice,
    ],
)
def test_mistakes_are_told_in_torchs_words(session: tg.Session, body: Callable[[Any], Any]) -> None:
    same_error(body)
    same(Bodies.twice_over_a_retained_graph)
    nothing_waits(session)


def nothing_waits(session: tg.Session) -> None:
    """Assert that no backward pass of the session waits for the client."""
    session.flush()
    transport: Any = session.recorder.transport
    if session.url == "local://":
        assert not transport.session.suspensions.waiting
    else:
        answer = transport._client.get(f"/v1/sessions/{transport.session_id}/pending")
        assert answer.json()["items"] == []


def test_an_error_of_the_users_backward_is_theirs_and_ends_the_pass(session: tg.Session) -> None:
    def backward(ctx: Any, grad: Any) -> Any:
        (grad * 2).sum().item()
        raise KeyError("mine")

    x = leaf(tg)
    y = function(tg, forward=lambda ctx, x: x * 2, backward=backward).apply(x)
    for create_graph in (False, True):
        with pytest.raises(KeyError, match="mine") as caught:
            (y * x).sum().backward(create_graph=create_graph, retain_graph=True)
        assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "backward"
    nothing_waits(session)
    assert tg.is_grad_enabled()
    (x * 2).sum().backward()
    assert (x * 3).sum().item() == 18


def test_an_error_of_the_session_in_the_users_backward_is_raised_there(session: tg.Session) -> None:
    def backward(ctx: Any, grad: Any) -> Any:
        with pytest.raises(RuntimeError):
            tg.linalg.inv(tg.zeros(2, 2)).sum().item()
        return grad * 5

    x = leaf(tg)
    function(tg, forward=lambda ctx, x: x * 2, backward=backward).apply(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [5, 5, 5]

    def broken(ctx: Any, grad: Any) -> Any:
        return grad * tg.linalg.inv(tg.zeros(3, 3, dtype=tg.float64)).sum()

    y = function(tg, forward=lambda ctx, x: x * 2, backward=broken).apply(x)
    with pytest.raises(RuntimeError, match="singular"):
        cube(tg).apply(y).sum().backward()
        x.grad.tolist()
    nothing_waits(session)


def test_a_function_that_asks_for_no_values_takes_no_round_trip(session: tg.Session) -> None:
    x = leaf(tg)
    y = cube(tg).apply(cube(tg).apply(x))
    before = session.recorder.waits
    y.sum().backward()
    assert session.recorder.waits == before
    assert x.grad is not None
    x.grad.tolist()
    assert session.recorder.waits == before + 1


def test_nothing_is_left_in_the_session(session: tg.Session) -> None:
    x = leaf(tg)
    before = held(session)

    def run() -> None:
        y = exponential(tg).apply(cube(tg).apply(x * 0.1) * 2)
        y.sum().backward()
        exponential(tg).apply(cube(tg).apply(x * 2))  # and one without a backward pass
        x.grad = None

    gc.collect()
    gc.disable()
    try:
        run()
        assert held(session) == before
    finally:
        gc.enable()


def test_what_was_saved_is_freed_by_backward(session: tg.Session) -> None:
    x = leaf(tg)
    y = cube(tg).apply(x * 2)
    y.sum().backward()
    with pytest.raises(GraphFreed):
        _ = y.grad_fn.saved_tensors


def test_stops_in_another_order_than_the_shadow_expects(session: tg.Session) -> None:
    """A view's history is rebuilt when it is needed, which the session does later than the client."""
    x = leaf(tg)
    base = x * 1
    view = base[0:2]
    base.mul_(2)
    assert view.requires_grad  # the client rebuilds the history here, before y's node exists
    y = cube(tg).apply(x)
    seen: list[str] = []
    view.register_hook(lambda grad: seen.append("view"))
    y.register_hook(lambda grad: seen.append("y"))
    (view.sum() + y.sum()).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [5, 14, 27]
    assert sorted(seen) == ["view", "y"]
    nothing_waits(session)


def checked_cube(lib: Any) -> Any:
    """A Function with everything that ``gradcheck`` asks for."""

    class Cubed(lib.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * x * x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            return grad * 3 * x * x

        @staticmethod
        def jvp(ctx: Any, tangent: Any) -> Any:
            (x,) = ctx.saved_tensors
            return tangent * 3 * x * x

        @staticmethod
        def vmap(info: Any, dims: Any, x: Any) -> Any:
            return Cubed.apply(x), dims[0]

    return Cubed


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"check_batched_grad": True},
        {"check_forward_ad": True},
        {"check_forward_ad": True, "check_batched_forward_grad": True},
        {"check_forward_ad": True, "fast_mode": True},
    ],
)
def test_gradcheck_of_a_function_with_setup_context_and_vmap(options: Any) -> None:
    def function(lib: Any) -> Any:
        x = lib.tensor([0.5, -1.0, 2.0], dtype=lib.float64, requires_grad=True)
        return lib.autograd.gradcheck(checked_cube(lib).apply, (x,), **options)

    same(function)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_gradcheck_finds_a_wrong_jvp() -> None:
    def function(lib: Any) -> Any:
        wrong = checked_cube(lib)
        wrong.jvp = staticmethod(lambda ctx, tangent: tangent * 3)
        x = lib.tensor([0.5, -1.0, 2.0], dtype=lib.float64, requires_grad=True)
        return lib.autograd.gradcheck(wrong.apply, (x,), check_forward_ad=True)

    same_error(function, "Jacobian computed with forward mode mismatch for output 0 with respect to input 0")


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
