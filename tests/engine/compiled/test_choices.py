"""Which programs run planned, and why others do not; how many are kept, and who shares them.

Internals: plans that are slow or fail on purpose are made; clients never see one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import telegrad as tg
from telegrad_engine.arrays.symbolic import Untraceable
from telegrad_engine.compile import Compiler
from telegrad_engine.compile.plan import Plan
from telegrad_engine.errors import Cancelled
from telegrad_engine.program import Instruction

from .remembering import Remembering, Tampering, connect, engine_tensor, last, numbers
from .verification import VerifyingCompiler

pytestmark = pytest.mark.full

# Why not -------------------------------------------------------------------------------------------------------------


def counted(w: Any, step: int) -> Any:
    return tg.nn.functional.multilabel_margin_loss(w, LABELS[0])


def viewed(w: Any, step: int) -> Any:
    return ((VIEWS[0].add_(1) * 2).exp() + 1).detach().sum()


VIEWS: list[Any] = []
LABELS: list[Any] = []


@pytest.mark.parametrize(("make", "reason"), [(counted, "depends on values"), (viewed, "a view")])
def test_what_runs_eagerly_is_told_with_the_reason(session: Remembering, make: Any, reason: str) -> None:
    w = numbers(tg, (3, 4), 0).requires_grad_()
    VIEWS[:], LABELS[:] = [w.detach()[1:]], [tg.tensor([[0, 1, -1, 2]] * 3)]
    kept = []
    for step in range(6):
        kept.append(make(w, step))
        kept[-1].sum().item()
    report = max(session.reports, key=lambda r: r.runs)
    assert report.runs >= 4 and report.planned_runs == 0
    assert reason in report.reason


def test_verification_finds_a_plan_that_gives_something_else() -> None:
    class Wrong(VerifyingCompiler):
        def plan(self, *args: Any) -> Plan:
            made = super().plan(*args)
            run = made.run
            made.run = lambda arrays, *rest: run([array * 1.001 for array in arrays], *rest)  # type: ignore[method-assign]
            return made

    connect(Wrong(after=2, choose=False))
    x = numbers(tg, (3,), 0)
    with pytest.raises(AssertionError, match="gave something else: the value of"):
        for _ in range(6):
            ((x * 2).exp() + 1).sum().item()


class Loop:
    """A session in which the same program runs again and again."""

    def __init__(self, compiler: Compiler) -> None:
        self.session = Remembering(compiler)
        self.session.tensors["x"] = engine_tensor([1.0, 2.0])

    def run(self, times: int = 1) -> list[str | None]:
        """Why each run was not one of a plan."""
        reasons = []
        for _ in range(times):
            answer = self.session.run(
                [
                    Instruction("exp", ("x",), ("y",)),
                    Instruction("sum", ("y",), ("s",)),
                    Instruction("fetch", (("s",),)),
                    Instruction("free", (("s", "y"),)),
                ]
            )
            assert answer.values["s"].array == pytest.approx(np.exp([1.0, 2.0]).sum())
            reasons.append(last(self.session).reason)
        return reasons


def test_what_could_not_be_made_is_tried_again_after_twice_as_many_runs() -> None:
    failures = [RuntimeError("broken on purpose"), Untraceable("there is no room"), Untraceable("nor is there now")]

    def make(plan: Callable[[], Plan]) -> Plan:
        if failures:
            raise failures.pop(0)
        return plan()

    reasons = Loop(Tampering(make)).run(33)
    assert reasons[2:5] == ["it cannot be planned: broken on purpose"] * 3
    assert reasons[5:12] == ["there is no room"] * 7
    assert reasons[12:27] == ["nor is there now"] * 15
    assert reasons[27:] == [None] * 6


def failing(errors: list[Exception]) -> Compiler:
    """A compiler of plans that raise these errors, one a run."""

    def make(plan: Callable[[], Plan]) -> Plan:
        made = plan()
        run = made.run

        def fail(*inputs: Any) -> Any:
            if errors:
                raise errors.pop()
            return run(*inputs)

        made.run = fail  # type: ignore[assignment, method-assign]
        return made

    return Tampering(make, choose=False)


def test_a_plan_that_fails_is_made_again_later() -> None:
    errors: list[Exception] = []
    loop = Loop(failing(errors))
    assert loop.run(5)[-1] is None
    errors.append(RuntimeError("broken on purpose"))
    assert loop.run() == ["planned, it failed: broken on purpose"]
    assert loop.run(8)[-1] is None


def test_a_plan_whose_run_was_cancelled_is_kept() -> None:
    errors: list[Exception] = []
    loop = Loop(failing(errors))
    assert loop.run(5)[-1] is None
    errors.append(Cancelled("the session is about to end"))
    assert loop.run(2) == ["the session is about to end", None]


def many_small_ops(x: Any) -> None:
    """A program that is several times as fast planned, on a busy machine too."""
    y = x
    for _ in range(40):
        y = (y * 1.01).sin()
    y.sum().item()


def test_a_plan_that_is_slower_is_made_again_later() -> None:
    slow = [True]

    def make(plan: Callable[[], Plan]) -> Plan:
        made = plan()
        run = made.run
        made.run = lambda *inputs: (slow and time.sleep(0.1)) or run(*inputs)  # type: ignore[method-assign]
        return made

    session = connect(Tampering(make))
    x = numbers(tg, (3,), 0)
    for _ in range(14):
        many_small_ops(x)
    assert "runs faster one instruction at a time" in last(session).reason
    slow.clear()
    for _ in range(200):  # on a busy machine it may seem slower once more
        many_small_ops(x)
    assert last(session).reason is None


# Bounds and threads --------------------------------------------------------------------------------------------------


def test_the_least_recently_used_is_forgotten() -> None:
    here = connect(Compiler(after=2, most=2, choose=False))
    x = numbers(tg, (3,), 0)
    programs = [lambda: ((x * 2).exp() + 1).sum(), lambda: ((x * 3).sin() - 1).sum(), lambda: ((x / 3).cos() - 1).sum()]
    for program in programs * 8:
        program().item()  # three take turns where two are kept: none gets far enough
    assert {r.planned_runs for r in here.reports} == {0}
    for program in programs:
        for _ in range(6):
            expected = program().item()
        assert last(here).planned_runs >= 2
        assert program().item() == pytest.approx(expected)


def test_sessions_share_plans_and_nothing_else() -> None:
    compiler = Compiler(after=2, choose=False)
    losses: dict[int, list[float]] = {}

    def work(number: int) -> None:
        here = Remembering(compiler)
        here.tensors["w"] = engine_tensor([1.0 + number, 2.0]).requires_grad_()
        for _ in range(30):
            answer = here.run(
                [
                    Instruction("mul", ("w", "w"), ("y",)),
                    Instruction("sum", ("y",), ("s",)),
                    Instruction("backward", (("s",),)),
                    Instruction("optim_step", (("w",), ()), (), {"algorithm": "sgd", "settings": {"lr": 0.1}}),
                    Instruction("zero_grad", (("w",),)),
                    Instruction("fetch", (("s",),)),
                    Instruction("free", (("s", "y"),)),
                ]
            )
            losses.setdefault(number, []).append(float(answer.values["s"].array))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, seen in losses.items():
        expected = [((1.0 + number) ** 2 + 4.0) * 0.64**step for step in range(30)]
        np.testing.assert_allclose(seen, expected, rtol=1e-4)


def test_the_quicker_way_is_chosen() -> None:
    here = connect(Compiler(after=2))
    x = numbers(tg, (8,), 0)
    for _ in range(40):
        many_small_ops(x)
    report = max(here.reports, key=lambda r: r.runs)
    assert report.reason is None and report.planned_runs > 30


def test_large_programs_make_room_for_each_other() -> None:
    here = connect(Compiler(after=2, choose=False, most_bytes=56_000))
    x = numbers(tg, (3,), 0)

    def program(length: int) -> Any:
        y = x
        for _ in range(length):
            y = y * 1.5
        return y.sum().item()

    for length in (5, 7):
        for _ in range(6):
            program(length)
        assert last(here).planned_runs >= 2
    before = sum(report.planned_runs for report in here.reports)
    program(5)
    assert sum(report.planned_runs for report in here.reports) == before  # it was forgotten
    for _ in range(6):
        program(30)
    assert "more than are kept" in last(here).reason


def test_a_program_that_only_adds_to_a_long_history_is_not_planned() -> None:
    session = Remembering(Compiler())
    session.run([Instruction("tensor", [], ["x0"], {"data": [1.0, 2.0], "requires_grad": True})])
    session.run([Instruction("sin", [f"x{i}"], [f"x{i + 1}"]) for i in range(300)])
    for turn in range(4):
        session.run([Instruction("sum", ["x300"], [f"y{turn}"])])
    assert session.reports[-1].reason == "the history behind what it takes is long"
    for turn in range(4):  # a pass over it is worth a plan
        session.run([Instruction("backward", [(f"y{turn}",)], attrs={"retain_graph": True})])
    assert session.reports[-1].reason != "the history behind what it takes is long"
