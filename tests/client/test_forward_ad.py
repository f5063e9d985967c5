"""``autograd.forward_ad`` beside torch's: tangents in place, of Functions, and together with backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from .custom_functions import double, function
from .parity import ENGINE, bodies, same, same_error

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
EVERYWHERE = pytest.mark.usefixtures("everywhere")

RANDOM = np.random.default_rng(5)
X, V, W = RANDOM.standard_normal((5, 3)), RANDOM.standard_normal((5, 3)), RANDOM.standard_normal((3, 3))


def values(t: Any, array: Any, **options: Any) -> Any:
    return t.tensor(np.asarray(array).tolist(), dtype=t.float64, **options)


def unpacked(t: Any, *tensors: Any) -> Any:
    return [tuple(t.autograd.forward_ad.unpack_dual(x)) for x in tensors]


def dual(t: Any) -> Any:
    return t.autograd.forward_ad.make_dual(values(t, X), values(t, V))


class Within:
    """Functions, called within a level, whose results must be the same in both libraries."""

    def ops(t: Any) -> Any:
        d = dual(t)
        y = t.tanh(d @ values(t, W)) + t.nn.functional.softmax(d, 1)
        z = y[1:].reshape(-1)
        return unpacked(
            t, y, z, t.cat([z, z]), z.sort()[0], z.max(), d.detach(), d.sum(0, keepdim=True), t.stack([d, d * d])
        )

    def a_dual(t: Any) -> Any:
        x, v = values(t, X), values(t, V)
        d = t.autograd.forward_ad.make_dual(x, v)
        tangent = t.autograd.forward_ad.unpack_dual(d).tangent
        return d.is_leaf, d.requires_grad, d._base is x, tangent is v, unpacked(t, x, d)

    def with_and_without_a_tangent(t: Any) -> Any:
        d = dual(t)
        with t.no_grad():
            unrecorded = unpacked(t, d.sin())
        with t.inference_mode():
            inside = unpacked(t, d.sin())
        results = [d * d, d.floor(), d > 1, d.to(t.int64), d.clone(), d.view(3, 5), d[1:], 2 - d, d * 0, *d.split(2)]
        return unpacked(t, *results), unrecorded, inside

    def written_to_a_base(t: Any) -> Any:
        y = t.zeros(5, 3, dtype=t.float64)
        view = y[:1]
        y.add_(dual(t))
        return unpacked(t, y, view)

    def written_to_a_view(t: Any) -> Any:
        y = t.zeros(5, 3, dtype=t.float64)
        view = y[:1]
        view.add_(dual(t)[1])
        return unpacked(t, y, view)

    def written_to_a_dual(t: Any) -> Any:
        v = values(t, V)
        d = t.autograd.forward_ad.make_dual(values(t, X), v)
        view = d.view(3, 5)
        d.mul_(d.clone())
        d[0] = 7.0
        return unpacked(t, d, view), v

    def overwritten(t: Any) -> Any:
        return unpacked(t, dual(t).zero_(), dual(t).fill_(2.0), dual(t).copy_(values(t, X)))

    def changed_geometry(t: Any) -> Any:
        return unpacked(t, dual(t).clone().t_())

    def a_composite_in_place(t: Any) -> Any:
        d = dual(t)
        return unpacked(t, d.addcmul_(d.clone(), values(t, V), value=3.0))

    def in_place(t: Any) -> Any:
        d = dual(t).clone()
        view, plain = d[1], values(t, X)
        d.mul_(2)
        view.add_(d[0])
        d[0] = 7.0
        plain[2] = d[2]
        plain.sin_()
        return unpacked(t, d, view, plain)

    def gradients_of_a_tangent(t: Any) -> Any:
        f, x, v = t.autograd.forward_ad, values(t, X, requires_grad=True), values(t, V, requires_grad=True)
        primal, tangent = f.unpack_dual((f.make_dual(x, v).sin() * x).sum())
        tangent.backward()
        with t.no_grad():
            unrecorded = f.unpack_dual(f.make_dual(x, v).sin()).tangent
        return x.grad.clone(), v.grad.clone(), primal.requires_grad, unrecorded.requires_grad

    def values_that_backward_stores(t: Any) -> Any:
        x = values(t, X, requires_grad=True)
        (t.autograd.forward_ad.make_dual(x, values(t, V)) ** 3).sum().backward()
        return unpacked(t, x.grad)

    def reverse_over_forward(t: Any) -> Any:
        w = values(t, W, requires_grad=True)
        tangent = t.autograd.forward_ad.unpack_dual(t.tanh(dual(t) @ w)).tangent
        tangent.sum().backward()
        return tangent, w.grad

    def forward_over_reverse(t: Any) -> Any:
        x = values(t, X, requires_grad=True)
        d = t.autograd.forward_ad.make_dual(x, values(t, V))
        (g,) = t.autograd.grad((d**3).sum(), d, create_graph=True)
        return t.autograd.forward_ad.unpack_dual(g).tangent.detach()

    def a_function(t: Any) -> Any:
        return unpacked(t, exponential(t).apply(dual(t) * 2))

    def a_function_of_several_tensors(t: Any) -> Any:
        f = t.autograd.forward_ad
        seen: list[Any] = []

        def forward(ctx: Any, x: Any, k: float, y: Any, i: Any) -> Any:
            seen.append(("forward", unpacked(t, x, x * 2), f._is_fwd_grad_enabled()))
            ctx.save_for_forward(x, y)
            ctx.save_for_backward(x)
            return x * y * k, x + i

        def jvp(ctx: Any, dx: Any, dk: Any, dy: Any, di: Any) -> Any:
            seen.append((dx, dk, dy, di, ctx.needs_input_grad, f._is_fwd_grad_enabled(), t.is_grad_enabled()))
            x, y = ctx.saved_tensors
            return dx * y * 2 + x * dy * 2, dx

        results = function(t, forward=forward, jvp=jvp).apply(dual(t), 2.0, values(t, V), t.ones(5, 3).long())
        return unpacked(t, *results), seen

    def a_function_without_zeros(t: Any) -> Any:
        seen: list[Any] = []

        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.set_materialize_grads(False)
            return x * y

        fn = function(t, forward=forward, jvp=lambda ctx, dx, dy: seen.append((dx, dy)) or dx)
        return unpacked(t, fn.apply(dual(t), values(t, V))), seen

    def switched_off(t: Any) -> Any:
        f, d = t.autograd.forward_ad, dual(t)
        with f._set_fwd_grad_enabled(False):
            off = f._is_fwd_grad_enabled(), unpacked(t, d * 2, d, dual(t))
        with t.inference_mode():
            return off, unpacked(t, d * 2, d), f._is_fwd_grad_enabled()

    def switched_off_by_a_call(t: Any) -> Any:
        f, d = t.autograd.forward_ad, dual(t)
        f._set_fwd_grad_enabled(False)
        still = f._is_fwd_grad_enabled()
        f._set_fwd_grad_enabled(True)
        return still, unpacked(t, d)

    def inside_a_function(t: Any) -> Any:
        seen: list[Any] = []

        def forward(ctx: Any, x: Any) -> Any:
            seen.append((t.autograd.forward_ad._is_fwd_grad_enabled(), unpacked(t, dual(t))))
            return x * 2

        return unpacked(t, function(t, forward=forward, jvp=lambda ctx, v: v * 2).apply(dual(t))), seen

    def printed(t: Any) -> Any:
        d = t.autograd.forward_ad.make_dual(t.ones(2), t.ones(2))
        return repr(d), repr(d * 2)


def a_level_by_a_decorator(t: Any) -> Any:
    return t.autograd.forward_ad.dual_level()(lambda: unpacked(t, dual(t) * 2))()


def a_level_by_a_call(t: Any) -> Any:
    level = t.autograd.forward_ad.enter_dual_level()
    found = unpacked(t, dual(t).exp())
    t.autograd.forward_ad.exit_dual_level()
    return level, found


def a_module(t: Any) -> Any:
    m = t.nn.Linear(3, 3).double()
    with t.no_grad():
        m.weight.copy_(values(t, W))
        m.bias.zero_()
    for name, p in list(m.named_parameters()):
        delattr(m, name)
        setattr(m, name, t.autograd.forward_ad.make_dual(p.detach(), t.ones_like(p.detach())))
    return unpacked(t, m(values(t, X)).sin())


def exponential(t: Any) -> Any:
    """exp, which saves its output, with a jvp."""

    def forward(ctx: Any, x: Any) -> Any:
        y = x.exp()
        ctx.save_for_backward(y)
        ctx.save_for_forward(y)
        return y

    derivative = lambda ctx, grad: grad * ctx.saved_tensors[0]  # noqa: E731
    return function(t, forward=forward, backward=derivative, jvp=derivative)


def within(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the call within a level of its library."""

    def run(t: Any, *args: Any) -> Any:
        with t.autograd.forward_ad.dual_level():
            return call(t, *args)

    return run


