"""``autograd.forward_ad`` beside torch's: tangents of ops, in place, of Functions, and together with backward."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad as torch_forward_ad

import telegrad_engine as tg
from telegrad_engine.schema.op import CATALOGUE, Op

from ..op_cases import cases_of
from ..op_cases.stand_ins import Case
from . import oracle
from .test_function import function
from .twins import both, both_raise, leaf

forward_ad = tg.autograd.forward_ad
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated", "ignore::UserWarning")


def within(body: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """``body(t, f)`` within a level, ``f`` being the module."""

    def run(t: Any) -> Any:
        with t.autograd.forward_ad.dual_level():
            return body(t, t.autograd.forward_ad)

    return run


def dual(t: Any, values: Any = (1.0, 2.0, 3.0), tangent: Any = (4.0, 5.0, -6.0), **options: Any) -> Any:
    return t.autograd.forward_ad.make_dual(t.tensor(list(values), **options), t.tensor(list(tangent)))


def pair(f: Any, tensor: Any) -> Any:
    """A value and its tangent."""
    return tuple(f.unpack_dual(tensor))


# Ops -------------------------------------------------------------------------------------------------------


def tangents(module: Any, call: oracle.Call, make: Any, function: Any) -> Any:
    """What a call gives, and the tangents of that, for the same tangents of its inputs in both worlds."""
    vectors = oracle.random_like(call.inputs, 7)
    duals = {id(x): module.make_dual(x, make(v)) for x, v in zip(call.inputs, vectors, strict=True)}

    def replaced(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(replaced(v) for v in value)
        return duals.get(id(value), value)

    args, kwargs = [replaced(a) for a in call.args], {k: replaced(v) for k, v in call.kwargs.items()}
    outputs = oracle.as_list(function(*args, **kwargs))
    return [module.unpack_dual(o).tangent if hasattr(o, "detach") else None for o in outputs]


OTHERWISE = {
    "embedding": "T(3, 2)",  # of the padded row backward leaves out the gradient, and so the tangent
    "cholesky_inverse": "",  # torch's forward rule takes the other triangle of a factor for something else
    "triangular_solve": "",  # likewise
    "std.unbiased": "T()",  # of one element torch's tangent is NaN, and its gradient is not
    "std_mean.unbiased": "T()",
    "linalg_cholesky": "",  # of a symmetric matrix: what a tangent that is not symmetric means is not fixed
    "linalg_eigh": "",
    "logcumsumexp": "T(4,)",  # where everything is -inf
    "logsumexp": "T(0, 3)",  # likewise
    "scatter_reduce": "prod",  # torch has no rule where an index occurs twice
}
"""What the case's text has in it where the transposed derivative is not torch's forward rule."""
CASES = [
    (op, case)
    for op in CATALOGUE
    if op.differentiable and not (op.internal or op.random)
    for case in cases_of(op)[:4]
    if OTHERWISE.get(op.key, "nothing") not in repr(case)
]


@pytest.mark.parametrize(("op", "case"), CASES, ids=lambda v: getattr(v, "key", None))
def test_the_tangents_of_every_op_are_torchs(op: Op, case: Case) -> None:
    try:
        arrays = oracle.arrays_of(case, np.dtype(np.float64))
        call = oracle.with_dtypes(oracle.build(case, arrays, oracle.make_torch), torch)
        with torch_forward_ad.dual_level():
            expected = tangents(torch_forward_ad, call, oracle.make_torch, oracle.torch_function(op))
    except (*oracle.ERROR_BASES, ValueError) as error:
        pytest.skip(f"torch has no forward mode here: {error!s:.60}")
    call = oracle.with_dtypes(oracle.build(case, arrays, tg.tensor), tg.dtypes)
    with forward_ad.dual_level():
        found = tangents(forward_ad, call, tg.tensor, oracle.our_function(op))
    for ours, theirs in zip(found, expected, strict=True):
        if theirs is None or ours is None:
            assert theirs is None or not theirs.detach().abs().sum(), "torch has a tangent"
            assert ours is None or not ours.detach().abs().sum().item(), "torch has none"
        else:
            oracle.assert_close(ours.detach(), theirs.detach(), "tangent")


def test_a_dual_tensor_is_a_view_with_a_tangent() -> None:
    def body(t: Any, f: Any) -> Any:
        x, v = t.tensor([1.0, 2.0]), t.tensor([3.0, 4.0])
        d = f.make_dual(x, v)
        tangent = f.unpack_dual(d).tangent
        return repr(d), d.is_leaf, d.requires_grad, d._base is x, tangent is v, pair(f, x), pair(f, d), repr(d * 2)

    both(within(body))


def test_what_has_a_tangent_and_what_has_none() -> None:
    def body(t: Any, f: Any) -> Any:
        d = dual(t)
        with t.no_grad():
            unrecorded = pair(f, d.sin())
        with t.inference_mode():
            inside = pair(f, d.sin())
        results = [d * d, d.detach(), d.floor(), d > 1, d.to(t.int64), d.clone(), d.view(3, 1), d[1:], 2 - d, d * 0]
        return [pair(f, r) for r in results], unrecorded, inside, [pair(f, p) for p in d.split(2)]

    both(within(body))


def test_tangents_end_with_the_level() -> None:
    def body(t: Any) -> Any:
        f = t.autograd.forward_ad
        with f.dual_level() as level:
            kept = dual(t)
        after = pair(f, kept), repr(kept), level
        with f.dual_level():
            return after, pair(f, kept)

    both(body)


def test_levels_by_function_and_decorator() -> None:
    def body(t: Any) -> Any:
        f = t.autograd.forward_ad

        @f.dual_level()
        def decorated() -> Any:
            return pair(f, dual(t) * 2)

        level = f.enter_dual_level()
        before = pair(f, dual(t).exp())
        f.exit_dual_level()
        return level, before, decorated()

    both(body)


def test_forward_mode_is_switched_off() -> None:
    def body(t: Any, f: Any) -> Any:
        d = dual(t)
        with f._set_fwd_grad_enabled(False):
            off = f._is_fwd_grad_enabled(), pair(f, d * 2), pair(f, d), pair(f, dual(t))
        f._set_fwd_grad_enabled(False)
        still = f._is_fwd_grad_enabled()
        f._set_fwd_grad_enabled(True)
        return off, still, pair(f, d)

    both(within(body))


MISUSE: list[Callable[[Any, Any], Any]] = [
    lambda t, f: f.make_dual(t.tensor([1]), t.tensor([1.0])),
    lambda t, f: f.make_dual(t.tensor([1.0]), t.tensor([1])),
    lambda t, f: f.make_dual(t.tensor([1.0]), t.tensor([1.0, 2.0])),
    lambda t, f: f.make_dual(dual(t), t.tensor([1.0, 2.0, 3.0])),
    lambda t, f: f.make_dual(t.tensor([1.0, 2.0, 3.0]), dual(t)),
    lambda t, f: f.make_dual(t.tensor([1.0]), t.tensor([1.0]), level=1),
    lambda t, f: f.unpack_dual(1.0),
    lambda t, f: f.enter_dual_level(),
    lambda t, f: f.exit_dual_level(level=1),
]


@pytest.mark.parametrize("use", MISUSE)
def test_misuse(use: Any) -> None:
    both_raise(within(use))


def test_misuse_outside_of_a_level() -> None:
    both_raise(lambda t: t.autograd.forward_ad.make_dual(t.tensor([1.0]), t.tensor([1.0])))
    both_raise(lambda t: t.autograd.forward_ad.exit_dual_level())
    both(lambda t: pair(t.autograd.forward_ad, t.tensor([1.0])))


def test_an_op_that_is_not_differentiable_twice() -> None:
    def use(f: Any, make: Any, ctc: Any) -> Any:
        values = np.log(np.full((5, 1, 3), 1 / 3))
        d = f.make_dual(make(values), make(values))
        return ctc(d, make(np.array([[1, 2]])), make(np.array([5])), make(np.array([2])))

    words = "that does not support it because it has not been implemented yet.\nPlease file an issue"
    with torch_forward_ad.dual_level(), pytest.raises(NotImplementedError, match=words):
        use(torch_forward_ad, torch.tensor, torch.nn.functional.ctc_loss)
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match=words):
        use(forward_ad, tg.tensor, tg.functions.ctc_loss)


def test_random_ops_draw_once() -> None:
    with forward_ad.dual_level():
        d = forward_ad.make_dual(tg.functions.ones(100), tg.functions.full((100,), 3.0))
        tg.manual_seed(5)
        primal, tangent = forward_ad.unpack_dual(tg.functions.dropout(d, 0.5))
        again = d.clone()
        again.bernoulli_(0.5)
        assert not forward_ad.unpack_dual(again).tangent.any()
    assert tangent.tolist() == (primal * 3).tolist()
    tg.manual_seed(5)
    assert primal.tolist() == tg.functions.dropout(tg.functions.ones(100), 0.5).tolist()


def test_composites_and_autocast() -> None:
    with forward_ad.dual_level(), tg.autocast("cpu"):
        a = forward_ad.make_dual(tg.functions.ones(2, 3), tg.functions.ones(2, 3))
        primal, tangent = forward_ad.unpack_dual(tg.functions.mm(a, tg.functions.ones(3, 2)))
    assert (primal.dtype.name, tangent.dtype.name) == ("bfloat16", "bfloat16")
    assert tangent.tolist() == [[3.0, 3.0], [3.0, 3.0]]


def test_another_thread_has_no_level() -> None:
    seen: list[Any] = []
    with forward_ad.dual_level():
        d = dual_of_ours()
        thread = threading.Thread(target=lambda: seen.append(forward_ad.unpack_dual(d * 2).tangent))
        thread.start()
        thread.join()
        assert forward_ad.unpack_dual(d * 2).tangent is not None
    assert seen == [None]


def dual_of_ours() -> Any:
    return forward_ad.make_dual(tg.tensor([1.0]), tg.tensor([1.0]))


def test_nothing_is_left_once_the_level_ended() -> None:
    methods = tg.Tensor.__dict__.get("__mul__"), tg.Tensor.__dict__["_values"]
    gc.collect()
    gc.disable()
    try:
        with forward_ad.dual_level():
            d = dual_of_ours()
            tangent = weakref.ref(forward_ad.unpack_dual(d * d).tangent)
            assert tangent() is None
            result = d.exp()
            tangent = weakref.ref(forward_ad.unpack_dual(result).tangent)
            assert tangent() is not None
        assert tangent() is None
    finally:
        gc.enable()
    assert (tg.Tensor.__dict__.get("__mul__") is None) == (methods[0] is None)
    assert tg.Tensor.__dict__["_values"] is methods[1]


# In place --------------------------------------------------------------------------------------------------


def write_dual_to_base(t: Any, f: Any) -> Any:
    y = t.tensor([0.0, 0.0, 0.0])
    view = y[:1]
    y.add_(dual(t))
    return pair(f, y), pair(f, view)


def write_dual_to_view(t: Any, f: Any) -> Any:
    y = t.tensor([0.0, 0.0, 0.0])
    view = y[:1]
    view.add_(dual(t)[1])
    return pair(f, y), pair(f, view)


def write_to_dual(t: Any, f: Any) -> Any:
    v = t.tensor([1.0, 2.0])
    d = f.make_dual(t.tensor([3.0, 4.0]), v)
    view = d.view(2, 1)
    d.mul_(d.clone())
    d[0] = 7.0
    return pair(f, d), pair(f, view), v


def overwrite(t: Any, f: Any) -> Any:
    zeroed, filled, copied = dual(t), dual(t), dual(t)
    return pair(f, zeroed.zero_()), pair(f, filled.fill_(2.0)), pair(f, copied.copy_(t.tensor([1.0, 1.0, 1.0])))


def transpose(t: Any, f: Any) -> Any:
    d = dual(t).view(3, 1).clone()
    d.t_()
    return pair(f, d)


def composite(t: Any, f: Any) -> Any:
    d = dual(t)
    d.addcmul_(d.clone(), t.tensor([2.0, 2.0, 2.0]), value=3.0)
    return pair(f, d)


@pytest.mark.parametrize(
    "use", [write_dual_to_base, write_dual_to_view, write_to_dual, overwrite, transpose, composite]
)
def test_in_place(use: Any) -> None:
    both(within(use))


# Functions -------------------------------------------------------------------------------------------------


def of(t: Any, jvp: Any, forward: Any = None) -> Any:
    return function(t, forward=forward or (lambda ctx, x, *rest: x * 2), jvp=jvp)


def dirty(ctx: Any, x: Any) -> Any:
    ctx.mark_dirty(x)
    return x.mul_(2)


def constant(ctx: Any, x: Any) -> Any:
    y = x * 2
    ctx.mark_non_differentiable(y)
    return y, x * 3


def test_the_users_jvp_makes_the_tangents() -> None:
    def body(t: Any, f: Any) -> Any:
        seen: list[Any] = []

        def saving(ctx: Any, x: Any, k: float, y: Any, i: Any) -> Any:
            seen.append(("forward", pair(f, x), pair(f, x * 2), f._is_fwd_grad_enabled()))
            ctx.save_for_forward(x, y)
            ctx.save_for_backward(x)
            return x * y * k, x + i

        def jvp(ctx: Any, dx: Any, dk: Any, dy: Any, di: Any) -> Any:
            seen.append((dx, dk, dy, di, ctx.needs_input_grad, f._is_fwd_grad_enabled(), t.is_grad_enabled()))
            x, y = ctx.saved_tensors
            return dx * y * 2 + x * dy * 2, dx

        results = of(t, jvp, saving).apply(dual(t), 2.0, t.tensor([5.0, 6.0, 7.0]), t.tensor([1, 1, 1]))
        return [pair(f, r) for r in results], seen

    both(within(body))


def test_tangents_that_are_absent() -> None:
    def body(t: Any, f: Any) -> Any:
        seen: list[Any] = []

        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.set_materialize_grads(False)
            return x * y

        def jvp(ctx: Any, dx: Any, dy: Any) -> Any:
            seen.append((dx, dy))
            return dx

        return pair(f, of(t, jvp, forward).apply(dual(t), t.tensor([1.0, 1.0, 1.0]))), seen

    both(within(body))


RIGHT: list[tuple[Any, Any]] = [
    (lambda ctx, g: g.mul_(2), dirty),
    (lambda ctx, g: (None, g), constant),
    (lambda ctx, g: g[:1], lambda ctx, x: x[:1]),
    (lambda ctx, g: g.view(3), lambda ctx, x: x),
]


@pytest.mark.parametrize(("jvp", "forward"), RIGHT)
def test_outputs_that_are_inputs_views_or_constant(jvp: Any, forward: Any) -> None:
    def body(t: Any, f: Any) -> Any:
        result = of(t, jvp, forward).apply(dual(t))
        return [pair(f, r) for r in (result if isinstance(result, tuple) else (result,))]

    both(within(body))


WRONG: list[tuple[Any, Any]] = [
    (lambda ctx, g: (g, g), None),
    (lambda ctx, g: 1.0, None),
    (lambda ctx, g: g[:1], None),
    (lambda ctx, g: g * 2, dirty),
    (lambda ctx, g: (g, g), constant),
    (lambda ctx, g: g[:1].clone(), lambda ctx, x: x[:1]),
    (lambda ctx, g: g, lambda ctx, x: x),
]


@pytest.mark.parametrize(("jvp", "forward"), WRONG)
def test_wrong_tangents(jvp: Any, forward: Any) -> None:
    both_raise(within(lambda t, f: of(t, jvp, forward).apply(dual(t))))


def test_a_function_without_a_jvp() -> None:
    both_raise(within(lambda t, f: function(t, forward=lambda ctx, x: x * 2).apply(dual(t))))


# Together with backward ------------------------------------------------------------------------------------


def test_tangents_are_differentiated() -> None:
    """Reverse over forward: the gradient of a directional derivative."""

    def body(t: Any, f: Any) -> Any:
        x, v = leaf(t), leaf(t, (1.0, -1.0, 2.0))
        primal, tangent = f.unpack_dual((f.make_dual(x, v).sin() * x).sum())
        tangent.backward()
        first = x.grad.clone(), v.grad.clone(), primal.requires_grad
        with t.no_grad():
            return first, f.unpack_dual(f.make_dual(x, v).sin()).tangent.requires_grad

    both(within(body))


def exponential(t: Any) -> Any:
    """exp, which saves its output, with a jvp."""

    def forward(ctx: Any, x: Any) -> Any:
        y = x.exp()
        ctx.save_for_backward(y)
        ctx.save_for_forward(y)
        return y

    def derivative(ctx: Any, g: Any) -> Any:
        return g * ctx.saved_tensors[0]

    return function(t, forward=forward, backward=derivative, jvp=derivative)


OVER_REVERSE: list[Callable[[Any, Any], Any]] = [
    lambda t, x: x.sin() * x,
    lambda t, x: x.tanh().exp(),
    lambda t, x: exponential(t).apply(x),
    lambda t, x: x.softmax(0).log(),
    lambda t, x: t.F.stack([x, x * x, x.exp()]).prod(0),
    lambda t, x: (x * 1).mul_(x).sigmoid_(),
    lambda t, x: x.reshape(3, 1) @ x.reshape(1, 3),
]


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("of_x", OVER_REVERSE)
def test_gradients_have_tangents(of_x: Any, create_graph: bool) -> None:
    """Forward over reverse: the product of a Hessian and a vector."""

    def body(t: Any, f: Any) -> Any:
        x = leaf(t)
        y = of_x(t, f.make_dual(x, t.tensor([1.0, -1.0, 2.0])))
        (grad,) = t.autograd.grad(y.sum(), x, create_graph=create_graph)
        return pair(f, grad), grad.requires_grad

    both(within(body))


def test_backward_stores_values_alone() -> None:
    def body(t: Any, f: Any) -> Any:
        x = leaf(t)
        (f.make_dual(x, t.tensor([1.0, 1.0, 1.0])) ** 3).sum().backward()
        return pair(f, x.grad), x.grad.requires_grad

    both(within(body))


@pytest.mark.parametrize("fast_mode", [False, True])
def test_gradcheck_holds_forward_mode_against_differences(fast_mode: bool) -> None:
    def check(t: Any, jvp: Any) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_forward(x)
            return x**3

        cube = of(t, jvp, forward)
        x = t.tensor([1.0, 2.0], dtype=t.float64, requires_grad=True)
        return t.autograd.gradcheck(cube.apply, x, check_forward_ad=True, check_backward_ad=False, fast_mode=fast_mode)

    both(lambda t: check(t, lambda ctx, g: 3 * ctx.saved_tensors[0] ** 2 * g))
    both_raise(lambda t: check(t, lambda ctx, g: 2 * g), "Jacobian computed with forward mode mismatch for output 0")


def test_gradgradcheck_takes_forward_over_reverse() -> None:
    x = tg.tensor([0.5, 2.0], dtype=tg.dtypes.float64, requires_grad=True)
    assert tg.autograd.gradgradcheck(
        lambda x: x.sin() * x, x, check_fwd_over_rev=True, check_rev_over_rev=False, check_undefined_grad=False
    )
