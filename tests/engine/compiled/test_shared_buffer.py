"""Tensors whose memory JAX and NumPy share: both see what is written there, and nobody else's is changed.

Internals: whose memory a tensor has is shown by nothing else.
"""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad_engine.compile import COMPILED, Compiler
from telegrad_engine.compile.xla import aligned_copy, is_exclusive, shared_buffer_of
from telegrad_engine.program import Instruction, safetensors, wire
from telegrad_engine.program.result import Lent

from .remembering import Remembering, array, connect, numbers, runs_compiled
from .verification import VerifyingCompiler

pytestmark = pytest.mark.full

pytest.importorskip("jax")


@pytest.fixture
def session() -> Remembering:
    return connect(VerifyingCompiler(tier=COMPILED, after=2, choose=False))


class Loop:
    """Steps on rows of a dataset, in either library."""

    def __init__(self, lib: Any) -> None:
        self.lib = lib
        self.data, self.w = numbers(lib, (40, 6), 0), numbers(lib, (6, 3), 1).requires_grad_()
        self.optimizer = lib.optim.SGD([self.w], lr=0.1, momentum=0.9)
        self.turn = 0

    def step(self, count: int = 1) -> float:
        for _ in range(count):
            self.turn += 1
            rows = self.lib.tensor([self.turn % 40, 3, self.turn * 7 % 40])
            self.optimizer.zero_grad()
            loss = (self.data[rows] @ self.w).tanh().square().sum()
            loss.backward()
            self.optimizer.step()
            value = loss.item()
        return float(value)


def both() -> tuple[Loop, Loop]:
    ours, theirs = Loop(tg), Loop(torch)
    assert ours.step(8) == pytest.approx(theirs.step(8), rel=1e-3)
    return ours, theirs


def data_of(session: Remembering, tensor: Any) -> Any:
    return session.tensors[tensor._id]._data


