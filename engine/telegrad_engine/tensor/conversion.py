"""Conversion of users' data to arrays: numbers, nested sequences, arrays and tensors."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import DTypeMismatch, InvalidArgument, InvalidOperation, InvalidValue, NumberTooLarge
from ..schema.promotion import default_float

ndarray = np.ndarray
_PYTHON = {bool, int, float}


class NumberList:
    """The array of regular nested lists of Python numbers; ``as_array`` infers its dtype as it does for lists."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array


def as_array(data: Any, dtype: Any = None, copy: bool = True) -> Any:
    """Return ``data`` as a new array in row-major order, of ``dtype`` or the dtype that torch would infer.

    Without ``copy``, an array that already has this dtype and order is returned itself.
    """
    wanted = None if dtype is None else dtypes.parse(dtype).numpy
    if hasattr(data, "_host"):
        data = data._host()
    elif (
        hasattr(data, "__array__") and not isinstance(data, (ndarray, np.generic, type)) and not hasattr(data, "_data")
    ):
        data = np.asarray(data)  # a pandas Series, for example
    if isinstance(data, (ndarray, np.generic)):
        dtypes.from_numpy(data.dtype)
        return np.array(data, wanted, copy=copy or None, order="C")
    array, common = (data.array, None) if isinstance(data, NumberList) else _from_lists(data, wanted)
    if array.dtype.kind == "u" and common is None and (wanted is None or wanted.kind == "i"):
        raise InvalidValue("Overflow when unpacking long long")  # Python's ints from 2**63 on
    if wanted is None:
        wanted = common or (default_float() if array.dtype.kind == "f" else array.dtype)
    if wanted.kind in "iu" and array.dtype.kind in "iu" and array.size:
        limits = np.iinfo(wanted)
        if array.max() > limits.max or array.min() < min(limits.min, -limits.max):
            name = dtypes.from_numpy(wanted).name
            raise InvalidOperation(f"value cannot be converted to type {name} without overflow")
        if wanted == dtypes.uint64.numpy and array.min() < 0:  # in narrower unsigned dtypes, it wraps around
            raise NumberTooLarge("can't convert negative int to unsigned")
    return array.astype(wanted)


def _from_lists(data: Any, wanted: Any) -> tuple[Any, Any]:
    """Return nested lists as an array, with their common dtype if NumPy scalars are among them, else None."""
    data = _numbers(data)
    leaves = check_regular(data)
    try:
        array = np.array(data)
        if array.dtype.kind == "f" and wanted == dtypes.uint64.numpy:
            array = np.array(data, wanted)  # NumPy makes large integers beside small ones floats
    except OverflowError:
        raise InvalidValue("Overflow when unpacking long long") from None
    if array.dtype == object or array.dtype.kind == "U":
        _refuse(data)
    if array.dtype.kind == "c":
        raise DTypeMismatch(dtypes.COMPLEX_TEXT)
    return array, _common_dtype(leaves)


def _numbers(data: Any) -> Any:
    """Replace one-element tensors in nested lists by Python numbers."""
    if not hasattr(_first(data), "_data"):
        return data
    return (
        [_numbers(v) for v in data]
        if isinstance(data, (list, tuple))
        else data.__float__()
        if (data.is_floating_point())
        else data.__int__()
    )


def _first(data: Any) -> Any:
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return data


def _common_dtype(leaves: list[Any]) -> Any:
    """Return the promoted dtype of numbers, with torch's default dtypes for Python's; None if all are Python's."""
    if set(map(type, leaves)) <= _PYTHON:
        return None
    kinds = {(type(x), x.dtype) if hasattr(x, "dtype") else (type(x), None) for x in leaves}
    found = [
        dtypes.scalar_dtype(kind(), default_float()) if dtype is None else dtypes.from_numpy(dtype).numpy
        for kind, dtype in kinds
        if dtype is not None or kind in _PYTHON
    ]
    return functools.reduce(dtypes.promote_types, found) if found else None


def _refuse(data: Any) -> None:
    leaves = [data]
    while any(isinstance(v, (list, tuple)) for v in leaves):
        leaves = [w for v in leaves for w in (v if isinstance(v, (list, tuple)) else [v])]
    strange = next((v for v in leaves if not isinstance(v, (bool, int, float))), None)
    if isinstance(strange, (str, bytes)) and isinstance(data, (list, tuple)) and _first(data) is strange:
        raise InvalidValue(f"too many dimensions '{type(strange).__name__}'")
    if isinstance(strange, (str, bytes)):
        raise InvalidArgument(f"new(): invalid data type '{type(strange).__name__}'")
    if strange is not None or None in leaves:
        raise InvalidOperation(f"Could not infer dtype of {type(strange).__name__}")
    raise InvalidValue("Overflow when unpacking long long")


def check_regular(data: Any) -> list[Any]:
    """Return the items of the innermost rows, without recursion. Raises torch's error if rows differ in length."""
    level, dim = [data], 0
    while level and any(isinstance(x, (list, tuple)) for x in level):
        size = len(level[0]) if isinstance(level[0], (list, tuple)) else -1
        following: list[Any] = []
        for x in level:
            if not isinstance(x, (list, tuple)):
                if size != -1:
                    raise InvalidArgument(f"expected a sequence of length {size}, got {type(x).__name__}")
            elif size == -1:
                raise InvalidArgument(f"must be real number, not {type(x).__name__}")
            elif len(x) != size:
                raise InvalidValue(f"expected sequence of length {size} at dim {dim} (got {len(x)})")
            else:
                following.extend(x)
        if dim > 63:
            raise InvalidValue(f"too many dimensions: more than {dim} levels of nesting")
        level, dim = following, dim + 1
    return level
