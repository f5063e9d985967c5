"""Products that are taken a few rows at a time are the products, however their matrices lie in memory.

Internals: how a product is split is decided by this module, and shown nowhere else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad_engine.arrays import NUMPY
from telegrad_engine.arrays import blocked_matmul as pieces
from telegrad_engine.compile import Compiler

from .compiled.remembering import Remembering, connect, runs_planned

LAYER, INPUTS = 128, 784
SHAPES = [
    (64, INPUTS, LAYER),
    (67, INPUTS, LAYER),
    (16, 1024, 256),
    (300, 300, 300),
    (1031, 257, 9),
    (2000, 600, 2),
    (5000, 3, 70),
]
"""Of products that are long enough; with rows that are left over, and with results of few columns."""


def matrix(rows: int, columns: int, by_columns: bool, dtype: str, seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal((rows, columns)).astype(dtype)
    return np.asfortranarray(values) if by_columns else values


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("left", [False, True], ids=["by rows", "by columns"])
@pytest.mark.parametrize("right", [False, True], ids=["by rows", "by columns"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_product_is_the_product(shape: tuple[int, int, int], left: bool, right: bool, dtype: str) -> None:
    m, k, n = shape
    a, b = matrix(m, k, left, dtype, 1), matrix(k, n, right, dtype, 2)
    found, exact = pieces.dot_in_blocks(a, b), a.astype(np.longdouble) @ b.astype(np.longdouble)
    assert found.dtype == a.dtype and found.flags.c_contiguous
    # Of a sum in any order: eps for each of its terms' magnitudes (Higham, Accuracy and Stability, 3.1).
    bound = k * np.finfo(dtype).eps * (abs(a).astype(float) @ abs(b).astype(float))
    assert (abs(found - exact) <= bound).all()


@pytest.mark.parametrize(
    ("m", "k", "n", "left", "right", "rows"),
    [
        (64, INPUTS, LAYER, False, True, 8),  # of a batch by a weight 8 * 128 elements, at most 1200
        (64, 256, LAYER, False, True, 8),
        (64, 128, LAYER, False, True, 0),  # its rows are short
        (16, 1024, 220, False, True, 4),
        (LAYER, 64, INPUTS, True, False, 16),  # of slopes by the batch 16 * 784 * 64 multiplications, at most a million
        (LAYER, 64, 1024, True, False, 0),
        (256, LAYER, INPUTS, False, False, 8),
        (256, LAYER, 1024, False, False, 0),
        (LAYER, INPUTS, 64, True, True, 0),
    ],
)
def test_so_many_rows_are_taken_at_a_time(m: int, k: int, n: int, left: bool, right: bool, rows: int) -> None:
    a, b = matrix(m, k, left, "float32", 1), matrix(k, n, right, "float32", 2)
    assert pieces.rows_at_a_time(a, b) == rows


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (np.ones((99, 100), "f"), np.ones((100, 101), "f")),
        (np.ones((640, 200), "f")[::10], np.ones((200, LAYER), "f")),
        (np.ones((64, INPUTS), "f"), np.ones((INPUTS, 4 * LAYER), "f")[:, ::4]),
        (np.ones((64, INPUTS), "f"), np.ones((INPUTS, LAYER))),
        (np.ones((64, INPUTS), "i"), np.ones((INPUTS, LAYER), "i")),
        (np.ones((64, INPUTS), complex), np.ones((INPUTS, LAYER), complex)),
        (np.ones((2, 700), "f"), np.ones((700, 900), "f")),
        (np.ones(2**21, "f"), np.ones((2**21, 2), "f")),
        (np.ones((2**11, 2**10), "f"), np.ones(2**10, "f")),
    ],
    ids=[
        "short",
        "rows apart",
        "columns apart",
        "mixed",
        "whole",
        "complex",
        "wide",
        "a vector",
        "by a vector",
    ],
)
def test_what_gains_nothing_is_what_numpy_makes_of_it(a: Any, b: Any) -> None:
    if a.ndim == b.ndim == 2:
        assert pieces.rows_at_a_time(a, b) == 0
    assert np.array_equal(pieces.dot_in_blocks(a, b), np.dot(a, b))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int32"])
def test_a_large_product_is_bit_for_bit_what_dot_makes_of_it(dtype: str) -> None:
    rng = np.random.default_rng(0)
    a, b = [rng.standard_normal((300, 300)).astype(dtype) for _ in range(2)]
    for left, right in ((a, b), (a.T, b), (a, b.T), (a.T, b.T), (a, a.T), (a[::2], b[:, :299]), (a[0], b), (a, b[0])):
        assert np.array_equal(pieces.dot_whole(left, right), np.dot(left, right))


def test_a_matrix_by_itself_is_left_to_blas_which_computes_one_half() -> None:
    a = matrix(300, INPUTS, False, "float32", 1)
    assert pieces.rows_at_a_time(a, a.T) == 0 and pieces.rows_at_a_time(a, np.array(a).T)


def losses_and_weights(lib: Any, steps: int) -> list[np.ndarray]:
    """What a classifier of images comes to, whose batches' last is shorter."""
    rng = np.random.default_rng(0)
    first, second = (lib.tensor((rng.standard_normal(s) / 28).astype("f")) for s in ((LAYER, INPUTS), (10, LAYER)))
    parameters = [first.requires_grad_(), second.requires_grad_()]
    optimizer = lib.optim.SGD(parameters, lr=0.1)
    losses = []
    for step in range(steps):
        rows = 37 if step % 3 == 2 else 64
        x, y = lib.tensor(rng.standard_normal((rows, INPUTS)).astype("f")), lib.tensor(rng.integers(0, 10, rows))
        optimizer.zero_grad()
        hidden = lib.nn.functional.linear(x, first).relu()
        loss = lib.nn.functional.cross_entropy(lib.nn.functional.linear(hidden, second), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [np.array(losses), *[np.array(t.detach().tolist()) for p in parameters for t in (p, p.grad)]]


def test_a_planned_step_is_the_eager_one_to_the_last_bit_and_torch_s(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 12
    whole = losses_and_weights(torch, steps)
    monkeypatch.setitem(vars(NUMPY), "dot", pieces.dot_in_blocks)
    ours: list[list[np.ndarray]] = []
    for compiler in (None, Compiler(after=2, choose=False)):
        session: Remembering = connect(compiler)
        ours.append(losses_and_weights(tg, steps))
        if compiler is not None:
            assert runs_planned(session, 4)
        tg.current().close()
    eager, planned = ours
    for a, b, theirs in zip(eager, planned, whole, strict=True):
        assert np.array_equal(a, b)
        np.testing.assert_allclose(a, theirs, rtol=1e-4, atol=1e-6)
