"""Ops that cannot be held against torch by a case: empty ones, and those that only the engine calls.

Internals: tensors without values, and the view chains that only the engine passes on, have no public names.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

import telegrad_engine as tg
from telegrad_engine import autograd, dtypes
from telegrad_engine.tensor.abstract import Meta

from . import oracle

F: Any = tg.functions


@pytest.mark.parametrize("shape", [(), (2, 3), (0,)])
def test_empty_has_a_shape_and_shows_nobodys_values(shape: tuple[int, ...]) -> None:
    made = F.empty(shape, dtype=dtypes.float64)
    assert (tuple(made.shape), made.dtype) == (shape, dtypes.float64)
    alike = F.empty_like(made)
    assert (tuple(alike.shape), alike.dtype) == (shape, dtypes.float64)
    assert not made.numpy().any()
    assert not alike.numpy().any()


def test_an_empty_tensor_may_have_strides_of_any_length() -> None:
    assert tuple(F.empty_strided((0, 3), (2**62, 1)).shape) == tuple(torch.empty_strided((0, 3), (2**62, 1)).shape)


def test_getitem_scatter_places_a_part_among_zeros() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = F.getitem_scatter(x, (2, 3), (("slice", None, None, None), 1))
    assert y.tolist() == [[0, 1, 0], [0, 2, 0]]
    (grad,) = autograd.grad(y, x, tg.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), create_graph=True)
    assert grad.tolist() == [2, 5]


def test_view_scatter_replaces_what_a_chain_of_views_shows() -> None:
    base = tg.tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    part = tg.tensor([10.0, 20.0], requires_grad=True)
    chain = (*base.t()._view_chain, *base.t()[1:, 0]._view_chain[1:])
    y = F.view_scatter(base, part, chain)
    assert y.tolist() == [[0, 10, 20], [3, 4, 5]]
    weight = tg.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    grads = autograd.grad(y, [base, part], weight, create_graph=True)
    assert [g.tolist() for g in grads] == [[[1, 0, 0], [4, 5, 6]], [2, 3]]
    (second,) = autograd.grad([g.sum() for g in grads], weight)
    assert second.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_scatter_takes_a_source_larger_than_its_index() -> None:
    x, index = F.zeros((3, 4)).requires_grad_(), tg.tensor([[0, 2, 1, 0]])
    src = tg.tensor(np.arange(8.0).reshape(2, 4), dtype="float32", requires_grad=True)
    y = F.scatter_add(x, 0, index, src)
    y.backward(tg.tensor(np.arange(12.0, dtype=np.float64).reshape(3, 4), dtype="float32"))
    assert src.grad.tolist() == [[0, 9, 6, 3], [0, 0, 0, 0]]


def test_one_nonzero_row_for_each_element_that_is_not_zero() -> None:
    with pytest.raises(tg.errors.DataDependentShape):
        Meta(tg.tensor([1.0, 0.0]).numpy()).nonzero()


def test_where_as_a_method_takes_the_condition_second() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = x.where(tg.tensor([True, False]), 9.0)
    assert y.tolist() == [1, 9]
    y.sum().backward()
    assert x.grad.tolist() == [1, 0]


def test_without_scipy_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    with pytest.raises(RuntimeError, match=r"install telegrad\[local\]"):
        F.erf(tg.tensor([1.0]))


@pytest.mark.filterwarnings("ignore:index_reduce")  # torch's is in beta
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_long_slices_combine_as_single_elements_do(dim: int, dtype: str) -> None:
    """Few indices of large slices go another way than many of small ones."""
    rng = np.random.default_rng(dim)
    array, values = (rng.integers(-5, 5, shape).astype(dtype) for shape in ((20, 20, 20), (20, 20, 20)))
    index = rng.integers(0, 20, 20)
    found = F.index_add(tg.tensor(array), dim, tg.tensor(index), tg.tensor(values))
    expected = torch.index_add(torch.tensor(array), dim, torch.tensor(index), torch.tensor(values))
    oracle.assert_close(found, expected, "sums")
    for how in ("prod", "amax", "amin"):
        found = F.index_reduce(tg.tensor(array), dim, tg.tensor(index), tg.tensor(values), how)
        expected = torch.tensor(array).index_reduce(dim, torch.tensor(index), torch.tensor(values), how)
        oracle.assert_close(found, expected, how)


def test_gelu_in_float32_is_as_exact_as_torch() -> None:
    """Or to two units in the last place of the input: how exact NumPy's tanh is depends on the processor."""
    x = np.concatenate([np.linspace(-9, 9, 100_001), [np.inf, -0.0, 1e-30]]).astype(np.float32)
    exact = torch.nn.functional.gelu(torch.tensor(x, dtype=torch.float64)).numpy()
    ours, theirs = F.gelu(tg.tensor(x)).numpy(), torch.nn.functional.gelu(torch.tensor(x)).numpy()
    finite = np.isfinite(x)
    bound = np.maximum(np.abs(theirs - exact)[finite].max(), 2 * np.spacing(np.abs(x[finite])))
    assert (np.abs(ours - exact)[finite] <= bound).all()
    assert ours[~finite] == np.inf
    assert np.isnan(F.gelu(tg.tensor([np.nan])).item())
