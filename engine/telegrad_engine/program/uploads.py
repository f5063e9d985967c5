"""Tensors from the arrays of a message, without a copy where possible."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..context import MemoryBudget
from ..dtypes import DType
from ..tensor.conversion import as_array
from ..tensor.eager import Tensor, upload
from .safetensors import LARGE


def stays(array: Any, dtype: DType | None) -> bool:
    """Return whether a tensor of this dtype may use the array itself: it is large, writable and most of its message.

    An array is writable if its message was read into memory of its own, which nothing else uses.
    """
    if type(array) is not np.ndarray or array.nbytes < LARGE or not array.flags.writeable:
        return False
    message = getattr(array.base, "base", None)
    return (
        isinstance(message, memoryview)
        and 2 * array.nbytes >= message.nbytes
        and (dtype is None or dtype.numpy == array.dtype)
    )


def uploaded(array: Any, dtype: DType | None, memory: MemoryBudget) -> Tensor:
    """Return a tensor of an array: of a copy, or of the array itself if :func:`stays`. Raises TooLarge."""
    if not stays(array, dtype):
        array = as_array(array, dtype)
        memory.check_room(array.nbytes)
        return upload(array)
    memory.check_room(array.nbytes)
    result = upload(array)
    if result._data is array:
        memory.count(array.base, lent=True)
    return result


def keep_apart(uploads: Iterable[Any]) -> None:
    """Make arrays that several instructions upload read-only, so that each instruction copies them."""
    seen: set[int] = set()
    for array in uploads:
        if id(array) in seen and isinstance(array, np.ndarray):
            array.flags.writeable = False
        seen.add(id(array))
