"""What a program computes does not depend on how it runs, however its inputs lie in memory: not by one bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import telegrad as tg
from telegrad.tensor import functions
from telegrad_engine import CATALOGUE
from telegrad_engine.errors import TelegradError
from telegrad_engine.program.compiled import Compiler
from telegrad_engine.registry import Case, Op

from .. import oracle
from .remembering import ALWAYS, Remembering, connect

OPS = [op for op in CATALOGUE if op.cases and not (op.random or op.truth or op.internal)]
RUNS = 4
"""One is counted, one planned, one tried, and one is what was planned."""


def transposed(array: Any) -> Any:
    """The array as a tensor whose memory is that of its transpose."""
    return tg.tensor(np.array(array.T, order="C")).permute(tuple(range(array.ndim))[::-1])


def run(session: Remembering, op: Op, case: Case, seed: int) -> Any:
    """The op's results, their derivatives, and a sum over each of them; or the error."""
    rng = np.random.default_rng(seed)
    given = [v for v in oracle.leaves([*case.args, *case.kwargs.values()]) if isinstance(v, oracle.T)]
    arrays = {id(v): np.asarray(v.make(rng, np.dtype(np.float32))) for v in given}
    try:
        call = oracle.with_dtypes(oracle.build(case, arrays, transposed), tg)
        kept = oracle.as_list(oracle.our_function(op, functions)(*call.args, **call.kwargs))
        starts, seeds = [t for t in kept if t.requires_grad], []
        if starts and call.inputs:
            seeds = [transposed(w) for w in oracle.random_like(starts, seed)]
            kept += tg.autograd.grad(starts, call.inputs, seeds, allow_unused=True)
        kept += [t.sum() for t in kept if t is not None]
        tg.current().flush()
    except TelegradError as error:
        return str(error)
    held = [None if t is None else session.get(t._id)._data for t in kept]
    seen = [None if array is None else (array.copy(), array.flags.c_contiguous) for array in held]
    call.inputs.clear()
    del kept, starts, call, seeds
    tg.current().flush()
    return seen


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.key)
def test_of_transposed_inputs_a_plan_computes_the_very_same(op: Op) -> None:
    for case in op.cases[:2]:
        eager = connect(None)
        expected = [run(eager, op, case, seed) for seed in range(RUNS)]
        planned = connect(Compiler(way=ALWAYS, after=2, choose=False))
        found = [run(planned, op, case, seed) for seed in range(RUNS)]
        for mine, other in zip(found, expected, strict=True):
            if isinstance(other, str):
                assert mine == other
                continue
            for own, wanted in zip(mine, other, strict=True):
                assert (own is None) == (wanted is None)
                if wanted is not None:
                    np.testing.assert_array_equal(own[0], wanted[0], strict=True)
                    assert own[1] == wanted[1]


def test_a_gradient_lies_in_row_major_order_and_is_summed_alike() -> None:
    """A norm over gradients, as for clipping, sees the same order of the same numbers in every run."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((37, 53)).astype(np.float32)

    def rounds(session: Remembering) -> list[Any]:
        found = []
        weight = tg.tensor(values, requires_grad=True)
        for _ in range(6):
            weight.grad = None
            (tg.tensor(values).t().exp() * weight.t().sin()).sum().backward()
            assert weight.grad is not None
            found.append((weight.grad.sum() + (weight.grad * weight.grad).sum(1).sqrt().sum()).item())
            assert session.get(weight.grad._id)._data.flags.c_contiguous
        return found

    assert rounds(connect(Compiler(way=ALWAYS, after=2, choose=False))) == rounds(connect(None))
