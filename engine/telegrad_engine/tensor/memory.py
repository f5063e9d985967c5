"""Memory of tensors: the layout of one without a value, and the checks of in-place ops for operands that overlap.

A result that is not a view is in row-major order on every device and in every program (execution.py ensures it). So
the layout of any tensor follows from its chain of view ops. The chain runs on a stand-in: a NumPy array of the same
shape and strides whose elements are never read.

The checks have torch's rules and texts. As in torch, overlaps that are hard to find are not reported: those of a tensor
with gaps in memory, or of one whose elements share memory without a stride of 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays.numpy import NumpyBackend
from ..errors import InvalidOperation
from ..memory_layout import Geometry, geometry_of, memory_of, overlaps
from ..schema.op import Op, ViewStep, follow_arrays, follow_views
from .execution import is_view_of

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


FEW = 1 << 24
"""The largest number of elements for which a stand-in allocates memory, which is never touched."""


class _ViewsOnly(NumpyBackend):
    """NumPy with a ``reshape`` that never copies: it returns a new stand-in in place of a copy."""

    def reshape(self, array: Any, shape: Any) -> Any:
        """Return a view in the new shape if the strides allow one, else a new array in row-major order."""
        try:
            return self.reshape_view(array, shape)
        except AttributeError:
            return row_major(tuple(array.shape), shape)


_VIEWS_ONLY = _ViewsOnly()


def row_major(shape: tuple[int, ...], reshaped: Any = None) -> Any:
    """Return a stand-in for an array of ``shape`` in row-major order, reshaped to ``reshaped`` if given."""
    if math.prod(shape) <= FEW:
        array = np.empty(shape, np.int8)
    else:
        steps = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        array = np.lib.stride_tricks.as_strided(np.empty(1, np.int8), shape, steps)
    return array if reshaped is None else _VIEWS_ONLY.reshape_view(array, reshaped)


def layout(tensor: Any) -> Any:
    """Return a stand-in for a tensor's array with elements of one byte, so that its strides count elements."""
    root = tensor if tensor._base is None else tensor._base
    array = root._layout
    if array is None:
        spec = follow_views(root._data, root._inverse_chain, lambda op, x, attrs: op.rule(x, **attrs))
        array = row_major(tuple(spec.shape))
    return follow(array, *tensor._view_chain)


def follow(array: Any, *chain: ViewStep) -> Any:
    """Return the stand-in for what a chain of view ops makes of ``array``."""
    return follow_arrays(_VIEWS_ONLY, array, chain)


def is_view(source: Any, op: Op, attrs: Any) -> bool:
    """Whether the output of a view op that may copy is a view of ``source``: whether the strides allow it."""
    if source._base is None and source._layout is None and not source._view_chain:
        return True
    array = layout(source)
    return is_view_of(follow(array, (op, attrs, 0)), array)


def is_contiguous(tensor: Any) -> bool:
    """Whether a tensor is in row-major order, without gaps."""
    if tensor._base is None and tensor._layout is None and not tensor._view_chain:
        return True
    return bool(layout(tensor).flags.c_contiguous)
