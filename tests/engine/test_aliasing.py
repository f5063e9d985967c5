"""A result shares memory with an input exactly where torch's does, for every op of the catalogue.

Internals: whose memory a tensor has is shown by nothing else, and tensors without values have no public name.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import telegrad_engine as tg
from telegrad_engine.schema.op import CATALOGUE, Op
from telegrad_engine.tensor.abstract import Meta
from telegrad_engine.tensor.abstract import functions as meta_functions

from ..op_cases import cases_of
from ..op_cases.stand_ins import Case, T, case
from . import oracle

COPIED = {"unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk"}
"""Ops whose results torch lets share memory although autograd takes them for copies; here they are copies."""
OPS = [op for op in CATALOGUE if cases_of(op) and not op.truth and op.key not in COPIED]


def variants(op: Op) -> Iterator[Case]:
    """The op's cases, and those in which there is little to do: numbers that are 1 or 0, and dimensions of size 1."""
    yield from cases_of(op)
    for given in cases_of(op)[:4]:
        for number in (1, 0):
            yield changed(given, lambda x, n=number: n if type(x) is int else x)
        for axis in range(2):
            yield changed(given, lambda x, axis=axis: shrunk(x, axis))
        yield changed(given, lambda x: 1 if type(x) is int else shrunk(shrunk(x, 0), 1))


def changed(given: Case, change: Any) -> Case:
    """The case with every argument changed, those inside lists too."""

    def each(x: Any) -> Any:
        return type(x)(each(v) for v in x) if isinstance(x, (list, tuple)) else change(x)

    return case(*[each(x) for x in given.args], **{k: each(v) for k, v in given.kwargs.items()})


def shrunk(x: Any, axis: int) -> Any:
    """A placeholder with one dimension of size 1."""
    if not isinstance(x, T) or x.values is not None or axis >= len(x.shape):
        return x
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    return T(*shape, low=x.low, high=x.high, dtype=x.dtype, constant=x.constant)


def tensors(call: oracle.Call, kind: type[Any]) -> list[Any]:
    """The tensors among the arguments."""
    return [x for x in oracle.leaves([*call.args, *call.kwargs.values()]) if isinstance(x, kind)]


def run(op: Op, given: Case, arrays: Any, make: Any, function: Any, namespace: Any, kind: Any) -> Any:
    """The results, and the tensors that were given; a Failure for results where there are none."""
    call = oracle.with_dtypes(oracle.build(given, arrays, make, requires_grad=False), namespace)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results = oracle.attempt(lambda: function(*call.args, **call.kwargs))
        except Exception as error:  # torch has errors of its own for arguments that nobody gives
            results = oracle.Failure(type(error), str(error))
    return results, tensors(call, kind)


def storage(x: Any) -> Any:
    return x.untyped_storage().data_ptr()


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.key)
def test_a_result_shares_memory_where_torchs_does(op: Op) -> None:
    for given in variants(op):
        try:
            arrays = oracle.arrays_of(given, np.dtype("float64"))
        except (ValueError, OverflowError):
            continue
        ours, our_inputs = run(op, given, arrays, tg.tensor, oracle.our_function(op), tg.dtypes, tg.Tensor)
        if isinstance(ours, oracle.Failure):
            continue  # torch may crash on what is refused here; test_ops.py holds failures against each other
        theirs, their_inputs = run(op, given, arrays, torch.tensor, oracle.torch_function(op), torch, torch.Tensor)
        if isinstance(theirs, oracle.Failure):
            continue
        for mine, other in zip(ours, theirs, strict=True):
            if not torch.is_tensor(other) or not other.numel():
                continue
            expected = [storage(x) == storage(other) for x in their_inputs]
            data = mine._data
            found = [bool(np.may_share_memory(x._data, data)) for x in our_inputs]
            assert found == expected, f"{op.key}{given}"
            # What shares memory shares its version; else changes in place would go unnoticed.
            assert [x._version_counter is mine._version_counter for x in our_inputs] == expected, f"{op.key}{given}"
            assert mine._base is not None or data.flags.c_contiguous, f"{op.key}{given}"


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.key)
def test_a_tensor_without_a_value_shares_as_one_with_a_value(op: Op) -> None:
    """The SDK's shadow of the graph: which results are views, and how they lie, is known without a value."""
    for transposed in (False, True):
        for given in cases_of(op):
            hold_shadow(op, given, transposed)


def hold_shadow(op: Op, given: Case, transposed: bool) -> None:
    """Compare a case's results with and without values, of inputs that lie in memory in order or transposed."""
    what = f"{op.key}{given}{' transposed' if transposed else ''}"

    def engine(array: Any) -> Any:
        tensor = tg.tensor(np.array(array.T, order="C") if transposed else array)
        return tensor.permute(tuple(range(array.ndim))[::-1]) if transposed else tensor

    def meta(array: Any) -> Any:
        tensor = Meta(array.T if transposed else array)
        return tensor.permute(tuple(range(array.ndim))[::-1]) if transposed else tensor

    arrays = oracle.arrays_of(given, np.dtype("float64"))
    ours, our_inputs = run(op, given, arrays, engine, oracle.our_function(op), tg.dtypes, tg.Tensor)
    function = oracle.our_function(op, meta_functions)
    shadows, shadow_inputs = run(op, given, arrays, meta, function, tg.dtypes, Meta)
    if isinstance(ours, oracle.Failure) or isinstance(shadows, oracle.Failure):
        return
    for mine, shadow in zip(ours, shadows, strict=True):
        expected = [x._version_counter is mine._version_counter for x in our_inputs]
        assert [x._version_counter is shadow._version_counter for x in shadow_inputs] == expected, what
        assert shadow._is_contiguous == bool(mine._data.flags.c_contiguous), what
