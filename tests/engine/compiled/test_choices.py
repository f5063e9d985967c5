"""Which programs run compiled, and why others do not; how many are kept, and who shares them."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import telegrad as tg
from telegrad_engine.program import Instruction
from telegrad_engine.program.compiled import COMPILED, Compiler, trial

from .remembering import ALWAYS, Remembering, connect, engine_tensor, last, numbers, runs_compiled

# Why not -------------------------------------------------------------------------------------------------------------


def dropout(w: Any, step: int) -> Any:
    return tg.nn.functional.dropout(w * 2, 0.5).sum().exp()


def counted(w: Any, step: int) -> Any:
    return tg.nn.functional.multilabel_margin_loss(w, LABELS[0])


def viewed(w: Any, step: int) -> Any:
    return ((VIEWS[0].add_(1) * 2).exp() + 1).detach().sum()


VIEWS: list[Any] = []
LABELS: list[Any] = []


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (counted, "depends on values"),
        (viewed, "a view"),
    ],
)
def test_what_runs_eagerly_is_told_with_the_reason(session: Remembering, make: Any, reason: str) -> None:
    w = numbers(tg, (3, 4), 0).requires_grad_()
    VIEWS[:], LABELS[:] = [w.detach()[1:]], [tg.tensor([[0, 1, -1, 2]] * 3)]
    kept = []
    for step in range(6):
        kept.append(make(w, step))
        kept[-1].sum().item()
    report = max(session.reports, key=lambda r: r.runs)
    assert report.runs >= 4 and report.runs_as_one == 0
    assert reason in report.reason


def test_jax_leaves_no_graph_to_go_through(session: Remembering) -> None:
    w = numbers(tg, (3, 4), 0).requires_grad_()
    kept = []
    for _ in range(6):
        kept.append(((w * w).exp() + 1).sum())
        kept[-1].item()
    report = max(session.reports, key=lambda r: r.runs)
    assert report.planned_runs > 2 or "leaves a graph to differentiate later" in report.reason


def test_jax_would_draw_the_same_numbers_every_time() -> None:
    pytest.importorskip("jax")
    session = connect(Compiler(after=2, choose=False, fallback=Compiler(tier=ALWAYS, after=2, choose=False)))
    w = numbers(tg, (3, 4), 0)
    for step in range(8):
        dropout(w, step).item()
    report = last(session)
    assert "draws random numbers" in report.reason
    assert report.compiled_runs == 0 and report.planned_runs > 2


def test_hooks_that_come_later_are_called(session: Remembering) -> None:
    w = numbers(tg, (3, 2), 0).requires_grad_()
    seen: list[Any] = []

    def step() -> Any:
        w.grad = None
        loss = (w * w).tanh().sum() * 2
        loss.backward()
        return [loss.item(), *w.grad.flatten().tolist()]

    plain = [step() for _ in range(6)]
    assert any(r.runs_as_one for r in session.reports)
    handle = w.register_hook(lambda grad: seen.append(grad.tolist()) or grad * 2)
    hooked = step()
    assert len(seen) == 1
    np.testing.assert_allclose(hooked[1:], 2 * np.array(plain[-1][1:]), rtol=1e-6)
    handle.remove()
    np.testing.assert_allclose(step(), plain[-1], rtol=1e-6)


def test_a_profile_sees_every_op(session: Remembering) -> None:
    w = numbers(tg, (3, 2), 0)

    def step() -> float:
        return float(((w * 2).exp() + 1).sum().item())

    plain = [step() for _ in range(6)]
    assert runs_compiled(session)
    from telegrad_engine.profiler import profile

    session.profile = profile()
    assert step() == pytest.approx(plain[-1])
    assert "watches" in max(session.reports, key=lambda r: r.runs).reason
    assert {e.key for e in session.profile.key_averages()} >= {"aten::exp", "aten::mul"}
    session.profile = None
    step()
    assert runs_compiled(session)


def test_another_result_than_eagerly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    monkeypatch.setitem(trial.TOLERANCE, "float32", 0.0)
    session = connect(Compiler(after=2, choose=False))
    x = numbers(tg, (40, 40), 0)
    for _ in range(6):
        ((x @ x).softmax(-1).exp().log() * x).sum().item()
    report = last(session)
    assert report.runs_as_one == 0 and "came to something else" in report.reason


@pytest.mark.parametrize(("wrong", "runs"), [(2, True), (3, False)])
def test_numbers_that_only_come_near_are_tried_again(wrong: int, runs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    found = trial.Trial.difference
    trials: list[Any] = []

    def difference(self: Any, *args: Any) -> Any:
        trials.append(self)
        return "a unit" if len(trials) <= wrong else found(self, *args)

    monkeypatch.setattr(trial.Trial, "difference", difference)
    session = connect(Compiler(after=2, choose=False))
    x = numbers(tg, (4,), 0)
    said = []
    for _ in range(10):
        ((x * 2).exp() + 1).sum().item()
        said.append(last(session).reason)
    assert len(trials) == wrong + runs
    assert bool(last(session).runs_as_one) is runs
    assert any("came to something else: a unit" in reason for reason in said if reason)
    assert any("tried again" in reason for reason in said if reason)


def test_nothing_is_timed_beside_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    go_on = threading.Event()

    def make(*args: Any) -> Any:
        made = COMPILED.make(*args)
        run = made.run
        made.run = lambda *inputs: time.sleep(0.01) or run(*inputs)  # type: ignore[method-assign]
        if waiting:
            go_on.wait(60)
        return made

    waiting: list[bool] = []
    session = connect(Compiler(tier=COMPILED._replace(make=make), after=2))
    monkeypatch.setattr(session.compiler, "settle", lambda: None)
    x = numbers(tg, (4,), 0)

    def run(times: int) -> Any:
        for _ in range(times):
            ((x * 2).exp() + 1).sum().item()
        return max(session.reports, key=lambda r: r.runs)

    while not run(1).runs_as_one:
        time.sleep(0.01)
    waiting.append(True)
    for _ in range(4):
        ((x * 3).sin() - 1).sum().item()  # is being compiled from now on
    assert run(40).reason is None
    go_on.set()
    while session.compiler._worker is not None:  # type: ignore[union-attr]
        time.sleep(0.01)
    assert "quicker one instruction at a time" in run(12).reason


# Bounds and threads --------------------------------------------------------------------------------------------------


def test_the_least_recently_used_is_forgotten() -> None:
    here = connect(Compiler(tier=ALWAYS, after=2, most=2, choose=False))
    x = numbers(tg, (3,), 0)
    programs = [lambda: ((x * 2).exp() + 1).sum(), lambda: ((x * 3).sin() - 1).sum(), lambda: ((x / 3).cos() - 1).sum()]
    for program in programs * 8:
        program().item()  # three take turns where two are kept: none gets far enough
    assert {r.runs_as_one for r in here.reports} == {0}
    for program in programs:
        for _ in range(6):
            expected = program().item()
        assert last(here).runs_as_one >= 2
        assert program().item() == pytest.approx(expected)


def test_sessions_share_what_is_compiled_and_nothing_else() -> None:
    compiler = Compiler(tier=ALWAYS, after=2, choose=False)
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
    here = connect(Compiler(tier=ALWAYS, after=2))
    x = numbers(tg, (8,), 0).requires_grad_()
    for _ in range(40):
        x.grad = None
        y = x
        for _ in range(40):
            y = (y * 1.01).sin()
        y.sum().backward()
        y.sum().item()
    report = max(here.reports, key=lambda r: r.runs)
    assert report.reason is None or "quicker one instruction at a time" in report.reason


def test_large_programs_make_room_for_each_other() -> None:
    here = connect(Compiler(tier=ALWAYS, after=2, choose=False, most_bytes=56_000))
    x = numbers(tg, (3,), 0)

    def program(length: int) -> Any:
        y = x
        for _ in range(length):
            y = y * 1.5
        return y.sum().item()

    for length in (5, 7):
        for _ in range(6):
            program(length)
        assert last(here).runs_as_one >= 2
    before = sum(report.runs_as_one for report in here.reports)
    program(5)
    assert sum(report.runs_as_one for report in here.reports) == before  # it was forgotten
    for _ in range(6):
        program(30)
    assert "more than are kept" in last(here).reason
