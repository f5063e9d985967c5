"""Functions about dtypes and shapes: ``finfo``, ``iinfo``, promotion, casting, broadcasting, the default dtype."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from telegrad_engine import dtypes
from telegrad_engine.dtypes import DType
from telegrad_engine.errors import InvalidArgument, InvalidValue, ShapeMismatch
from telegrad_engine.shapes import Size
from telegrad_engine.tensor.attributes import dtype_of_type

from .sessions.session import current
from .tensor.handle import Tensor

BITS = 8


class _Limits:
    """Common base of ``finfo`` and ``iinfo``: equal for equal dtypes."""

    def __init__(self, dtype: DType) -> None:
        self._of = dtype
        self.dtype = dtype.name
        self.bits = dtype.itemsize * BITS

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    def __hash__(self) -> int:
        return hash((type(self), self.dtype))


class finfo(_Limits):
    """The limits of a floating dtype: ``min max eps tiny smallest_normal resolution bits``.

    Without a dtype, the default dtype is used. Raises TypeError for any other dtype.

    ``type`` is the dtype.

    Examples:
        >>> tg.finfo(tg.float32).eps
        1.1920928955078125e-07
    """

    def __init__(self, type: Any = None) -> None:
        dtype = _dtype(
            "finfo", "type", 1, dtypes.from_numpy(current().recorder.default_dtype) if type is None else type
        )
        if not dtype.is_floating_point:
            raise InvalidArgument(
                "torch.finfo() requires a floating point input type. Use torch.iinfo to handle 'torch.finfo'"
            )
        super().__init__(dtype)
        limits: Any = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
        self.min, self.max, self.eps = float(limits.min), float(limits.max), float(limits.eps)
        self.tiny = self.smallest_normal = float(limits.smallest_normal)
        self.resolution = 10.0 ** -int(-math.log10(self.eps))  # the decimal digits that are always exact

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
            f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})"
        )


class iinfo(_Limits):
    """The limits of an integer dtype: ``min max bits``. Raises TypeError for any other dtype.

    ``type`` is the dtype.

    Examples:
        >>> tg.iinfo(tg.int8).max
        127
    """

    def __init__(self, type: Any) -> None:
        dtype = _dtype("iinfo", "type", 1, type)
        if dtype.is_floating_point:
            raise InvalidArgument(
                "torch.iinfo() requires an integer input type. Use torch.finfo to handle 'torch.iinfo'"
            )
        if dtype is dtypes.bool_:
            raise InvalidArgument("torch.bool is not supported by torch.iinfo")
        super().__init__(dtype)
        limits = np.iinfo(dtype.numpy)
        self.min, self.max = int(limits.min), int(limits.max)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


def promote_types(type1: DType, type2: DType) -> DType:
    """Return the smallest dtype that holds the values of both. Raises TypeError for anything but a dtype.

    ``type1`` and ``type2`` are dtypes.

    Examples:
        >>> tg.promote_types(tg.int64, tg.float32)
        telegrad.float32
    """
    first, second = _dtype("promote_types", "type1", 1, type1), _dtype("promote_types", "type2", 2, type2)
    return dtypes.from_numpy(dtypes.promote_types(first.numpy, second.numpy))


def can_cast(from_: DType, to: DType) -> bool:
    """Whether a result of dtype ``from_`` may be written to a tensor of dtype ``to``.

    Examples:
        >>> tg.can_cast(tg.float32, tg.int64), tg.can_cast(tg.int64, tg.float32)
        (False, True)
    """
    return dtypes.can_cast(_dtype("can_cast", "from_", 1, from_).numpy, _dtype("can_cast", "to", 2, to).numpy)


def result_type(tensor1: Any, tensor2: Any) -> DType:
    """Return the dtype that an op on two tensors or numbers computes in. Raises TypeError for anything else.

    ``tensor1`` and ``tensor2`` are tensors or numbers.

    Examples:
        >>> tg.result_type(tg.tensor([1]), 2.5)
        telegrad.float32
    """
    values = []
    for value in (tensor1, tensor2):
        if isinstance(value, np.generic):
            value = value.item()
        if not isinstance(value, (Tensor, bool, int, float)):
            given = f"({type(tensor1).__name__}, {type(tensor2).__name__})"
            raise InvalidArgument(
                f"result_type() received an invalid combination of arguments - got {given}, but expected one of:\n"
                " * (Tensor tensor, Tensor other)\n * (Number scalar, Tensor tensor)\n"
                " * (Tensor tensor, Number other)\n * (Number scalar1, Number scalar2)\n"
            )
        values.append(value._data if isinstance(value, Tensor) else value)
    return dtypes.from_numpy(dtypes.result_type(tuple(values), current().recorder.default_dtype))


def _dtype(function: str, argument: str, position: int, value: Any) -> DType:
    if not isinstance(value, DType):
        raise InvalidArgument(
            f"{function}(): argument '{argument}' (position {position}) must be torch.dtype, not {type(value).__name__}"
        )
    return value


def broadcast_shapes(*shapes: Any) -> Size:
    """Return the shape that all these shapes broadcast to; a number is a shape of one dimension.

    Raises RuntimeError for shapes that do not broadcast, and ValueError for negative sizes.

    Examples:
        >>> tg.broadcast_shapes((2, 1), (3,))
        telegrad.Size([2, 3])
    """
    listed = [(shape,) if isinstance(shape, int) else tuple(shape) for shape in shapes]
    result = [1] * max((len(shape) for shape in listed), default=0)
    for index, shape in enumerate(listed):
        _widen(result, index, shape)
    return Size(result)


def _widen(result: list[int], index: int, shape: Sequence[int]) -> None:
    """Broadcast ``result`` in place with the shape of argument number ``index``."""
    for place in range(-1, -1 - len(shape), -1):
        size = shape[place]
        if size < 0:
            raise InvalidValue("Attempting to broadcast a dimension with negative length!")
        if size in (1, result[place]):
            continue
        if result[place] != 1:
            raise ShapeMismatch(
                f"Attempting to broadcast a dimension of length {size} at {place}! Mismatching argument at index "
                f"{index} had {tuple(shape)}; but expected shape should be broadcastable to {result}"
            )
        result[place] = size


# Default dtype -----------------------------------------------------------------------------


def get_default_dtype() -> dtypes.DType:
    """The current session's default floating dtype.

    Examples:
        >>> tg.get_default_dtype()
        telegrad.float32
    """
    return dtypes.from_numpy(current().recorder.default_dtype)


def set_default_dtype(d: Any) -> None:
    """Set the current session's default floating dtype. Raises TypeError for one that is not floating.

    ``d`` is the dtype.

    Examples:
        >>> tg.set_default_dtype(tg.float64)
        >>> tg.tensor([1.0]).dtype
        telegrad.float64
        >>> tg.set_default_dtype(tg.float32)
    """
    dtype = dtypes.parse(d)
    if not dtype.is_floating_point:
        raise InvalidArgument("only floating-point types are supported as the default type")
    recorder = current().recorder
    recorder.emit("set_default_dtype", (), (), {"dtype": dtype})
    recorder.default_dtype = dtype.numpy


def set_default_tensor_type(t: Any) -> None:
    """Set the current session's default dtype to that of a typed constructor, like ``FloatTensor``, or of its name.

    ``t`` is the constructor or its name.

    Examples:
        >>> tg.set_default_tensor_type("telegrad.DoubleTensor")
        >>> tg.zeros(1).dtype
        telegrad.float64
        >>> tg.set_default_tensor_type(tg.FloatTensor)
    """
    set_default_dtype(dtype_of_type(t))
