"""The dtypes that pairs of dtypes are computed in; and float16 and bfloat16, in which results have few digits.

What is computed and added up in between is float32 in torch and here.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import telegrad_engine as tg
from telegrad_engine import autograd
from telegrad_engine.schema.op import CATALOGUE, Op

from ..client.parity import ENGINE
from ..op_cases import cases_of
from ..op_cases.stand_ins import Case, T
from . import oracle
from .test_ops import Both, NothingToCompare
from .twins import OURS, THEIRS

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "floor_divide",
    "remainder",
    "pow",
    "maximum",
    "minimum",
    "eq",
    "lt",
    "bitwise_and",
    "logical_or",
    "where",
]


def outcome(t: Any, name: str, a: Any, b: Any) -> Any:
    def call() -> Any:
        if name == "where":
            return t.where(t.tensor([True, False]), a, b)
        return getattr(t, name)(a, b)

    result = oracle.attempt(call)
    return result.kind if isinstance(result, oracle.Failure) else (oracle.dtype_name(result[0]), list(result[0].shape))


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("left", DTYPES)
def test_promotion_of_every_pair(name: str, left: str) -> None:
    wrong = []
    for right in DTYPES:
        for first in ([1, 1], 1):
            for second in ([1, 1], 1):
                results = []
                for t in (THEIRS, OURS):
                    a = t.tensor(first, dtype=oracle.dtype_of(t, left))
                    b = t.tensor(second, dtype=oracle.dtype_of(t, right))
                    results.append(outcome(t, name, a, b))
                if results[0] != results[1]:
                    wrong.append((left, right, first, second, *results))
    assert not wrong


@pytest.mark.parametrize("name", [n for n in BINARY if n not in ("maximum", "minimum", "logical_or")])
@pytest.mark.parametrize("dtype", DTYPES)
def test_promotion_with_numbers(name: str, dtype: str) -> None:
    wrong = []
    for value in ([1, 1], 1):
        for number in (True, 2, 2.5):
            for swapped in (False, True):
                if swapped and name in ("eq", "lt", "bitwise_and"):
                    continue
                results = []
                for t in (THEIRS, OURS):
                    a = t.tensor(value, dtype=oracle.dtype_of(t, dtype))
                    results.append(outcome(t, name, *((number, a) if swapped else (a, number))))
                if results[0] != results[1]:
                    wrong.append((dtype, value, number, swapped, *results))
    assert not wrong


OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "==", "<", "&", "|", "^", "@"]


@pytest.mark.parametrize("operator", OPERATORS)
def test_operators_promote(operator: str) -> None:
    wrong = []
    for left in DTYPES:
        for number in (True, 3, 2.5):
            for expression in (f"x {operator} n", f"n {operator} x"):
                results = []
                for t in (THEIRS, OURS):
                    x = t.tensor([1, 2], dtype=oracle.dtype_of(t, left))
                    result = oracle.attempt(partial(eval, expression, {"x": x, "n": number}))
                    results.append(
                        result.kind
                        if isinstance(result, oracle.Failure)
                        else (
                            oracle.dtype_name(result[0]),
                            np.asarray(oracle.numpy(result[0].double())).tolist(),
                        )
                    )
                if repr(results[0]) != repr(results[1]):
                    wrong.append((expression, left, number, *results))
    assert not wrong


@pytest.mark.parametrize("operator", ["+=", "-=", "*=", "/=", "//=", "%=", "**=", "&=", "|=", "^="])
def test_in_place_operators_promote(operator: str) -> None:
    wrong = []
    for left in DTYPES:
        for other in (True, 3, 2.5, *DTYPES):
            results = []
            for t in (THEIRS, OURS):
                x = t.tensor([1, 2], dtype=oracle.dtype_of(t, left))
                n = t.tensor([3, 2], dtype=oracle.dtype_of(t, other)) if isinstance(other, str) else other
                scope = {"x": x, "n": n}
                result = oracle.attempt(lambda scope=scope: exec(f"x {operator} n", scope))
                results.append(
                    "raises"
                    if isinstance(result, oracle.Failure)
                    else (scope["x"] is x, oracle.dtype_name(x), oracle.numpy(x.double()).tolist())
                )
            if repr(results[0]) != repr(results[1]):
                wrong.append((operator, left, other, *results))
    assert not wrong


# float16 and bfloat16: every op over its cases, and sums of so many terms that rounding would show -------------------


KINDS = ("float16", "bfloat16")

ILL_CONDITIONED = {
    ("logcumsumexp", 4): "the derivative is the exponential of a difference of numbers near 100, which have few digits",
    ("cosine_similarity", 2): "the gradient of parallel vectors is all cancellation",
}
"""Cases whose results these dtypes cannot tell from their rounding."""

OTHERWISE = {"bilinear", "grid_sample", "interpolate", "interpolate.factors"} | {
    name for name in CATALOGUE.ops if name.split("_")[0] in ("gru", "lstm", "rnn")
}
"""Ops that compute positions, the first of two products, or a state that goes from step to step, in the dtype itself
in one of the two."""


def cases(op: Op) -> list[tuple[int, Case]]:
    """The op's cases that have tensors of no fixed dtype, with their numbers."""
    return [
        (number, case)
        for number, case in enumerate(cases_of(op))
        if any(isinstance(v, T) and v.dtype is None for v in oracle.leaves([*case.args, *case.kwargs.values()]))
        and (op.key, number) not in ILL_CONDITIONED
    ]