@EVERYWHERE
@pytest.mark.parametrize("run", bodies(Within), ids=lambda run: run.__name__)
def test_tangents(run: Callable[[Any], Any]) -> None:
    same(within(run))


@pytest.mark.usefixtures("session")
def test_a_module_has_tangents() -> None:
    same(within(a_module))


@EVERYWHERE
@pytest.mark.parametrize("run", [a_level_by_a_decorator, a_level_by_a_call])
def test_levels(run: Callable[[Any], Any]) -> None:
    same(run)


@EVERYWHERE
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize(
    "of_x",
    [
        lambda t, x: x.sin() * x,
        lambda t, x: x.tanh().exp(),
        lambda t, x: x.softmax(0).log(),
        lambda t, x: t.stack([x, x * x, x.exp()]).prod(0),
        lambda t, x: (x * 1).mul_(x).sigmoid_(),
        lambda t, x: x @ x.t(),
    ],
)
def test_gradients_have_tangents(of_x: Callable[[Any, Any], Any], create_graph: bool) -> None:
    """Forward over reverse: the product of a Hessian and a vector."""

    def run(t: Any) -> Any:
        x = values(t, X, requires_grad=True)
        y = of_x(t, t.autograd.forward_ad.make_dual(x, values(t, V)))
        (grad,) = t.autograd.grad(y.sum(), x, create_graph=create_graph)
        return [part.detach() for part in t.autograd.forward_ad.unpack_dual(grad)], grad.requires_grad

    same(within(run))


