"""Random ops: shapes, dtypes, ranges, moments, and the same numbers from the same seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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
