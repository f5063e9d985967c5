"""Foresight: a loop's rounds are recorded as earlier ones were, and one that is otherwise gets its own result.

Torch runs the same rounds, and each result is held to its own.
"""

from __future__ import annotations

import itertools
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import telegrad as tg
from telegrad_engine.errors import UnknownTensor
from telegrad_service.launch import running_server

LEARNED = 5
"""So many rounds that are alike, and the next one is foreseen."""
Round = Callable[[Any], Any]
"""A round of a loop, in torch or in ours: the tensor that it reads in the end."""


@pytest.fixture
def session(server: str) -> Iterator[tg.Session]:
    """A session on a server: in this process nothing is foreseen."""
    with tg.connect(server, seed=0) as opened:
        yield opened


def is_foreseen(session: tg.Session) -> bool:
    """Whether what is recorded now is what was to be expected."""
    ahead = session.recorder.ahead
    return ahead is not None and len(ahead) > 0


def held(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert ours.requires_grad == theirs.requires_grad and ours.is_leaf == theirs.is_leaf
    assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]


class Loop:
    """A layer of sorts, with the state that a loop has, in torch or in ours."""

    def __init__(self, lib: Any) -> None:
        self.lib = lib
        self.w = lib.tensor([[0.5, -1.0, 2.0]] * 3, requires_grad=True)
        self.v = lib.tensor([[1.0, 0.25, -0.5]] * 3)
        self.optimizer = lib.optim.SGD([self.w], lr=0.1, momentum=0.5)
        self.numbers = itertools.count()

    def data(self, *shape: int, dtype: str = "float32") -> Any:
        start = next(self.numbers)
        values = np.sin(np.arange(start, start + int(np.prod(shape)))).reshape(shape)
        return self.lib.tensor(values.astype(dtype))

    def step(self) -> Any:
        """The round that recurs."""
        self.optimizer.zero_grad()
        y = (self.data(3, 3) @ self.w + self.v).tanh() * 2.0
        loss = (y[1:] - 0.5).square().mean(dim=-1).sum()
        loss.backward()
        self.optimizer.step()
        return loss


def other_shape(loop: Loop) -> Any:
    return ((loop.data(4, 3) @ loop.w + 1).tanh() * 2.0).sum()


def other_dtype(loop: Loop) -> Any:
    return (loop.data(3, 3, dtype="float64") @ loop.w.double() + loop.v).tanh().sum()


def another_constant(loop: Loop) -> Any:
    return ((loop.data(3, 3) @ loop.w + loop.v).tanh() * 3.0).sum()


def a_constant_of_another_type(loop: Loop) -> Any:
    return (loop.data(3, 3) @ loop.w + loop.v).tanh() * True


def the_same_tensor_twice(loop: Loop) -> Any:
    loop.optimizer.zero_grad()
    return (loop.data(3, 3) @ loop.w + loop.w).tanh() * 2.0


def operands_in_another_order(loop: Loop) -> Any:
    loop.optimizer.zero_grad()
    return (loop.w @ loop.data(3, 3) + loop.v).tanh() * 2.0


def no_gradient(loop: Loop) -> Any:
    loop.optimizer.zero_grad()
    with loop.lib.no_grad():
        return (loop.data(3, 3) @ loop.w + loop.v).tanh() * 2.0


def no_gradient_halfway(loop: Loop) -> Any:
    loop.optimizer.zero_grad()
    y = (loop.data(3, 3) @ loop.w + loop.v).tanh()
    with loop.lib.no_grad():
        return y * 2.0


def a_frozen_weight(loop: Loop) -> Any:
    loop.optimizer.zero_grad()
    loop.w.requires_grad_(False)
    y = (loop.data(3, 3) @ loop.w + loop.v).tanh() * 2.0
    loop.w.requires_grad_(True)
    return y


