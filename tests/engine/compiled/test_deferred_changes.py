"""A planned program answers before its session changes; an error in between loses nothing, or is told.

Internals: no program fails after its answer, so the memory that it needs then is made to fail.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import telegrad as tg
from telegrad_engine.compile import Compiler
from telegrad_engine.compile.change import Change
from telegrad_engine.errors import InternalError

from .remembering import Remembering, connect, numbers


def planned(**options: Any) -> Remembering:
    """The SDK's session, where programs are planned soon and run before their callers wait."""
    session = connect(Compiler(after=2, choose=False), **options)
    session.within = 60.0
    return session


class Training:
    """A loop whose programs write to a weight, leave a gradient and draw random numbers."""

    def __init__(self) -> None:
        tg.manual_seed(3)
        self.w = numbers(tg, (3, 4), 0).requires_grad_()
        self.optimizer = tg.optim.SGD([self.w], lr=0.1, momentum=0.9)

    def step(self) -> float:
        self.optimizer.zero_grad()
        loss = (tg.nn.functional.dropout(self.w.tanh(), 0.5) ** 2).sum()
        loss.backward()
        self.optimizer.step()
        return float(loss.item())

    def state(self) -> list[Any]:
        return [self.w.tolist(), self.w.grad.tolist()]


def test_a_change_that_cannot_be_prepared_is_made_by_running_the_program_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    planned(seed=0)
    untouched = Training()
    expected = [untouched.step() for _ in range(12)], untouched.state()

    session = planned(seed=0)
    training = Training()
    losses = [training.step() for _ in range(8)]
    assert session.at_once > 1
    failures = []

    def fail(self: Any, *args: Any) -> Any:
        failures.append(args)
        raise RuntimeError("broken on purpose")

    with monkeypatch.context() as patch:
        patch.setattr(Change, "_make_tensors", fail)
        losses.append(training.step())
        session.flush()
    assert failures and "it runs again" in caplog.text
    losses += [training.step() for _ in range(3)]
    assert (losses, training.state()) == expected
    assert any("broken on purpose" in (report.reason or "") for report in session.reports)


def test_a_change_that_fails_halfway_is_told_to_every_later_program(caplog: pytest.LogCaptureFixture) -> None:
    session = planned(seed=0)
    training = Training()
    for _ in range(8):
        training.step()

    class Broken(dict[str, Any]):
        def pop(self, *args: Any) -> Any:
            raise RuntimeError("broken on purpose")

    whole, session.tensors = session.tensors, Broken(session.tensors)
    with pytest.raises(InternalError, match="cannot be used any more"):
        for _ in range(2):
            training.step()
    session.tensors = whole
    assert "broken on purpose" in caplog.text
    with pytest.raises(InternalError, match="cannot be used any more"):
        training.w.tolist()


def test_memory_that_is_not_counted_does_not_stop_a_session(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session = planned(seed=0)
    training = Training()
    for _ in range(8):
        training.step()

    def fail(*args: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(session.accounts, "count", fail)
        training.step()
        session.flush()
    assert "was not counted" in caplog.text
    assert np.isfinite(training.step())
