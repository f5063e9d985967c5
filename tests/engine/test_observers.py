"""What observes one thread, such as a profile or a checkpoint, leaves other threads and their sessions alone."""

from __future__ import annotations

import gc
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pytest

import telegrad_engine as tg
from telegrad_engine import profiler
from telegrad_engine.autograd import forward_ad, set_detect_anomaly
from telegrad_engine.compile import Compiler
from telegrad_engine.program import Instruction

from .compiled.remembering import Remembering

Context = Callable[[], AbstractContextManager[Any]]


def hooks() -> AbstractContextManager[Any]:
    return tg.saved.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)


@contextmanager
def a_checkpoint() -> Iterator[None]:
    """Be inside the function of a checkpoint."""
    entered, leave = threading.Event(), threading.Event()

    def function(x: Any) -> Any:
        y = x * x
        entered.set()
        assert leave.wait(60)
        return y

    def run() -> None:
        tg.utils.checkpoint.checkpoint(function, tg.tensor([1.0], requires_grad=True), use_reentrant=False)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert entered.wait(60)
        yield
    finally:
        leave.set()
        thread.join()


def elsewhere(context: Context) -> Context:
    """``context``, entered by another thread."""

    @contextmanager
    def entered() -> Iterator[None]:
        ready, leave = threading.Event(), threading.Event()

        def run() -> None:
            with context():
                ready.set()
                assert leave.wait(60)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            assert ready.wait(60)
            yield
        finally:
            leave.set()
            thread.join()

    return entered


CONTEXTS: dict[str, Context] = {
    "a profile": profiler.profile,
    "forward mode": forward_ad.dual_level,
    "hooks on saved tensors": hooks,
    "anomaly mode": lambda: set_detect_anomaly(True),
    "a checkpoint": a_checkpoint,
}
ELSEWHERE = pytest.mark.parametrize("context", [elsewhere(each) for each in CONTEXTS.values()], ids=list(CONTEXTS))


def functions_called(work: Callable[[], Any]) -> Counter[str]:
    """How often each Python function is called by ``work``, without what other libraries do at garbage collections."""
    seen: Counter[str] = Counter()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            seen[f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"] += 1

    gc.disable()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return seen


def work() -> None:
    x = tg.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    y = (x * x + 1).exp()
    z = y.sum(1).clamp(0.0, 5.0)
    y.detach().clone().mul_(2.0)
    z.sum().backward()


@ELSEWHERE
def test_another_thread_takes_no_other_way_through_the_engine(context: Context) -> None:
    for _ in range(4):
        work()
    before = functions_called(work)
    with context():
        during = functions_called(work)
    extra = {name.rpartition(":")[2] for name in (during - before).keys() | (before - during).keys()}
    assert extra <= {"announce"}  # which finds that this thread has no observer
    assert functions_called(work) == before


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=list(CONTEXTS))
def test_a_thread_takes_the_short_way_again_afterwards(context: Context) -> None:
    for _ in range(4):
        work()
    before = functions_called(work)
    with context():
        work()
    assert functions_called(work) == before


PROGRAM = [
    Instruction("mul", ("x", "x"), ("y",)),
    Instruction("sum", ("y",), ("z",)),
    Instruction("backward", (("z",),), ()),
    Instruction("free", (("y", "z"),), ()),
]


@pytest.fixture
def session() -> Remembering:
    """A session whose program is planned."""
    session = Remembering(Compiler(after=2, choose=False))
    session.run([Instruction("tensor", (), ("x",), {"data": np.float32([1.0, 2.0]), "requires_grad": True})])
    for _ in range(5):
        session.run(PROGRAM)
    return session


def planned_runs(session: Remembering) -> int:
    report = max(session.reports, key=lambda each: each.runs)
    return int(report.planned_runs)


@ELSEWHERE
def test_the_programs_of_other_sessions_stay_planned(session: Remembering, context: Context) -> None:
    before = planned_runs(session)
    assert before
    with context():
        for _ in range(3):
            session.run(PROGRAM)
    assert planned_runs(session) == before + 3


def test_a_profile_of_one_session_leaves_the_programs_of_another_planned(session: Remembering) -> None:
    profiled = Remembering(Compiler(after=2, choose=False))
    profiled.run([Instruction("tensor", (), ("x",), {"data": np.float32([1.0, 2.0]), "requires_grad": True})])
    profiled.profile = profile = profiler.profile()
    before = planned_runs(session)
    for _ in range(3):
        profiled.run(PROGRAM)
        session.run(PROGRAM)
    assert planned_runs(session) == before + 3
    assert planned_runs(profiled) == 0
    assert {event.key: event.count for event in profile.key_averages()}["aten::mul"] == 3


# Several on one thread -------------------------------------------------------------------------------


def test_all_observers_of_a_thread_see_their_part() -> None:
    packed: list[Any] = []
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    with (
        profiler.profile() as outer,
        tg.saved.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t),
        set_detect_anomaly(True),
        forward_ad.dual_level(),
        profiler.profile() as inner,
    ):
        dual = forward_ad.make_dual(x, tg.tensor([3.0, 4.0]))
        y = dual * dual
        tangent = forward_ad.unpack_dual(y).tangent
    assert tangent.tolist() == [6.0, 16.0]
    assert len(packed) >= 2 and "traceback_" in y.grad_fn.metadata
    assert {event.key for event in inner.key_averages()} >= {"aten::mul"}
    assert not outer.key_averages()
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_a_profile_that_begins_within_hooks_goes_on_after_them() -> None:
    packed: list[Any] = []
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    profile = profiler.profile()
    with tg.saved.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        profile.start()
        x.exp()
    x.exp()
    profile.stop()
    x.exp()
    assert [(each.key, each.count) for each in profile.key_averages()] == [("aten::exp", 2)]
    assert len(packed) == 1