def a_state_that_wants_a_gradient(loop: Loop) -> Any:
    loop.optimizer.zero_grad()
    v, loop.v = loop.v, loop.v.clone().requires_grad_()
    y = (loop.data(3, 3) @ loop.w + loop.v).tanh() * 2.0
    y.sum().backward()
    result, loop.v = loop.v.grad * y.detach(), v
    return result


def written_to(loop: Loop) -> Any:
    loop.optimizer.zero_grad()
    y = loop.data(3, 3) @ loop.w + loop.v
    y.mul_(0.5)
    return y.tanh() * 2.0


def a_view_that_went_stale(loop: Loop) -> Any:
    loop.optimizer.zero_grad()
    base = loop.data(3, 3) @ loop.w
    row = base[0]
    base.add_(1.0)
    return (row + loop.v[0]).tanh() * 2.0


def nothing_of_it(loop: Loop) -> Any:
    return loop.w.sum() + loop.v.sum()


def less_of_it(loop: Loop) -> Any:
    loop.optimizer.zero_grad()
    return loop.data(3, 3) @ loop.w


def more_of_it(loop: Loop) -> Any:
    return loop.step() + loop.step()


def another_dimension(loop: Loop) -> Any:
    loop.optimizer.zero_grad()
    y = (loop.data(3, 3) @ loop.w + loop.v).tanh() * 2.0
    return (y[1:] - 0.5).square().mean(dim=0).sum()


def another_slice(loop: Loop) -> Any:
    loop.optimizer.zero_grad()
    y = (loop.data(3, 3) @ loop.w + loop.v).tanh() * 2.0
    return (y[:1] - 0.5).square().mean(dim=-1).sum()


def the_graph_once_more(loop: Loop) -> Any:
    loop.optimizer.zero_grad()
    y = (loop.data(3, 3) @ loop.w + loop.v).tanh() * 2.0
    loss = (y[1:] - 0.5).square().mean(dim=-1).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()
    return loop.w.grad


OTHERWISE = [
    other_shape, other_dtype, another_constant, a_constant_of_another_type, the_same_tensor_twice,
    operands_in_another_order, no_gradient, no_gradient_halfway, a_frozen_weight, a_state_that_wants_a_gradient,
    written_to, a_view_that_went_stale, nothing_of_it, less_of_it, more_of_it, another_dimension, another_slice,
    the_graph_once_more,
]  # fmt: skip


def test_rounds_that_are_alike_are_foreseen(session: tg.Session) -> None:
    ours, theirs = Loop(tg), Loop(torch)
    for number in range(3 * LEARNED):
        loss = ours.step()
        assert is_foreseen(session) == (number >= LEARNED - 1), number
        held(loss, theirs.step())
    held(ours.w, theirs.w)
    assert session.requests == 3 * LEARNED + 1


@pytest.mark.parametrize("otherwise", OTHERWISE)
def test_a_round_that_is_otherwise(session: tg.Session, otherwise: Callable[[Loop], Any]) -> None:
    ours, theirs = Loop(tg), Loop(torch)
    rounds = [Loop.step] * LEARNED + [otherwise, Loop.step] * LEARNED + [otherwise] * 3 + [Loop.step] * 2
    for each in rounds:
        held(each(ours), each(theirs))
    held(ours.w, theirs.w)


def test_signs_of_zero_and_kinds_of_one(session: tg.Session) -> None:
    x = tg.tensor([1.0, -2.0])
    for constant in [0.0] * LEARNED + [-0.0, 0.0, -0.0, 0]:
        assert np.signbit((x * constant).tolist()).tolist() == np.signbit(np.array([1.0, -2.0]) * constant).tolist()
    whole = tg.tensor([1, 2])
    for one in [1] * LEARNED + [1.0, True, 1, 1.0, True]:
        ours, theirs = whole * one, torch.tensor([1, 2]) * one
        assert ours.tolist() == theirs.tolist() and str(ours.dtype) == str(theirs.dtype)


