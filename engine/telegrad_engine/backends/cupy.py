"""CuPy: NumPy's functions on an NVIDIA GPU. Its arrays have views and can be written to, as NumPy's."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from .foreign import ForeignBackend
from .numpy import NUMPY


class CupyBackend(ForeignBackend):
    """``cupy``, with ``cupyx.scipy`` for the special functions."""

    name, library = "cuda", "cupy"

    def __init__(self) -> None:
        self.namespace = import_module("cupy")
        self.namespace.cuda.Device().compute_capability  # noqa: B018 - raises where there is no GPU
        self.special = import_module("cupyx.scipy.special")
        self._linalg = import_module("cupyx.scipy.linalg")
        self.array_type = self.namespace.ndarray
        super().__init__()

    def download(self, array: Any) -> Any:
        """A copy of the array in the host's memory."""
        return self.namespace.asnumpy(array)

    def is_out_of_memory(self, error: Exception) -> bool:
        """Whether the GPU's memory, or the host's, is full."""
        return isinstance(error, (MemoryError, self.namespace.cuda.memory.OutOfMemoryError))

    # Writes -----------------------------------------------------------------------------

    def index_set(self, array: Any, index: Any, values: Any) -> Any:
        """A copy of ``array`` with ``array[index] = values``."""
        result = self.namespace.array(array, order="C")
        result[index] = values
        return result

    def index_add(self, array: Any, index: Any, values: Any) -> Any:
        """A copy of ``array`` with ``values`` added at ``index``; repeated indices add up."""
        return self.index_combine(array, index, values, "add")

    def index_combine(self, array: Any, index: Any, values: Any, how: str) -> Any:
        """A copy of ``array`` with ``values`` combined into it at ``index`` by the ufunc named ``how``."""
        if how == "multiply":  # which CuPy's ufunc cannot do in place
            return self.on_host(NUMPY.index_combine)(array, index, values, how)
        result = self.namespace.array(array, order="C")
        getattr(self.namespace, how).at(result, index, values)
        return result

    # Linear algebra -----------------------------------------------------------------------

    def solve_triangular(self, a: Any, b: Any, upper: bool, unit: bool) -> Any:
        """The solutions of ``a @ x = b`` for batches of triangular matrices; a zero pivot gives infinities."""
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = (self.namespace.broadcast_to(x, batch + x.shape[-2:]) for x in (a, b))
        return self._linalg.solve_triangular(a, b, lower=not upper, unit_diagonal=unit)
