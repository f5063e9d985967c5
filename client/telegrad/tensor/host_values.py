"""Values as NumPy arrays on the client, and methods that apply a Python function to each element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import ml_dtypes
import numpy as np


def host_array(tensor: Any) -> Any:
    """Return the values of a tensor, ours or another library's, as a NumPy array, with bfloat16 from ml_dtypes."""
    host = tensor.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16" and not hasattr(tensor, "_recorder"):
        # Converted by its bits: the int16 dtype must be the other library's, so it is taken from a tensor.
        bits = host.view(host.new_empty(0).short().dtype)
        return bits.numpy().view(ml_dtypes.bfloat16)
    return host.numpy()


class ElementwisePython:
    """``apply_``, ``map_`` and ``map2_``. All raise TypeError for a tensor that requires grad."""

    def apply_(self, callable: Callable[[Any], Any]) -> Self:
        """Replace each element by ``callable(element)``."""
        return self._map(callable)

    def map_(self, tensor: Any, callable: Callable[[Any, Any], Any]) -> Self:
        """Replace each element by ``callable(element, other)``, with the element of ``tensor`` at the same index."""
        return self._map(callable, tensor)

    def map2_(self, x: Any, y: Any, callable: Callable[[Any, Any, Any], Any]) -> Self:
        """Replace each element by a function of it and of the elements of ``x`` and ``y`` at the same index."""
        return self._map(callable, x, y)

    def _map(self, function: Callable[..., Any], *others: Any) -> Self:
        tensor: Any = self
        if tensor.requires_grad:
            raise TypeError("Can't call apply_() on Variable that requires grad. Use var.detach().apply_() instead.")
        arrays = [np.broadcast_to(t._fetch(), tuple(tensor.shape)) for t in (tensor, *others)]
        rows = zip(*[a.reshape(-1).tolist() for a in arrays], strict=True)
        values = np.array([function(*row) for row in rows], arrays[0].dtype).reshape(arrays[0].shape)
        tensor.copy_(tensor.new_tensor(values))
        return self
