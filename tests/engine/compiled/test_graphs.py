"""Programs that leave a graph for a later one to go through, and that take such a graph: planned they come to the very
numbers of the eager run, and to its errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import telegrad as tg
from telegrad_engine.compile import Compiler
from telegrad_engine.errors import TelegradError

from ...client.parity import bodies
from .remembering import Remembering, connect

TURNS = 14
F = tg.nn.functional


def planned() -> Remembering:
    return connect(Compiler(after=2, choose=False), seed=0)


class Network:
    """Two layers, their optimizer and a batch for each turn."""

    def __init__(self, sizes: tuple[int, ...] = (4, 5, 3)) -> None:
        rng = np.random.default_rng(0)
        shapes = list(zip(sizes[1:], sizes, strict=False))
        self.weights = [tg.tensor(rng.standard_normal(shape).astype(np.float32) * 0.4) for shape in shapes]
        for w in self.weights:
            w.requires_grad_()
        self.optimizer = tg.optim.SGD(self.weights, lr=0.1, momentum=0.9)
        self.rng = rng

    def batch(self, rows: int = 6) -> Any:
        return tg.tensor(self.rng.standard_normal((rows, 4)).astype(np.float32))

    def forward(self, x: Any) -> Any:
        for w in self.weights[:-1]:
            x = tg.tanh(x @ w.T)
        return x @ self.weights[-1].T

    def state(self) -> list[list[Any]]:
        return [w.detach().tolist() for w in self.weights]


KEPT: list[Any] = []


class Loops:
    """What is done between ``zero_grad`` and a step of the optimizer."""

    def value_before_backward(net: Network, turn: int) -> Any:
        loss = net.forward(net.batch()).pow(2).mean()
        value = loss.item()
        loss.backward()
        return value

    def check_and_norm(net: Network, turn: int) -> Any:
        loss = net.forward(net.batch()).logsumexp(1).mean()
        assert not tg.isnan(loss).item()
        loss.backward()
        return tg.nn.utils.clip_grad_norm_(net.weights, 0.5).item()

    def metrics_afterwards(net: Network, turn: int) -> Any:
        out = net.forward(net.batch())
        loss = (out.exp() * 0.5).mean()
        loss.backward()
        net.optimizer.step()
        net.optimizer.zero_grad()
        return loss.item(), out.argmax(1).tolist(), out.detach().mean().item(), str(loss.grad_fn)

    def two_passes(net: Network, turn: int) -> Any:
        out = net.forward(net.batch())
        first, second = out.pow(2).mean(), out.sin().sum()
        values = [first.item()]
        first.backward(retain_graph=True)
        values.append(net.weights[0].grad.sum().item())
        second.backward()
        values.append(net.weights[0].grad.sum().item())
        return values

    def scaled(net: Network, turn: int) -> Any:
        loss = net.forward(net.batch()).pow(2).mean() * (1 / (turn + 1))
        value = loss.item()
        (loss * (turn + 2.0)).backward()
        return value

    def grown(net: Network, turn: int) -> Any:
        """A graph that several programs add to before one goes through it."""
        x, values = net.batch(), []
        for _ in range(3):
            x = tg.tanh(x + net.forward(x).mean())
            values.append(x.sum().item())
        x.mean().backward()
        return values

    def gradients_of_gradients(net: Network, turn: int) -> Any:
        loss = net.forward(net.batch()).pow(3).mean()
        value = loss.item()
        grads = tg.autograd.grad(loss, net.weights, create_graph=True)
        penalty = sum(g.pow(2).sum() for g in grads)
        values = [value, penalty.item()]
        penalty.backward()
        return values

    def left_alone(net: Network, turn: int) -> Any:
        """Graphs that nobody goes through, of which some stay."""
        out = net.forward(net.batch())
        KEPT.append(out)
        del KEPT[:-3]
        return [each.sum().item() for each in KEPT]

    def several_outputs(net: Network, turn: int) -> Any:
        out = net.forward(net.batch())
        best, places = out.max(1)
        left, right = out.cos().split(3, 0)
        value = best.sum().item(), places.tolist()
        (best.mean() + (left * right).mean()).backward()
        return value

    def a_part(net: Network, turn: int) -> Any:
        out = net.forward(net.batch())
        row = out[2:4]
        value = row.sum().item()
        row.prod().backward()
        return value

    def to_some_leaves(net: Network, turn: int) -> Any:
        out = net.forward(net.batch())
        value = out.sum().item()
        out.pow(2).mean().backward(retain_graph=True, inputs=net.weights[:1])
        out.cos().mean().backward(inputs=net.weights[1:])
        return value

    def parts_of_one(net: Network, turn: int) -> Any:
        """Views of one tensor, which are taken together, and one of which is written to now and then."""
        x = net.batch(8)
        rows = x.split(2)
        value = rows[0].sum().item()
        (net.forward(rows[0]) * net.forward(rows[1])).mean().backward()
        if turn % 5 == 4:
            rows[2].mul_(2)
        net.optimizer.step()
        net.optimizer.zero_grad()
        return value, x[4:6].tolist(), rows[3].sum().item()

    def carried(net: Network, turn: int) -> Any:
        """A state that one step leaves to the next, cut off from its history."""
        if not KEPT:
            KEPT.append(tg.zeros(6, 4))
        out = net.forward(net.batch() + KEPT[0])
        KEPT[0] = tg.tanh(tg.cat([out, out[:, :1]], 1)).detach()
        loss = out.logsumexp(0).sum()
        loss.backward()
        return loss.item()


def retained(net: Network, turn: int) -> Any:
    """The gradient of something between is kept."""
    out = net.forward(net.batch())
    out.retain_grad()
    loss = out.pow(2).mean()
    value = loss.item()
    loss.backward()
    return value, out.grad.tolist(), out.retains_grad


def run(loop: Callable[[Network, int], Any], net: Network | None = None) -> tuple[list[Any], list[Any]]:
    KEPT.clear()
    net = net or Network()
    values = []
    for turn in range(TURNS):
        net.optimizer.zero_grad()
        values.append(loop(net, turn))
        net.optimizer.step()
    return values, net.state()


@pytest.mark.parametrize("loop", bodies(Loops), ids=lambda loop: loop.__name__)
def test_planned_a_loop_comes_to_the_very_same(loop: Callable[[Network, int], Any]) -> None:
    connect(None, seed=0)
    expected = run(loop)
    session = planned()
    assert run(loop) == expected
    often = [report for report in session.reports if report.runs >= TURNS / 4]  # equal steps are put together later on
    assert often and all(report.planned_runs > report.runs / 4 for report in often), often


def test_what_has_hooks_comes_to_the_same_one_instruction_at_a_time() -> None:
    connect(None, seed=0)
    expected = run(retained)
    session = planned()
    assert run(retained) == expected
    assert any("has hooks" in (report.reason or "") for report in session.reports)


def test_what_goes_wrong_with_a_graph_is_said_as_ever() -> None:
    planned()
    net = Network()
    run(Loops.value_before_backward, net)

    def left() -> Any:
        out = tg.tanh(net.forward(net.batch()))
        out.sum().item()
        return out

    outs = [left() for _ in range(TURNS)]
    outs[-1].mul_(2)
    with pytest.raises(TelegradError, match="modified by an inplace operation"):
        outs[-1].sum().backward()
        tg.ones(1).item()
    outs[-2].sum().backward()
    tg.ones(1).item()
    with pytest.raises(TelegradError, match="backward through the graph a second time"):
        outs[-2].sum().backward()
        tg.ones(1).item()
    net.optimizer.step()
    with pytest.raises(TelegradError, match="modified by an inplace operation"):
        outs[-3].sum().backward()
        tg.ones(1).item()


def test_a_graph_that_a_program_left_can_be_walked_and_hooked() -> None:
    planned()
    net = Network()
    seen: list[float] = []
    for turn in range(TURNS):
        net.optimizer.zero_grad()
        out = net.forward(net.batch())
        loss = out.pow(2).mean()
        loss.item()
        if turn == TURNS - 1:
            loss.grad_fn.next_functions[0][0].register_hook(lambda grads, _: seen.append(grads[0].sum().item()))
            hook = out.register_hook(lambda grad: seen.append(grad.abs().sum().item()))
        loss.backward()
        net.optimizer.step()
    tg.ones(1).item()
    hook.remove()
    assert len(seen) == 2


def test_a_graph_that_was_gone_through_keeps_no_memory() -> None:
    session = planned()
    net = Network()
    run(Loops.value_before_backward, net)
    used = session.accounts.used_bytes
    run(Loops.value_before_backward, net)
    assert session.accounts.used_bytes == used
