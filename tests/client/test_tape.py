"""A loop sends the same templates in each turn, and a turn that differs gets its own result and graph, those of torch.

Internals: whether a graph is built is seen nowhere else.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import telegrad as tg
from telegrad_engine.context import observed_by
from telegrad_engine.instrumentation import Observer

from ..engine.compiled.test_operands import LOOPS
from .parity import bodies
from .registering import unique
from .repeating import LEARNED, Loop, chain, held, templates
from .rounds import Chains, Rounds, graph, told

DATA = np.sin(np.arange(240.0, dtype=np.float32)).reshape(60, 4)


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


def plain(result: Any) -> Any:
    return np.asarray(result.detach().tolist()) if hasattr(result, "detach") else result


def compare_rounds(a_round: Callable[[Loop], Any], registered: bool = False) -> None:
    """Run a round among others that are known, and then until it is known itself, and compare each with torch's."""
    function: Any = chain
    if registered:
        name = unique("chain")
        tg.register_function(name, chain)
        function = getattr(tg.ops, name)
    ours, theirs = Loop(tg, function), Loop(torch)

    def run(each: Callable[[Loop], Any]) -> None:
        for mine, other in zip(*[map(plain, each(loop)) for loop in (ours, theirs)], strict=True):
            if isinstance(other, np.ndarray):
                np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-6)
            else:
                assert mine == pytest.approx(other, rel=1e-3) if isinstance(other, float) else mine == other

    def step(loop: Loop) -> Any:
        return (loop.step(),)

    for each in [step] * LEARNED + [a_round, step] * LEARNED + [a_round] * 3 + [step] * 2:
        run(each)
    for _ in range(LEARNED + 3):
        for loop in (ours, theirs):
            loop.w.grad = None
        assert ours.w.sum().item() == pytest.approx(theirs.w.sum().item(), abs=1e-4)  # this also ends a message
        run(a_round)


@pytest.mark.usefixtures("remote")
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("a_round", [*bodies(Chains), *bodies(Rounds)], ids=lambda each: each.__name__)
def test_a_round_that_differs_comes_to_torchs_results_and_graph(a_round: Callable[[Loop], Any]) -> None:
    compare_rounds(a_round)


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("a_round", bodies(Chains), ids=lambda each: each.__name__)
def test_so_does_one_that_calls_a_registered_function(a_round: Callable[[Loop], Any]) -> None:
    compare_rounds(a_round, registered=True)


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
    sides = [(lib, kinds(lib), lib.tensor([2.0])) for lib in (tg, torch)]
    remote.flush()
    for index in [0] * LEARNED + [2, 1, 4, 0]:
        held(*[(each[index] * w if index == 0 else lib.mul(each[index], w)).tanh().square() for lib, each, w in sides])


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


# Numbers that differ in each turn -----------------------------------------------------------------

Turn = Callable[[int], Any]


def a_number_in_place(lib: Any, w: Any, x: Any) -> Turn:
    average = lib.zeros(3, dtype=lib.float64)

    def turn(n: int) -> Any:
        with lib.no_grad():
            average.mul_(1 - 1 / (n + 2)).add_(w, alpha=1 / (n + 2))
        return (x * (w - average)).square().mean()

    return turn


def an_optimizers(lib: Any, w: Any, x: Any) -> Turn:
    optimizer = lib.optim.SGD([w], lr=0.1, momentum=0.9)
    schedule = lib.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / 6))

    def turn(n: int) -> Any:
        optimizer.zero_grad()
        loss = (x * w).square().mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.detach() + w.sum()

    return turn


