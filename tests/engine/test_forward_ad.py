"""``autograd.forward_ad`` on the engine's tensors: the tangents of every op beside torch's, threads and memory."""

from __future__ import annotations

import gc
import threading
import weakref
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

forward_ad = tg.autograd.forward_ad
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated", "ignore::UserWarning")


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


def cases(op: Op) -> list[Case]:
    return [case for case in cases_of(op)[:4] if OTHERWISE.get(op.key, "nothing") not in repr(case)]


OPS = [op for op in CATALOGUE if op.differentiable and not (op.internal or op.random) and cases(op)]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.key)
def test_the_tangents_of_every_op_are_torchs(op: Op) -> None:
    for case in cases(op):
        hold(op, case)


def hold(op: Op, case: Case) -> None:
    try:
        arrays = oracle.arrays_of(case, np.dtype(np.float64))
        call = oracle.with_dtypes(oracle.build(case, arrays, oracle.make_torch), torch)
        with torch_forward_ad.dual_level():
            expected = tangents(torch_forward_ad, call, oracle.make_torch, oracle.torch_function(op))
    except (*oracle.ERROR_BASES, ValueError):
        return  # torch has no forward mode here
    call = oracle.with_dtypes(oracle.build(case, arrays, tg.tensor), tg.dtypes)
    with forward_ad.dual_level():
        found = tangents(forward_ad, call, tg.tensor, oracle.our_function(op))
    for ours, theirs in zip(found, expected, strict=True):
        if theirs is None or ours is None:
            assert theirs is None or not theirs.detach().abs().sum(), f"torch has a tangent of {case}"
            assert ours is None or not ours.detach().abs().sum().item(), f"torch has no tangent of {case}"
        else:
            oracle.assert_close(ours.detach(), theirs.detach(), f"tangent of {case}")


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
