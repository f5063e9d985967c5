"""Random ops: shapes, dtypes, ranges, moments, and the same numbers from the same seed. Errors: the parity table."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import telegrad_engine as tg
from telegrad_engine import dtypes
from telegrad_engine.schema.op import CATALOGUE

F: Any = tg.functions
N = 20_000
SPREAD = 4 / np.sqrt(N)
"""Four standard errors, for a quantity of deviation 1."""

DRAWS = {
    "rand": lambda *shape: F.rand(shape),
    "randn": lambda *shape: F.randn(shape),
    "rand_like": lambda *shape: F.rand_like(F.zeros(shape)),
    "randn_like": lambda *shape: F.randn_like(F.zeros(shape)),
    "randint": lambda *shape: F.randint(-3, 5, shape),
    "randint.high": lambda *shape: F.randint(5, shape),
    "randint_like": lambda *shape: F.randint_like(F.zeros(shape), 5),
    "randint_like.low": lambda *shape: F.randint_like(F.zeros(shape), -3, 5),
    "poisson": lambda *shape: F.poisson(F.full(shape, 4.0)),
    "cauchy": lambda *shape: F.zeros(shape).cauchy_(),
    "log_normal": lambda *shape: F.zeros(shape).log_normal_(),
    "geometric": lambda *shape: F.zeros(shape).geometric_(0.4),
    "bernoulli": lambda *shape: F.bernoulli(F.full(shape, 0.3)),
    "drop": lambda *shape: F.dropout(F.ones(shape), 0.3),
    "leaky_drawn": lambda *shape: F.rrelu(-F.ones(shape), training=True),
    "normal.size": lambda *shape: F.normal(1.0, 2.0, shape),
    "normal": lambda *shape: F.normal(F.ones(shape), 2.0),
    "multinomial": lambda *shape: F.multinomial(F.ones(3), N, True)[: int(np.prod(shape))].reshape(shape),
    "randperm": lambda *shape: F.randperm(int(np.prod(shape))).reshape(shape),
    "uniform": lambda *shape: F.zeros(shape).uniform_(),
    "normal.fill": lambda *shape: F.zeros(shape).normal_(),
    "bernoulli.fill": lambda *shape: F.zeros(shape).bernoulli_(),
    "exponential": lambda *shape: F.zeros(shape).exponential_(),
    "random": lambda *shape: F.zeros(shape).random_(),
    "random.between": lambda *shape: F.zeros(shape).random_(3, 9),
}


def test_every_random_op_is_here() -> None:
    assert {op.key for op in CATALOGUE if op.random} == set(DRAWS)


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 2)])
def test_shape_and_seed(name: str, shape: tuple[int, ...]) -> None:
    tg.manual_seed(7)
    first, other = DRAWS[name](*shape), DRAWS[name](*shape)
    tg.manual_seed(7)
    again = DRAWS[name](*shape)
    assert tuple(first.shape) == shape
    assert first.tolist() == again.tolist()
    if shape == (2, 3) and name in ("rand", "randn", "rand_like", "randn_like"):
        assert first.tolist() != other.tolist()


@pytest.mark.parametrize(
    ("name", "mean", "deviation", "low", "high"),
    [
        ("rand", 0.5, 12**-0.5, 0, 1),
        ("rand_like", 0.5, 12**-0.5, 0, 1),
        ("randn", 0, 1, -10, 10),
        ("randn_like", 0, 1, -10, 10),
        ("randint", 0.5, (63 / 12) ** 0.5, -3, 4),
        ("randint.high", 2, 2**0.5, 0, 4),
        ("randint_like", 2, 2**0.5, 0, 4),
        ("randint_like.low", 0.5, (63 / 12) ** 0.5, -3, 4),
        ("poisson", 4, 2, 0, 30),
        ("bernoulli", 0.3, 0.21**0.5, 0, 1),
        ("normal.size", 1, 2, -20, 20),
        ("normal", 1, 2, -20, 20),
        ("multinomial", 1, (2 / 3) ** 0.5, 0, 2),
        ("drop", 1, (0.3 / 0.7) ** 0.5, 0, 1 / 0.7 + 1e-6),
    ],
)
def test_moments(name: str, mean: float, deviation: float, low: float, high: float) -> None:
    tg.manual_seed(1)
    values = DRAWS[name](N).numpy().astype(np.float64)
    assert abs(values.mean() - mean) < SPREAD * deviation
    assert abs(values.std() - deviation) < SPREAD * deviation * 2
    assert values.min() >= low
    assert values.max() <= high


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64])
def test_floating_dtypes(dtype: Any) -> None:
    for result in (F.rand(3, dtype=dtype), F.randn(3, dtype=dtype), F.rand_like(F.zeros(3, dtype=dtype))):
        assert result.dtype is dtype
    assert F.rand(10_000, dtype=dtype).max().item() < 1


def test_permutation() -> None:
    result = F.randperm(100)
    assert result.dtype is dtypes.int64
    assert sorted(result.tolist()) == list(range(100))
    assert result.tolist() != list(range(100))


def test_integers() -> None:
    assert F.randint(3, (2,)).dtype is dtypes.int64
    assert F.randint(0, 3, (2,), dtype=dtypes.int32).dtype is dtypes.int32
    assert set(F.randint(0, 3, (100,)).tolist()) == {0, 1, 2}


def test_dropout_scales_and_drops_the_gradient_alike() -> None:
    x = F.ones(1000).requires_grad_()
    y = F.dropout(x, 0.25)
    y.sum().backward()
    assert np.array_equal(x.grad.numpy(), y.detach().numpy())
    assert set(np.round(np.unique(y.detach().numpy()), 5)) == {0.0, np.float32(1.33333)}


def test_dropout_differentiates_twice() -> None:
    x = F.ones(100).requires_grad_()
    y = F.dropout(x * x, 0.5)
    (first,) = tg.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = tg.autograd.grad(first.sum(), x)
    assert np.array_equal(second.numpy(), 2 * y.detach().numpy())


def test_bernoulli_has_a_zero_gradient() -> None:
    p = F.full((5,), 0.5).requires_grad_()
    F.bernoulli(p).sum().backward()
    assert p.grad.tolist() == [0.0] * 5


def test_sampling_is_not_recorded_from_constants() -> None:
    assert F.rand_like(F.ones(3).requires_grad_()).requires_grad is False


# In place, and the functions that are made of draws ------------------------------------------------------------------

IN_PLACE: list[tuple[str, tuple[Any, ...], float, float]] = [
    ("uniform_", (-1.0, 3.0), 1.0, 4 / 12**0.5),
    ("normal_", (2.0, 0.5), 2.0, 0.5),
    ("bernoulli_", (0.25,), 0.25, 0.1875**0.5),
    ("exponential_", (2.0,), 0.5, 0.5),
    ("geometric_", (0.4,), 2.5, 0.6**0.5 / 0.4),
    ("log_normal_", (0.0, 0.25), math.exp(1 / 32), (math.exp(1 / 16) - 1) ** 0.5 * math.exp(1 / 32)),
    ("random_", (4, 10), 6.5, (35 / 12) ** 0.5),
    ("random_", (6,), 2.5, (35 / 12) ** 0.5),
]


@pytest.mark.parametrize(("name", "arguments", "mean", "deviation"), IN_PLACE)
def test_moments_of_draws_in_place(name: str, arguments: tuple[Any, ...], mean: float, deviation: float) -> None:
    tg.manual_seed(1)
    x = F.zeros(100, 200)
    assert getattr(x, name)(*arguments) is x
    assert x.mean().item() == pytest.approx(mean, abs=5 * deviation / 20000**0.5)
    assert x.std().item() == pytest.approx(deviation, rel=0.05)


@pytest.mark.parametrize(("name", "arguments", "mean", "deviation"), IN_PLACE)
def test_draws_in_place_end_the_history(name: str, arguments: tuple[Any, ...], mean: float, deviation: float) -> None:
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
    x = F.zeros(1000, dtype=dtype).random_()
    assert x.dtype.name == dtype
    assert len(set(x.tolist())) > 1
    assert min(x.tolist()) >= 0


def test_functions_are_not_made_of_what_exists_in_place_only() -> None:
    drawn = F.normal(tg.tensor([1.0, 2.0]), 0.0)
    assert drawn.tolist() == [1.0, 2.0]


def test_gumbel_softmax_draws_classes_as_often_as_they_are_likely() -> None:
    tg.manual_seed(0)
    chances = tg.tensor([0.1, 0.2, 0.7])
    picked = F.gumbel_softmax(chances.log().expand(20000, 3), hard=True)
    assert picked.sum(1).tolist() == pytest.approx([1.0] * 20000)
    assert picked.mean(0).tolist() == pytest.approx(chances.tolist(), abs=0.02)


def test_gumbel_softmax_is_a_softmax_of_noise() -> None:
    tg.manual_seed(1)
    logits = tg.tensor([[0.5, -1.0, 2.0]], dtype="float64", requires_grad=True)
    weights = tg.tensor([[1.0, 2.0, 3.0]], dtype="float64")
    soft = F.gumbel_softmax(logits, tau=0.5)
    (soft * weights).sum().backward()
    # That of softmax(x / tau) is soft * (w - sum(w * soft)) / tau.
    expected = soft * (weights - (weights * soft).sum()) / 0.5
    assert logits.grad.tolist()[0] == pytest.approx(expected.tolist()[0])
    hard = F.gumbel_softmax(logits, hard=True)
    assert sorted(hard.detach().tolist()[0]) == pytest.approx([0.0, 0.0, 1.0])
    assert hard.requires_grad


def test_the_same_seed_draws_the_same() -> None:
    def drawn() -> list[Any]:
        tg.manual_seed(5)
        x = tg.tensor([[-1.0, -2.0, 3.0]] * 2)
        return [
            f.tolist() for f in (F.gumbel_softmax(x), F.rrelu(x, training=True), F.feature_alpha_dropout(x, 0.5, True))
        ]

    assert drawn() == drawn()


def test_rrelu_keeps_its_slopes_for_the_gradient() -> None:
    tg.manual_seed(2)
    x = tg.tensor([-1.0, -2.0, 3.0, -4.0] * 100, dtype="float64", requires_grad=True)
    result = F.rrelu(x, 0.2, 0.4, training=True)
    result.sum().backward()
    slopes = (result / x).tolist()
    assert x.grad.tolist() == pytest.approx(slopes)
    assert all(s == 1 for s in slopes[2::4])
    assert all(0.2 <= s <= 0.4 for s in slopes[::4])
    assert len(set(slopes[::4])) > 50


def test_feature_alpha_dropout_sets_whole_channels() -> None:
    tg.manual_seed(3)
    x = F.randn((64, 32, 5), dtype="float64")
    result = F.feature_alpha_dropout(x, 0.3, True)
    rows = result.reshape(-1, 5)
    dropped = (rows == rows[:, :1]).all(1).double().mean().item()
    assert 0.25 < dropped < 0.35
    assert abs(result.mean().item()) < 0.05
    assert result.std().item() == pytest.approx(1.0, abs=0.05)


def test_half_of_cauchys_numbers_lie_within_sigma_of_the_median() -> None:
    tg.manual_seed(1)
    x = F.zeros(20000).cauchy_(3.0, 2.0)
    assert ((x - 3.0).abs() < 2.0).to(dtype="float32").mean().item() == pytest.approx(0.5, abs=0.02)
