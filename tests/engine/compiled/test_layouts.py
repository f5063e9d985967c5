"""What a program computes does not depend on how it runs, however its inputs lie in memory: not by one bit.

Internals: the memory layout of the engine's tensor behind the SDK's is compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import telegrad as tg
from telegrad_engine.compile import Compiler
from telegrad_engine.schema.op import Op

from ...op_cases import cases_of
from .calls import OPS, assert_same, run
from .remembering import Remembering, connect

RUNS = 4
"""One is counted, one planned, and two are runs of the plan."""


def transposed(array: Any) -> Any:
    """The array as a tensor whose memory is that of its transpose."""
    return tg.tensor(np.array(array.T, order="C")).permute(tuple(range(array.ndim))[::-1])


def sums(tensors: list[Any]) -> list[Any]:
    """A sum over each of the tensors."""
    return [t.sum() for t in tensors if t is not None]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.key)
def test_of_transposed_inputs_a_plan_computes_the_very_same(op: Op) -> None:
    for case in cases_of(op)[:2]:
        eager = connect(None)
        expected = [run(eager, op, case, seed, sums, transposed) for seed in range(RUNS)]
        planned = connect(Compiler(after=2, choose=False))
        assert_same([run(planned, op, case, seed, sums, transposed) for seed in range(RUNS)], expected)


def test_a_gradient_lies_in_row_major_order_and_is_summed_alike() -> None:
    """A norm over gradients, as for clipping, sees the same order of the same numbers in every run."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((37, 53)).astype(np.float32)

    def rounds(session: Remembering) -> list[Any]:
        found: list[Any] = []
        weight = tg.tensor(values, requires_grad=True)
        for _ in range(6):
            weight.grad = None
            (tg.tensor(values).t().exp() * weight.t().sin()).sum().backward()
            assert weight.grad is not None
            found.append((weight.grad.sum() + (weight.grad * weight.grad).sum(1).sqrt().sum()).item())
            assert session.get(weight.grad._id)._data.flags.c_contiguous
        return found

    assert rounds(connect(Compiler(after=2, choose=False))) == rounds(connect(None))