def test_what_an_executable_reads_and_writes_is_not_copied_again(session: Remembering) -> None:
    ours, theirs = both()
    assert runs_compiled(session, 4)
    before = weakref.ref(data_of(session, ours.w))
    ours.step(3), theirs.step(3)
    gradient = session.tensors[ours.w._id]._grad._data
    for data in (data_of(session, ours.data), data_of(session, ours.w), gradient):
        shows = shared_buffer_of(data)
        assert shows is not None and shows.pointer == data.__array_interface__["data"][0]
    assert before() is None
    np.testing.assert_allclose(array(ours.w), array(theirs.w), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("change", ["w", "data", "both"])
def test_what_is_changed_in_between_is_what_the_next_run_reads(session: Remembering, change: str) -> None:
    ours, theirs = both()
    for loop in (ours, theirs):
        with loop.lib.no_grad():
            if change != "data":
                loop.w[1:3] *= 0.5
            if change != "w":
                loop.data.add_(0.25)
    assert ours.step(5) == pytest.approx(theirs.step(5), rel=1e-3)
    np.testing.assert_allclose(array(ours.w), array(theirs.w), rtol=1e-4, atol=1e-6)
    assert runs_compiled(session)


@pytest.mark.parametrize("early", [True, False])
def test_who_shares_a_tensor_s_memory_goes_on_sharing_it(session: Remembering, early: bool) -> None:
    ours, theirs = Loop(tg), Loop(torch)
    if not early:
        ours.step(8), theirs.step(8)
    shared = [(loop.w.detach(), loop.w.detach()[2:], loop.data[5:8]) for loop in (ours, theirs)]
    assert ours.step(8) == pytest.approx(theirs.step(8), rel=1e-3)
    for a, b in zip(*shared, strict=True):
        np.testing.assert_allclose(array(a), array(b), rtol=1e-4, atol=1e-6)
    for loop, (alias, part, rows) in zip((ours, theirs), shared, strict=True):
        with loop.lib.no_grad():
            alias.mul_(0.5), part.add_(1), rows.zero_()
    assert ours.step(8) == pytest.approx(theirs.step(8), rel=1e-3)
    np.testing.assert_allclose(array(ours.w), array(theirs.w), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(array(ours.data), array(theirs.data), rtol=1e-4, atol=1e-6)


def test_a_gradient_that_somebody_kept_stays_as_it_was(session: Remembering) -> None:
    ours, theirs = both()
    kept = [(loop.w.grad, loop.w.detach().clone()) for loop in (ours, theirs)]
    ours.step(5), theirs.step(5)
    for a, b in zip(*kept, strict=True):
        np.testing.assert_allclose(array(a), array(b), rtol=1e-4, atol=1e-6)


def test_what_is_one_array_to_jax_is_not_for_two_tensors(session: Remembering) -> None:
    x, w = tg.ones(3), tg.zeros(3)
    for turn in range(1, 9):
        y = x * tg.tensor(float(turn))
        w.copy_(y)
        w.sum().item()
        y.add_(turn)  # another program each time, so it writes where y is
        assert (w + 0).tolist() == [turn] * 3
        assert (y + 0).tolist() == [2 * turn] * 3
    assert max(report.compiled_runs for report in session.reports) >= 4


def test_what_is_made_of_no_tensor_is_new_each_time(session: Remembering) -> None:
    x = tg.ones(3)
    for turn in range(1, 9):
        z, same = tg.zeros(3), x.clone()
        (z + same).sum().item()
        z.add_(turn), same.add_(turn)
        assert (z + 0).tolist() == [turn] * 3
        assert (same + 0).tolist() == [turn + 1] * 3
    assert max(report.compiled_runs for report in session.reports) >= 4
    assert x.tolist() == [1] * 3


def test_what_was_lent_is_what_it_was(session: Remembering) -> None:
    x, by = tg.zeros(2**19), tg.ones(())

    def step() -> float:
        with tg.no_grad():
            x.add_(by).mul_(1)
        return float(x[0].item())

    for turn in range(1, 9):
        assert step() == turn
    lent = wire.lend_answer(session.run([Instruction("fetch", [(x._id,)])]), {})
    assert isinstance(lent, Lent)
    session.lent.add(lent)
    assert step() == 9
    assert safetensors.decode(lent.whole())[1][x._id][0] == 8


def test_memory_is_counted_as_of_eager_runs_and_given_back() -> None:
    eager = connect(None)
    loop = Loop(tg)
    loop.step(8)
    used = eager.accounts.used_bytes
    session = connect(Compiler(tier=COMPILED, after=2, choose=False))
    ours = Loop(tg)
    for _ in range(3):
        ours.step(8)
        assert session.accounts.used_bytes == used
    del ours
    tg.zeros(()).item()
    assert session.accounts.used_bytes < 1000


@pytest.mark.parametrize("dtype", ["bool", "int64", "float16", "bfloat16", "float64"])
def test_arrays_of_every_dtype_come_back(session: Remembering, dtype: str) -> None:
    ours, theirs = (lib.tensor([[1, 0, 3], [2, 1, 0]], dtype=getattr(lib, dtype)) for lib in (tg, torch))
    empty = tg.zeros(0, 3)
    for _ in range(8):
        ours, theirs = (x.flip(0).clone() for x in (ours, theirs))
        empty = empty.clone() * 2
        assert ours.tolist() == theirs.tolist()
        assert empty.tolist() == []


# Whose memory it is --------------------------------------------------------------------------------------------------


def listed(data: Any) -> tuple[Any, list[Any]]:
    """A holder as executables find it: its array is in a list besides."""
    holder = SimpleNamespace(_data=data)
    return holder, [holder._data]


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.zeros((3, 4)),
        lambda: np.frombuffer(bytearray(96)).reshape(3, 4),
        lambda: aligned_copy(np.zeros((3, 4))),
    ],
    ids=["its own", "of a message", "moved"],
)
def test_an_array_is_alone_until_somebody_else_has_it(make: Any) -> None:
    holder, _listed = listed(make())
    assert is_exclusive(holder)
    for share in (lambda: holder._data, lambda: holder._data[1:], lambda: memoryview(holder._data)):
        other = share()
        assert not is_exclusive(holder)
        del other
        assert is_exclusive(holder)


def test_a_part_of_another_array_is_not_alone_nor_is_one_in_another_order() -> None:
    whole = np.zeros((3, 4))
    assert not is_exclusive(listed(whole[1:])[0])
    holder, _listed = listed(np.zeros((3, 4)).T)
    assert not is_exclusive(holder)