@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_of_a_function_have_tangents(create_graph: bool) -> None:
    def run(t: Any) -> Any:
        x = values(t, X, requires_grad=True)
        y = exponential(t).apply(t.autograd.forward_ad.make_dual(x, values(t, V)))
        return unpacked(t, *t.autograd.grad(y.sum(), x, create_graph=create_graph))

    same(within(run), lib=ENGINE)


def dirty(ctx: Any, x: Any) -> Any:
    ctx.mark_dirty(x)
    return x.mul_(2)


def constant(ctx: Any, x: Any) -> Any:
    y = x * 2
    ctx.mark_non_differentiable(y)
    return y, x * 3


def of_a_function(t: Any, jvp: Any, forward: Any) -> Any:
    result = function(t, forward=forward, jvp=jvp).apply(dual(t))
    return unpacked(t, *(result if isinstance(result, tuple) else (result,)))


@EVERYWHERE
@pytest.mark.parametrize(
    ("jvp", "forward"),
    [
        (lambda ctx, v: v.mul_(2), dirty),
        (lambda ctx, v: (None, v), constant),
        (lambda ctx, v: v[:1], lambda ctx, x: x[:1]),
        (lambda ctx, v: v.view(5, 3), lambda ctx, x: x),
    ],
)
def test_outputs_of_a_function_that_are_inputs_views_or_constant(jvp: Any, forward: Any) -> None:
    same(lambda t: within(of_a_function)(t, jvp, forward))


