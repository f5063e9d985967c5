"""Calls of an op's cases in a session, and whether two ways of running them come to the same.

Internals: the strides of the engine's tensor behind the SDK's are compared, and ops that have no public name are called
too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import telegrad as tg
from telegrad.tensor.handle import functions
from telegrad_engine import CATALOGUE
from telegrad_engine.errors import TelegradError
from telegrad_engine.schema.op import Op

from ...op_cases import cases_of
from ...op_cases.stand_ins import Case
from .. import oracle
from .remembering import Remembering

OPS = [op for op in CATALOGUE if cases_of(op) and not (op.random or op.truth or op.internal)]


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


def assert_same(found: list[Any], expected: list[Any]) -> None:
    """Assert that runs gave the same errors, or the same values to the last bit with the same strides."""
    for mine, other in zip(found, expected, strict=True):
        if isinstance(other, str):
            assert mine == other
            continue
        for own, wanted in zip(mine, other, strict=True):
            assert (own is None) == (wanted is None)
            if wanted is not None:
                np.testing.assert_array_equal(own[0], wanted[0], strict=True)
                assert own[1] == wanted[1]
