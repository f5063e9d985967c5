"""``telegrad.autograd.forward_ad`` compared with torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from .parity import same, same_error

pytestmark = [
    pytest.mark.usefixtures("session"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]

RANDOM = np.random.default_rng(5)
X, V, W = RANDOM.standard_normal((5, 3)), RANDOM.standard_normal((5, 3)), RANDOM.standard_normal((3, 3))


def values(t: Any, array: Any, **options: Any) -> Any:
    return t.tensor(np.asarray(array).tolist(), dtype=t.float64, **options)


def unpacked(t: Any, *tensors: Any) -> Any:
    return [tuple(t.autograd.forward_ad.unpack_dual(x)) for x in tensors]


def dual(t: Any) -> Any:
    return t.autograd.forward_ad.make_dual(values(t, X), values(t, V))


def ops(t: Any) -> Any:
    d = dual(t)
    y = t.tanh(d @ values(t, W)) + t.nn.functional.softmax(d, 1)
    z = y[1:].reshape(-1)
    return unpacked(
        t, y, z, t.cat([z, z]), z.sort()[0], z.max(), d.detach(), d.sum(0, keepdim=True), t.stack([d, d * d])
    )


def in_place(t: Any) -> Any:
    d = dual(t).clone()
    view, plain = d[1], values(t, X)
    d.mul_(2)
    view.add_(d[0])
    d[0] = 7.0
    plain[2] = d[2]
    plain.sin_()
    return unpacked(t, d, view, plain)


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


def a_module(t: Any) -> Any:
    m = t.nn.Linear(3, 3).double()
    with t.no_grad():
        m.weight.copy_(values(t, W))
        m.bias.zero_()
    for name, p in list(m.named_parameters()):
        delattr(m, name)
        setattr(m, name, t.autograd.forward_ad.make_dual(p.detach(), t.ones_like(p.detach())))
    return unpacked(t, m(values(t, X)).sin())


def a_function(t: Any) -> Any:
    class Exp(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x.exp()
            ctx.save_for_forward(y)
            return y

        @staticmethod
        def jvp(ctx: Any, v: Any) -> Any:
            return v * ctx.saved_tensors[0]

    return unpacked(t, Exp.apply(dual(t) * 2))


def switched_off(t: Any) -> Any:
    f, d = t.autograd.forward_ad, dual(t)
    with f._set_fwd_grad_enabled(False):
        off = f._is_fwd_grad_enabled(), unpacked(t, d * 2, d, dual(t))
    with t.inference_mode():
        return off, unpacked(t, d * 2, d), f._is_fwd_grad_enabled()


def inside_a_function(t: Any) -> Any:
    class Twice(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            seen.append((t.autograd.forward_ad._is_fwd_grad_enabled(), unpacked(t, dual(t))))
            return x * 2

        @staticmethod
        def jvp(ctx: Any, v: Any) -> Any:
            return v * 2

    seen: list[Any] = []
    return unpacked(t, Twice.apply(dual(t))), seen


def printed(t: Any) -> Any:
    return repr(t.autograd.forward_ad.make_dual(t.ones(2), t.ones(2)) * 2)


@pytest.mark.parametrize(
    "run",
    [
        ops,
        in_place,
        reverse_over_forward,
        forward_over_reverse,
        a_module,
        a_function,
        switched_off,
        inside_a_function,
        printed,
    ],
)
def test_tangents(run: Callable[[Any], Any]) -> None:
    def within(t: Any) -> Any:
        with t.autograd.forward_ad.dual_level():
            return run(t)

    same(within)


def test_tangents_end_with_the_level() -> None:
    def run(t: Any) -> Any:
        with t.autograd.forward_ad.dual_level() as level:
            d = dual(t)
        return level, unpacked(t, d), repr(d)

    same(run)


def test_forward_mode_is_switched_off_before_a_level() -> None:
    def run(t: Any) -> Any:
        f = t.autograd.forward_ad
        with f._set_fwd_grad_enabled(False):
            off = f._is_fwd_grad_enabled()
            with f.dual_level():
                return off, unpacked(t, dual(t)), f._is_fwd_grad_enabled()

    same(run)


@pytest.mark.parametrize("fast_mode", [False, True])
def test_gradcheck_checks_forward_mode(fast_mode: bool) -> None:
    def run(t: Any) -> Any:
        x, w = values(t, X, requires_grad=True), values(t, W, requires_grad=True)
        options = {"fast_mode": fast_mode}
        first = t.autograd.gradcheck(lambda x, w: t.tanh(x @ w), (x, w), check_forward_ad=True, **options)
        return first, t.autograd.gradgradcheck(lambda x: x.sin().sum(1), (x,), check_fwd_over_rev=True, **options)

    same(run)


def test_a_sample_of_a_batch_has_a_tangent() -> None:
    def directional(x: Any, v: Any) -> Any:
        with tg.autograd.forward_ad.dual_level():
            cubes = (tg.autograd.forward_ad.make_dual(x, v) ** 3).sum()
            return tg.autograd.forward_ad.unpack_dual(cubes).tangent

    found = tg.vmap(directional)(values(tg, X), values(tg, V))
    np.testing.assert_allclose(found.numpy(), (3 * X**2 * V).sum(1))


def within(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(t: Any) -> Any:
        with t.autograd.forward_ad.dual_level():
            return call(t)

    return run


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
    "unpack": within(lambda t: t.autograd.forward_ad.unpack_dual(3)),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_uses_raise_as_in_torch(name: str) -> None:
    same_error(WRONG[name], whole=True)


def test_outside_of_a_level_anything_is_its_own_value() -> None:
    same(lambda t: tuple(t.autograd.forward_ad.unpack_dual(3)))


def test_every_public_name_is_there() -> None:
    assert set(torch.autograd.forward_ad.__all__) <= set(tg.autograd.forward_ad.__all__)
