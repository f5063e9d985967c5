"""Where a loop is interrupted: errors, interrupts, other threads, and observers that need each instruction."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad_engine.errors import UnknownTensor

from .interrupting import Interrupter
from .repeating import LEARNED, Loop, held


def pick(index: int) -> Any:
    x = tg.tensor([1.0, 2.0, 3.0]) * 2.0
    return x.index_select(0, tg.tensor([index]) + 0) + 1.0


def test_an_error_names_the_line_and_nothing_behind_it_ran(remote: tg.Session) -> None:
    kept = tg.zeros(1)
    for index in [0, 1, 2] * 3:
        kept.add_(pick(index))
        assert kept.item() > 0
    before = kept.item()
    for _ in range(2):
        with pytest.raises(IndexError, match="out of range") as caught:
            kept.add_(pick(7))
            kept.item()
        notes = "".join(caught.value.__notes__)
        assert f"{__file__}:{pick.__code__.co_firstlineno + 2}" in notes
        assert kept.item() == before
        for index in [0, 1, 2] * 2:
            assert pick(index).item() == 3.0 + 2 * index


def test_what_never_came_to_be_is_refused_at_once(remote: tg.Session) -> None:
    def turn(index: int) -> float:
        y = pick(index)
        remote.flush()
        return float((y * 2.0).sum().item())

    for index in [0, 1, 2] * 5:
        assert turn(index) == 6.0 + 4 * index
    y = pick(7)
    with pytest.raises(IndexError, match="out of range"):
        remote.flush()
    with pytest.raises(IndexError, match="out of range"):
        y * 2.0
    assert turn(1) == 10.0


def read(index: int) -> Any:
    return tg.tensor([1.0, 2.0, 3.0]).index_select(0, tg.tensor([index]) + 0)


def read_elsewhere(index: int) -> Any:
    return tg.tensor([1.0, 2.0, 3.0]).index_select(0, tg.tensor([index]) + 0)


def write(index: int) -> Any:
    return tg.zeros(3).index_put_((tg.tensor([index]) + 0,), tg.ones(1))


def write_elsewhere(index: int) -> Any:
    return tg.zeros(3).index_put_((tg.tensor([index]) + 0,), tg.ones(1))


@pytest.mark.parametrize(("there", "elsewhere"), [(read, read_elsewhere), (write, write_elsewhere)])
def test_the_same_from_another_line(remote: tg.Session, there: Any, elsewhere: Any) -> None:
    for index in [0, 1, 2] * 3:
        assert there(index).sum().item() == (index + 1.0 if there is read else 1.0)
    with pytest.raises(IndexError, match=r"out of (range|bounds)") as caught:
        elsewhere(9).sum().item()
    assert f"{__file__}:{elsewhere.__code__.co_firstlineno + 1}" in "".join(caught.value.__notes__)


def test_the_same_from_further_up_and_down_the_stack(remote: tg.Session) -> None:
    def deeper(levels: int, index: int) -> Any:
        return pick(index) if not levels else deeper(levels - 1, index)

    for index in [0, 1, 2] * 3:
        assert deeper(40, index).item() == 3.0 + 2 * index
    held: list[Any] = []
    thread = threading.Thread(target=lambda: held.extend(pick(index).item() for index in (0, 1, 2)))  # a short stack
    thread.start()
    thread.join()
    assert held == [3.0, 5.0, 7.0]
    with pytest.raises(IndexError, match="out of range") as caught:
        deeper(3, 7).item()
    assert f"{__file__}:{pick.__code__.co_firstlineno + 2}" in "".join(caught.value.__notes__)


def test_an_error_on_the_users_own_line(remote: tg.Session) -> None:
    loop = Loop(tg)
    for _ in range(LEARNED + 1):
        loop.step().item()
    loop.optimizer.zero_grad()
    x = loop.data(3, 3)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        x @ tg.ones(4, 3)
    held((x @ loop.w).tanh(), torch.tensor(x.tolist()).matmul(torch.tensor(loop.w.tolist()).requires_grad_()).tanh())
    other = tg.connect("local://")
    with other, pytest.raises(RuntimeError, match="same session"):
        x + tg.ones(3, 3)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an interrupt in a finalizer is lost
def test_an_interrupt_at_any_moment(remote: tg.Session) -> None:
    ours = Loop(tg)
    for _ in range(LEARNED):
        ours.step().item()
    w, v = np.array(ours.w.tolist()), np.array(ours.v.tolist())

    def record() -> None:
        for _ in range(3):
            (ours.data(3, 3) @ ours.w + ours.v).tanh().mul(2.0).square()

    interrupter, moments, interrupted, lines = Interrupter(), random.Random(0), 0, 0
    for number in range(120):
        if number % 3:
            interrupted += interrupter.call(record, at=moments.randint(1, lines))
        else:  # every third call ends, so that the next one is known again
            assert not interrupter.call(record)
            lines = interrupter.count
        with suppress(UnknownTensor):  # a tensor that was about to be created is freed, though it does not exist
            remote.flush()
        x = np.full((3, 3), 0.1 * number, np.float32)
        y = (tg.tensor(x) @ ours.w + ours.v).tanh() * 2.0
        np.testing.assert_allclose(y.tolist(), np.tanh(x @ w + v) * 2.0, rtol=1e-4)
    assert interrupted > 60


def test_a_session_that_is_closed(remote: tg.Session) -> None:
    x = tg.ones(2)
    for _ in range(LEARNED + 1):
        assert (x * 2.0).sum().item() == 4.0
    remote.close()
    with pytest.raises(RuntimeError, match=r"session \S+ is closed"):
        x * 2.0


# Observers ---------------------------------------------------------------------------------------


def test_what_wants_to_see_each_instruction_sees_it(remote: tg.Session) -> None:
    ours, theirs = Loop(tg), Loop(torch)
    for _ in range(LEARNED + 1):
        held(ours.step(), theirs.step())
    tg.debug(True)
    try:
        before = remote.requests
        held(ours.step(), theirs.step())
        assert remote.requests > before + 8
    finally:
        tg.debug(False)
    held(ours.step(), theirs.step())
    with tg.profiler.profile() as profile:
        held(ours.step(), theirs.step())
    assert {"tanh", "square"} <= {event.key.removeprefix("aten::") for event in profile.key_averages()}
    seen: list[Any] = []
    hook = ours.w.register_hook(lambda grad: seen.append(grad.shape))
    theirs.w.register_hook(lambda grad: None)
    for _ in range(LEARNED + 1):
        held(ours.step(), theirs.step())
    assert len(seen) == LEARNED + 1
    hook.remove()
    compiled = tg.compile(ours.step)
    for _ in range(LEARNED):
        held(ours.step(), theirs.step())
        held(compiled(), theirs.step())
    held(ours.w, theirs.w)


def test_what_looks_on_from_the_first_instruction(remote: tg.Session) -> None:
    def turn(x: Any) -> Any:
        return (x * 2.0).tanh().sum()

    x = tg.ones(3)
    expected = pytest.approx(3 * np.tanh(2.0))
    for _ in range(LEARNED + 1):
        assert turn(x).item() == expected
    compiled = tg.compile(turn)
    for _ in range(LEARNED):
        assert compiled(x).item() == expected
    assert "compiled: 3 instructions" in compiled.explain()
    for _ in range(LEARNED):
        assert turn(x).item() == expected
    tg.debug(True)
    try:
        before = remote.requests
        y = turn(x)
        assert remote.requests == before + 3 and y.item() == expected
    finally:
        tg.debug(False)


def test_what_is_recorded_can_be_looked_at(remote: tg.Session) -> None:
    loop = Loop(tg)
    for _ in range(LEARNED + 1):
        loop.step().item()
    loss = loop.step()
    assert "instructions waiting" in repr(remote)
    ops = [each.op for each in remote.recorder.pending]
    assert ops[0] == "zero_grad" and ops[-1] == "optim_step"
    assert loss.item() > 0
