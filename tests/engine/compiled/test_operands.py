"""Programs whose numbers differ each time: planned once, they come to what the eager run comes to, to the last bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import telegrad as tg
from telegrad_engine.compile import Compiler
from telegrad_engine.schema.op import Op

from ...op_cases import cases_of
from ...op_cases.stand_ins import Case
from .calls import OPS, assert_same, run
from .remembering import Remembering, connect

Turn = Callable[[Any, Any, int], Any]
RUNS = 8


def planner(after: int = 2) -> Compiler:
    return Compiler(after=after, choose=False)


# Every op ----------------------------------------------------------------------------------------------------


def varied(value: Any, turn: int) -> Any:
    """An argument with other floats in it, each time."""
    if isinstance(value, (list, tuple)):
        return type(value)(varied(item, turn) for item in value)
    return value * (1 + turn / 64) if type(value) is float and math.isfinite(value) else value


def has_float(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(has_float, value))
    return type(value) is float and math.isfinite(value)


WITH_FLOATS = [
    (op, case)
    for op in OPS
    for case in [case for case in cases_of(op) if any(map(has_float, [*case.args, *case.kwargs.values()]))][:3]
]


@pytest.mark.parametrize(("op", "case"), WITH_FLOATS, ids=lambda x: x.key if isinstance(x, Op) else "")
def test_every_op_takes_floats_that_differ(op: Op, case: Case) -> None:
    cases = [
        case._replace(
            args=tuple(varied(x, turn) for x in case.args), kwargs={k: varied(v, turn) for k, v in case.kwargs.items()}
        )
        for turn in range(RUNS)
    ]
    outcomes = []
    for compiler in (None, planner()):
        session = connect(compiler)
        outcomes.append([run(session, op, each, turn % 3, lambda kept: []) for turn, each in enumerate(cases)])
    assert_same(outcomes[1], outcomes[0])


# Loops -------------------------------------------------------------------------------------------------------


def weights(shape: tuple[int, ...] = (3,)) -> Any:
    return tg.tensor(np.linspace(0.5, 1.5, math.prod(shape)).reshape(shape), requires_grad=True)


DATA = np.random.default_rng(0).standard_normal((100, 3))


def share_of(session: Remembering) -> float:
    """The share of runs that were planned, of the program that ran most often."""
    report = max(session.reports, key=lambda each: each.runs)
    return report.planned_runs / report.runs  # type: ignore[no-any-return]


LOOPS: dict[str, Turn] = {
    "a float times a tensor": lambda w, x, i: (w * (0.5 + i / 7)).sum(),
    "a float before a tensor": lambda w, x, i: ((1 / (i + 1)) - w).sum(),
    "an int": lambda w, x, i: (w * i + i).sum(),
    "an int of an integer tensor": lambda w, x, i: (tg.arange(4) * i - 7).sum() + w.sum(),
    "an int divided by": lambda w, x, i: (w / (i + 1)).sum(),
    "alpha": lambda w, x, i: tg.add(w, x[0], alpha=0.1 * i + 0.3).sum(),
    "an exponent": lambda w, x, i: (w ** (2.5 + i / 10)).sum(),
    "a bound": lambda w, x, i: w.clamp(min=0.1 * i).sum(),
    "a slice": lambda w, x, i: (x[i : i + 16] * w).sum(),
    "a slice with a step": lambda w, x, i: (x[i : i + 16 : 3] * w).sum(),
    "a row": lambda w, x, i: (x[i] * w).sum(),
    "a row from the end": lambda w, x, i: (x[i - 50] * w).sum(),
    "an element": lambda w, x, i: x[i, 1] * w.sum(),
    "a slice of what has a gradient": lambda w, x, i: (w.repeat(20)[i : i + 4] ** 2).sum(),
    "a threshold": lambda w, x, i: tg.nn.functional.threshold(w, 0.05 * i, 0.1 * i).sum(),
    "a slope": lambda w, x, i: tg.nn.functional.leaky_relu(x[:4] * w, 0.01 * i).sum(),
    "smoothing": lambda w, x, i: tg.nn.functional.cross_entropy(
        x[:4] * w, tg.tensor([0, 1, 2, 0]), label_smoothing=0.1 + 0.01 * i
    ),
    "an interpolation": lambda w, x, i: tg.lerp(w, x[1], 0.03 * i).sum(),
    "a fill": lambda w, x, i: (tg.full((3,), 0.1 * i + 0.05) * w).sum(),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_whose_numbers_differ_is_planned(name: str) -> None:
    outcomes = []
    for compiler in (None, planner()):
        session = connect(compiler, dtype=tg.float64)
        w, x, values = weights(), tg.tensor(DATA), []
        for i in range(1, 41):
            w.grad = None
            loss = LOOPS[name](w, x, i)
            loss.backward()
            values.append((loss.item(), w.grad.tolist()))
        outcomes.append(values)
    assert outcomes[0] == outcomes[1]
    assert share_of(session) >= 0.85, session.reports


def test_a_short_last_batch_is_another_variant() -> None:
    outcomes = []
    for compiler in (None, planner()):
        session = connect(compiler, dtype=tg.float64)
        w, x, values = weights(), tg.tensor(DATA), []
        for _ in range(12):
            for i in range(0, 100, 16):
                w.grad = None
                loss = (x[i : i + 16] * w).sum()
                loss.backward()
                values.append((loss.item(), w.grad.tolist()))
        outcomes.append(values)
    assert outcomes[0] == outcomes[1]
    assert share_of(session) >= 0.85, session.reports


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam"])
def test_a_schedule_through_zero_and_back(name: str) -> None:
    outcomes = []
    for compiler in (None, planner()):
        session = connect(compiler, dtype=tg.float64)
        w, x = weights(), tg.tensor(DATA[:4])
        optimizer = getattr(tg.optim, name)([w], lr=0.1)
        for i in range(60):
            optimizer.param_groups[0]["lr"] = max(0.0, 0.1 * math.cos(i / 6))
            optimizer.zero_grad()
            ((x * w) ** 2).sum().backward()
            optimizer.step()
            tg.current().flush()
        outcomes.append(w.tolist())
    assert outcomes[0] == outcomes[1]
    assert share_of(session) >= 0.7, session.reports


def test_what_branches_on_a_number_has_a_variant_for_each_branch() -> None:
    outcomes = []
    for compiler in (None, planner()):
        connect(compiler, dtype=tg.float64)
        w, values = weights(), []
        for i in range(60):
            w.grad = None
            loss = (w ** [2, 3.5, 0.0, 1][i % 4]).sum() if i % 2 else (w * [0.0, -0.0][i // 2 % 2]).sum()
            loss.backward()
            values.append((repr(loss.item()), repr(w.grad.tolist())))
        outcomes.append(values)
    assert outcomes[0] == outcomes[1]


def test_labels_to_ignore_are_another_variant() -> None:
    outcomes = []
    for compiler in (None, planner()):
        session = connect(compiler, dtype=tg.float64)
        w, x, values = weights(), tg.tensor(DATA[:6]), []
        rng = np.random.default_rng(1)
        for _ in range(40):
            w.grad = None
            labels = rng.integers(0, 3, 6)
            labels[rng.integers(0, 6)] = -100
            loss = tg.nn.functional.cross_entropy(x * w, tg.tensor(labels))
            loss.backward()
            values.append((loss.item(), w.grad.tolist()))
        outcomes.append(values)
    assert outcomes[0] == outcomes[1]
    assert share_of(session) >= 0.85, session.reports


def test_views_and_history_that_are_left_know_their_own_numbers() -> None:
    session = connect(planner(), dtype=tg.float64)
    w, x = weights(), tg.tensor(DATA)
    views, losses = [], []
    for i in range(12):
        view = x[i : i + 2]
        loss = (view * w * (i + 0.5)).sum()
        loss.backward(retain_graph=False)
        tg.current().flush()
        views.append(view)
        losses.append(loss)
    x.mul_(2)
    for i, view in enumerate(views):
        np.testing.assert_array_equal(view.tolist(), DATA[i : i + 2] * 2)
    assert session.reports


# Bad input ---------------------------------------------------------------------------------------------------


def test_an_index_out_of_range_says_what_torch_says_and_the_loop_goes_on() -> None:
    session = connect(planner())
    x = tg.tensor(DATA.astype(np.float32))
    for i in [*range(10), 100, *range(10, 20)]:
        if i < 100:
            assert x[i].tolist() == DATA[i].astype(np.float32).tolist()
        else:
            with pytest.raises(IndexError, match="index 100 is out of bounds for dimension 0 with size 100"):
                x[i].tolist()
    assert session.reports
