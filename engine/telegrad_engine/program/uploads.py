"""Arrays that came in a message, as tensors: which of them may stay where they are, instead of being copied."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..context import Grantor
from ..dtypes import DType
from ..tensor.conversion import as_array
from ..tensor.eager import Tensor, upload
from .safetensors import LARGE


def stays(array: Any, dtype: DType | None) -> bool:
    """Whether a tensor of this dtype may have the array itself: it can be written to, and is most of its message.

    What reads messages into memory of their own gives arrays that can be written to; nobody else has them then.
    """
    if type(array) is not np.ndarray or array.nbytes < LARGE or not array.flags.writeable:
        return False
    message = getattr(array.base, "base", None)
    return (
        isinstance(message, memoryview)
        and 2 * array.nbytes >= message.nbytes
        and (dtype is None or dtype.numpy == array.dtype)
    )


def uploaded(array: Any, dtype: DType | None, memory: Grantor) -> Tensor:
    """A tensor of an array: a copy, or the array itself where it is all but all of its message. Raises TooLarge."""
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
    """See to it that an array which several instructions upload stays with none of them."""
    seen: set[int] = set()
    for array in uploads:
        if id(array) in seen and isinstance(array, np.ndarray):
            array.flags.writeable = False
        seen.add(id(array))