@EVERYWHERE
@pytest.mark.parametrize(
    ("jvp", "forward"),
    [
        (lambda ctx, v: (v, v), double),
        (lambda ctx, v: 1.0, double),
        (lambda ctx, v: v[:1], double),
        (lambda ctx, v: v * 2, dirty),
        (lambda ctx, v: (v, v), constant),
        (lambda ctx, v: v[:1].clone(), lambda ctx, x: x[:1]),
        (lambda ctx, v: v, lambda ctx, x: x),
    ],
)
def test_wrong_tangents_of_a_function(jvp: Any, forward: Any) -> None:
    same_error(lambda t: within(of_a_function)(t, jvp, forward), whole=True)


@EVERYWHERE
def test_tangents_end_with_the_level() -> None:
    def run(t: Any) -> Any:
        with t.autograd.forward_ad.dual_level() as level:
            d = dual(t)
        return level, unpacked(t, d), repr(d)

    same(run)


@EVERYWHERE
def test_forward_mode_is_switched_off_before_a_level() -> None:
    def run(t: Any) -> Any:
        f = t.autograd.forward_ad
        with f._set_fwd_grad_enabled(False):
            off = f._is_fwd_grad_enabled()
            with f.dual_level():
                return off, unpacked(t, dual(t)), f._is_fwd_grad_enabled()

    same(run)


@EVERYWHERE
@pytest.mark.parametrize("fast_mode", [False, True])
def test_gradcheck_checks_forward_mode(fast_mode: bool) -> None:
    def run(t: Any) -> Any:
        x, w = values(t, X, requires_grad=True), values(t, W, requires_grad=True)
        options = {"fast_mode": fast_mode}
        first = t.autograd.gradcheck(lambda x, w: t.tanh(x @ w), (x, w), check_forward_ad=True, **options)
        return first, t.autograd.gradgradcheck(lambda x: x.sin().sum(1), (x,), check_fwd_over_rev=True, **options)

    same(run)


@pytest.mark.usefixtures("session")
def test_a_sample_of_a_batch_has_a_tangent() -> None:
    def directional(x: Any, v: Any) -> Any:
        with tg.autograd.forward_ad.dual_level():
            cubes = (tg.autograd.forward_ad.make_dual(x, v) ** 3).sum()
            return tg.autograd.forward_ad.unpack_dual(cubes).tangent

    found = tg.vmap(directional)(values(tg, X), values(tg, V))
    np.testing.assert_allclose(found.numpy(), (3 * X**2 * V).sum(1))


WRONG: dict[str, Callable[[Any], Any]] = {
    "no level": dual,
    "no level to exit": lambda t: t.autograd.forward_ad.exit_dual_level(),
    "nested": within(lambda t: t.autograd.forward_ad.enter_dual_level()),
    "other level": within(lambda t: t.autograd.forward_ad.exit_dual_level(level=3)),
    "integers": within(lambda t: t.autograd.forward_ad.make_dual(t.tensor([1]), t.ones(1))),
    "twice": within(lambda t: t.autograd.forward_ad.make_dual(dual(t), values(t, V))),
    "tangent of tangent": within(lambda t: t.autograd.forward_ad.make_dual(values(t, V), dual(t))),
    "shape": within(lambda t: t.autograd.forward_ad.make_dual(t.ones(2), t.ones(3))),
    "level below": within(lambda t: t.autograd.forward_ad.make_dual(values(t, X), values(t, V), level=-1)),
    "level above": within(lambda t: t.autograd.forward_ad.make_dual(values(t, X), values(t, V), level=2)),
    "integers as tangent": within(lambda t: t.autograd.forward_ad.make_dual(t.ones(1), t.tensor([1]))),
    "no jvp": within(lambda t: function(t, forward=double).apply(dual(t))),
    "unpack": within(lambda t: t.autograd.forward_ad.unpack_dual(3)),
}


@EVERYWHERE
@pytest.mark.parametrize("name", WRONG)
def test_wrong_uses_raise_as_in_torch(name: str) -> None:
    same_error(WRONG[name], whole=True)


@EVERYWHERE
def test_outside_of_a_level_anything_is_its_own_value() -> None:
    same(lambda t: tuple(t.autograd.forward_ad.unpack_dual(3)))


def test_every_public_name_is_there() -> None:
    assert set(torch.autograd.forward_ad.__all__) <= set(tg.autograd.forward_ad.__all__)
