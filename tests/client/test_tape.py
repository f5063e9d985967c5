"""Repeated loops send the same templates, and a different round gets its own result, that of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import telegrad as tg

from .repeating import LEARNED, Loop, held, templates


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


def test_rounds_that_are_alike_send_the_same_template(remote: tg.Session) -> None:
    ours, theirs = Loop(tg), Loop(torch)
    known = 0
    for number in range(3 * LEARNED):
        held(ours.step(), theirs.step())
        if number < LEARNED:
            known = templates(remote)
        assert templates(remote) == known, number
    held(ours.w, theirs.w)
    assert remote.requests == 3 * LEARNED + 1


@pytest.mark.parametrize("otherwise", OTHERWISE)
def test_a_round_that_is_otherwise(remote: tg.Session, otherwise: Callable[[Loop], Any]) -> None:
    ours, theirs = Loop(tg), Loop(torch)
    rounds = [Loop.step] * LEARNED + [otherwise, Loop.step] * LEARNED + [otherwise] * 3 + [Loop.step] * 2
    for each in rounds:
        held(each(ours), each(theirs))
    held(ours.w, theirs.w)


def test_signs_of_zero_and_kinds_of_one(remote: tg.Session) -> None:
    x = tg.tensor([1.0, -2.0])
    for constant in [0.0] * LEARNED + [-0.0, 0.0, -0.0, 0]:
        assert np.signbit((x * constant).tolist()).tolist() == np.signbit(np.array([1.0, -2.0]) * constant).tolist()
    whole = tg.tensor([1, 2])
    for one in [1] * LEARNED + [1.0, True, 1, 1.0, True]:
        ours, theirs = whole * one, torch.tensor([1, 2]) * one
        assert ours.tolist() == theirs.tolist() and ours.dtype.name == str(theirs.dtype).removeprefix("torch.")


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
def test_other_operands_of_the_message_itself(remote: tg.Session, otherwise: str) -> None:
    def turn(lib: Any, x: Any, how: str) -> Any:
        a, b, c = x * 2.0, x + 1.0, x.tanh()
        return PAIRS[how](lib, a, b, c).square()

    ours, theirs = (lib.tensor([0.5, -1.5], requires_grad=True) for lib in (tg, torch))
    for how in ["a * b"] * LEARNED + [otherwise, "a * b"] * LEARNED:
        held(turn(tg, ours, how), turn(torch, theirs, how))


def kinds(lib: Any) -> list[Any]:
    """Existing tensors whose metadata a message does not contain."""
    base = lib.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True) * 1.0
    stale = base[0]
    base.add_(1.0)
    return [
        lib.tensor([0.5, -1.5]), lib.tensor([0.5, -1.5], requires_grad=True), lib.tensor([0.5, -1.5, 1.0]),
        lib.tensor([0.5, -1.5], dtype=lib.float64), lib.tensor([[0.5], [-1.5]]), stale,
    ]  # fmt: skip


@pytest.mark.parametrize("which", range(6))
@pytest.mark.parametrize("first", [0, 1])
def test_tensors_of_other_kinds(remote: tg.Session, first: int, which: int) -> None:
    ours, theirs = kinds(tg), kinds(torch)
    remote.flush()
    for index in [first] * LEARNED + [which, first] * LEARNED:
        held((ours[index] * 2.0).tanh() + ours[index], (theirs[index] * 2.0).tanh() + theirs[index])


def test_other_kinds_by_another_name(remote: tg.Session) -> None:
    ours, theirs = kinds(tg), kinds(torch)
    w, v = tg.tensor([2.0]), torch.tensor([2.0])
    remote.flush()
    for _ in range(LEARNED):
        held((ours[0] * w).tanh().square(), (theirs[0] * v).tanh().square())
    for index in (2, 1, 4, 0):
        held(tg.mul(ours[index], w).tanh().square(), torch.mul(theirs[index], v).tanh().square())


def test_a_tensor_that_shows_other_data_halfway(remote: tg.Session) -> None:
    def turn(lib: Any, x: Any, data: Any) -> Any:
        y = x * 2.0
        x.data = data
        return y.sum() + (x + 1.0).sum(), x + 1.0

    sides = []
    for lib in (tg, torch):
        data = [lib.ones(2), lib.ones(3), lib.ones(2, 2), lib.ones(2, dtype=lib.float64)]
        sides.append((lib, [lib.ones(2) for _ in range(6 * LEARNED)], data))
    remote.flush()
    for number, which in enumerate([0] * LEARNED + [1, 0, 2, 0, 3] * 3):
        ours, theirs = (turn(lib, states[number], data[which]) for lib, states, data in sides)
        held(ours[0], theirs[0])
        held(ours[1], theirs[1])


def test_what_died_is_freed_halfway(remote: tg.Session) -> None:
    x = tg.tensor([1.0, 2.0])

    def turn(more: bool, free: bool) -> None:
        y = x * 2.0
        if free:
            remote.recorder.free_dead()  # as a checkpoint does
        if more:
            assert (y * x).tolist() == [2.0, 8.0]
        else:
            remote.flush()

    for more in [False, True] * LEARNED:
        turn(more, False)
    for more in [True, False] * LEARNED:
        turn(more, True)


def test_a_list_that_is_another_the_next_time(remote: tg.Session) -> None:
    x, y, dims = tg.ones(2, 3), torch.ones(2, 3), [0]
    for dim in [0] * LEARNED + [1, 0, -1]:
        dims[0] = dim
        held(x.sum(dims) * 2.0, y.sum(dims) * 2.0)
        held(x.permute(dims[0], 1 - dims[0] % 2)[..., :1], y.permute(dims[0], 1 - dims[0] % 2)[..., :1])


# Programs of any shape ----------------------------------------------------------------------------

OPS: list[Callable[[Any, Any, Any, int], Any]] = [
    lambda lib, a, b, n: a + b,
    lambda lib, a, b, n: a * b,
    lambda lib, a, b, n: lib.tanh(a),
    lambda lib, a, b, n: a.sum(dim=0, keepdim=True) + b,
    lambda lib, a, b, n: lib.cat([a, b])[:2],
    lambda lib, a, b, n: a.clone().mul_(0.5),
    lambda lib, a, b, n: a[:1] - b,
    lambda lib, a, b, n: a.detach() * b,
    lambda lib, a, b, n: a * (0.5 + n),
    lambda lib, a, b, n: lib.add(a, b, alpha=0.25 * n),
    lambda lib, a, b, n: a.clone().sub_(0.1 * n),
    lambda lib, a, b, n: a[n % 2 : n % 2 + 1] - b,
    lambda lib, a, b, n: a.roll(n, 1),
]
instruction = st.tuples(st.integers(0, len(OPS) - 1), st.integers(0, 5), st.integers(0, 5))
programs = st.lists(st.lists(instruction, min_size=1, max_size=6), min_size=1, max_size=3)


def run(lib: Any, program: list[tuple[int, int, int]], leaf: Any, number: int) -> tuple[Any, Any]:
    """Run a program and return the last result and the leaf's gradient, if it has one."""
    leaf.grad = None
    pool = [leaf, lib.tensor([[0.25 * number, -1.0], [0.5, 0.1 * number]], dtype=lib.float64), leaf.detach()]
    for op, a, b in program:
        pool.append(OPS[op](lib, pool[a % len(pool)], pool[b % len(pool)], number))
    if pool[-1].requires_grad:
        pool[-1].sum().backward()
    return pool[-1], leaf.grad


@settings(max_examples=60)
@given(programs=programs, order=st.lists(st.integers(0, 2), min_size=8, max_size=16))
def test_any_programs_in_turns(server: str, programs: Any, order: list[int]) -> None:
    start = [[0.5, -0.25], [1.5, 0.75]]
    # In float64, since differences of nearly equal numbers are not held to a tolerance of float32.
    theirs = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    with tg.connect(server):
        ours = tg.tensor(start, dtype=tg.float64, requires_grad=True)
        for number, turn in enumerate([0] * LEARNED + order):
            program = programs[turn % len(programs)]
            (y, grad), (expected, expected_grad) = (run(tg, program, ours, number), run(torch, program, theirs, number))
            held(y, expected)
            assert (grad is None) == (expected_grad is None)
            if grad is not None:
                held(grad, expected_grad)


def test_code_without_a_module_name(remote: tg.Session) -> None:
    space = {"x": tg.ones(3, requires_grad=True)}
    for _ in range(LEARNED):
        exec("y = (x * x).sum()", space)
    assert space["y"].item() == 3.0
