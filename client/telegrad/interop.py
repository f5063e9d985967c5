"""Tensors of other libraries, in and out: values are copied, memory is shared with nobody."""

from __future__ import annotations

from typing import Any

import numpy as np

from telegrad_engine.errors import InvalidArgument

from .foreign import host_array
from .sessions import current
from .tensor import Tensor, upload


def from_torch(tensor: Any) -> Tensor:
    """A tensor in the current session with the values and the dtype of a torch tensor, outside any graph."""
    if not (hasattr(tensor, "detach") and hasattr(tensor, "numpy")):
        raise InvalidArgument(f"expected a torch.Tensor (got {type(tensor).__name__})")
    return upload(current().recorder, host_array(tensor))


def from_numpy(array: Any) -> Tensor:
    """A tensor with a copy of an array's values, and its dtype."""
    if not isinstance(array, np.ndarray):
        raise InvalidArgument(f"expected np.ndarray (got {type(array).__name__})")
    return upload(current().recorder, array)


def from_dlpack(data: Any) -> Tensor:
    """A tensor with a copy of the values of anything with ``__dlpack__`` whose memory this process can read."""
    if isinstance(data, Tensor):
        return data.detach().clone()
    return upload(current().recorder, np.from_dlpack(data))