PAIRS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "a * b": lambda lib, a, b, c: a * b,
    "a * c": lambda lib, a, b, c: a * c,
    "c * b": lambda lib, a, b, c: c * b,
    "b * a": lambda lib, a, b, c: b * a,
    "a * a": lambda lib, a, b, c: a * a,
    "a + b": lambda lib, a, b, c: a + b,
    "by another name": lambda lib, a, b, c: lib.mul(a, b),
    "without a gradient": lambda lib, a, b, c: no_grad(lib, lambda: a * b),
}


def no_grad(lib: Any, function: Callable[[], Any]) -> Any:
    with lib.no_grad():
        return function()


@pytest.mark.parametrize("otherwise", PAIRS)
def test_other_operands_of_the_message_itself(session: tg.Session, otherwise: str) -> None:
    def turn(lib: Any, x: Any, how: str) -> Any:
        a, b, c = x * 2.0, x + 1.0, x.tanh()
        return PAIRS[how](lib, a, b, c).square()

    ours, theirs = (lib.tensor([0.5, -1.5], requires_grad=True) for lib in (tg, torch))
    for how in ["a * b"] * LEARNED + [otherwise, "a * b"] * LEARNED:
        held(turn(tg, ours, how), turn(torch, theirs, how))


def kinds(lib: Any) -> list[Any]:
    """Tensors that were there before, of which a message is told nothing."""
    base = lib.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True) * 1.0
    stale = base[0]
    base.add_(1.0)
    return [
        lib.tensor([0.5, -1.5]), lib.tensor([0.5, -1.5], requires_grad=True), lib.tensor([0.5, -1.5, 1.0]),
        lib.tensor([0.5, -1.5], dtype=lib.float64), lib.tensor([[0.5], [-1.5]]), stale,
    ]  # fmt: skip


@pytest.mark.parametrize("which", range(6))
@pytest.mark.parametrize("first", [0, 1])
def test_tensors_of_other_kinds(session: tg.Session, first: int, which: int) -> None:
    ours, theirs = kinds(tg), kinds(torch)
    session.flush()
    for index in [first] * LEARNED + [which, first] * LEARNED:
        held((ours[index] * 2.0).tanh() + ours[index], (theirs[index] * 2.0).tanh() + theirs[index])


def test_other_kinds_by_another_name(session: tg.Session) -> None:
    ours, theirs = kinds(tg), kinds(torch)
    w, v = tg.tensor([2.0]), torch.tensor([2.0])
    session.flush()
    for _ in range(LEARNED):
        held((ours[0] * w).tanh().square(), (theirs[0] * v).tanh().square())
    for index in (2, 1, 4, 0):
        held(tg.mul(ours[index], w).tanh().square(), torch.mul(theirs[index], v).tanh().square())


def test_a_tensor_that_shows_other_data_halfway(session: tg.Session) -> None:
    def turn(lib: Any, x: Any, data: Any) -> Any:
        y = x * 2.0
        x.data = data
        return y.sum() + (x + 1.0).sum(), x + 1.0

    sides = []
    for lib in (tg, torch):
        data = [lib.ones(2), lib.ones(3), lib.ones(2, 2), lib.ones(2, dtype=lib.float64)]
        sides.append((lib, [lib.ones(2) for _ in range(6 * LEARNED)], data))
    session.flush()
    for number, which in enumerate([0] * LEARNED + [1, 0, 2, 0, 3] * 3):
        ours, theirs = (turn(lib, states[number], data[which]) for lib, states, data in sides)
        held(ours[0], theirs[0])
        held(ours[1], theirs[1])


def test_what_died_is_freed_halfway(session: tg.Session) -> None:
    x = tg.tensor([1.0, 2.0])

    def turn(more: bool, free: bool) -> None:
        y = x * 2.0
        if free:
            session.recorder.free_dead()  # as a checkpoint does
        if more:
            assert (y * x).tolist() == [2.0, 8.0]
        else:
            session.flush()

    for more in [False, True] * LEARNED:
        turn(more, False)
    for more in [True, False] * LEARNED:
        turn(more, True)


