"""Indices of triangles and combinations, one-hot tensors, and samples of distributions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from ...cancellation import check_cancelled
from ...dtypes import int32, int64, is_floating
from ...errors import DTypeMismatch, InvalidArgument, InvalidOperation
from ...schema.declaration import FUNCTION, INTERNAL, NEW, NN_FUNCTION, Batching, scratch
from ...schema.op import op
from ...schema.parameters import Array, Bool, Int, Ints, Number, Operand, OptionalDType
from ...schema.promotion import default_float
from ...shapes import Spec, broadcast_shapes, is_array
from ..batching import math_rules
from ..batching.rules import PADDED, leading
from ..guards import check_floats, kernel_name, no_kernel
from ..math.declarations import check_has_values, zero_gradient
from ..shape.creation import sized


def _clipped_sum(end: int, most: int) -> int:
    """The sum of ``min(i, most)`` over all i in ``range(end)``."""
    end = max(end, 0)
    return end * (end - 1) // 2 if end <= most else most * (most - 1) // 2 + (end - most) * most


def _triangle_rule(name: str, lower: bool, row: int, col: int, offset: int, dtype: Any) -> Spec:
    for size, which in ((row, "row"), (col, "col")):
        if size < 0:
            raise InvalidOperation(f"{which} must be non-negative, got{size}")
    if dtype is not None and dtype not in (int32, int64):
        raise no_kernel(name, dtype.numpy)
    first = offset + lower
    below = _clipped_sum(first + row, col) - _clipped_sum(first, col)
    return sized(name, (2, below if lower else row * col - below), int64 if dtype is None else dtype)


BLOCK = 2**20
"""The number of elements written at a time, so that temporaries stay small and other threads can run in between."""


def _runs(rows: Any, starts: Any, counts: Any, dtype: Any) -> Any:
    """The rows and columns of ``counts`` neighbours from ``starts`` in each row: (2, n), without a full mask."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    result = np.empty((2, total), dtype)
    first = 0
    for last in _block_ends(ends):
        check_cancelled()
        block = slice(first, last)
        start, end = int(ends[first] - counts[first]), int(ends[last - 1])
        here = counts[block]
        result[0, start:end] = np.repeat(rows[block], here)
        result[1, start:end] = np.arange(start, end) - np.repeat(ends[block] - here - starts[block], here)
        first = last
    return result


def _block_ends(ends: Any) -> Iterator[int]:
    """Yield where to split rows that end at these positions, so that each part has about BLOCK elements."""
    first = before = 0
    while first < len(ends):
        last = max(int(np.searchsorted(ends, before + BLOCK, side="right")), first + 1)
        yield last
        first, before = last, int(ends[last - 1])


@op(partial(_triangle_rule, "tril_indices", True), results=NEW)
def tril_indices(xp: Any, row: Int, col: Int, offset: Int = 0, *, dtype: OptionalDType = None) -> Any:
    """The rows and columns of the elements of a lower triangle: (2, n)."""
    offset = min(max(offset, -row), col)  # a larger offset changes nothing, and might not fit an int64
    rows = np.arange(min(max(-offset, 0), row), row if col else 0)
    counts = np.minimum(rows + offset + 1, col)
    return xp.asarray(_runs(rows, np.zeros_like(rows), counts, int64.numpy if dtype is None else dtype.numpy))


@op(partial(_triangle_rule, "triu_indices", False), results=NEW)
def triu_indices(xp: Any, row: Int, col: Int, offset: Int = 0, *, dtype: OptionalDType = None) -> Any:
    """The rows and columns of the elements of an upper triangle: (2, n)."""
    offset = min(max(offset, -row), col)
    rows = np.arange(max(min(row, col - offset), 0) if col else 0)
    starts = np.maximum(rows + offset, 0)
    return xp.asarray(_runs(rows, starts, col - starts, int64.numpy if dtype is None else dtype.numpy))


def _choices(n: int, r: int, with_replacement: bool) -> int:
    """The number of ways to choose ``r`` of ``n`` elements, or 2**63 if it is too large for any size."""
    total = n + r - 1 if with_replacement else n
    fewer = min(r, total - r)
    return math.comb(total, r) if fewer < 64 or not n else 2**63


def _combinations_rule(n: int, r: int, with_replacement: bool) -> Spec:
    if n < 0 or r < 1:
        raise InvalidOperation(f"combinations: Expect a non-negative number, but got {min(n, r)}")
    return sized("combinations", (_choices(n, r, with_replacement), r), int64)


@op(
    _combinations_rule,
    variants=INTERNAL,
    results=NEW,
    memory=scratch(lambda n, r, with_replacement: 8 * _choices(n, r, with_replacement) * (r + 6)),
)
def combination_indices(xp: Any, n: Int, r: Int, with_replacement: Bool) -> Any:
    """The positions of each choice of ``r`` of ``n`` elements, a row a choice, in lexicographic order."""
    if not _choices(n, r, with_replacement):
        return xp.zeros((0, r), int64.numpy)
    chosen = np.arange(n)[:, None]
    for _ in range(1, r):
        # Extend each row by every position after its last one, or from its last one on with replacement.
        starts = chosen[:, -1] + (not with_replacement)
        earlier, last = _runs(np.arange(len(chosen)), starts, n - starts, int64.numpy)
        chosen = np.concatenate([chosen[earlier], last[:, None]], axis=1)
    return xp.asarray(chosen)


