"""Draws in place: what is written, its range and moments, and that the history ends there. Errors: the parity table."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import telegrad_engine as tg

DRAWS: list[tuple[str, tuple[Any, ...], float, float]] = [
    ("uniform_", (-1.0, 3.0), 1.0, 4 / 12**0.5),
    ("normal_", (2.0, 0.5), 2.0, 0.5),
    ("bernoulli_", (0.25,), 0.25, 0.1875**0.5),
    ("exponential_", (2.0,), 0.5, 0.5),
    ("geometric_", (0.4,), 2.5, 0.6**0.5 / 0.4),
    ("log_normal_", (0.0, 0.25), math.exp(1 / 32), (math.exp(1 / 16) - 1) ** 0.5 * math.exp(1 / 32)),
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


def test_gumbel_softmax_draws_classes_as_often_as_they_are_likely() -> None:
    tg.manual_seed(0)
    chances = tg.tensor([0.1, 0.2, 0.7])
    picked = tg.functions.gumbel_softmax(chances.log().expand(20000, 3), hard=True)
    assert picked.sum(1).tolist() == pytest.approx([1.0] * 20000)
    assert picked.mean(0).tolist() == pytest.approx(chances.tolist(), abs=0.02)


def test_gumbel_softmax_is_a_softmax_of_noise() -> None:
    tg.manual_seed(1)
    logits = tg.tensor([[0.5, -1.0, 2.0]], dtype="float64", requires_grad=True)
    weights = tg.tensor([[1.0, 2.0, 3.0]], dtype="float64")
    soft = tg.functions.gumbel_softmax(logits, tau=0.5)
    (soft * weights).sum().backward()
    # That of softmax(x / tau) is soft * (w - sum(w * soft)) / tau.
    expected = soft * (weights - (weights * soft).sum()) / 0.5
    assert logits.grad.tolist()[0] == pytest.approx(expected.tolist()[0])
    hard = tg.functions.gumbel_softmax(logits, hard=True)
    assert sorted(hard.detach().tolist()[0]) == pytest.approx([0.0, 0.0, 1.0])
    assert hard.requires_grad


def test_the_same_seed_draws_the_same() -> None:
    def drawn() -> list[Any]:
        tg.manual_seed(5)
        x = tg.tensor([[-1.0, -2.0, 3.0]] * 2)
        F = tg.functions
        return [
            f.tolist() for f in (F.gumbel_softmax(x), F.rrelu(x, training=True), F.feature_alpha_dropout(x, 0.5, True))
        ]

    assert drawn() == drawn()


def test_rrelu_keeps_its_slopes_for_the_gradient() -> None:
    tg.manual_seed(2)
    x = tg.tensor([-1.0, -2.0, 3.0, -4.0] * 100, dtype="float64", requires_grad=True)
    result = tg.functions.rrelu(x, 0.2, 0.4, training=True)
    result.sum().backward()
    slopes = (result / x).tolist()
    assert x.grad.tolist() == pytest.approx(slopes)
    assert all(s == 1 for s in slopes[2::4])
    assert all(0.2 <= s <= 0.4 for s in slopes[::4])
    assert len(set(slopes[::4])) > 50


def test_feature_alpha_dropout_sets_whole_channels() -> None:
    tg.manual_seed(3)
    x = tg.functions.randn((64, 32, 5), dtype="float64")
    result = tg.functions.feature_alpha_dropout(x, 0.3, True)
    rows = result.reshape(-1, 5)
    dropped = (rows == rows[:, :1]).all(1).double().mean().item()
    assert 0.25 < dropped < 0.35
    assert abs(result.mean().item()) < 0.05
    assert result.std().item() == pytest.approx(1.0, abs=0.05)


def test_half_of_cauchys_numbers_lie_within_sigma_of_the_median() -> None:
    tg.manual_seed(1)
    x = tg.functions.zeros(20000).cauchy_(3.0, 2.0)
    assert ((x - 3.0).abs() < 2.0).to(dtype="float32").mean().item() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(
    ("name", "arguments", "dtype"),
    [
        ("cauchy_", (0, -1), "float32"),
        ("cauchy_", (), "int64"),
        ("geometric_", (0,), "float32"),
        ("geometric_", (1.5,), "float32"),
        ("log_normal_", (1, -1), "float32"),
        ("log_normal_", (), "int64"),
    ],
)
def test_draws_refuse_as_torchs(name: str, arguments: tuple[Any, ...], dtype: str) -> None:
    with pytest.raises((RuntimeError, NotImplementedError)) as theirs:
        getattr(torch.ones(2, dtype=getattr(torch, dtype)), name)(*arguments)
    with pytest.raises(type(theirs.value)) as ours:
        getattr(tg.functions.ones(2, dtype=dtype), name)(*arguments)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("rates", [[-1.0], [1]])
def test_poisson_refuses_as_torchs(rates: list[Any]) -> None:
    with pytest.raises((RuntimeError, NotImplementedError)) as theirs:
        torch.poisson(torch.tensor(rates))
    with pytest.raises(type(theirs.value)) as ours:
        tg.functions.poisson(tg.tensor(rates))
    assert str(ours.value) == str(theirs.value)
