"""The checks of in-place ops for operands that overlap in memory, with torch's rules and texts.

As in torch, overlaps that are hard to find are not reported: those of a tensor with gaps in memory, or of one whose
elements share memory without a stride of 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvalidOperation
from ..memory_layout import Geometry, geometry_of, memory_of
from ..schema.op import Op

_CLONE = "Please clone() the tensor before performing the operation."
OVERLAPPING = (
    "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
    + _CLONE
)
OVERLAPPED = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory "
    "location. " + _CLONE
)


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
    shape, strides, _ = geometry_of(tensor)
    return 0 not in shape and any(n > 1 and not step for n, step in zip(shape, strides, strict=True))


def _overlaps(target: Any, x: Any, whole: bool) -> bool:
    """Whether a tensor over the same memory overlaps ``target`` partly or, if ``whole``, at all."""
    if x is target or (x._base is target._base and x._view_chain == target._view_chain and x._base is not None):
        return whole
    places = [geometry_of(target), geometry_of(x)]
    if not all(map(_is_dense, places)):
        return False
    (start, end), (begin, stop) = [
        (
            geometry.offset * tensor._data.dtype.itemsize,
            (geometry.offset + tensor.numel()) * tensor._data.dtype.itemsize,
        )
        for geometry, tensor in zip(places, (target, x), strict=True)
    ]
    same = (start, end) == (begin, stop) and places[0].strides == places[1].strides
    return whole if same else start < stop and begin < end


def _is_dense(geometry: Geometry) -> bool:
    """Whether the elements fill a piece of memory without gaps, and none shares its place with another."""
    step = 1
    for stride, size in sorted(zip(geometry.strides, geometry.shape, strict=True)):
        if size != 1 and stride != step:
            return False
        step *= size
    return step > 0
