"""Functions that ``tg.compile`` does not compile, with the reasons, and errors in compiled functions."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad_engine.errors import InvalidOperation

from .test_compile import calls, twins

pytestmark = pytest.mark.usefixtures("session")


def test_a_value_that_is_asked_for_breaks_the_graph() -> None:
    printed: list[float] = []
    w = tg.ones(3, requires_grad=True)

    def step(x: Any) -> Any:
        loss = (w * x).sum()
        printed.append(loss.item())
        return loss * 2 if loss > 5 else loss

    run = tg.compile(step)
    assert [float(run(tg.full((3,), float(i))).detach()) for i in range(6)] == [0, 3, 12, 18, 24, 30]
    assert printed == [0, 3, 6, 9, 12, 15]
    assert calls(run) == 0
    line = step.__code__.co_firstlineno + 2
    assert f"asks for a value, at {__file__}:{line}" in run.explain()
    assert "3 times" in repr(run)


def test_the_whole_graph_can_be_demanded() -> None:
    run = tg.compile(lambda x: x.sum().item(), fullgraph=True)
    with pytest.raises(InvalidOperation, match="cannot be compiled as a whole: it asks for a value"):
        run(tg.ones(2))


UNREPEATABLE = {
    "uploads an array": lambda x: x + tg.tensor([1.0, 2.0]),
    "asks for a value": lambda x: x.nonzero(),
    "registers a hook": lambda x: x.requires_grad_().register_hook(print) and x,
    "seeds the random numbers": lambda x: (tg.manual_seed(0), x)[1],
    "which is not made of tensors": lambda x: iter([x]),
    "it changes the history": lambda x: x.requires_grad_(),
    "a view of an argument": lambda x: x.view(2, 1),
    "draws random numbers on this side": lambda x: x * float(tg.default_generator.numpy.random()),
}


@pytest.mark.parametrize("reason", UNREPEATABLE)
def test_what_cannot_be_repeated_runs_as_it_is(reason: str) -> None:
    run = tg.compile(UNREPEATABLE[reason])
    for _ in range(5):
        run(tg.ones(2))
    assert calls(run) == 0
    assert reason in run.explain()


def test_a_tensor_that_is_kept_elsewhere_is_made_each_time() -> None:
    def scenario(lib: Any, compile_: Any) -> list[Any]:
        kept: list[Any] = []

        def function(x: Any) -> Any:
            kept.append(x * 2)
            return kept[-1] + 1

        run = compile_(function)
        return [*[run(lib.full((2,), float(i))) for i in range(5)], *kept]

    assert calls(twins(scenario)) == 0


@pytest.mark.full
def test_a_tensor_that_is_kept_out_of_sight_is_made_each_time() -> None:
    hidden = threading.local()

    def function(x: Any) -> Any:
        hidden.last = x * 2
        return hidden.last + 1

    run = tg.compile(function)
    for i in range(5):
        assert run(tg.full((1,), float(i))).item() == 2 * i + 1
        assert hidden.last.item() == 2 * i
    assert "keeps a tensor that it makes" in run.explain()


def test_an_iterator_is_not_compiled() -> None:
    batches = iter([tg.full((2,), float(i)) for i in range(6)])
    run = tg.compile(lambda: next(batches) + 1)
    assert [run().sum().item() for _ in range(6)] == [2, 4, 6, 8, 10, 12]
    assert "is an iterator" in run.explain()


def test_errors_inside() -> None:
    run = tg.compile(lambda x, y: x @ y)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
            run(tg.ones(2, 3), tg.ones(2, 3))
    index = tg.compile(lambda x, i: x.exp().index_select(0, i))
    x = tg.ones(3)
    assert [index(x, tg.tensor([i])).shape for i in range(3)] == [(1,)] * 3
    bad = index(x, tg.tensor([7]) + 0)
    with pytest.raises(IndexError, match="out of range") as caught:
        bad.numpy()
    notes = "".join(caught.value.__notes__)
    assert f"recorded at {__file__}" in notes and "index_select" in notes
    assert index(x, tg.tensor([0])).item() == pytest.approx(np.e)


def test_a_call_after_a_failed_one_runs_unless_it_depends_on_it() -> None:
    run = tg.compile(lambda x: x + 1)
    run(tg.ones(1))
    wrong = tg.ones(2).index_select(0, tg.tensor([9]) + 0)
    depends, other = run(wrong), run(tg.ones(1))
    with pytest.raises(IndexError):
        wrong.numpy()
    assert other.item() == 2
    with pytest.raises(IndexError):
        depends.numpy()
    with pytest.raises(IndexError):
        run(wrong)
    assert run(tg.ones(1)).item() == 2


@pytest.mark.parametrize("zero", [True, False])
def test_a_step_that_fails_leaves_weights_and_gradients(zero: bool) -> None:
    def train(lib: Any, compile_: Any) -> list[Any]:
        weight = lib.ones(5, 3).requires_grad_()
        optimizer = lib.optim.Adam([weight], lr=0.1)

        def step(index: Any) -> Any:
            if zero:
                optimizer.zero_grad()
            loss = weight.index_select(0, index).square().sum()
            loss.backward()
            optimizer.step()
            return loss

        run, losses = compile_(step), []
        for turn in range(8):
            before = weight._version
            loss = run(lib.tensor([turn % 5, 1]))
            assert weight._version == before + 1
            losses.append(loss.item())
            if lib is tg and turn == 5:
                lost = run(lib.tensor([9, 1]) + 0)
                assert weight._version == before + 2
                with pytest.raises(IndexError):
                    lost.item()
                assert weight._version == before + 1
                assert (weight.grad is None) is zero
        return [*losses, weight.detach().numpy(), weight.grad.numpy()]

    compiled: list[Any] = []

    def compile_(function: Any) -> Any:
        compiled.append(tg.compile(function))
        return compiled[0]

    for ours, theirs in zip(train(tg, compile_), train(torch, lambda function: function), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    assert calls(compiled[0]) >= 5


def test_nothing_of_a_call_stays_but_what_it_gives(server: str) -> None:
    with tg.connect(server) as session:
        tensors = f"{server}/v1/sessions/{session.id}/tensors"
        run = tg.compile(lambda x: ((x * 2).tanh() + 1).sum())
        for i in range(12):
            kept = run(tg.full((3,), float(i)))
            kept.item()
            assert len(httpx.get(tensors).json()["items"]) <= 2
        del kept
        tg.ones(1).numpy()
        assert len(httpx.get(tensors).json()["items"]) <= 1


def test_calls_in_numbers_that_vary(session: tg.Session) -> None:
    def train(lib: Any, compile_: Any) -> list[float]:
        w = lib.full((3, 3), 0.3).requires_grad_()
        optimizer = lib.optim.SGD([w], lr=0.05)
        cell = compile_(lambda x, h: (x + h @ w).tanh())
        losses = []
        for turn in range(30):
            h = lib.zeros(2, 3)
            for i in range(1 + turn * 7 % 5):
                h = cell(lib.full((2, 3), 0.1 * i), h)
            loss = h.square().sum() / (turn + 1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    assert train(tg, tg.compile) == pytest.approx(train(torch, lambda function: function), rel=1e-5)
