"""Dtypes with PyTorch's names, and its promotion rules.

The engine uses ``np.dtype`` internally; :class:`DType` is the public class. The rules are those of the section "Type
promotion" in PyTorch's documentation of tensor attributes.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from .errors import DTypeMismatch, InvalidArgument, InvalidOperation


class DType:
    """An element type: ``name`` as in torch, ``numpy`` as a NumPy dtype, ``itemsize`` in bytes.

    ``kernel_name`` and ``c_name`` are the names in torch's error texts, and ``rank`` orders promotion. There is one
    object for each dtype, such as ``telegrad.float32``.

    Examples:
        >>> tg.float32, tg.float32.itemsize, tg.float32.is_floating_point
        (telegrad.float32, 4, True)
    """

    __slots__ = ("c_name", "is_floating_point", "itemsize", "kernel_name", "name", "numpy", "rank")

    def __init__(self, name: str, numpy: Any, kernel_name: str, rank: int, c_name: str) -> None:
        self.name = name
        self.numpy: np.dtype[Any] = np.dtype(numpy)
        self.kernel_name = kernel_name
        self.rank = rank
        self.c_name = c_name
        """The type's name in C++, which some of PyTorch's error texts use."""
        self.itemsize: int = self.numpy.itemsize
        self.is_floating_point = rank >= 100

    def __repr__(self) -> str:
        return f"telegrad.{self.name}"

    def __reduce__(self) -> Any:
        return (parse, (self.name,))

    @property
    def is_complex(self) -> bool:
        """Always False: complex dtypes are not supported yet."""
        return False

    @property
    def is_signed(self) -> bool:
        """Whether the type has negative numbers."""
        return self.numpy.kind not in "bu"

    def to_real(self) -> DType:
        """Return the dtype itself. Raises RuntimeError, as in torch, unless it is a floating-point dtype."""
        if not self.is_floating_point:
            raise InvalidOperation("Expected a floating point or complex dtype but got torch." + self.name)
        return self


bool_ = DType("bool", np.bool_, "Bool", 0, "bool")
uint8 = DType("uint8", np.uint8, "Byte", 10, "unsigned char")
int8 = DType("int8", np.int8, "Char", 11, "signed char")
int16 = DType("int16", np.int16, "Short", 12, "short int")
int32 = DType("int32", np.int32, "Int", 13, "int")
int64 = DType("int64", np.int64, "Long", 14, "long int")
uint16 = DType("uint16", np.uint16, "UInt16", 15, "unsigned short")
uint32 = DType("uint32", np.uint32, "UInt32", 16, "unsigned int")
uint64 = DType("uint64", np.uint64, "UInt64", 17, "unsigned long")
float16 = DType("float16", np.float16, "Half", 100, "c10::Half")
bfloat16 = DType("bfloat16", ml_dtypes.bfloat16, "BFloat16", 101, "c10::BFloat16")
float32 = DType("float32", np.float32, "Float", 102, "float")
float64 = DType("float64", np.float64, "Double", 103, "double")

WIDE_UNSIGNED = (uint16, uint32, uint64)
"""The dtypes that torch promotes to no other integers."""
ALL = (bool_, uint8, *WIDE_UNSIGNED, int8, int16, int32, int64, float16, bfloat16, float32, float64)
ALIASES = {"float": float32, "double": float64, "half": float16, "int": int32, "long": int64, "short": int16}
_BY_NAME = {dtype.name: dtype for dtype in ALL} | ALIASES
_BY_NUMPY = {dtype.numpy: dtype for dtype in ALL}
_BY_PYTHON = {bool: bool_, int: int64, float: float32}

COMPLEX_TEXT = "complex dtypes are not supported yet; use a pair of real tensors instead"


def element(number: Any, dtype: np.dtype[Any]) -> Any:
    """Convert a Python number to an element of ``dtype`` as torch does.

    For an integer dtype the fraction is dropped, and a negative number wraps around in an unsigned one. Raises
    InvalidOperation if the number does not fit.
    """
    if dtype.kind not in "iu" or isinstance(number, bool):
        return number
    limits = np.iinfo(dtype)
    lowest = -limits.max if dtype.kind == "u" else limits.min
    if not lowest <= number <= limits.max:  # also true for NaN
        name = "int" if dtype == int32.numpy else f"{_BY_NUMPY[dtype].name}_t"
        raise InvalidOperation(f"value cannot be converted to type {name} without overflow")
    return int(number) % (limits.max + 1) if dtype.kind == "u" else int(number)


def parse(value: Any) -> DType:
    """Return the dtype for a name (``"float32"``, ``"torch.float32"``), a NumPy or torch dtype or a Python type."""
    if isinstance(value, DType):
        return value
    if isinstance(value, type) and value in _BY_PYTHON:
        return _BY_PYTHON[value]
    if isinstance(value, str):
        name = value.removeprefix("torch.").removeprefix("telegrad.")
        if name in _BY_NAME:
            return _BY_NAME[name]
        if name.startswith("complex"):
            raise DTypeMismatch(COMPLEX_TEXT)
        raise InvalidArgument(f"unknown dtype {value!r}; known: {', '.join(d.name for d in ALL)}")
    try:
        # A torch.dtype prints as "torch.float32"; NumPy does not accept it.
        text = str(value)
        found = parse(text).numpy if text.startswith("torch.") else np.dtype(value)
    except (TypeError, ValueError):
        raise InvalidArgument(f"dtype must be a dtype or its name, not {type(value).__name__}") from None
    return from_numpy(found)


def from_numpy(dtype: np.dtype[Any]) -> DType:
    """Return the DType of a NumPy dtype. Raises DTypeMismatch if it is not supported."""
    try:
        return _BY_NUMPY[dtype]
    except KeyError:
        if dtype.kind == "c":
            raise DTypeMismatch(COMPLEX_TEXT) from None
        raise DTypeMismatch(
            f"can't convert np.ndarray of type numpy.{dtype.type.__name__}. The only supported types are: "
            f"{', '.join(d.name for d in reversed(ALL))}."
        ) from None


def is_floating(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is float16, bfloat16, float32 or float64."""
    return _BY_NUMPY[dtype].is_floating_point


