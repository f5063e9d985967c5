"""``tg.linalg``, compared with ``torch.linalg``: names, values, gradients and error classes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import telegrad as tg

MATRIX = [[4.0, 1.0], [1.0, 3.0]]


@pytest.mark.parametrize(
    "function",
    [
        lambda lib, m: lib.linalg.inv(m),
        lambda lib, m: lib.linalg.norm(m, 2),
        lambda lib, m: lib.linalg.svd(m).S,
        lambda lib, m: lib.svd(m).S,
        lambda lib, m: lib.linalg.lstsq(m, m * 2).solution,
        lambda lib, m: lib.linalg.cholesky(m),
        lambda lib, m: lib.linalg.cond(m),
        lambda lib, m: lib.as_strided(m, (2, 2), (1, 1)),
    ],
)
def test_same_as_torch(function: Any) -> None:
    results = []
    for lib in (tg, torch):
        m = lib.tensor(MATRIX, requires_grad=True)
        value = function(lib, m)
        value.sum().backward()
        results.append((value.tolist(), m.grad.tolist()))
    for ours, theirs in zip(*results, strict=True):
        assert torch.allclose(torch.tensor(ours), torch.tensor(theirs), atol=1e-5)


def test_allclose_and_equal_answer_with_bools() -> None:
    m = tg.tensor(MATRIX)
    assert tg.allclose(m, m + 1e-9) is True
    assert m.equal(m + 1) is False


def test_singular() -> None:
    for lib in (tg, torch):
        with pytest.raises(lib.linalg.LinAlgError, match="The diagonal element 2 is zero"):
            lib.linalg.inv(lib.tensor([[1.0, 2.0], [2.0, 4.0]])).tolist()


def test_names() -> None:
    assert set(dir(tg.linalg)) <= set(dir(torch.linalg))
    with pytest.raises(AttributeError, match="nothing"):
        _ = tg.linalg.nothing
