"""Every op of the catalogue under ``vmap``: a batch gives the same results as its samples one by one.

Internals: ops that have no public name are called too, and which of them have a rule is not told.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import telegrad as tg
from telegrad.tensor.handle import functions
from telegrad_engine.ops.batching.rules import rule_of
from telegrad_engine.schema.op import CATALOGUE, Op

from ..engine.oracle import leaves
from ..op_cases import cases_of
from ..op_cases.stand_ins import Case, T

pytestmark = pytest.mark.full

SIZE = 3
SHAPES_FROM_VALUES = frozenset({
    "_runs", "_unique2", "argwhere", "as_lengths", "bincount", "checked_variance", "combinations", "gumbel_softmax",
    "isin", "linalg_lstsq", "listed", "masked_select", "nonzero", "rrelu",
    "nonzero.as_tuple", "repeat_interleave.counts", "repeat_interleave.tensor", "unique", "unique_consecutive",
    "unique_dim", "index_put.masks", "where.condition", "tensor_split.tensor",
})  # fmt: skip
"""Ops with result shapes that depend on values, with checks or branches on values, or with random numbers."""

REFUSED = {
    "one_hot": "When vmap-ing",
    "batch_norm": "Batch norm got a batched tensor",
    "instance_norm": "Batch norm got a batched tensor",
    "embedding": "vmap: ",
    "embedding_bag": "vmap: ",
}
"""Ops that are refused for some arguments: shapes that depend on values, or writes to shared tensors."""

WRONG = (RuntimeError, TypeError, ValueError, IndexError, AssertionError, ZeroDivisionError, OverflowError)
"""What wrong calls raise, of which there are tests elsewhere."""

CHECKED = [
    op
    for op in CATALOGUE
    if op.tensor_params
    and not getattr(op, "private", False)
    and not op.random
    and not op.truth
    and op.key not in SHAPES_FROM_VALUES
    and cases_of(op)
]


def function_of(op: Op) -> Any:
    return getattr(functions, op.key.replace(".", "_") if op.internal else op.name)


def arrays(case: Case, dtype: Any, seed: int) -> dict[int, np.ndarray]:
    """Arrays for the placeholders of the case: random ones for the seed, or the fixed values."""
    rng = np.random.default_rng(seed)
    return {
        id(value): np.asarray(value.make(rng, np.dtype(dtype)))
        for value in leaves([*case.args, *case.kwargs.values()])
        if isinstance(value, T)
    }


def filled(value: Any, tensors: dict[int, Any]) -> Any:
    if isinstance(value, T):
        return tensors[id(value)]
    if isinstance(value, (list, tuple)):
        return type(value)(filled(v, tensors) for v in value)
    return value


def outputs(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (list, tuple)) else [result]


def which_are_batched(keys: Sequence[int]) -> list[set[int]]:
    """The sets of tensors to batch: all of them, and each one alone."""
    alone = [{key} for key in keys]
    return [set(keys)] if len(keys) < 2 else [set(keys), *alone]


def check(op: Op, case: Case, dtype: Any) -> None:
    if not arrays(case, dtype, 0):
        return
    samples = [arrays(case, dtype, seed) for seed in range(SIZE)]
    function = function_of(op)
    first, *others = [{key: tg.tensor(array) for key, array in sample.items()} for sample in samples]

    def call(tensors: dict[int, Any]) -> Any:
        args = [filled(a, tensors) for a in case.args]
        return outputs(function(*args, **{k: filled(v, tensors) for k, v in case.kwargs.items()}))

    try:
        of_first = call(first)
    except WRONG:
        return
    for batched in which_are_batched(list(first)):
        shared = {key: tensor for key, tensor in first.items() if key not in batched}
        try:
            rows = [of_first, *[call(shared | {key: other[key] for key in batched}) for other in others]]
            expected = [tg.stack(column).numpy() for column in zip(*rows, strict=True)]
        except WRONG:
            continue
        whole = {key: tg.tensor(np.stack([sample[key] for sample in samples])) for key in batched}

        try:
            actual = tg.func.vmap(lambda tensors, shared=shared: tuple(call(shared | tensors)))(whole)
        except RuntimeError as error:
            if op.key in REFUSED and str(error).startswith(REFUSED[op.key]):
                continue
            raise
        for a, e in zip(actual, expected, strict=True):
            assert tuple(a.shape) == e.shape, (case, batched)
            assert a.numpy().dtype == e.dtype, (case, batched)
            np.testing.assert_allclose(
                a.numpy().astype(np.float64), e.astype(np.float64), 1e-6, 1e-9, err_msg=f"{case} {batched}"
            )


LOOPED = {"fill_diagonal", "histc", "histogram", "histogram.edges", "nonzero_static"}
"""Ops that are applied to one sample at a time, as in torch; docs/decisions/0032 has the table."""


def test_few_ops_have_no_batching_rule() -> None:
    without = {op.key for op in CHECKED if not op.composite and rule_of(op) is None and op.batching.parts is None}
    assert without == LOOPED


@pytest.mark.parametrize("op", CHECKED, ids=lambda op: op.key)
def test_the_batch_at_once_is_each_sample(op: Op) -> None:
    with tg.connect("local://", seed=0), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases_of(op):
            check(op, case, np.float64)


# Gradients -------------------------------------------------------------------------------------------------


def weighted(function: Any, case: Case, tensors: dict[int, Any]) -> Any:
    """A number that depends on every element of the floating outputs."""
    args = [filled(a, tensors) for a in case.args]
    found = outputs(function(*args, **{k: filled(v, tensors) for k, v in case.kwargs.items()}))
    floating = [o.reshape(-1) for o in found if o.requires_grad]
    return sum((o * (1 + tg.arange(o.numel(), dtype=o.dtype))).sum() for o in floating)


def check_gradients(op: Op, case: Case) -> None:
    samples = [arrays(case, np.float64, seed) for seed in range(SIZE)]
    constants = {id(v) for v in leaves([*case.args, *case.kwargs.values()]) if isinstance(v, T) and v.constant}
    moving = [key for key, array in samples[0].items() if array.dtype.kind == "f" and key not in constants]
    if not moving:
        return
    function = function_of(op)

    def gradient(moved: dict[int, Any], rest: dict[int, Any]) -> Any:
        return tg.func.grad(lambda moved: weighted(function, case, {**rest, **moved}))(moved)

    def parts(sample: dict[int, Any]) -> tuple[dict[int, Any], dict[int, Any]]:
        tensors = {key: tg.tensor(array) for key, array in sample.items()}
        return {k: tensors[k] for k in moving}, {k: t for k, t in tensors.items() if k not in moving}

    try:
        rows = [gradient(*parts(sample)) for sample in samples]
        expected = {key: tg.stack([row[key] for row in rows]).numpy() for key in moving}
    except WRONG:
        return  # or an op without a derivative
    actual = tg.func.vmap(gradient)(*parts({k: np.stack([s[k] for s in samples]) for k in samples[0]}))
    for key in moving:
        np.testing.assert_allclose(actual[key].numpy(), expected[key], 1e-6, 1e-9, err_msg=str(case))


@pytest.mark.parametrize("op", [op for op in CHECKED if not op.composite], ids=lambda op: op.key)
def test_the_gradients_of_the_batch_are_those_of_each_sample(op: Op) -> None:
    with tg.connect("local://", seed=0), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases_of(op):
            check_gradients(op, case)


# Large samples ---------------------------------------------------------------------------------------------

LARGE = {
    "attention": (lambda x, y: tg.nn.functional.scaled_dot_product_attention(x, y, y, is_causal=True), (2100, 4)),
    "attention with a mask": (
        lambda x, y: tg.nn.functional.scaled_dot_product_attention(x[None], y[None], y[None], tg.ones_like(x @ y.T)),
        (2100, 4),
    ),
    "cdist": (lambda x, y: tg.cdist(x, y, p=1.0), (700, 10)),
    "mse_loss": (lambda x, y: tg.nn.functional.mse_loss(x, y, reduction="sum"), (2100, 2100)),
}
"""Functions of two samples whose ops compute in blocks, with the samples' shape."""


@pytest.mark.parametrize("name", LARGE)
def test_ops_that_compute_in_blocks_take_the_batch_at_once(name: str) -> None:
    function, shape = LARGE[name]
    gradient = tg.func.grad_and_value(lambda x, y: (function(x, y) * 3).sum())
    with tg.connect("local://", seed=0), warnings.catch_warnings():
        warnings.simplefilter("error")  # the loop over samples warns
        x, y = tg.rand(2, *shape, dtype=tg.float64), tg.rand(*shape, dtype=tg.float64)
        slopes, values = tg.func.vmap(gradient, (0, None))(x, y)
        for i in range(2):
            slope, value = gradient(x[i], y)
            np.testing.assert_allclose(slopes[i].numpy(), slope.numpy(), 1e-9, 1e-12)
            np.testing.assert_allclose(values[i].item(), value.item(), 1e-9)