# Programs of any shape ----------------------------------------------------------------------------

OPS: list[Callable[[Any, Any, Any], Any]] = [
    lambda lib, a, b: a + b,
    lambda lib, a, b: a * b,
    lambda lib, a, b: lib.tanh(a),
    lambda lib, a, b: a.sum(dim=0, keepdim=True) + b,
    lambda lib, a, b: lib.cat([a, b])[:2],
    lambda lib, a, b: a.clone().mul_(0.5),
    lambda lib, a, b: a[:1] - b,
    lambda lib, a, b: a.detach() * b,
]
instruction = st.tuples(st.integers(0, len(OPS) - 1), st.integers(0, 5), st.integers(0, 5))
programs = st.lists(st.lists(instruction, min_size=1, max_size=6), min_size=1, max_size=3)


def run(lib: Any, program: list[tuple[int, int, int]], leaf: Any, number: int) -> tuple[Any, Any]:
    """The last result, and the leaf's gradient if there is one."""
    leaf.grad = None
    pool = [leaf, lib.tensor([[0.25 * number, -1.0], [0.5, 0.1 * number]]), leaf.detach()]
    for op, a, b in program:
        pool.append(OPS[op](lib, pool[a % len(pool)], pool[b % len(pool)]))
    if pool[-1].requires_grad:
        pool[-1].sum().backward()
    return pool[-1], leaf.grad


@settings(max_examples=60)
@given(programs=programs, order=st.lists(st.integers(0, 2), min_size=8, max_size=16))
def test_any_programs_in_turns(server: str, programs: Any, order: list[int]) -> None:
    start = [[0.5, -0.25], [1.5, 0.75]]
    theirs = torch.tensor(start, requires_grad=True)
    with tg.connect(server):
        ours = tg.tensor(start, requires_grad=True)
        for number, turn in enumerate([0] * LEARNED + order):
            program = programs[turn % len(programs)]
            (y, grad), (expected, expected_grad) = (run(tg, program, ours, number), run(torch, program, theirs, number))
            held(y, expected)
            assert (grad is None) == (expected_grad is None)
            if grad is not None:
                held(grad, expected_grad)


# When something goes wrong ------------------------------------------------------------------------


def pick(index: int) -> Any:
    x = tg.tensor([1.0, 2.0, 3.0]) * 2.0
    return x.index_select(0, tg.tensor([index])) + 1.0


def test_an_error_names_the_line_and_nothing_behind_it_ran(session: tg.Session) -> None:
    kept = tg.zeros(1)
    for index in [0, 1, 2] * 3:
        kept.add_(pick(index))
        assert kept.item() > 0
    assert is_foreseen(session) or session.recorder.ahead is not None
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


def test_what_never_came_to_be_is_refused_at_once(session: tg.Session) -> None:
    def turn(index: int) -> float:
        y = pick(index)
        session.flush()
        z = y * 2.0
        seen.append(is_foreseen(session))
        return float(z.sum().item())

    seen: list[bool] = []
    for index in [0, 1, 2] * 5:
        assert turn(index) == 6.0 + 4 * index
    assert seen[-1]
    y = pick(7)
    with pytest.raises(IndexError, match="out of range"):
        session.flush()
    with pytest.raises(IndexError, match="out of range"):
        y * 2.0
    assert turn(1) == 10.0


def test_the_same_from_another_line(session: tg.Session) -> None:
    def there(index: int) -> Any:
        return tg.tensor([1.0, 2.0, 3.0]).index_select(0, tg.tensor([index]))

    def elsewhere(index: int) -> Any:
        return tg.tensor([1.0, 2.0, 3.0]).index_select(0, tg.tensor([index]))

    for index in [0, 1, 2] * 3:
        assert there(index).item() == index + 1.0
    with pytest.raises(IndexError, match="out of range") as caught:
        elsewhere(9).item()
    assert f"{__file__}:{elsewhere.__code__.co_firstlineno + 1}" in "".join(caught.value.__notes__)