@pytest.mark.parametrize(
    "op", [op for op in CATALOGUE if not op.truth and op.key not in OTHERWISE and cases(op)], ids=lambda op: op.key
)
def test_op(op: Op, subtests: pytest.Subtests, record_property: Any) -> None:
    held = 0
    for number, case in cases(op):
        for kind in KINDS:
            try:
                hold(op, case, kind)
            except NothingToCompare:
                continue
            except Exception as failure:
                with subtests.test(case=number, kind=kind):
                    raise failure
            held += 1
    record_property("held", held)


def hold(op: Op, case: Case, kind: str) -> None:
    """Forward and first derivative, to the dtype's rounding."""
    both = Both(op, case, kind)
    theirs = both.theirs
    if isinstance(theirs, oracle.Failure) and any(w in theirs.text for w in ("Half", "BFloat16", "Low precision")):
        raise NothingToCompare("torch has no kernel for this dtype")
    if both.assert_same_failure():
        return
    for mine, other in zip(both.ours, theirs, strict=True):
        oracle.assert_close(mine, other, "forward")
    starts = both.differentiable()
    if not starts or not both.their_call.inputs:
        return
    seeds = oracle.random_like([theirs[i] for i in starts], seed=1)
    try:
        expected = torch.autograd.grad(
            [theirs[i] for i in starts],
            both.their_call.inputs,
            [oracle.make_torch(s) for s in seeds],
            allow_unused=True,
        )
    except RuntimeError:
        return  # torch has no derivative here; test_ops.py holds the error
    ours = [both.ours[i] for i in starts]
    found = autograd.grad(ours, both.our_call.inputs, [tg.tensor(s) for s in seeds], allow_unused=True)
    for mine, other in zip(found, expected, strict=True):
        assert (mine is None) == (other is None), "only one of the two has a gradient"
        if mine is not None:
            oracle.assert_close(mine, other, "first derivative")


