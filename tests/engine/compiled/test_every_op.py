"""Every op of the catalogue, forward and backward, in a program that is planned.

The results are bit for bit those of the interpreter. In production nothing checks that any more.
"""

from __future__ import annotations

from typing import Any

import pytest

import telegrad as tg
from telegrad_engine.compile import Compiler
from telegrad_engine.schema.op import Op

from ...op_cases import cases_of
from .calls import OPS, assert_same, run
from .remembering import connect

RUNS = 5
"""One is counted, one planned, and three are runs of the plan."""


NOT_PLANNED = (
    "it depends on values",
    "shown by another",  # of a result that came earlier, where the size of another was wanted
    # An op whose values may be refused ends its program, since `run` catches the error: the others take its results.
    "has gaps in memory",
    "after more runs",  # sizes differ from run to run
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
        planned = connect(Compiler(after=2, choose=False))
        assert_same([run(planned, op, case, seed, some_more) for seed in range(RUNS)], expected)
        reasons = [report.reason for report in planned.reports if report.runs == RUNS and report.instructions > 3]
        assert all(reason is None or any(why in reason for why in NOT_PLANNED) for reason in reasons), reasons
