"""The dtype that floating tensors get where none is given: a setting of the session, as its random numbers are."""

from __future__ import annotations

from typing import Any

from telegrad_engine import dtypes
from telegrad_engine.errors import InvalidArgument
from telegrad_engine.tensor.attributes import dtype_of_type

from .sessions import current


def get_default_dtype() -> dtypes.DType:
    """The current session's default floating dtype."""
    return dtypes.from_numpy(current().recorder.default_dtype)


def set_default_dtype(d: Any) -> None:
    """Set the current session's default floating dtype. Raises TypeError for one that is not floating."""
    dtype = dtypes.parse(d)
    if not dtype.is_floating_point:
        raise InvalidArgument("only floating-point types are supported as the default type")
    recorder = current().recorder
    recorder.emit("set_default_dtype", (), (), {"dtype": dtype})
    recorder.default_dtype = dtype.numpy


def set_default_tensor_type(t: Any) -> None:
    """Set the current session's default dtype to that of a typed constructor, ``FloatTensor``, or of its name."""
    set_default_dtype(dtype_of_type(t))
