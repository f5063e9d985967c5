"""The memory layout of a tensor without a value, derived from the view ops that made it.

A result that is not a view is in row-major order on every device and in every program (execution.py ensures it). So
the layout of any tensor follows from its chain of view ops. The chain runs on a stand-in: a NumPy array of the same
shape and strides whose elements are never read.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays.numpy import NumpyBackend
from ..schema.op import Op, ViewStep, follow_arrays, follow_views
from .execution import is_view_of

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