MAKERS: dict[str, Callable[[Any, Any, Any], Turn]] = {
    "a number in place": a_number_in_place,
    "an optimizer's": an_optimizers,
    **{name: lambda lib, w, x, loop=loop: lambda n: loop(lib, w, x, n) for name, loop in LOOPS.items()},
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_loop_whose_numbers_differ_sends_the_same_templates(remote: tg.Session, name: str) -> None:
    def side(lib: Any) -> tuple[Any, Turn]:
        w = lib.tensor([0.5, 1.0, 1.5], dtype=lib.float64).requires_grad_()
        return w, MAKERS[name](lib, w, lib.tensor(np.cos(np.arange(300.0)).reshape(100, 3)))

    (ours, turn), (theirs, torch_turn) = side(tg), side(torch)
    known = 0
    for n in range(1, 3 * LEARNED):
        y, expected = turn(n), torch_turn(n)
        held(y, expected)
        if y.requires_grad:
            y.backward(), expected.backward()
            held(ours.grad, theirs.grad)
        if n < 2 * LEARNED:
            known = templates(remote)
        assert templates(remote) == known, n


def test_the_number_of_a_pass_is_its_own(remote: tg.Session) -> None:
    """This includes second derivatives, an inspected node, and instructions recorded off the known path."""
    ours, theirs = tg.tensor([0.5, 2.0], requires_grad=True), torch.tensor([0.5, 2.0], requires_grad=True)
    for n in range(3 * LEARNED):
        y, expected = [(x.pow(3) * (n + 0.5)).sum() for x in (ours, theirs)]
        if n % 4 == 3:
            assert y.grad_fn.next_functions[0][0].name() == "MulBackward0"
        (slope,), (torch_slope,) = (
            tg.autograd.grad(y, ours, create_graph=True),
            torch.autograd.grad(expected, theirs, create_graph=True),
        )
        if n % 5 == 4:
            slope, torch_slope = slope.tanh(), torch_slope.tanh()
        slope.sum().backward(), torch_slope.sum().backward()
        held(ours.grad, theirs.grad)


def test_a_slice_of_another_length_is_another_call(remote: tg.Session) -> None:
    ours, theirs = tg.tensor(DATA), torch.tensor(DATA)
    for n in [*range(2 * LEARNED), 57, 58, 59, 60, 99, 3]:
        held(ours[n : n + 4] * 2.0, theirs[n : n + 4] * 2.0)


def test_a_view_of_other_rows_is_written_to(remote: tg.Session) -> None:
    ours, theirs = tg.tensor(DATA), torch.tensor(DATA)
    for n in range(3 * LEARNED):
        for x in (ours, theirs):
            rows = x[n : n + 2]
            rows.mul_(1.0 + n)
        held(ours * 1.0, theirs * 1.0)


def test_a_number_of_another_type(remote: tg.Session) -> None:
    ours, theirs = tg.tensor([1, 2]), torch.tensor([1, 2])
    numbers = count(2)
    for _ in range(2 * LEARNED):
        n = next(numbers)
        for factor in (n, n + 0.5, bool(n % 2)) if n % 5 == 4 else (n,):
            held(ours * factor, theirs * factor)


def test_a_number_that_is_refused_is_refused_on_its_line(remote: tg.Session) -> None:
    x, labels = tg.tensor(DATA), tg.tensor(np.arange(60) % 4)
    loss = tg.nn.functional.cross_entropy
    for n in range(2 * LEARNED):
        expected = torch.nn.functional.cross_entropy(torch.tensor(DATA)[n], torch.tensor((n + 1) % 4))
        held(loss(x[n], labels[n + 1]), expected)
    with pytest.raises(IndexError, match="index 60 is out of bounds for dimension 0 with size 60"):
        x[60]
    held(loss(x[n], labels[n + 1]), expected)
    few = tg.tensor(DATA[:, :3])
    for n in (0, 4, 8):
        held(loss(few[n], labels[n]), torch.nn.functional.cross_entropy(torch.tensor(DATA[n, :3]), torch.tensor(0)))
    for n in range(2 * LEARNED):
        if n % 4 == 3:
            with pytest.raises(IndexError, match="Target 3 is out of bounds"):
                loss(few[n], labels[n])
        else:
            loss(few[n], labels[n]).item()


# The graph is built when it is looked at ----------------------------------------------------------


@pytest.mark.parametrize("step", [Loop.step, Rounds.several_at_once])
def test_a_leaf_that_gets_a_hook_in_a_known_loop(remote: tg.Session, step: Callable[[Loop], Any]) -> None:
    loop, seen = Loop(tg), []
    for turn in range(LEARNED + 5):
        if turn == LEARNED + 3:
            loop.w.register_hook(lambda grad: seen.append(grad.shape))
        step(loop)
        loop.w.grad = None
        loop.w.sum().item()
    assert len(seen) == 2


def test_an_observer_sees_each_op_when_it_is_recorded(remote: tg.Session) -> None:
    loop, seen = Loop(tg), []

    class Noting(Observer):
        def node(self, node: Any, *rest: Any) -> None:
            seen.append(node.name())

    for _ in range(LEARNED + 5):
        y = loop.data(3, 3) @ loop.w
        with observed_by(Noting()):
            y = y.tanh()
            assert seen == ["TanhBackward0"]
            y.sum().backward()
            assert seen == ["TanhBackward0", "SumBackward0"]
        seen.clear()
        loop.w.sum().item()


@pytest.mark.parametrize("of_a_gradient", [False, True])
def test_a_state_that_is_a_leafs_own_memory_or_gradient_this_time(remote: tg.Session, of_a_gradient: bool) -> None:
    w, u, v = tg.ones(3, requires_grad=True), tg.ones(3, requires_grad=True), tg.ones(3)
    optimizer = tg.optim.SGD([w], lr=0.1)
    for shared in [False] * (LEARNED + 4) + [True]:
        w.grad = tg.ones(3)
        if shared:
            v = w.grad if of_a_gradient else w.detach()
        v.sum().item()
        loss = (w * u * v).sum() if of_a_gradient else (w * u).sum()
        if of_a_gradient:
            optimizer.zero_grad(set_to_none=False)
        else:
            v.mul_(1.0)
        if shared:
            assert "modified by an inplace operation" in told(loss.backward)
        else:
            loss.backward()
        u.grad = None


def gradients_let_go_before_the_pass(loop: Loop) -> Any:
    y = (loop.data(3, 3) @ loop.w).tanh()
    loop.optimizer.zero_grad()
    loss = y.sum()
    loss.backward()
    loop.optimizer.step()
    return loss


def gradients_alone(loop: Loop) -> Any:
    loss = (loop.data(3, 3) @ loop.w).tanh().sum()
    tg.autograd.grad(loss, loop.w)[0].sum().item()
    return loss


@pytest.mark.parametrize("hooks_elsewhere", [False, True])
@pytest.mark.parametrize("step", [Loop.step, gradients_let_go_before_the_pass, gradients_alone])
def test_a_graph_that_nobody_looks_at_is_not_built(remote: tg.Session, step: Any, hooks_elsewhere: bool) -> None:
    other = tg.ones(3, requires_grad=True) * 2
    if hooks_elsewhere:
        other.register_hook(lambda grad: None)
    loop = Loop(tg)
    losses = [step(loop) for _ in range(LEARNED + 5) if loop.w.sum().item() is not None]
    unbuilt = [loss for loss in losses if loss._lazy is not None and loss._lazy.nodes is None]
    assert len(unbuilt) > 3
    assert {graph(loss) for loss in losses} == {graph(losses[0])}


def test_a_result_that_is_kept_keeps_no_data(remote: tg.Session) -> None:
    loop = Loop(tg)
    kept, batches = [], []
    for _ in range(LEARNED + 5):
        batch = loop.data(3, 3)
        loss = (batch @ loop.w).tanh().sum()
        loss.backward()
        kept.append(loss)
        batches.append(weakref.ref(batch))
        loss.item()
    del batch
    gc.collect()
    assert [batch() for batch in batches] == [None] * len(batches)
    assert loss._lazy is not None
    assert all(graph(loss) == graph(kept[0]) for loss in kept)
