"""The default backend: NumPy's functions, and what array namespaces do differently from each other.

Kernels take the backend as ``xp`` and use NumPy's names; everything that would write into an
array goes through a method here, so kernels stay pure and other namespaces can serve them.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class NumpyBackend:
    """NumPy's namespace plus functional forms of indexed writes."""

    name = "cpu"

    def __init__(self) -> None:
        # Plain attributes: a lookup on the hot path must not go through __getattr__.
        for name in np.__all__:
            if not hasattr(type(self), name):
                self.__dict__[name] = getattr(np, name)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the {self.name} backend has no function {name!r}")

    # Functional writes -------------------------------------------------------------------

    def index_set(self, array: Any, index: Any, values: Any) -> Any:
        """A copy of ``array`` with ``array[index] = values``."""
        result = array.copy()
        result[index] = values
        return result

    def index_add(self, array: Any, index: Any, values: Any) -> Any:
        """A copy of ``array`` with ``values`` added at ``index``; repeated indices add up."""
        result = array.copy()
        np.add.at(result, index, values)
        return result

    def softmax(self, array: Any, axis: int) -> Any:
        """Softmax without overflow, with no more temporaries than it takes."""
        shifted = array - array.max(axis=axis, keepdims=True) if array.size else array
        result = np.exp(shifted)
        result /= result.sum(axis=axis, keepdims=True)
        return result


NUMPY = NumpyBackend()