def test_a_write_from_another_line(session: tg.Session) -> None:
    x = tg.zeros(3)

    def there(index: int) -> None:
        x.index_put_((tg.tensor([index]),), tg.ones(1))

    def elsewhere(index: int) -> None:
        x.index_put_((tg.tensor([index]),), tg.ones(1))

    for index in [0, 1, 2] * 3:
        there(index)
        assert x[index].item() == 1.0
    with pytest.raises(IndexError, match="out of bounds") as caught:
        elsewhere(9)
        x.tolist()
    assert f"{__file__}:{elsewhere.__code__.co_firstlineno + 1}" in "".join(caught.value.__notes__)


def test_the_same_from_further_up_and_down_the_stack(session: tg.Session) -> None:
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


def test_an_error_on_the_users_own_line(session: tg.Session) -> None:
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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # one that hits a finalizer is lost
def test_an_interrupt_at_any_moment(session: tg.Session) -> None:
    ours = Loop(tg)
    for _ in range(LEARNED):
        ours.step().item()
    w, v = np.array(ours.w.tolist()), np.array(ours.v.tolist())
    moments, interrupted = random.Random(0), 0
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for number in range(80):
            try:
                signal.setitimer(signal.ITIMER_REAL, moments.uniform(2e-5, 4e-4))
                for _ in range(20):
                    (ours.data(3, 3) @ ours.w + ours.v).tanh().mul(2.0).square()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
            with suppress(UnknownTensor):  # what was about to be made is freed, though it never was
                session.flush()
            x = np.full((3, 3), 0.1 * number, np.float32)
            y = (tg.tensor(x) @ ours.w + ours.v).tanh() * 2.0
            np.testing.assert_allclose(y.tolist(), np.tanh(x @ w + v) * 2.0, rtol=1e-4)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 20


def test_threads_that_take_turns_within_a_round(session: tg.Session) -> None:
    wrong: list[Any] = []

    def work(number: int) -> None:
        x = tg.tensor([float(number)])
        for turn in range(120):
            y = x
            for _ in range(6):
                y = y * 2.0 + x
            if turn % 3 == 0 and y.item() != number * 127.0:
                wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_server_that_forgets() -> None:
    with running_server(remembered_programs=1) as url, tg.connect(url) as session:
        ours, theirs = Loop(tg), Loop(torch)
        for number in range(2 * LEARNED):
            held(ours.step(), theirs.step())
            assert tg.ones(2).sum().item() == 2.0
            assert number < LEARNED or session.recorder.ahead is not None


# What looks on ------------------------------------------------------------------------------------


def test_what_wants_to_see_each_instruction_sees_it(session: tg.Session) -> None:
    ours, theirs = Loop(tg), Loop(torch)
    for _ in range(LEARNED + 1):
        held(ours.step(), theirs.step())
    tg.debug(True)
    try:
        before = session.requests
        held(ours.step(), theirs.step())
        assert session.requests > before + 8
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


def test_what_looks_on_from_the_first_instruction(session: tg.Session) -> None:
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
        before = session.requests
        y = turn(x)
        assert session.requests == before + 3 and y.item() == expected
    finally:
        tg.debug(False)


def test_what_is_recorded_can_be_looked_at(session: tg.Session) -> None:
    loop = Loop(tg)
    for _ in range(LEARNED + 1):
        loop.step().item()
    loss = loop.step()
    assert is_foreseen(session) and "instructions waiting" in repr(session)
    ops = [each.op for each in session.recorder.pending]
    assert ops[0] == "zero_grad" and ops[-1] == "optim_step" and not is_foreseen(session)
    assert loss.item() > 0


def test_programs_that_never_recur_are_not_learned_for_ever(session: tg.Session) -> None:
    x = tg.ones(3)
    for length in range(1, 60):
        for _ in range(3):
            y = x
            for _ in range(length):
                y = y + 1.0
            assert y.sum().item() == 3.0 * (length + 1)
