"""The memory layout of a tensor without a value, worked out from the view ops that made it.

A result that is not a view lies in row-major order (execution.py sees to that), on every device and in every
program. So the layout of any tensor follows from the chain of view ops that leads to it. The chain runs on a NumPy
array of the same shape and strides, of which no element is ever read.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays.numpy import NumpyBackend
from ..schema.op import Op
from .execution import shows

FEW = 1 << 24
"""Elements up to which the stand-in has memory of its own, which the system does not provide until it is used."""


class _ViewsOnly(NumpyBackend):
    """NumPy, whose ``reshape`` copies nothing: what would be a copy is another stand-in."""

    def reshape(self, array: Any, shape: Any) -> Any:
        """A view in the new shape if the strides allow that, else a new array in row-major order."""
        try:
            return self.reshape_view(array, shape)
        except AttributeError:
            return row_major(tuple(array.shape), shape)


_VIEWS_ONLY = _ViewsOnly()


def row_major(shape: tuple[int, ...], reshaped: Any = None) -> Any:
    """A stand-in for an array of ``shape`` in row-major order, in another shape if one is given."""
    if math.prod(shape) <= FEW:
        array = np.empty(shape, np.int8)
    else:
        steps = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        array = np.lib.stride_tricks.as_strided(np.empty(1, np.int8), shape, steps)
    return array if reshaped is None else _VIEWS_ONLY.reshape_view(array, reshaped)


def layout(tensor: Any) -> Any:
    """A stand-in for a tensor's array, an element a byte, so that its strides count elements."""
    root = tensor if tensor._base is None else tensor._base
    array = root._layout
    if array is None:
        shape: Any = root._data
        for op, attrs, index in root._inverse_chain:
            shape = op.rule(shape, **attrs)
            shape = shape[index] if isinstance(shape, list) else shape
        array = row_major(tuple(shape.shape))
    for op, attrs, index in tensor._view_chain:
        array = follow(array, op, attrs, index)
    return array


def follow(array: Any, op: Op, attrs: Any, index: int) -> Any:
    """The stand-in for an output of a view op."""
    result = op.kernel(_VIEWS_ONLY, array, **attrs)
    return result[index] if isinstance(result, (tuple, list)) else result


def is_view(source: Any, op: Op, attrs: Any) -> bool:
    """Whether a view op shows the memory of ``source``: one that may copy does so where the strides allow no view."""
    if not op.may_copy or (source._base is None and source._layout is None and not source._view_chain):
        return True
    array = layout(source)
    return shows(follow(array, op, attrs, 0), array)


def is_contiguous(tensor: Any) -> bool:
    """Whether a tensor lies in row-major order, without gaps."""
    if tensor._base is None and tensor._layout is None and not tensor._view_chain:
        return True
    return bool(layout(tensor).flags.c_contiguous)
