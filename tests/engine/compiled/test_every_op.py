"""Every op of the catalogue, forward and backward, in a program that is planned.

The results are bit for bit those of the interpreter, however inputs lie in memory and whatever numbers differ from run
to run. In production nothing checks that any more.

Internals: the strides of the engine's tensor behind the SDK's are compared, and ops that have no public name are called
too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import telegrad as tg
from telegrad.tensor.handle import functions
from telegrad_engine import CATALOGUE
from telegrad_engine.compile import Compiler
from telegrad_engine.errors import TelegradError
from telegrad_engine.schema.op import Op

from ...op_cases import cases_of
from ...op_cases.stand_ins import Case
from .. import oracle
from .remembering import Remembering, connect

OPS = [op for op in CATALOGUE if cases_of(op) and not (op.random or op.truth or op.internal)]
NOT_PLANNED = (
    "it depends on values",
    "shown by another",  # of a result that came earlier, where the size of another was wanted
    # An op whose values may be refused ends its program, since `run` catches the error: the others take its results.
    "has gaps in memory",
    "after more runs",  # sizes differ from run to run
)
"""Why an op may stay as it is."""


def run(
    session: Remembering,
    op: Op,
    case: Case,
    seed: int,
    following: Callable[[list[Any]], list[Any]],
    tensor: Callable[[Any], Any] = tg.tensor,
) -> Any:
    """The values and strides of the op's results, of their derivatives, and of what ``following`` makes of them.

    Inputs are made by ``tensor`` of values of this seed. An error is given as its text.
    """
    rng = np.random.default_rng(seed)
    given = [v for v in oracle.leaves([*case.args, *case.kwargs.values()]) if isinstance(v, oracle.T)]  # type: ignore[attr-defined]
    arrays = {id(v): np.asarray(v.make(rng, np.dtype(np.float32))) for v in given}
    try:
        call = oracle.with_dtypes(oracle.build(case, arrays, tensor), tg)
        kept = oracle.as_list(oracle.our_function(op, functions)(*call.args, **call.kwargs))
        starts, seeds = [t for t in kept if t.requires_grad], []
        if starts and call.inputs:
            seeds = [tensor(w) for w in oracle.random_like(starts, seed)]
            kept += tg.autograd.grad(starts, call.inputs, seeds, allow_unused=True)
        kept += following(kept)
        tg.current().flush()
    except TelegradError as error:
        return str(error)
    held = [None if t is None else session.get(t._id)._data for t in kept]
    seen = [None if array is None else (array.copy(), strides(array)) for array in held]
    call.inputs.clear()
    del kept, starts, call, seeds
    tg.current().flush()  # what is freed is a program of its own, and the next one the same
    return seen


def strides(array: np.ndarray) -> list[int]:
    """The strides that matter."""
    return [step for n, step in zip(array.shape, array.strides, strict=True) if n > 1] if array.size else []


def compare(op: Op, cases: list[Case], following: Callable[[list[Any]], list[Any]], tensor: Any) -> list[Any]:
    """Call an op one instruction at a time, once for each case and seed, and planned. Return the reports of the latter.

    Both must give the same errors, or the same values to the last bit with the same strides.
    """
    calls = [(case, turn % 3) for turn, case in enumerate(cases)]
    different = {(id(case), seed): (case, seed) for case, seed in calls}
    session = connect(None)
    expected = {key: run(session, op, *call, following, tensor) for key, call in different.items()}
    session = connect(Compiler(after=2, choose=False))
    for case, seed in calls:
        mine, other = run(session, op, case, seed, following, tensor), expected[id(case), seed]
        if isinstance(other, str):
            assert mine == other
            continue
        for own, wanted in zip(mine, other, strict=True):
            assert (own is None) == (wanted is None)
            if wanted is not None:
                np.testing.assert_array_equal(own[0], wanted[0], strict=True)
                assert own[1] == wanted[1]
    return session.reports


def some_more(_: list[Any]) -> list[Any]:
    """A result of other ops, so that a program has a few instructions."""
    return [tg.ones(2).exp() + 1]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.key)
def test_planned_it_comes_to_the_very_same(op: Op) -> None:
    for case in cases_of(op)[:3]:
        reports = compare(op, [case] * 4, some_more, tg.tensor)  # one is counted, one planned, two run the plan
        reasons = [report.reason for report in reports if report.runs == 4 and report.instructions > 3]
        assert all(reason is None or any(why in reason for why in NOT_PLANNED) for reason in reasons), reasons


def transposed(array: Any) -> Any:
    """The array as a tensor whose memory is that of its transpose."""
    return tg.tensor(np.array(array.T, order="C")).permute(tuple(range(array.ndim))[::-1])


def sums(tensors: list[Any]) -> list[Any]:
    """A sum over each of the tensors."""
    return [t.sum() for t in tensors if t is not None]


def varied(value: Any, turn: int) -> Any:
    """An argument with other floats in it, each time."""
    if isinstance(value, (list, tuple)):
        return type(value)(varied(item, turn) for item in value)
    return value * (1 + turn / 64) if type(value) is float and math.isfinite(value) else value


def has_float(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(has_float, value))
    return type(value) is float and math.isfinite(value)


def turns(case: Case) -> list[Case]:
    """The case as it is called in each turn, with other floats each time if it has any."""
    if not any(map(has_float, [*case.args, *case.kwargs.values()])):
        return [case] * 4
    return [
        case._replace(
            args=tuple(varied(x, turn) for x in case.args), kwargs={k: varied(v, turn) for k, v in case.kwargs.items()}
        )
        for turn in range(8)
    ]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.key)
def test_so_it_does_of_transposed_inputs_and_of_floats_that_differ(op: Op) -> None:
    cases = [turns(case) for case in cases_of(op)]
    for each in [*cases[:2], *[each for each in cases[2:] if len(each) == 8][:2]]:
        compare(op, each, sums, transposed)