FLOATING = frozenset(d.numpy for d in ALL if d.is_floating_point)
"""NumPy dtypes that can require grad."""

LOW = frozenset({float16.numpy, bfloat16.numpy})
"""NumPy dtypes for storage only: as in torch, kernels compute in float32 and round the result once."""


def widened(array: Any) -> Any:
    """Return an array of a LOW dtype as float32, and any other array unchanged."""
    return array.astype(float32.numpy) if array.dtype in LOW else array


@cache
def promote_types(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    """The smallest dtype that holds both, like ``torch.promote_types``."""
    left, right = sorted((_BY_NUMPY[a], _BY_NUMPY[b]), key=lambda d: d.rank)
    if left is right:
        return left.numpy
    if {left, right} == {float16, bfloat16}:
        return float32.numpy
    if not right.is_floating_point and (left in WIDE_UNSIGNED or right in WIDE_UNSIGNED):
        raise InvalidOperation(
            "Promotion for uint16, uint32, uint64 types is not supported, attempted to promote "
            f"{_BY_NUMPY[a].kernel_name} and {_BY_NUMPY[b].kernel_name}"
        )
    if left is uint8 and right is int8:
        return int16.numpy
    return right.numpy


def can_cast(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Whether an in-place op with a result of dtype ``source`` may write to ``target``, like ``torch.can_cast``."""
    src, dst = _BY_NUMPY[source], _BY_NUMPY[target]
    if src.is_floating_point and not dst.is_floating_point:
        return False
    return not (src is not bool_ and dst is bool_)


_SCALAR_DTYPES = {bool: bool_.numpy, int: int64.numpy}


def scalar_dtype(value: Any, default_float: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of a tensor made from a Python number."""
    return _SCALAR_DTYPES.get(value.__class__, default_float)


def result_type(values: tuple[Any, ...], default_float: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype for a computation with arrays and Python numbers, like ``torch.result_type``.

    Arrays with dimensions have priority over 0-dim arrays, which have priority over numbers. A value of lower priority
    affects the dtype only if its kind (bool < integer < floating) is higher.
    """
    return _result_type(
        tuple(
            (value.dtype, 0 if value.shape else 1)
            if hasattr(value, "dtype")
            else (scalar_dtype(value, default_float), 2)
            for value in values
        )
    )


@lru_cache(maxsize=4096)
def _result_type(items: tuple[tuple[np.dtype[Any], int], ...]) -> np.dtype[Any]:
    ranks: list[np.dtype[Any] | None] = [None, None, None]
    for dtype, rank in items:
        current = ranks[rank]
        ranks[rank] = dtype if current is None else promote_types(current, dtype)
    result = ranks[0]
    for lower in ranks[1:]:
        result = _combine(result, lower)
    assert result is not None
    return result


def _combine(higher: np.dtype[Any] | None, lower: np.dtype[Any] | None) -> np.dtype[Any] | None:
    if higher is None or lower is None:
        return higher if lower is None else lower
    if is_floating(higher):
        return higher
    if higher == bool_.numpy or is_floating(lower):
        return promote_types(higher, lower)
    return higher
