"""The checks of in-place ops for operands that overlap in memory, with torch's rules and texts.

As in torch, overlaps that are hard to find are not reported: those of a tensor with gaps in memory, or of one whose
elements share memory without a stride of 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvalidOperation
from ..memory_layout import Geometry, geometry_of, memory_of, overlaps
from ..schema.op import Op

TEXT = (
    "unsupported operation: {} to a single memory location. Please clone() the tensor before performing the operation."
)
OVERLAPPING = TEXT.format("more than one element of the written-to tensor refers")
OVERLAPPED = TEXT.format("some elements of the input tensor and the written-to tensor refer")


def check_overlap(op: Op, target: Any, inputs: Sequence[Any]) -> None:
    """Raise if the in-place form of ``op`` refuses to write to ``target``, the first of ``inputs``.

    Lists of tensors count as one input. Without ``inputs``, only the elements of ``target`` are compared.
    """
    allowed = op.overlap
    if allowed.itself and repeats(target):
        raise InvalidOperation(OVERLAPPING)
    for each in inputs[1 : allowed.inputs]:
        for x in each if type(each) is tuple else (each,):
            if hasattr(x, "_data") and memory_of(x) is memory_of(target) and _overlaps(target, x, allowed.whole):
                raise InvalidOperation(OVERLAPPED)


def repeats(tensor: Any) -> bool:
    """Whether a stride of 0 makes several elements of ``tensor`` share memory."""
    if tensor._layout is None:
        for op, _, _ in tensor._view_chain:
            if op.repeats:
                break
        else:
            return False
    geometry = geometry_of(tensor)
    return 0 not in geometry.shape and overlaps(geometry)


def _overlaps(target: Any, x: Any, whole: bool) -> bool:
    """Whether a tensor over the same memory overlaps ``target`` partly or, if ``whole``, at all."""
    if x is target or (x._base is target._base and x._view_chain == target._view_chain and x._base is not None):
        return whole
    spans = []
    for tensor in (target, x):
        geometry, width = geometry_of(tensor), tensor._data.dtype.itemsize
        if not _is_dense(geometry):
            return False
        spans.append((geometry.offset * width, (geometry.offset + tensor.numel()) * width, geometry.strides))
    (start, end, _), (begin, stop, _) = spans
    return whole if spans[0] == spans[1] else start < stop and begin < end


def _is_dense(geometry: Geometry) -> bool:
    """Whether the elements fill a piece of memory without gaps, and none shares its place with another."""
    step = 1
    for stride, size in sorted(zip(geometry.strides, geometry.shape, strict=True)):
        if size != 1 and stride != step:
            return False
        step *= size
    return step > 0
