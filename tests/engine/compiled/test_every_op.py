"""Every op of the catalogue, forward and backward, in a program that is planned and in one that XLA compiled.

Planned, the results are bit for bit those of the interpreter; compiled, they are equal up to rounding. In production
nothing checks that any more.

Internals: what XLA is given is counted where it is staged.
"""

from __future__ import annotations

from typing import Any

import pytest

import telegrad as tg
from telegrad_engine.compile import COMPILED, Compiler
from telegrad_engine.schema.op import Op

from ...op_cases import cases_of
from .calls import OPS, assert_same, run
from .remembering import ALWAYS, connect
from .verification import VerifyingCompiler

RUNS = 5
"""One is counted, one planned, and three are runs of the plan."""


NOT_PLANNED = (
    "it depends on values",
    "it draws random numbers",
    "shown by another",  # of a result that came earlier, where the size of another was wanted
    "has a history, from an earlier program",  # likewise, on JAX
    # An op whose values may be refused ends its program, since `run` catches the error: the others take its results.
    "leaves a graph to differentiate later",
    "has gaps in memory",
    "after more runs",  # sizes differ from run to run, or under JAX numbers
)
"""Why an op may stay as it is."""


def some_more(_: list[Any]) -> list[Any]:
    """A result of other ops, so that a program has a few instructions."""
    return [tg.ones(2).exp() + 1]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.key)
def test_planned_it_comes_to_the_very_same(op: Op) -> None:
    for case in cases_of(op)[:3]:
        eager = connect(None)
        expected = [run(eager, op, case, seed, some_more) for seed in range(RUNS)]
        planned = connect(Compiler(tier=ALWAYS, after=2, choose=False))
        assert_same([run(planned, op, case, seed, some_more) for seed in range(RUNS)], expected)
        reasons = [report.reason for report in planned.reports if report.runs == RUNS and report.instructions > 3]
        assert all(reason is None or any(why in reason for why in NOT_PLANNED) for reason in reasons), reasons


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.key)
def test_compiled_it_is_equal_up_to_rounding(op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    """And JAX has all that it is compiled to for a GPU as well."""
    pytest.importorskip("jax")
    from telegrad_engine.arrays.jax_tracer import TracingBackend

    stages: list[Any] = []
    staged = TracingBackend.staged
    monkeypatch.setattr(TracingBackend, "staged", lambda *args: stages.append(staged(*args)) or stages[-1])
    computing: list[Any] = []
    reasons: list[str] = []
    for case in cases_of(op):
        session = connect(VerifyingCompiler(after=2, choose=False, tier=COMPILED))
        for seed in range(RUNS):
            run(session, op, case, seed, some_more)
        reasons += [str(report.reason) for report in session.reports if report.instructions > 3]
        computing = [each for each in stages if each.jaxpr.eqns]  # what only frees is a program, too
        if computing:
            break
    for each in computing:
        each.lower(lowering_platforms=("cuda",))
    # What is compiled of a call that raises an error is its uploads, which compute nothing.
    known = (*NOT_PLANNED, "it is being compiled")
    assert computing or all(any(why in reason for why in known) for reason in reasons), reasons
