"""Looking up rows by number."""

from __future__ import annotations

import math
from typing import Any

from ..context import no_grad
from ..dtypes import from_numpy, int32, int64
from ..errors import DTypeMismatch, IndexOutOfRange, InvalidChoice, InvalidOperation, ShapeMismatch
from ..schema.op import composite, op
from ..schema.parameters import Array, Bool, Int, Number, OptionalInt, OptionalNumber
from ..shapes import Spec, size_at
from .places import any_outside


def _rows_rule(input: Any, weight: Any, padding_idx: int, scale_grad_by_freq: bool) -> Spec:
    if input.dtype not in (int64.numpy, int32.numpy):
        raise DTypeMismatch(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got "
            f"torch.{from_numpy(input.dtype).kernel_name}Tensor instead (while checking arguments for embedding)"
        )
    if len(weight.shape) != 2:
        raise ShapeMismatch("'weight' must be 2-D")
    return Spec((*input.shape, weight.shape[1]), weight.dtype)


@op(_rows_rule, internal=True, method=False, node="EmbeddingBackward0", scratch=2.0)
def embedded(xp: Any, input: Array, weight: Array, padding_idx: Int, scale_grad_by_freq: Bool) -> Any:
    """The rows of ``weight`` that ``input`` numbers."""
    _check_rows(xp, input, weight)
    return weight[input]


@embedded.checks("input")
def _check_rows(xp: Any, input: Any, weight: Any, **_: Any) -> None:
    if any_outside(xp, input, 0, weight.shape[0]):
        raise IndexOutOfRange("index out of range in self")


def _rows_grad(F: Any, grad: Any, input: Any, weight_shape: Any, padding_idx: int, scale_grad_by_freq: bool) -> Any:
    places = F.reshape(input, (-1,)) if input.shape else F.reshape(input, (1,))
    rows = F.reshape(grad, (math.prod(input.shape), weight_shape[1]))
    if padding_idx >= 0:
        rows = F.where(F.unsqueeze(F.eq(places, padding_idx), -1), 0.0, rows)
    if scale_grad_by_freq:
        ones = F.new_zeros(rows, (rows.shape[0],)) + 1
        counts = F.index_put(F.new_zeros(rows, (weight_shape[0],)), (places,), ones, True)
        rows = rows / F.unsqueeze(F.index(counts, (places,)), -1)
    return F.index_put(F.new_zeros(rows, weight_shape), (places,), rows, True)


embedded.derivative(weight=_rows_grad)


def _row_number(weight: Any, padding_idx: int | None) -> int:
    """The padding's row counted from the first; -1 for none."""
    if padding_idx is None:
        return -1
    count = size_at(weight.shape, 0)
    if not -count <= padding_idx < count:
        raise InvalidChoice("Padding_idx must be within num_embeddings")
    return padding_idx % max(count, 1)


def shorten(F: Any, input: Any, weight: Any, max_norm: float, norm_type: float) -> None:
    """Scale the rows that are looked up down to ``max_norm``, in place."""
    with no_grad():
        rows = F.to(F.reshape(input, (math.prod(input.shape),)), dtype=int64)
        found = F.index_select(weight.detach(), 0, rows)
        lengths = F.norm(found, norm_type, (-1,), True)
        shorter = F.where(lengths > max_norm, found * (max_norm / (lengths + 1e-7)), found)
        weight.detach().index_copy_(0, rows, shorter)


@composite(
    namespace="torch.nn.functional",
)
def embedding(
    F: Any,
    input: Array,
    weight: Array,
    padding_idx: OptionalInt = None,
    max_norm: OptionalNumber = None,
    norm_type: Number = 2.0,
    scale_grad_by_freq: Bool = False,
    sparse: Bool = False,
) -> Any:
    """The rows of ``weight`` (V, D) that ``input``, of whole numbers, names.

    The row ``padding_idx`` gets no gradient; rows longer than ``max_norm`` are first scaled down to it, in place;
    ``scale_grad_by_freq`` divides a row's gradient by how often it was looked up.
    """
    row = _row_number(weight, padding_idx)
    if len(weight.shape) != 2:
        raise ShapeMismatch("'weight' must be 2-D")
    if sparse:
        raise InvalidOperation("embedding: sparse gradients are not supported; leave sparse=False")
    if max_norm is not None and math.prod(input.shape):
        shorten(F, input, weight, max_norm, norm_type)
    return F.embedded(input, weight, row, scale_grad_by_freq)
