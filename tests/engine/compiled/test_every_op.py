"""Every op of the catalogue, forward and backward, in a program that is planned: the very numbers of the eager run.

And in one that is compiled: JAX has all of it for GPUs, too, which can be told where there is none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import telegrad as tg
from telegrad.tensor import functions
from telegrad_engine import CATALOGUE
from telegrad_engine.errors import TelegradError
from telegrad_engine.program.compiled import COMPILED, Compiler
from telegrad_engine.registry import Case, Op

from .. import oracle
from .remembering import ALWAYS, Remembering, connect

OPS = [op for op in CATALOGUE if op.cases and not (op.random or op.truth or op.internal)]
RUNS = 5
"""One is counted, one planned, one tried, and two are what was planned."""


NOT_PLANNED = (
    "it depends on values",
    "it draws random numbers",
    "which of them share memory",
    "has a history, from an earlier program",  # which had to end where the size of a result was wanted
    "after more runs",  # sizes differ from run to run
    "held against the eager run first",  # a NaN among the values, which is not usual
)
"""Why an op may stay as it is."""


def layout(array: np.ndarray) -> list[int]:
    """The steps in memory that matter."""
    return [step for n, step in zip(array.shape, array.strides, strict=True) if n > 1] if array.size else []


def run(session: Remembering, op: Op, case: Case, seed: int) -> Any:
    """What the session holds after the op and its derivatives, on values of this seed; or the error."""
    rng = np.random.default_rng(seed)
    given = [v for v in oracle.leaves([*case.args, *case.kwargs.values()]) if isinstance(v, oracle.T)]
    arrays = {id(v): np.asarray(v.make(rng, np.dtype(np.float32))) for v in given}
    try:
        call = oracle.with_dtypes(oracle.build(case, arrays, tg.tensor), tg)
        kept = oracle.as_list(oracle.our_function(op, functions)(*call.args, **call.kwargs))
        starts, seeds = [t for t in kept if t.requires_grad], []
        if starts and call.inputs:
            seeds = [tg.tensor(w) for w in oracle.random_like(starts, seed)]
            kept += tg.autograd.grad(starts, call.inputs, seeds, allow_unused=True)
        kept += [tg.ones(2).exp() + 1]  # so that it has a few instructions
        tg.current().flush()
    except TelegradError as error:
        return str(error)
    held = [None if t is None else session.get(t._id)._data for t in kept]
    seen = [None if array is None else (array.copy(), layout(array)) for array in held]
    call.inputs.clear()
    del kept, starts, call, seeds
    tg.current().flush()  # what is freed is a program of its own, and the next one the same
    return seen


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.key)
def test_planned_it_comes_to_the_very_same(op: Op) -> None:
    for case in op.cases[:3]:
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
        reasons = [report.reason for report in planned.reports if report.runs == RUNS and report.instructions > 3]
        assert all(reason is None or reason.endswith(NOT_PLANNED) for reason in reasons), reasons


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.key)
def test_jax_has_all_that_it_is_compiled_to_for_a_gpu(op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    from telegrad_engine.backends.tracing import TracingBackend

    stages: list[Any] = []
    staged = TracingBackend.staged
    monkeypatch.setattr(TracingBackend, "staged", lambda *args: stages.append(staged(*args)) or stages[-1])
    computing: list[Any] = []
    reasons: list[str] = []
    for case in op.cases:
        session = connect(Compiler(after=2, choose=False, way=COMPILED))
        for seed in range(4):
            run(session, op, case, seed)
        reasons += [str(report.reason) for report in session.reports if report.instructions > 3]
        computing = [each for each in stages if each.jaxpr.eqns]  # what only frees is a program, too
        if computing:
            break
    for each in computing:
        each.lower(lowering_platforms=("cuda",))
    # What is compiled of a call that raises an error is its uploads, which compute nothing.
    assert computing or all(reason.endswith((*NOT_PLANNED, "it is being compiled")) for reason in reasons), reasons
