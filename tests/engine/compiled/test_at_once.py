"""Programs for callers who cannot wait: they run at once if it is known that they are brief, or nothing happens.

Internals: plans and lent answers are what a session and its host agree on; clients never see them.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import telegrad as tg
from telegrad_engine.compile import Compiler
from telegrad_engine.program import Instruction, safetensors, wire
from telegrad_engine.program.result import BorrowedAnswer

from .remembering import Remembering, connect, numbers

F = tg.nn.functional
FOR_EVER = math.inf


def train(session: Remembering, within: list[float | None]) -> list[float]:
    """The losses of a small net, a step for each of the times that its caller has."""
    w, b = numbers(tg, (5, 3), 0).requires_grad_(), numbers(tg, (3,), 1).requires_grad_()
    opt = tg.optim.Adam([w, b], lr=0.1)
    losses = []
    for step, session.within in enumerate(within):
        opt.zero_grad()
        loss = F.cross_entropy(numbers(tg, (4, 5), step) @ w + b, tg.tensor([0, 1, 2, 0]))
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


def test_what_is_planned_runs_at_once_and_comes_to_the_same(session: Remembering) -> None:
    hasty = train(session, [FOR_EVER] * 20)
    before, session.at_once = session.at_once, 0
    assert 10 <= before < 20
    np.testing.assert_allclose(hasty, train(session, [None] * 20), rtol=1e-6)
    assert session.at_once == 0


def test_reports_count_each_run_once(session: Remembering) -> None:
    train(session, [FOR_EVER] * 20)
    session.flush()
    report = max(session.reports, key=lambda r: r.runs)
    assert report.reason is None
    assert report.planned_runs >= session.at_once
    assert sum(r.runs for r in session.reports) == session.programs


def test_what_took_too_long_does_not(session: Remembering) -> None:
    losses = train(session, [0.0] * 20)
    assert session.at_once == 0
    np.testing.assert_allclose(losses, train(session, [None] * 20), rtol=1e-6)


def test_what_is_lent_is_copied_first_and_not_at_once(session: Remembering) -> None:
    x = tg.zeros(2**19)
    x[0].item()
    session.within = FOR_EVER
    for step in range(8):
        lent = wire.lend_answer(session.run([Instruction("fetch", [(x._id,)])]), {})
        assert isinstance(lent, BorrowedAnswer)
        session.lent.add(lent)
        before = session.at_once
        x[:3] += 1
        assert x[0].item() == step + 1
        assert session.at_once == before
        assert safetensors.decode(lent.in_one_buffer())[1][x._id][0] == step
        del lent
        x[:3] += 0
        x[0].item()
    assert session.at_once > 2


def test_a_registered_function_runs_at_once_as_a_plan() -> None:
    tg.register_function("wave", lambda x: (x * 2).sin())
    session = connect(Compiler(after=2, choose=False))
    x = numbers(tg, (8,), 0)
    session.within = FOR_EVER
    for _ in range(40):
        tg.ops.wave(x).sum().item()
    session.at_once = 0
    for _ in range(10):
        tg.ops.wave(x).sum().item()
    assert session.at_once == 10


def test_what_was_never_seen_does_not_run() -> None:
    session = connect(None)
    session.within = FOR_EVER
    assert numbers(tg, (2,), 0).sum().item() == pytest.approx(float(numbers(tg, (2,), 0).sum()))
    assert session.at_once == 0
