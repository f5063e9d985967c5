"""Tensors that are large enough to be sent without a copy, locally and to a server.

Internals: the size from which a message is sent at once is no setting.
"""

from __future__ import annotations

import numpy as np
import pytest

import telegrad as tg
from telegrad.tape.flush_policy import FULL_BYTES

ROWS = FULL_BYTES // 4 // 1024


@pytest.fixture
def array() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((ROWS, 1024), np.float32)


@pytest.mark.parametrize("dtype", [None, tg.float32, tg.float16], ids=str)
def test_a_tensor_is_a_copy(session: tg.Session, array: np.ndarray, dtype: tg.dtype | None) -> None:
    before = array[:2].copy()
    x = tg.tensor(array, dtype=dtype)
    array[:] = 0
    np.testing.assert_array_equal(x[:2].numpy(), before.astype(np.float32 if dtype is None else dtype.numpy))


def test_what_is_fetched_is_the_caller_s(session: tg.Session, array: np.ndarray) -> None:
    x = tg.tensor(array)
    mine = x.numpy()
    np.testing.assert_array_equal(mine, array)
    mine[:] = 0
    np.testing.assert_array_equal(x.numpy(), array)


def test_it_learns_as_any_other(session: tg.Session, array: np.ndarray) -> None:
    x = tg.tensor(array, requires_grad=True)
    (x[0] * 3).sum().backward()
    assert x.grad is not None
    assert x.grad[:2].sum().item() == 3 * 1024
