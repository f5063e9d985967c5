"""Loops whose numbers change in each turn send the same templates, and each turn uses its own numbers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from .repeating import LEARNED, held, templates

DATA = np.sin(np.arange(240.0, dtype=np.float32)).reshape(60, 4)
Turn = Callable[[int], Any]


def weight_of_a_loss(lib: Any, w: Any, x: Any) -> Turn:
    return lambda n: (x @ w).square().mean() * (1 / (n + 1))


def an_option(lib: Any, w: Any, x: Any) -> Turn:
    return lambda n: lib.add((x @ w).square(), w.sum(), alpha=0.1 * n).mean()


def a_slice(lib: Any, w: Any, x: Any) -> Turn:
    return lambda n: (x[n : n + 4] @ w).square().mean()


def a_row(lib: Any, w: Any, x: Any) -> Turn:
    return lambda n: (x[n] @ w).square().mean()


def a_shift(lib: Any, w: Any, x: Any) -> Turn:
    return lambda n: (x.roll(n, 1) @ w).square().mean()


def a_number_in_place(lib: Any, w: Any, x: Any) -> Turn:
    average = lib.zeros(4, 2)

    def turn(n: int) -> Any:
        with lib.no_grad():
            average.mul_(1 - 1 / (n + 2)).add_(w, alpha=1 / (n + 2))
        return (x @ (w - average)).square().mean()

    return turn


def without_a_gradient(lib: Any, w: Any, x: Any) -> Turn:
    def turn(n: int) -> Any:
        with lib.no_grad():
            noisy = x[n : n + 4] * (0.9**n) + 0.01 * n
        return (noisy @ w).square().mean()

    return turn


def an_optimizers(lib: Any, w: Any, x: Any) -> Turn:
    optimizer = lib.optim.SGD([w], lr=0.1, momentum=0.9)
    schedule = lib.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / 6))

    def turn(n: int) -> Any:
        optimizer.zero_grad()
        loss = (x @ w).square().mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.detach() + w.sum()

    return turn


def several(lib: Any, w: Any, x: Any) -> Turn:
    return lambda n: ((x[n : n + 4] * 0.5 + n) @ w - 0.25 * n).clamp(max=3.0 + n).mean() / (n + 1)


TURNS = [
    weight_of_a_loss, an_option, a_slice, a_row, a_shift, a_number_in_place, without_a_gradient, an_optimizers, several,
]  # fmt: skip


def pair(make: Callable[[Any, Any, Any], Turn]) -> tuple[Any, Turn, Any, Turn]:
    ours, theirs = [lib.tensor(np.cos(np.arange(8.0, dtype=np.float32)).reshape(4, 2)) for lib in (tg, torch)]
    ours.requires_grad_(), theirs.requires_grad_()
    return ours, make(tg, ours, tg.tensor(DATA)), theirs, make(torch, theirs, torch.tensor(DATA))


@pytest.mark.parametrize("make", TURNS)
def test_a_loop_whose_numbers_differ_sends_the_same_templates(
    remote: tg.Session, make: Callable[[Any, Any, Any], Turn]
) -> None:
    ours, turn, theirs, torch_turn = pair(make)
    known = 0
    for n in range(3 * LEARNED):
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
