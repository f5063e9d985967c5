"""Draws in place: what is written, its range and moments, and that the history ends there. Errors: the parity table."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import telegrad_engine as tg

DRAWS: list[tuple[str, tuple[Any, ...], float, float]] = [
    ("uniform_", (-1.0, 3.0), 1.0, 4 / 12**0.5),
    ("normal_", (2.0, 0.5), 2.0, 0.5),
    ("bernoulli_", (0.25,), 0.25, 0.1875**0.5),
    ("exponential_", (2.0,), 0.5, 0.5),
    ("random_", (4, 10), 6.5, (35 / 12) ** 0.5),
    ("random_", (6,), 2.5, (35 / 12) ** 0.5),
]


@pytest.mark.parametrize(("name", "arguments", "mean", "deviation"), DRAWS)
def test_moments(name: str, arguments: tuple[Any, ...], mean: float, deviation: float) -> None:
    tg.manual_seed(1)
    x = tg.functions.zeros(100, 200)
    assert getattr(x, name)(*arguments) is x
    assert x.mean().item() == pytest.approx(mean, abs=5 * deviation / 20000**0.5)
    assert x.std().item() == pytest.approx(deviation, rel=0.05)


@pytest.mark.parametrize(("name", "arguments", "mean", "deviation"), DRAWS)
def test_history_ends(name: str, arguments: tuple[Any, ...], mean: float, deviation: float) -> None:
    gradients = []
    for make in (tg.tensor, torch.tensor):
        leaf = make([1.0, 2.0], requires_grad=True)
        middle = leaf * 2
        getattr(middle, name)(*arguments)
        middle.sum().backward()
        gradients.append(leaf.grad.tolist())
    assert gradients[0] == gradients[1]


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "float16", "float32"])
def test_random_fills_the_range_of_the_dtype(dtype: str) -> None:
    x = tg.functions.zeros(1000, dtype=dtype).random_()
    assert x.dtype.name == dtype
    assert len(set(x.tolist())) > 1
    assert min(x.tolist()) >= 0


def test_functions_are_not_made_of_what_exists_in_place_only() -> None:
    drawn = tg.functions.normal(tg.tensor([1.0, 2.0]), 0.0)
    assert drawn.tolist() == [1.0, 2.0]
