"""A graph that is built lazily is the same as one that is built immediately.

Each round is repeated in both libraries until the recorder knows it.

Internals: only the handle knows whether its graph is built.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad_engine.context import observed_by
from telegrad_engine.instrumentation import Observer

from .repeating import LEARNED, Loop
from .rounds import ROUNDS, graph, several_at_once, told


def plain(result: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return [plain(each) for each in result]
    return np.asarray(result.detach().tolist()) if hasattr(result, "detach") else result


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("a_round", ROUNDS, ids=lambda each: each.__name__)
def test_it_is_as_if_it_were_drawn_at_once(remote: tg.Session, a_round: Callable[[Loop], Any]) -> None:
    ours, theirs = Loop(tg), Loop(torch)
    for _ in range(LEARNED + 3):
        for loop in (ours, theirs):
            loop.w.grad = None
        assert ours.w.sum().item() == pytest.approx(theirs.w.sum().item(), abs=1e-4)  # this also ends a message
        for mine, other in zip(plain(a_round(ours)), plain(a_round(theirs)), strict=True):
            if isinstance(other, np.ndarray):
                np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-6)
            else:
                assert mine == pytest.approx(other, rel=1e-3) if isinstance(other, float) else mine == other


def test_a_pass_that_stops_on_its_way_goes_through_it_in_order(remote: tg.Session) -> None:
    loop, seen = Loop(tg), []
    for step in range(LEARNED + 5):
        if step == LEARNED + 3:
            loop.w.register_hook(lambda grad: seen.append(grad.shape))
        several_at_once(loop)
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


def test_a_state_that_is_a_leafs_own_memory_this_time(remote: tg.Session) -> None:
    w, u, v = tg.ones(3, requires_grad=True), tg.ones(3, requires_grad=True), tg.ones(3)
    for shared in [False] * (LEARNED + 4) + [True]:
        if shared:
            v = w.detach()
        v.sum().item()
        loss = (w * u).sum()
        v.mul_(1.0)
        if shared:
            assert "modified by an inplace operation" in told(loss.backward)
        else:
            loss.backward()
        w.grad = u.grad = None


def test_a_state_that_is_a_gradient_this_time(remote: tg.Session) -> None:
    w, u, v = tg.ones(3, requires_grad=True), tg.ones(3, requires_grad=True), tg.ones(3)
    optimizer = tg.optim.SGD([w], lr=0.1)
    for shared in [False] * (LEARNED + 4) + [True]:
        w.grad = tg.ones(3)
        if shared:
            v = w.grad
        v.sum().item()
        loss = (w * u * v).sum()
        optimizer.zero_grad(set_to_none=False)
        if shared:
            assert "modified by an inplace operation" in told(loss.backward)
        else:
            loss.backward()
        u.grad = None


def test_the_graph_of_a_plain_loop_is_not_built(remote: tg.Session) -> None:
    loop = Loop(tg)
    losses = [loop.step() for _ in range(LEARNED + 5) if loop.w.sum().item() is not None]
    unbuilt = [loss for loss in losses if loss._lazy is not None and loss._lazy.nodes is None]
    assert len(unbuilt) > 3
    assert {graph(loss) for loss in losses} == {graph(losses[0])}


def test_nor_beside_a_graph_with_hooks(remote: tg.Session) -> None:
    other = tg.ones(3, requires_grad=True) * 2
    other.register_hook(lambda grad: None)
    test_the_graph_of_a_plain_loop_is_not_built(remote)


def test_a_leaf_that_gets_a_hook_in_a_known_loop(remote: tg.Session) -> None:
    loop, seen = Loop(tg), []
    for step in range(LEARNED + 5):
        if step == LEARNED + 3:
            loop.w.register_hook(lambda grad: seen.append(grad.shape))
        loop.step()
        loop.w.sum().item()
    assert len(seen) == 2


def test_nor_one_that_lets_go_of_gradients_before_the_pass(remote: tg.Session) -> None:
    loop, losses = Loop(tg), []
    for _ in range(LEARNED + 5):
        y = (loop.data(3, 3) @ loop.w).tanh()
        loop.optimizer.zero_grad()
        losses.append(y.sum())
        losses[-1].backward()
        loop.optimizer.step()
        loop.w.sum().item()
    unbuilt = [loss for loss in losses if loss._lazy is not None and loss._lazy.nodes is None]
    assert len(unbuilt) > 3


def test_nor_one_that_takes_gradients_alone(remote: tg.Session) -> None:
    loop, losses = Loop(tg), []
    for _ in range(LEARNED + 5):
        losses.append((loop.data(3, 3) @ loop.w).tanh().sum())
        tg.autograd.grad(losses[-1], loop.w)[0].sum().item()
    unbuilt = [loss for loss in losses if loss._lazy is not None and loss._lazy.nodes is None]
    assert len(unbuilt) > 3


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


def test_what_is_carried_from_round_to_round_has_all_of_its_history(remote: tg.Session) -> None:
    found = []
    for lib in (tg, torch):
        loop = Loop(lib)
        state, grads = loop.data(3, 3), []
        for step in range(1, 25):
            state = (state @ loop.w + loop.data(3, 3)).tanh()
            if step % 3 == 0:
                loop.w.grad = None
                state.sum().backward()
                grads.append(loop.w.grad.tolist())
                state = state.detach()
        found.append(grads)
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-5)