ACCUMULATING = """
torch.sum(x)
torch.sum(x, 0)
torch.sum(x, 1)
torch.mean(x)
torch.mean(x, 0)
torch.var(x)
torch.var(x, 1)
torch.std(x, 0)
torch.cumsum(x, 0)
torch.cumsum(x, 1)
torch.cumprod(near_one, 1)
torch.logsumexp(x, 1)
torch.logcumsumexp(x, 1)
torch.nansum(x, 1)
torch.nanmean(x)
torch.norm(x)
torch.norm(x, 1)
torch.norm(x, 3, 1)
torch.linalg.vector_norm(x, 2, 1)
torch.linalg.matrix_norm(x)
torch.linalg.matrix_norm(x, 1)
torch.softmax(x, 1)
torch.matmul(x, v)
torch.mm(x, y)
torch.dot(v, v)
torch.addmm(b, x, y)
torch.addmv(b[:, 0], x, v)
torch.tensordot(x, y, 1)
torch.inner(x, x)
torch.linalg.vecdot(x, x)
torch.trace(x @ x.T)
torch.addcmul(x, x, x, value=3)
torch.sub(x, v, alpha=0.7)
torch.sigmoid(x)
torch.sinc(x)
torch.logit(torch.sigmoid(x) * 0.9 + 0.05)
torch.lerp(x, x * 2, 0.3)
x + 0.1
x * 0.1
0.1 - x
x / 0.3
torch.remainder(x, 1.3)
torch.fmod(x, 1.3)
""".strip().splitlines()


@pytest.mark.parametrize("call", ACCUMULATING)
@pytest.mark.parametrize("kind", KINDS)
def test_intermediate_results_are_wide(call: str, kind: str) -> None:
    """Many terms, and yet no error but that of the rounding at the end: two units in the last place of the largest."""
    rng = np.random.default_rng(0)
    arrays = {
        "x": rng.standard_normal((20, 2000)) + 0.5,
        "y": rng.standard_normal((2000, 5)),
        "v": rng.standard_normal(2000),
        "b": rng.standard_normal((20, 5)),
        "near_one": rng.uniform(0.9, 1.1, (5, 300)),
    }
    arrays = {name: array.astype(kind) for name, array in arrays.items()}
    theirs = eval(call, {"torch": torch} | {name: oracle.make_torch(a) for name, a in arrays.items()})
    ours = eval(call, {"torch": ENGINE} | {name: tg.tensor(a) for name, a in arrays.items()})
    assert oracle.dtype_name(ours) == oracle.dtype_name(theirs) == kind
    expected, found = (oracle.numpy(t).astype(np.float64) for t in (theirs, ours))
    unit = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0)) * (2**-10 if kind == "float16" else 2**-7)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2 * unit)


JOINS = {
    "cat": lambda t, a, b: t.cat([a, b]),
    "stack": lambda t, a, b: t.stack([a, b]),
    "where": lambda t, a, b: t.where(a > 0, a, b),
    "hstack": lambda t, a, b: t.hstack([a, b, a]),
}


@pytest.mark.parametrize("name", JOINS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", ["float16", "bfloat16", "float32", "int64", "uint8", "bool"])
def test_tensors_of_two_dtypes_are_joined(name: str, kind: str, other: str) -> None:
    """In the dtype that both promote to, also where NumPy itself knows none."""
    theirs, ours = (
        JOINS[name](functions, make([1.0, 2.0, 0.0], kind), make([3.0, 1.0, 1.0], other))
        for functions, make in (
            (torch, lambda values, dtype: torch.tensor(values, dtype=getattr(torch, dtype))),
            (tg.functions, lambda values, dtype: tg.tensor(values, dtype=dtype)),
        )
    )
    oracle.assert_close(ours, theirs, name)


@pytest.mark.parametrize("bounds", [(0.1, 1.7), (None, 0.3), (0.1, None), (-2, 2)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_slope_of_clamp_is_one_on_its_boundary(kind: str, bounds: Any) -> None:
    """A bound is met where it is equal in the tensor's own digits."""
    values = [-2.0, 0.1, 0.3, 1.7, 2.0]
    x = torch.tensor(values, dtype=getattr(torch, kind), requires_grad=True)
    y = tg.tensor(values, dtype=kind, requires_grad=True)
    (expected,) = torch.autograd.grad(torch.clamp(x, *bounds).sum(), x)
    (found,) = autograd.grad(tg.functions.clamp(y, *bounds).sum(), [y])
    assert found.tolist() == expected.tolist()
