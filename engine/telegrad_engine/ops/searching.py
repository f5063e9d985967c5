"""Searches in sorted values."""

from __future__ import annotations

from typing import Any

from ..dtypes import bool_, from_numpy, int32, int64
from ..errors import DTypeMismatch, IndexOutOfBounds, InvalidOperation, NotImplementedForDType, ShapeMismatch
from ..schema.op import op
from ..schema.parameters import Array, Bool, Operand, OptionalStr
from ..shapes import Spec, is_array


def _searchsorted_rule(
    sorted_sequence: Any,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Spec:
    name, shape, found = "torch.searchsorted()", sorted_sequence.shape, input.shape if is_array(input) else ()
    if side not in (None, "left", "right"):
        raise InvalidOperation(f"{name}: side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise InvalidOperation(
            f"{name}: side and right can't be set to opposites, got side of left while right was True"
        )
    if not shape:
        raise ShapeMismatch(f"{name}: boundaries tensor should have positive dimension, but got 0 dimension")
    if len(shape) != 1 and not found:
        raise ShapeMismatch(
            f"{name}: input value can be a scalar only when boundaries tensor dimension is 1, but we got "
            f"boundaries tensor dim({len(shape)}) and input value's dim(0) numel(1)"
        )
    if len(shape) != 1 and shape[:-1] != found[:-1]:
        raise ShapeMismatch(
            f"{name}: boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and "
            f"input value tensor must match, but we got boundaries tensor {list(shape)} and input value tensor "
            f"{list(found)}"
        )
    if sorter is not None and sorter.shape != shape:
        raise ShapeMismatch(
            f"{name}: boundary and sorter must have the same size, but got boundary tensor {list(shape)}"
            f"and got sorter tensor {list(sorter.shape)}"
        )
    if sorter is not None and sorter.dtype != int64.numpy:
        kind = from_numpy(sorter.dtype).kernel_name
        raise DTypeMismatch(f"{name}: sorter must be a tensor of long dtype but got dtype {kind}")
    if sorted_sequence.dtype == bool_.numpy:
        raise NotImplementedForDType("\"searchsorted_out_cpu\" not implemented for 'Bool'")
    return Spec(found, (int32 if out_int32 else int64).numpy)


@op(_searchsorted_rule, method=False, scratch=5.0)
def searchsorted(
    xp: Any,
    sorted_sequence: Array,
    input: Operand,
    *,
    out_int32: Bool = False,
    right: Bool = False,
    side: OptionalStr = None,
    sorter: Array = None,
) -> Any:
    """How many elements of each sorted row are below each value (or, with ``right``, not above it)."""
    values = xp.asarray(input)
    n = sorted_sequence.shape[-1]
    if sorter is not None:
        if sorter.size and not 0 <= int(sorter.min()) <= int(sorter.max()) < n:
            raise IndexOutOfBounds("torch.searchsorted(): sorter index out of range")
        sorted_sequence = xp.take_along_axis(sorted_sequence, sorter, axis=-1)
    beyond = xp.greater if right or side == "right" else xp.greater_equal
    low, high = xp.zeros(values.shape, int64.numpy), xp.full(values.shape, n)
    for _ in range(n.bit_length()):  # bisects for all values at once, as rows may differ
        middle = xp.minimum((low + high) // 2, n - 1)
        flat = sorted_sequence.ndim == 1
        found = sorted_sequence[middle] if flat else xp.take_along_axis(sorted_sequence, middle, axis=-1)
        stop = beyond(found, values) | (low >= high)
        low, high = xp.where(stop, low, middle + 1), xp.where(stop, xp.minimum(middle, high), high)
    return low.astype((int32 if out_int32 else int64).numpy)