def _one_hot_rule(input: Any, num_classes: int) -> Spec:
    if input.dtype != int64.numpy:
        raise DTypeMismatch("one_hot is only applicable to index tensor of type LongTensor.")
    if 0 in input.shape:
        if num_classes <= 0:
            raise InvalidOperation("Can not infer total number of classes from empty tensor.")
    elif num_classes == -1:
        check_has_values("one_hot", input)
        num_classes = max(int(input.max()) + 1, 0)
    elif num_classes < 1:
        raise InvalidOperation("Class values must be smaller than num_classes.")
    return Spec((*input.shape, num_classes), int64.numpy)


@op(
    _one_hot_rule,
    variants=NN_FUNCTION,
    batching=Batching(
        leading,
        dynamic="When vmap-ing torch.nn.functional.one_hot, please provide an explicit positive num_classes argument.",
    ),
)
def one_hot(xp: Any, input: Array, num_classes: Int = -1) -> Any:
    """A 1 in the place that each class names, among zeros, in a new last dimension."""
    n = _one_hot_rule(input, num_classes).shape[-1]
    _check_classes(xp, input, n)
    if not input.size:
        return xp.zeros((*input.shape, n), int64.numpy)
    return (xp.expand_dims(input, -1) == xp.arange(n)).astype(int64.numpy)


@one_hot.checks("input")
def _check_classes(xp: Any, input: Any, num_classes: int) -> None:
    if input.size and int(input.min()) < 0:
        raise InvalidOperation("Class values must be non-negative.")
    if input.size and num_classes >= 0 and int(input.max()) >= num_classes:
        raise InvalidOperation("Class values must be smaller than num_classes.")


# Samples -------------------------------------------------------------------------------------------------


def _check_deviation(std: Any) -> None:
    if not is_array(std) and std < 0:
        raise InvalidOperation(f"normal expects std >= 0.0, but found std {std:g}")


def _normal_size_rule(std: float, size: Any, dtype: Any) -> Spec:
    _check_deviation(std)
    spec = sized("normal", size, dtype)
    check_floats("normal_kernel_cpu", spec)
    return spec


@op(_normal_size_rule, key="normal.size", results=NEW, memory=scratch(4.0))
def normal_size(xp: Any, rng: Any, mean: Number, std: Number, size: Ints, *, dtype: OptionalDType = None) -> Any:
    """Normal numbers of one mean and deviation."""
    return (mean + std * rng.standard_normal(size)).astype(default_float() if dtype is None else dtype.numpy)


def _normal_rule(mean: Any, std: Any) -> Spec:
    given = [x for x in (mean, std) if is_array(x)]
    if not given:
        raise InvalidArgument("normal() of two numbers needs a size: normal(float mean, float std, tuple of ints size)")
    _check_deviation(std)
    check_floats("normal_kernel_cpu", given[0])
    return Spec(broadcast_shapes(*[x.shape for x in given]), given[0].dtype)


@op(_normal_rule, variants=FUNCTION, memory=scratch(4.0), may_raise=True, batching=PADDED)
def normal(xp: Any, rng: Any, mean: Operand, std: Operand = 1.0) -> Any:
    """Normal numbers, each of its own mean or deviation."""
    if is_array(std) and std.size and float(std.min()) < 0:
        raise InvalidOperation("normal expects all elements of std >= 0.0")
    spec = _normal_rule(mean, std)
    return xp.asarray(mean + std * rng.standard_normal(spec.shape)).astype(spec.dtype)


normal.derivative(mean=zero_gradient, std=zero_gradient)


def _multinomial_rule(input: Any, num_samples: int, replacement: bool) -> Spec:
    if not is_floating(input.dtype):
        raise DTypeMismatch(f"multinomial only supports floating-point dtypes for input, got: {kernel_name(input)}")
    if len(input.shape) not in (1, 2):
        raise InvalidOperation("prob_dist must be 1 or 2 dim")
    if num_samples <= 0:
        raise InvalidOperation("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > input.shape[-1]:
        raise InvalidOperation("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    if not input.shape[-1]:
        raise InvalidOperation(
            "aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity."
        )
    return Spec((*input.shape[:-1], num_samples), int64.numpy)


@op(_multinomial_rule, memory=scratch(14.0), may_raise=True, batching=math_rules.multinomial)
def multinomial(xp: Any, rng: Any, input: Array, num_samples: Int, replacement: Bool = False) -> Any:
    """Positions in each row, drawn with the probabilities that it is proportional to."""
    weights = input.astype("float64")
    if weights.size and not (math.isfinite(float(weights.max())) and float(weights.min()) >= 0):
        raise InvalidOperation("probability tensor contains either `inf`, `nan` or element < 0")
    if weights.size and float(weights.sum(axis=-1).min()) <= 0:
        raise InvalidOperation("invalid multinomial distribution (sum of probabilities <= 0)")
    shape = (*input.shape[:-1], num_samples)
    if not replacement:
        # The order of exponential arrival times with these rates; elements with probability 0 come last.
        clocks = rng.standard_exponential(input.shape)
        times = xp.where(weights > 0, clocks / xp.where(weights > 0, weights, 1), xp.inf)
        return xp.argsort(times, axis=-1)[..., :num_samples]
    shares = xp.cumsum(weights, axis=-1)
    rows = xp.reshape(shares / shares[..., -1:], (-1, input.shape[-1]))
    draws = xp.reshape(rng.random(shape), (-1, num_samples))
    picked = [xp.searchsorted(row, draw, side="right") for row, draw in zip(rows, draws, strict=True)]
    return xp.reshape(xp.asarray(picked, dtype="int64"), shape)
